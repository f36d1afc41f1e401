"""Lines of the papers' figures: their style, their names in legends, and lines over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from trivet.metrics.intervals import across_folds
from trivet.reports.figure import BLACK, BLUE, GREEN, PINK, RED, SKY

Dashes = Any  # of matplotlib: "--", or an offset and lengths
Row = Mapping[str, str | float]  # of the numbers of a figure: column -> cell
SeedLine = list[tuple[float, list[float]]]  # place -> the values of the seeds
COLOURS, MARKERS = (BLUE, RED, GREEN, PINK, SKY, BLACK), ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Dashes, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (9, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
SOFT, DARK, GREY = "#7d8794", "#5b6470", "#e4e7eb"


def plot_line(axes: Axes, x: ArrayLike, y: ArrayLike, index: int, **more: Any) -> None:
    """Draw a line with the colour and dashes of its place in a list."""
    axes.plot(x, y, **{"color": COLOURS[index], "linestyle": DASHES[index], **more})


def handle(label: str, colour: str, dashes: Dashes = "-", marker: str = "", **more: Any) -> Line2D:
    """A line of a legend."""
    return Line2D([], [], label=label, color=colour, linestyle=dashes, marker=marker, **more)


def seed_curve(axes: Axes, line: SeedLine, colour: str, dashes: Dashes = "-") -> None:
    """The mean over seeds with its 95 % interval, and every seed as a faint mark."""
    line = [(x, values) for x, values in line if values]
    if not line:
        return
    positions = [x for x, _ in line]
    axes.plot(positions, [statistics.fmean(values) for _, values in line], color=colour, linestyle=dashes)
    if all(len(values) > 1 for _, values in line):
        ends = [across_folds(values)[1] for _, values in line]
        lows, highs = [end.low for end in ends], [end.high for end in ends]
        axes.fill_between(positions, lows, highs, color=colour, alpha=0.12, lw=0)
    for x, values in line:
        axes.plot([x] * len(values), values, ".", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)
