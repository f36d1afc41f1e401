"""A figure of a paper: its numbers, how to read it, and its picture; and what several figures draw alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, PercentFormatter, StrMethodFormatter

from trivet.io.csv_files import csv_text

DIVERGING = "RdBu_r"  # told apart by the colour-blind too; centre it at 0
SEQUENTIAL = "cividis"
Columns = dict[str, Any]  # columns: arrays and numbers that broadcast with each other


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure of `trivet simulate`.

    Attributes:
        name: of its files, without ending: "scatter".
        title: what it shows.
        source: the figure of the paper it is like, or the equations it draws.
        reading: how to read it, in short sentences.
        numbers: everything it draws, column -> values of one length; columns of flags hold 0 and 1.
        picture: drawn inside `style()`.
    """

    name: str
    title: str
    source: str
    reading: str
    numbers: Mapping[str, Sequence[Any]]
    picture: Picture


def label_outer(axes: Any, x: str, y: str) -> None:
    """Name what the axes of all panels `(rows, columns)` show, below the last row and left of the first column."""
    for panel in axes[-1]:
        panel.set_xlabel(x)
    for panel in axes[:, 0]:
        panel.set_ylabel(y)


def direct_label(axes: Axes, x: float, y: float, text: str, colour: str, **options: Any) -> None:
    """Write the name of a line beside it, in its colour."""
    axes.annotate(text, (x, y), color=colour, textcoords="offset points", **({"xytext": (4, 0)} | options))


def table(numbers: Mapping[str, Sequence[Any]]) -> bytes:
    """The numbers as csv, with all digits; NaN is an empty cell."""
    columns = [values.tolist() if hasattr(values, "tolist") else list(values) for values in numbers.values()]
    rows = (["" if cell is None or cell != cell else cell for cell in row] for row in zip(*columns, strict=True))
    return csv_text([list(numbers), *rows]).encode()


def columns(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Rows as columns; NaN where a row has nothing."""
    rows = list(rows)
    return {name: [row.get(name, math.nan) for row in rows] for name in names}


def tidy(blocks: Sequence[Columns]) -> dict[str, list[Any]]:
    """The parts one below the other, a column for each name that occurs; a column that a part lacks is empty there."""
    names = list(dict.fromkeys(name for block in blocks for name in block))
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for block in blocks:
        arrays = dict(zip(block, np.broadcast_arrays(*block.values()), strict=True))
        count = next(iter(arrays.values())).size
        for name in names:
            columns[name] += arrays[name].ravel().tolist() if name in arrays else [None] * count
    return columns


def in_percent(*axes: Any) -> None:
    """Shares as percent, without the sign, with as many digits as tell the ticks apart."""
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, symbol=""))


def plain_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """Numbers in full on a logarithmic axis."""
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def legend_above(picture: Any, handles: Sequence[Line2D]) -> None:
    """One legend for all panels."""
    columns = len(handles) if len(handles) <= 4 else 3
    picture.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=2.8)


def name_ends(axes: Axes, ends: Sequence[tuple[str, float]], colours: Sequence[str], *, x: float = 1) -> None:
    """Names of lines beside their right ends, moved apart where these are close."""
    low, high = axes.get_ylim()
    gap = 0.06 * (high - low)
    order = sorted(range(len(ends)), key=lambda index: ends[index][1])
    heights: dict[int, float] = {}
    below = -np.inf
    for index in order:
        below = heights[index] = max(ends[index][1], below + gap)
    above = high
    for index in reversed(order):
        heights[index] = min(heights[index], above)
        above = heights[index] - gap
        direct_label(axes, x, heights[index], ends[index][0], colours[index], xytext=(6, 0), va="center")
