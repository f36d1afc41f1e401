"""Curves over the noise rate, beside the topline of fewer clean items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from trivet.reports.figure import BLUE, GREEN, ORANGE, panels
from trivet_papers.experiment import Cell, Drawing, Results
from trivet_papers.figure import Figure, columns, in_percent
from trivet_papers.lines import SOFT, Dashes, Row, handle

METHODS = {"random": "triplet, random", "fixed": "triplet, fixed", "marginal": "marginal"}
COLOURS = {"random": BLUE, "fixed": ORANGE, "marginal": GREEN}
NAMES = {"recall": "recall@1", "nmi": "NMI"}
READING = (
    "Lines are means over seeds, dots single seeds. Solid: trained with labels of which a share p is wrong. Dashed: "
    "the topline, a share 1 - p of the items with clean labels. Dotted: the network before training. Last panel: the "
    "first over the second, for all methods. Test labels are clean."
)


def cell(data: str, method: str, kind: str = "noise", p: float = 0.0) -> Cell:
    """The factors of a run; without noise there is no topline of its own."""
    return {"data": data, "method": method, "labels": "noise" if p == 0 else kind, "p": p}


def curves_figure(short: str, data: str, measure: str, source: str, rates: Sequence[float], before: Cell) -> Drawing:
    """A panel for each method, and one for the ratios of all."""

    def draw(results: Results) -> Figure:
        picture, axes = panels(2, 2, height=5.2, sharex=True)
        flat = [axes[0, 0], axes[0, 1], axes[1, 0]]
        rows: list[Row] = []
        for panel, (method, name) in zip(flat, METHODS.items(), strict=True):
            method_rows = _rows(results, data, method, measure, rates)
            rows += method_rows
            for key, line in (("noise", "-"), ("topline", "--")):
                _curve(panel, method_rows, key, COLOURS[method], line)
            start = results.numbers(measure, None, **before)
            if start:
                panel.axhline(fmean(start), color=SOFT, linestyle=":", linewidth=1.2)
            panel.set_title(name)
            panel.set_ylabel(f"{NAMES[short]} (%)")
            _curve(axes[1, 1], method_rows, "ratio", COLOURS[method], "-")
        low = min(panel.get_ylim()[0] for panel in flat)
        high = max(panel.get_ylim()[1] for panel in flat)
        for panel in flat:
            panel.set_ylim(low, high)
            in_percent(panel.yaxis)
        axes[1, 1].axhline(1, color=SOFT, linewidth=0.8)
        axes[1, 1].set_title("noise / topline")
        axes[1, 1].set_ylabel(f"ratio of {NAMES[short]}")
        for panel in axes.flat:
            panel.grid(visible=True, axis="y")
        for panel in axes[1]:
            panel.set_xlabel("noise rate p")
        _legend(picture)
        names = ("data", "method", "p", "seed", "noise", "topline", "ratio")
        title = f"{data}: {NAMES[short]} by the noise rate"
        return Figure(short, title, f"Le and Odobez (2018), {source}", READING, columns(rows, names), picture)

    return Drawing(draw)


def clustering_figure(sources: Sequence[tuple[str, str]], rates: Sequence[float]) -> Drawing:
    """A panel of ratios of NMI for each data set."""

    def draw(results: Results) -> Figure:
        picture, axes = panels(1, len(sources), height=3.0, sharey=True)
        rows: list[Row] = []
        for panel, (data, measure) in zip(axes[0], sources, strict=True):
            for method in METHODS:
                method_rows = _rows(results, data, method, measure, rates)
                rows += method_rows
                _curve(panel, method_rows, "ratio", COLOURS[method], "-")
            panel.axhline(1, color=SOFT, linewidth=0.8)
            panel.set_title(data)
            panel.set_xlabel("noise rate p")
            panel.grid(visible=True, axis="y")
        axes[0, 0].set_ylabel("NMI, noise / topline")
        handles = [handle(name, COLOURS[method]) for method, name in METHODS.items()]
        picture.legend(handles=handles, loc="outside upper center", ncols=3)
        names = ("data", "method", "p", "seed", "noise", "topline", "ratio")
        return Figure(
            "clustering",
            "What noise leaves of NMI, on three data sets",
            "Le and Odobez (2018), figure 4",
            "NMI under noise over that of the topline, a share 1 - p of the items with clean labels. Lines are means "
            "over seeds, dots single seeds.",
            columns(rows, names),
            picture,
        )

    return Drawing(draw)


def human_figure(data: str, measure: str, human: Mapping[str, float], before: Cell) -> Drawing:
    """Labels of people and the topline by the rate; beside them drawn noise as frequent as the worst of these."""

    def draw(results: Results) -> Figure:
        picture, axes = panels(1, 3, height=3.2, sharey=True)
        rows: list[Row] = []
        for panel, (method, name) in zip(axes[0], METHODS.items(), strict=True):
            method_rows: list[Row] = []
            for kind, p in (("clean", 0.0), *human.items()):
                factors = cell(data, method, "noise" if kind == "clean" else kind, p)
                for seed in results.seeds:
                    of = results.of(seed)
                    drawn = of(measure, **cell(data, method, "noise", p)) if p == max(human.values()) else math.nan
                    values = {"noise": of(measure, **factors), "drawn": drawn}
                    values["topline"] = of(measure, **cell(data, method, "topline", p))
                    method_rows.append({"data": data, "method": method, "labels": kind, "p": p, "seed": seed, **values})
            rows += method_rows
            colour = COLOURS[method]
            _curve(panel, method_rows, "noise", colour, "-")
            _curve(panel, method_rows, "topline", colour, "--")
            for row in method_rows:
                panel.plot([row["p"]], [row["drawn"]], color=colour, marker="x", linestyle="")
            start = results.numbers(measure, None, **before)
            if start:
                panel.axhline(fmean(start), color=SOFT, linestyle=":", linewidth=1.2)
            panel.set_title(name)
            panel.set_xlabel("share of wrong labels")
            panel.grid(visible=True, axis="y")
            in_percent(panel.yaxis)
        axes[0, 0].set_ylabel("recall@1 (%)")
        _legend(picture, handle("drawn noise", SOFT, "", "x"))
        names = ("data", "method", "labels", "p", "seed", "noise", "topline", "drawn")
        return Figure(
            "human",
            f"{data}: labels of people",
            "an addition to Le and Odobez (2018), whose noise is drawn",
            "Solid: the labels that people gave (aggregate of three, one of them, the worst). Dashed: the topline, as "
            "many clean items as these labels have right ones. Crosses: uniform noise as frequent as the worst. "
            "Dotted: before training. Test labels are clean.",
            columns(rows, names),
            picture,
        )

    return Drawing(draw)


def _rows(results: Results, data: str, method: str, measure: str, rates: Sequence[float]) -> list[Row]:
    rows: list[Row] = []
    for p in rates:
        for seed in results.seeds:
            of = results.of(seed)
            noise, topline = (of(measure, **cell(data, method, kind, p)) for kind in ("noise", "topline"))
            values = {"noise": noise, "topline": topline, "ratio": noise / topline}
            rows.append({"data": data, "method": method, "p": p, "seed": seed, **values})
    return rows


def _curve(axes: Axes, rows: Sequence[Row], key: str, colour: str, line: Dashes) -> None:
    points = [(float(row["p"]), float(row[key])) for row in rows]
    points = [(p, value) for p, value in points if not math.isnan(value)]
    at = sorted({p for p, _ in points})
    axes.plot(at, [fmean(value for p, value in points if p == x) for x in at], color=colour, linestyle=line)
    dots = [p for p, _ in points], [value for _, value in points]
    axes.plot(*dots, color=colour, marker="o", markersize=2.5, linestyle="", alpha=0.4, markeredgewidth=0)


def _legend(picture: Any, *more: Line2D) -> None:
    names = (("labels with noise", "-"), ("topline: 1 − p clean items", "--"), ("before training", ":"))
    handles = [*(handle(name, SOFT, dashes) for name, dashes in names), *more]
    picture.legend(handles=handles, loc="outside upper center", ncols=len(handles))
