"""Plots of the page of `trivet evaluate`, with escaped texts; figures.js draws them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from trivet.commands.evaluate.record import ClassShares, DifferenceRecord, Shares
from trivet.reports.measures import OVERS, between, by_chance, finite, interval, named, together
from trivet.reports.page import percent, points
from trivet.runtime.record import Number, Record

# Those of plots.js: a colour, a symbol and a dash tell an embedding apart, each without the others.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#B8A800")
_SYMBOLS = ("circle", "triangle-up", "square", "diamond", "cross", "x", "star", "triangle-down")
_SIGNS = ("●", "▲", "■", "◆", "✚", "✖", "★", "▼")
_DASHES = ("solid", "dash", "dot", "dashdot")
_ROW = 30  # pixels


class PlotTrace(Record):
    """A line or marks of the embedding of a number; a None in `x` and `y` parts the line."""

    kind: Literal["band", "curve", "marks", "queries", "classes", "steps", "chance", "upright"]
    x: Sequence[Number | None]
    y: Sequence[Number | None]
    of: int = 0
    name: str = ""
    hover: Sequence[str] = ()


class PlotAxis(Record):
    """An axis; one with ticks is logarithmic, and `zero` draws a line there."""

    title: str = ""
    range: Sequence[Number] | None = None
    ticks: Sequence[int] | None = None
    zero: bool = False


class PlotFigure(Record):
    """A plot: in rows of these names, the first on top, or by the axis `y`; `at` is the place of an upright line."""

    traces: list[PlotTrace]
    x: PlotAxis
    y: PlotAxis = PlotAxis()
    rows: Sequence[str] = ()
    at: Number | None = None


def style(e: int) -> tuple[str, str, str]:
    """The colour, symbol and dash of an embedding."""
    return _COLOURS[e % len(_COLOURS)], _SYMBOLS[_symbol(e)], _DASHES[e % len(_DASHES)]


def key(e: int) -> tuple[str, str]:
    """The colour and the sign of an embedding in words about the plots."""
    return style(e)[0], _SIGNS[_symbol(e)]


def _symbol(e: int) -> int:
    # The ninth embedding has the colour of the first and another symbol.
    return (e + e // len(_COLOURS)) % len(_SYMBOLS)


def _plain(text: object, length: int = 28) -> str:
    """Shortened, and with nothing that plotly would read as markup."""
    shortened = str(text)
    shortened = shortened if len(shortened) <= length else shortened[: length - 1] + "…"
    return shortened.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _drawn(measure: str) -> str:
    return _plain(named(measure))


def _cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _hover(shares: Shares, name: str) -> str:
    lines = [f"{_plain(shares.label, 60)}<br>{_drawn(name)}: {percent(shares.value(name))} %"]
    lines += [
        f"95 %, {shares.sampled[over]}: {between(ends)}"
        for over in OVERS
        if (ends := shares.interval(name, over)) is not None
    ]
    chance = shares.chance(name)
    return "<br>".join([*lines, *([] if chance is None else [f"chance: {by_chance(name, chance)}"])])


def recall_curve(several: Sequence[Shares], retrieval: Sequence[str]) -> PlotFigure | None:
    """Recall at K of each embedding with a band for its interval; None for a single K."""
    names = sorted((name for name in retrieval if re.fullmatch(r"recall@\d+", name)), key=lambda name: int(name[7:]))
    if len(names) < 2:
        return None
    ks = {name: int(name[7:]) for name in names}
    traces = []
    for shares in several:
        of, widest = shares.number, {ks[name]: ends[1] for name in names if (ends := shares.widest(name)) is not None}
        edge = [(k, high) for k, (_, high) in widest.items()] + [(k, low) for k, (low, _) in reversed(widest.items())]
        traces += [
            PlotTrace(kind="band", of=of, x=[k for k, _ in edge], y=[_cent(share) for _, share in edge]),
            PlotTrace(
                kind="curve",
                of=of,
                name=_plain(shares.label),
                x=list(ks.values()),
                y=[_cent(shares.value(name)) for name in names],
                hover=[_hover(shares, name) for name in names],
            ),
        ]
    chance = [(ks[name], share) for name in names if (share := several[0].chance(name)) is not None]
    hover = [f"chance, K = {k}: {percent(share)} %" for k, share in chance]
    traces.append(
        PlotTrace(kind="chance", x=[k for k, _ in chance], y=[_cent(share) for _, share in chance], hover=hover)
    )
    x = PlotAxis(title="K, nearest items", ticks=list(ks.values())[:: math.ceil(len(ks) / 8)])
    return PlotFigure(traces=traces, x=x, y=PlotAxis(title="recall@K, per cent", range=[-2, 103]))


def rows_height(rows: int, marks: int) -> int:
    """Pixels of a plot with a row for each name."""
    return 98 + max(_ROW, 14 * marks) * rows


def _offset(mark: int, marks: int) -> float:
    """Offset of a mark from the middle of its row, downwards."""
    return 0.72 * ((mark + 0.5) / marks - 0.5)


def _segments(ends: Iterable[tuple[float, Sequence[float] | None]], shares: Shares, over: str) -> PlotTrace:
    """A level line for each interval, at its height."""
    drawn = [(y, pair) for y, pair in ends if pair is not None]
    x = [x for _, (low, high) in drawn for x in (100 * low, 100 * high, None)]
    kind: Literal["queries", "classes"] = "queries" if over == "queries" else "classes"
    return PlotTrace(kind=kind, of=shares.number, x=x, y=[value for y, _ in drawn for value in (y, y, None)])


def _marks(shares: Shares, positions: Sequence[tuple[float | None, float]], hover: list[str]) -> PlotTrace:
    x, y = ([position[i] for position in positions] for i in (0, 1))
    return PlotTrace(kind="marks", of=shares.number, name=_plain(shares.label), x=x, y=y, hover=hover)


def dots(several: Sequence[Shares], names: Sequence[str]) -> PlotFigure | None:
    """A row for each measure with a mark for each embedding and a dotted line at chance; None without any."""
    if not names:
        return None
    upright = [(100 * share, row) for row, name in enumerate(names) if (share := several[0].chance(name)) is not None]
    traces = [
        PlotTrace(
            kind="upright",
            x=[value for x, _ in upright for value in (x, x, None)],
            y=[value for _, row in upright for value in (row - 0.42, row + 0.42, None)],
        )
    ]
    for mark, shares in enumerate(several):
        height = [row + _offset(mark, len(several)) for row in range(len(names))]
        for over in OVERS:
            ends = [shares.interval(name, over) for name in names]
            traces.append(_segments(zip(height, ends, strict=True), shares, over))
        positions = [(_cent(shares.value(name)), y) for name, y in zip(names, height, strict=True)]
        traces.append(_marks(shares, positions, [_hover(shares, name) for name in names]))
    least = min(0.0, *(x for trace in traces for x in trace.x if x is not None))
    return PlotFigure(
        traces=traces, x=PlotAxis(title="per cent", range=[least - 2, 102]), rows=list(map(_drawn, names))
    )


def forest(differences: Mapping[str, Sequence[tuple[Shares, DifferenceRecord]]], first: str) -> PlotFigure:
    """A row for each measure with a mark for the difference of each embedding from the first, of this label."""
    traces = []
    others = list(dict.fromkeys(shares for rows in differences.values() for shares, _ in rows))
    for mark, shares in enumerate(others):
        rows_of = [
            (name, row + _offset(mark, len(others)), difference)
            for row, (name, rows) in enumerate(differences.items())
            for of, difference in rows
            if of is shares
        ]
        for over in OVERS:
            traces.append(_segments(((y, interval(row.over(over))) for _, y, row in rows_of), shares, over))
        hover = []
        for name, _, difference in rows_of:
            lines = [f"{_plain(shares.label, 60)} less {_plain(first, 60)}"]
            lines += [f"{_drawn(name)}: {points(finite(difference.difference))}"]
            lines += [f"95 %, {shares.sampled[over]}: {between(difference.over(over), points)}" for over in OVERS]
            hover.append("<br>".join(lines))
        traces.append(_marks(shares, [(_cent(finite(row.difference)), y) for _, y, row in rows_of], hover))
    drawn = [0.0, *(x for trace in traces for x in trace.x if x is not None)]
    room = 0.05 * (max(drawn) - min(drawn)) + 0.1
    x = PlotAxis(title="difference, percentage points", range=[min(drawn) - room, max(drawn) + room], zero=True)
    return PlotFigure(traces=traces, x=x, rows=list(map(_drawn, differences)))


def class_dots(classes: ClassShares) -> PlotFigure:
    """A row of marks for each class, the worst on top."""
    order = together([name for name, _, _ in rows] for _, rows in classes.rows)
    row_of = {name: row for row, name in enumerate(order)}
    traces = []
    for mark, (shares, rows) in enumerate(classes.rows):
        shift = _offset(mark, len(classes.rows)) if len(classes.rows) > 1 else 0.0
        hover = [
            f"{_plain(shares.label, 60)}<br>{_plain(name, 80)}, {queries} queries<br>"
            f"{_drawn(classes.measure)}: {percent(share)} %"
            for name, queries, share in rows
        ]
        traces.append(_marks(shares, [(100 * share, row_of[name] + shift) for name, _, share in rows], hover))
    # Names of one data set often begin alike.
    names = [_plain(name if len(name) <= 22 else f"{name[:11]}…{name[-10:]}") for name in order]
    x = PlotAxis(title=f"{_drawn(classes.measure)}, per cent", range=[-2, 102])
    return PlotFigure(traces=traces, x=x, rows=names, at=_cent(classes.chance))


def class_histogram(classes: ClassShares) -> PlotFigure:
    """A histogram of the values of the classes, a line for each embedding."""
    width = 5
    bins = 100 // width
    traces = []
    for shares, rows in classes.rows:
        counts = [0] * bins
        for _, _, share in rows:
            counts[min(int(share * bins), bins - 1)] += 1
        hover = [
            f"{_plain(shares.label, 60)}<br>{width * k} to {width * (k + 1)} %: {count} classes"
            for k, count in enumerate(counts)
        ]
        x, y = [width * k for k in range(bins + 1)], [*counts, counts[-1]]
        traces.append(PlotTrace(kind="steps", of=shares.number, name=_plain(shares.label), x=x, y=y, hover=hover))
    x_axis = PlotAxis(title=f"{_drawn(classes.measure)}, per cent", range=[0, 100])
    return PlotFigure(traces=traces, x=x_axis, y=PlotAxis(title="classes"))
