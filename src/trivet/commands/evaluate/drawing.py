"""Plots of an evaluation drawn by matplotlib, as figures.js draws them on the page."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from trivet.commands.evaluate.plots import PlotAxis, PlotFigure, PlotTrace, style
from trivet.reports.figure import panels
from trivet.reports.figure import style as drawn_in_style

MARKERS = {"circle": "o", "triangle-up": "^", "square": "s", "diamond": "D", "cross": "P", "x": "X", "star": "*",
           "triangle-down": "v"}  # fmt: skip
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
GREY = "#6b7580"
ROW = 0.3  # inches of a row of names
PIXELS = 100  # of an inch


def draw_figures(plots: Sequence[tuple[str, PlotFigure]]) -> Figure:
    """Plots below one another, each under its title."""
    heights = [max(1.6, 0.9 + ROW * len(plot.rows)) if plot.rows else 2.8 for _, plot in plots]
    with drawn_in_style():
        picture, axes = panels(len(plots), 1, height=sum(heights), gridspec_kw={"height_ratios": heights})
        for (title, plot), axis in zip(plots, axes[:, 0], strict=True):
            _draw(axis, plot)
            axis.set_title(_plain(title), loc="left")
    return picture


def _draw(axis: Any, plot: PlotFigure) -> None:
    for trace in plot.traces:
        _draw_trace(axis, trace)
    if plot.at is not None:
        axis.axvline(plot.at, color=GREY, linestyle="--", linewidth=1)
    if plot.rows:
        axis.set_yticks(range(len(plot.rows)), [_plain(row) for row in plot.rows])
        axis.set_ylim(len(plot.rows) - 0.4, -0.6)
    _scale(axis, plot.x, "x")
    _scale(axis, plot.y, "y")
    names = [trace.name for trace in plot.traces if trace.name]
    if len(names) > 1:
        axis.legend(loc="best")


def _draw_trace(axis: Any, trace: PlotTrace) -> None:
    x, y = ([math.nan if value is None else value for value in values] for values in (trace.x, trace.y))
    colour, symbol, dash = style(trace.of)
    name = _plain(trace.name) or None
    if trace.kind == "band":
        axis.fill(x, y, color=colour, alpha=0.15, linewidth=0)
    elif trace.kind == "steps":
        axis.step(x, y, where="post", color=colour, linestyle=DASHES[dash], label=name)
    elif trace.kind in ("chance", "upright"):
        axis.plot(x, y, color=GREY, linestyle="--" if trace.kind == "chance" else ":", linewidth=1.2)
    elif trace.kind in ("queries", "classes"):
        thick = trace.kind == "queries"
        axis.plot(x, y, color=colour, linewidth=6 if thick else 1.3, alpha=0.35 if thick else 1)
    else:
        line = DASHES[dash] if trace.kind == "curve" else "none"
        axis.plot(x, y, color=colour, marker=MARKERS[symbol], markersize=5, linestyle=line, label=name)


def _scale(axis: Any, scale: PlotAxis, of: str) -> None:
    if scale.title:
        axis.set(**{f"{of}label": _plain(scale.title)})
    if scale.range is not None:
        axis.set(**{f"{of}lim": tuple(scale.range)})
    if scale.ticks is not None:
        axis.set(**{f"{of}scale": "log"})
        axis.set(**{f"{of}ticks": list(scale.ticks), f"{of}ticklabels": [str(tick) for tick in scale.ticks]})
        getattr(axis, f"{of}axis").minorticks_off()
    if scale.zero:
        axis.axvline(0, color=GREY, linewidth=1)


def _plain(text: str) -> str:
    """The text of a page, without its markup, and with no sign that begins a formula."""
    return html.unescape(text).replace("$", r"\$")
