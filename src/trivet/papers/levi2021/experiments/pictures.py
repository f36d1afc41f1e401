"""Figures 2, 4, 5 and 6 of Levi et al., drawn of runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from trivet.evaluation.intervals import across_folds
from trivet.papers.experiment import Results
from trivet.papers.figure import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    Figure,
    in_percent,
    label_outer,
    legend_above,
    name_ends,
    panels,
    plain_ticks,
    tidy,
)
from trivet.papers.levi2021.experiments.common import EASY, LOSSES, PROXIES, USUAL

COLOURS = {"triplet": BLUE, "margin": GREEN, "MS": ORANGE, PROXIES: BLACK}
SOURCE = "Levi et al. 2021, figure {}"
Line = list[tuple[float, list[float]]]  # place -> the values of the seeds


def curve(axes: Axes, line: Line, colour: str, dashes: Any = "-", label: str = "") -> None:
    """The mean over seeds with its 95 % interval, and every seed as a faint mark."""
    line = [(x, values) for x, values in line if values]
    if not line:
        return
    places = [x for x, _ in line]
    axes.plot(places, [statistics.fmean(values) for _, values in line], color=colour, linestyle=dashes, label=label)
    if all(len(values) > 1 for _, values in line):
        ends = [across_folds(values)[1] for _, values in line]
        axes.fill_between(places, [end.low for end in ends], [end.high for end in ends], color=colour, alpha=0.12, lw=0)
    for x, values in line:
        axes.plot([x] * len(values), values, ".", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)


def numbers(lines: Sequence[tuple[Mapping[str, Any], Line]], place: str) -> dict[str, list[Any]]:
    """The values of all lines, a row for each seed."""
    parts = [
        {**said, place: x, "seed": list(range(len(values))), "recall@1": values}
        for said, line in lines
        for x, values in line
        if values
    ]
    return tidy(parts) if parts else {place: [], "recall@1": []}


def key(*names: tuple[str, str, Any]) -> list[Line2D]:
    """Handles of a legend: name, colour, dashes."""
    return [Line2D([], [], color=colour, linestyle=dashes, label=name) for name, colour, dashes in names]


def by_step(found: Results, measure: str, steps: Sequence[int], unit: str) -> Figure:
    """Recall of characters over the training, with and without easy positives."""
    picture, axes = panels(1, 1, height=3.6, width=5.6)
    panel, lines, ends = axes[0][0], [], []
    for loss in (*LOSSES, PROXIES):
        for positives, dashes in ((EASY, "-"), (USUAL, "--")):
            if loss == PROXIES and positives == EASY:
                continue
            line = [(float(at), found.numbers(measure, at, loss=loss, positives=positives)) for at in steps]
            curve(panel, line, COLOURS[loss], dashes)
            lines.append(({"loss": loss, "positives": positives}, line))
            last = line[-1][1]
            if last:
                ends.append((("EPS + " if positives == EASY else "") + loss, statistics.fmean(last), COLOURS[loss]))
    panel.set_xscale("log")
    plain_ticks(panel, steps)
    in_percent(panel.yaxis)
    label_outer(axes, unit, "recall@1 of characters, %")
    name_ends(panel, [(name, y) for name, y, _ in ends], [colour for *_, colour in ends], x=steps[-1])
    legend_above(picture, key(("easy positives", BLACK, "-"), ("without", BLACK, "--")))
    return Figure(
        "by-step",
        f"Recall of characters by {unit}, trained on alphabets",
        SOURCE.format("5a"),
        "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds.",
        numbers(lines, unit),
        picture,
    )


def by_images(found: Results, measure: str, images: Sequence[int]) -> Figure:
    """Recall of characters by the images of an alphabet in a batch."""
    picture, axes = panels(1, 1, height=3.2, width=5.0)
    panel, lines = axes[0][0], []
    for positives, colour in ((EASY, BLUE), (USUAL, BLACK)):
        line = [(float(count), found.numbers(measure, images=count, positives=positives)) for count in images]
        curve(panel, line, colour, "-" if positives == EASY else "--")
        lines.append(({"positives": positives}, line))
    panel.set_xscale("log")
    plain_ticks(panel, images)
    in_percent(panel.yaxis)
    label_outer(axes, "images per alphabet in a batch", "recall@1 of characters, %")
    legend_above(picture, key(("easy positives", BLUE, "-"), ("random positives", BLACK, "--")))
    return Figure(
        "by-images",
        "Recall of characters by the images per alphabet in a batch, margin loss",
        SOURCE.format("5b"),
        "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds.",
        numbers(lines, "images"),
        picture,
    )


def mean(values: Sequence[float]) -> float:
    """NaN where there is none."""
    return statistics.fmean(values) if values else math.nan
