"""Pictures drawn with matplotlib: one set of colours, fonts and lines, and files of them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure as Picture

# Okabe and Ito, "Color Universal Design".
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442")
BLUE, ORANGE, GREEN, RED, SKY, PINK, BLACK, YELLOW = COLOURS
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


@contextmanager
def style() -> Iterator[None]:
    """Fonts, colours and lines of all figures."""
    with matplotlib.rc_context(_STYLE):
        yield


class NotebookPicture(Picture):
    """Picture that a notebook shows: by itself matplotlib shows those of pyplot alone."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return encode(self, "png"), {"width": round(100 * self.get_figwidth())}  # pixels, of sharper ones


def panels(
    rows: int, columns: int, *, height: float, width: float = WIDTH, **options: Any
) -> tuple[NotebookPicture, Any]:
    """An empty picture of `width` x `height` inches and its axes `(rows, columns)`, laid out without overlaps."""
    picture = NotebookPicture(figsize=(width, height), layout="constrained")
    axes: Any = picture.subplots(rows, columns, squeeze=False, **options)
    return picture, axes


def encode(picture: Picture, kind: Literal["png", "svg"]) -> bytes:
    """The picture as a file: the same picture, the same bytes."""
    buffer = io.BytesIO()
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    with style():
        picture.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()
