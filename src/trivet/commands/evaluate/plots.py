"""The plots on the page of `trivet evaluate`, as plotly traces and layouts with escaped texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trivet.commands.evaluate.record import ClassShares, DifferenceRecord, Shares
from trivet.reports.measures import OVERS, between, by_chance, finite, interval, named, together
from trivet.reports.page import percent, points

# Those of plots.js: a colour, a symbol and a dash tell an embedding apart, each without the others.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#B8A800")
_SYMBOLS = ("circle", "triangle-up", "square", "diamond", "cross", "x", "star", "triangle-down")
_SIGNS = ("●", "▲", "■", "◆", "✚", "✖", "★", "▼")
_DASHES = ("solid", "dash", "dot", "dashdot")
_DARK, _SOFT = "#1c2430", "#5b6675"
_ROW = 30  # pixels


def _symbol(e: int) -> int:
    # The ninth embedding has the colour of the first and another symbol.
    return (e + e // len(_COLOURS)) % len(_SYMBOLS)


def key(e: int) -> tuple[str, str]:
    """The colour and the sign of an embedding in words about the plots."""
    return _style(e)[0], _SIGNS[_symbol(e)]


def _style(e: int) -> tuple[str, str, str]:
    return _COLOURS[e % len(_COLOURS)], _SYMBOLS[_symbol(e)], _DASHES[e % len(_DASHES)]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _plain(text: object, length: int = 28) -> str:
    """Shortened, and with nothing that plotly would read as markup."""
    shortened = str(text)
    shortened = shortened if len(shortened) <= length else shortened[: length - 1] + "…"
    return shortened.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _drawn(measure: str) -> str:
    return _plain(named(measure))


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "gridcolor": "#e8ebee",
        "zeroline": False,
        "linecolor": "#8a96a5",
        "automargin": True,
    } | more


def _figure(traces: Sequence[Mapping[str, Any]], **layout: Any) -> dict[str, Any]:
    return {
        "traces": traces,
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "#fff",
            "margin": {"l": 52, "r": 14, "t": 12, "b": 46},
            "modebar": {"bgcolor": "rgba(255,255,255,0.85)", "color": _SOFT, "activecolor": "#0072B2"},
            "showlegend": False,  # the key above the plots names the embeddings once
            "hovermode": "closest",
        }
        | layout,
    }


def _cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _hover(label: str, values: Shares, name: str) -> str:
    lines = [f"{_plain(label, 60)}<br>{_drawn(name)}: {percent(values.value(name))} %"]
    lines += [f"95 %, {over}: {between(ends)}" for over in OVERS if (ends := values.interval(name, over)) is not None]
    chance = values.chance(name)
    return "<br>".join([*lines, *([] if chance is None else [f"chance: {by_chance(name, chance)}"])])


def recall_curve(
    shares: Mapping[int, Shares], labels: Sequence[str], retrieval: Sequence[str]
) -> dict[str, Any] | None:
    names = sorted((name for name in retrieval if re.fullmatch(r"recall@\d+", name)), key=lambda name: int(name[7:]))
    if len(names) < 2:
        return None
    ks = {name: int(name[7:]) for name in names}
    traces: list[dict[str, Any]] = []
    for e, values in shares.items():
        colour, symbol, dash = _style(e)
        banded = [(ks[name], widest[1]) for name in names if (widest := values.widest(name)) is not None]
        edge = [(k, high) for k, (_, high) in banded] + [(k, low) for k, (low, _) in reversed(banded)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [k for k, _ in edge],
                "y": [_cent(share) for _, share in edge],
                "fill": "toself",
                "fillcolor": _faint(colour),
                "line": {"width": 0},
                "hoverinfo": "skip",
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": _plain(labels[e]),
                "x": [ks[name] for name in names],
                "y": [_cent(values.value(name)) for name in names],
                "line": {"color": colour, "dash": dash, "width": 2},
                "marker": {"symbol": symbol, "size": 8},
                "hoverinfo": "text",
                "hovertext": [_hover(labels[e], values, name) for name in names],
            }
        )
    chance = [(ks[name], share) for name in names if (share := next(iter(shares.values())).chance(name)) is not None]
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "x": [k for k, _ in chance],
            "y": [_cent(share) for _, share in chance],
            "line": {"color": _SOFT, "dash": "dash", "width": 1.5},
            "hoverinfo": "text",
            "hovertext": [f"chance, K = {k}: {percent(share)} %" for k, share in chance],
        }
    )
    ticks = list(ks.values())[:: math.ceil(len(ks) / 8)]
    return _figure(
        traces,
        xaxis=_axis("K, nearest items", type="log", tickvals=ticks, ticktext=[str(k) for k in ticks]),
        yaxis=_axis("recall@K, per cent", range=[-2, 103]),
    )


def rows_height(rows: int, marks: int) -> int:
    return 76 + max(_ROW, 14 * marks) * rows


def _row_axis(names: Sequence[str]) -> dict[str, Any]:
    """One row for each name, the first on top."""
    count = len(names)
    return _axis("", tickvals=list(range(count)), ticktext=list(names), range=[count - 0.5, -0.5], showgrid=False)


def _stripes(count: int) -> list[dict[str, Any]]:
    stripe = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "fillcolor": "#f5f6f8", "line": {"width": 0}}
    return [stripe | {"y0": row - 0.5, "y1": row + 0.5, "layer": "below"} for row in range(1, count, 2)]


def _offset(mark: int, marks: int) -> float:
    """Offset of a mark from the middle of its row, downwards."""
    return 0.72 * ((mark + 0.5) / marks - 0.5)


def _segments(ends: Sequence[tuple[float, Sequence[float] | None]], line: Mapping[str, Any]) -> dict[str, Any]:
    """A level line for each interval, at its height."""
    drawn = [(y, pair) for y, pair in ends if pair is not None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for _, (low, high) in drawn for x in (100 * low, 100 * high, None)],
        "y": [value for y, _ in drawn for value in (y, y, None)],
        "line": line,
        "hoverinfo": "skip",
    }


def _marks(e: int, label: str, positions: Sequence[tuple[float | None, float]], hover: Sequence[str]) -> dict[str, Any]:
    colour, symbol, _ = _style(e)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": _plain(label),
        "x": [x for x, _ in positions],
        "y": [y for _, y in positions],
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"color": "#fff", "width": 0.8}},
        "hoverinfo": "text",
        "hovertext": hover,
    }


def dots(shares: Mapping[int, Shares], labels: Sequence[str], names: Sequence[str]) -> dict[str, Any] | None:
    if not names:
        return None
    first = next(iter(shares.values()))
    upright = [(100 * share, row) for row, name in enumerate(names) if (share := first.chance(name)) is not None]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [value for x, _ in upright for value in (x, x, None)],
            "y": [value for _, row in upright for value in (row - 0.42, row + 0.42, None)],
            "line": {"color": _DARK, "dash": "dot", "width": 2},
            "hoverinfo": "skip",
        }
    ]
    for mark, (e, values) in enumerate(shares.items()):
        height = [row + _offset(mark, len(shares)) for row in range(len(names))]
        for over, line in _lines(e):
            ends = [values.interval(name, over) for name in names]
            traces.append(_segments(list(zip(height, ends, strict=True)), line))
        positions = [(_cent(values.value(name)), y) for name, y in zip(names, height, strict=True)]
        traces.append(_marks(e, labels[e], positions, [_hover(labels[e], values, name) for name in names]))
    least = min(0.0, *(x for trace in traces for x in trace["x"] if x is not None))
    return _figure(
        traces,
        xaxis=_axis("per cent", range=[least - 2, 102]),
        yaxis=_row_axis([_drawn(name) for name in names]),
        shapes=_stripes(len(names)),
    )


def _lines(e: int) -> list[tuple[Literal["queries", "classes"], dict[str, Any]]]:
    colour = _style(e)[0]
    return [("queries", {"color": _faint(colour).replace("0.16", "0.4"), "width": 7}),
            ("classes", {"color": colour, "width": 1.6})]  # fmt: skip


def forest(differences: Mapping[str, Sequence[tuple[int, DifferenceRecord]]], labels: Sequence[str]) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    others = list(dict.fromkeys(of for rows in differences.values() for of, _ in rows))
    for mark, e in enumerate(others):
        rows_of = [
            (name, row + _offset(mark, len(others)), difference)
            for row, (name, rows) in enumerate(differences.items())
            for of, difference in rows
            if of == e
        ]
        for over, line in _lines(e):
            traces.append(_segments([(y, interval(difference.over(over))) for _, y, difference in rows_of], line))
        hover = []
        for name, _, difference in rows_of:
            lines = [f"{_plain(labels[e], 60)} less {_plain(labels[0], 60)}"]
            lines += [f"{_drawn(name)}: {points(finite(difference.difference))}"]
            lines += [f"95 %, {over}: {between(difference.over(over), points)}" for over in OVERS]
            hover.append("<br>".join(lines))
        traces.append(
            _marks(e, labels[e], [(_cent(finite(difference.difference)), y) for _, y, difference in rows_of], hover)
        )
    drawn = [0.0, *(x for trace in traces for x in trace["x"] if x is not None)]
    room = 0.05 * (max(drawn) - min(drawn)) + 0.1
    zero = {"zeroline": True, "zerolinecolor": _DARK, "zerolinewidth": 2}
    return _figure(
        traces,
        xaxis=_axis("difference, percentage points", range=[min(drawn) - room, max(drawn) + room], **zero),
        yaxis=_row_axis([_drawn(name) for name in differences]),
        shapes=_stripes(len(differences)),
    )


def class_dots(classes: ClassShares, labels: Sequence[str]) -> dict[str, Any]:
    """A row of marks for each class, the worst on top."""
    order = together([name for name, _, _ in rows] for rows in classes.rows.values())
    row_of = {name: row for row, name in enumerate(order)}
    traces = []
    for mark, (e, rows) in enumerate(classes.rows.items()):
        shift = _offset(mark, len(classes.rows)) if len(classes.rows) > 1 else 0.0
        positions = [(100 * share, row_of[name] + shift) for name, _, share in rows]
        hover = [
            f"{_plain(labels[e], 60)}<br>{_plain(name, 80)}, {queries} queries<br>"
            f"{_drawn(classes.measure)}: {percent(share)} %"
            for name, queries, share in rows
        ]
        traces.append(_marks(e, labels[e], positions, hover))
    shapes = _stripes(len(order))
    if classes.chance is not None:
        line = {"color": _SOFT, "dash": "dash", "width": 1.5}
        x = 100 * classes.chance
        shapes.append({"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line})
    return _figure(
        traces,
        xaxis=_axis(f"{_drawn(classes.measure)}, per cent", range=[-2, 102]),
        # Names of one data set often begin alike.
        yaxis=_row_axis([_plain(name if len(name) <= 22 else f"{name[:11]}…{name[-10:]}") for name in order]),
        shapes=shapes,
    )


def class_histogram(classes: ClassShares, labels: Sequence[str]) -> dict[str, Any]:
    """A histogram of the values of the classes, a line for each embedding."""
    width = 5
    bins = 100 // width
    traces = []
    for e, rows in classes.rows.items():
        counts = [0] * bins
        for _, _, share in rows:
            counts[min(int(share * bins), bins - 1)] += 1
        colour, _, dash = _style(e)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": _plain(labels[e]),
                "x": [width * k for k in range(bins + 1)],
                "y": [*counts, counts[-1]],
                "line": {"color": colour, "dash": dash, "width": 2, "shape": "hv"},
                "fill": "tozeroy",
                "fillcolor": _faint(colour),
                "hoverinfo": "text",
                "hovertext": [
                    f"{_plain(labels[e], 60)}<br>{width * k} to {width * (k + 1)} %: {count} classes"
                    for k, count in enumerate(counts)
                ],
            }
        )
    return _figure(
        traces,
        xaxis=_axis(f"{_drawn(classes.measure)}, per cent", range=[0, 100]),
        yaxis=_axis("classes", rangemode="tozero"),
    )
