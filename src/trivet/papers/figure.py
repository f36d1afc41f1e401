"""A figure of a simulation: its numbers, how to read it, and its picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

# Okabe and Ito, "Color Universal Design".
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442")
BLUE, ORANGE, GREEN, RED, SKY, PINK, BLACK, YELLOW = COLOURS
DIVERGING = "RdBu_r"  # told apart by the colour-blind too; centre it at 0
SEQUENTIAL = "cividis"
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
        reading: how to read it, in two sentences.
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


def direct_label(axes: Axes, x: float, y: float, text: str, colour: str, **options: Any) -> None:
    """Write the name of a line beside it, in its colour."""
    axes.annotate(text, (x, y), color=colour, textcoords="offset points", **({"xytext": (4, 0)} | options))


def encode(picture: Picture, kind: Literal["png", "svg"]) -> bytes:
    """The picture as a file: the same picture, the same bytes."""
    held = io.BytesIO()
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    with style():
        picture.savefig(held, format=kind, dpi=160, metadata=metadata)
    return held.getvalue()


def table(numbers: Mapping[str, Sequence[Any]]) -> bytes:
    """The numbers as csv, with all digits; NaN is an empty cell."""
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(numbers)
    columns = [values.tolist() if hasattr(values, "tolist") else list(values) for values in numbers.values()]
    for row in zip(*columns, strict=True):
        writer.writerow("" if cell is None or cell != cell else cell for cell in row)
    return held.getvalue().encode()
