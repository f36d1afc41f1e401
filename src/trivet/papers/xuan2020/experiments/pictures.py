"""Figures 3, 4 and 6 of Xuan et al., drawn of runs."""

from __future__ import annotations

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
    ORANGE,
    Figure,
    in_percent,
    label_outer,
    legend_above,
    panels,
    plain_ticks,
    tidy,
)
from trivet.papers.xuan2020.experiments.common import (
    EPHN,
    EPSHN,
    FIRST,
    S_AN,
    SECOND,
    Set,
    before,
    factors,
)

SOURCE = "Xuan et al. 2020, figure {}"
READING = "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds."
COLOURS = {FIRST: ORANGE, SECOND: BLUE}
DASHES: dict[str, Any] = {EPHN: "-", EPSHN: "--"}
Line = list[tuple[float, list[float]]]  # place -> the values of the seeds


def curve(axes: Axes, line: Line, colour: str, dashes: Any = "-") -> None:
    """The mean over seeds with its 95 % interval, and every seed as a faint mark."""
    line = [(x, values) for x, values in line if values]
    if not line:
        return
    places = [x for x, _ in line]
    axes.plot(places, [statistics.fmean(values) for _, values in line], color=colour, linestyle=dashes)
    if all(len(values) > 1 for _, values in line):
        ends = [across_folds(values)[1] for _, values in line]
        axes.fill_between(places, [end.low for end in ends], [end.high for end in ends], color=colour, alpha=0.12, lw=0)
    for x, values in line:
        axes.plot([x] * len(values), values, ".", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)


def by_group(found: Results, sets: Sequence[Set]) -> Figure:
    """Recall@1 against n, and below it how near the nearest negative of the whole training set is."""
    picture, axes = panels(2, len(sets), height=4.8, sharex="col")
    parts: list[Mapping[str, Any]] = []
    for column, one in enumerate(sets):
        for row, (name, measure) in enumerate((("recall@1", one.recall.format(1)), ("S_an", S_AN))):
            panel = axes[row][column]
            for order, colour in COLOURS.items():
                for mined, dashes in DASHES.items():
                    line = [(float(n), found.numbers(measure, **factors(one, mined, order, n))) for n in one.groups]
                    curve(panel, line, colour, dashes)
                    said = {"set": one.name, "order": order, "mined": mined, "measure": name}
                    parts += [
                        {**said, "n": n, "seed": list(range(len(values))), "value": values}
                        for n, values in line
                        if values
                    ]
            start = found.numbers(measure, **before(one))
            if start:
                panel.axhline(statistics.fmean(start), color=BLACK, linestyle=":", linewidth=1)
                parts.append({"set": one.name, "measure": name, "n": 0, "seed": 0, "value": statistics.fmean(start)})
            panel.set_xscale("log", base=2)
            plain_ticks(panel, one.groups)
        axes[0][column].set_title(one.name)
        in_percent(axes[0][column].yaxis)
        axes[1][column].set_ylim(top=1.03)
    label_outer(axes, "n, items of a class in a batch", "")
    axes[0][0].set_ylabel("recall@1, %")
    axes[1][0].set_ylabel("nearest negative, $S_{an}$")
    keys = [
        *(Line2D([], [], color=COLOURS[o], linestyle=DASHES[m], label=f"{m}, {o}") for m in DASHES for o in COLOURS),
        Line2D([], [], color=BLACK, linestyle=":", linewidth=1, label="before training"),
    ]
    legend_above(picture, keys)
    return Figure(
        "by-group",
        "Recall of unseen classes, and how near the nearest negatives of the training set are, by n",
        SOURCE.format(4),
        f"{READING} Near 1 in the lower row all items lie at one place.",
        tidy(parts) if parts else {"n": [], "value": []},  # type: ignore[arg-type]
        picture,
    )
