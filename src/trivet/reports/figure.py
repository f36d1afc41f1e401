"""A figure of a paper: its numbers, how to read it, and its picture."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, PercentFormatter, StrMethodFormatter

from trivet.io.csv_files import csv_text

# Okabe and Ito, "Color Universal Design".
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442")
BLUE, ORANGE, GREEN, RED, SKY, PINK, BLACK, YELLOW = COLOURS
DIVERGING = "RdBu_r"  # told apart by the colour-blind too; centre it at 0
SEQUENTIAL = "cividis"
Columns = dict[str, Any]  # columns: arrays and numbers that broadcast with each other
WIDTH = 7.0  # inches of a figure over the whole width; text in it is 9 points

_STYLE: Any = {  # matplotlib spells out every key in its type
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=list(COLOURS[:7])),
    "axes.grid": False,
    "grid.color": "#dfe3e8",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "image.origin": "lower",
    "svg.hashsalt": "trivet",
}


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


@contextmanager
def style() -> Iterator[None]:
    """Fonts, colours and lines of all figures."""
    with matplotlib.rc_context(_STYLE):
        yield


def panels(rows: int, columns: int, *, height: float, width: float = WIDTH, **options: Any) -> tuple[Picture, Any]:
    """An empty picture of `width` x `height` inches and its axes `(rows, columns)`, laid out without overlaps."""
    picture = Picture(figsize=(width, height), layout="constrained")
    axes: Any = picture.subplots(rows, columns, squeeze=False, **options)
    return picture, axes


def label_outer(axes: Any, x: str, y: str) -> None:
    """Name what the axes of all panels `(rows, columns)` show, below the last row and left of the first column."""
    for panel in axes[-1]:
        panel.set_xlabel(x)
    for panel in axes[:, 0]:
        panel.set_ylabel(y)


def direct_label(axes: Axes, x: float, y: float, text: str, colour: str, **options: Any) -> None:
    """Write the name of a line beside it, in its colour."""
    axes.annotate(text, (x, y), color=colour, textcoords="offset points", **({"xytext": (4, 0)} | options))


def encode(picture: Picture, kind: Literal["png", "svg"]) -> bytes:
    """The picture as a file: the same picture, the same bytes."""
    buffer = io.BytesIO()
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    with style():
        picture.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


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
    """Shares as percent, without the sign."""
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=""))


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
