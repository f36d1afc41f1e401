"""Figures 3, 4 and 6 of Xuan et al., drawn of runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trivet.reports.figure import BLACK, BLUE, ORANGE, RED, SKY, panels
from trivet_papers.experiment import Cell, Results
from trivet_papers.figure import Columns, Figure, in_percent, label_outer, legend_above, plain_ticks, tidy
from trivet_papers.lines import Dashes, handle, seed_curve
from trivet_papers.xuan2020.dynamics import DIRECTIONS
from trivet_papers.xuan2020.experiments import common
from trivet_papers.xuan2020.experiments.common import factors

SOURCE = "Xuan et al. 2020, figure {}"
READING = "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds."
COLOURS = {common.FIRST: ORANGE, common.SECOND: BLUE}
DASHES: dict[str, Dashes] = {common.EPHN: "-", common.EPSHN: "--"}
POINTS, MOST_POINTS = "train/points", 400
INITIAL, LATE = "initial", "late"
MARKS: dict[str, tuple[str, dict[str, str]]] = {
    "HPHN": ("o", {INITIAL: BLUE, LATE: RED}),
    "EPEN": ("x", {INITIAL: SKY, LATE: ORANGE}),
}


def by_group(results: Results, sets: Sequence[common.RetrievalSet], name: str = "by-group") -> Figure:
    """Recall@1 against n, and below it how near the nearest negative of the whole training set is."""
    picture, axes = panels(2, len(sets), height=4.8, sharex="col")
    tables: list[Columns] = []
    for column, dataset in enumerate(sets):
        for row, (title, measure) in enumerate((("recall@1", dataset.recall.format(1)), ("S_an", common.S_AN))):
            panel = axes[row][column]
            for order, colour in COLOURS.items():
                for mined, dashes in DASHES.items():
                    line = [
                        (float(n), results.numbers(measure, None, **factors(dataset, mined, order, n)))
                        for n in dataset.groups
                    ]
                    seed_curve(panel, line, colour, dashes)
                    labels = {"set": dataset.name, "order": order, "mined": mined, "measure": title}
                    tables += [
                        {**labels, "n": n, "seed": list(range(len(values))), "value": values}
                        for n, values in line
                        if values
                    ]
            start = results.numbers(measure, None, **common.before(dataset))
            if start:
                panel.axhline(statistics.fmean(start), color=BLACK, linestyle=":", linewidth=1)
                tables.append(
                    {"set": dataset.name, "measure": title, "n": 0, "seed": 0, "value": statistics.fmean(start)}
                )
            panel.set_xscale("log", base=2)
            plain_ticks(panel, dataset.groups)
        axes[0][column].set_title(dataset.name)
        in_percent(axes[0][column].yaxis)
        axes[1][column].set_ylim(top=1.03)
    label_outer(axes, "n, items of a class in a batch", "")
    axes[0][0].set_ylabel("recall@1, %")
    axes[1][0].set_ylabel("nearest negative, $S_{an}$")
    keys = [
        *(handle(f"{m}, {o}", COLOURS[o], DASHES[m]) for m in DASHES for o in COLOURS),
        handle("before training", BLACK, ":", linewidth=1),
    ]
    legend_above(picture, keys)
    return Figure(
        name,
        "Recall of unseen classes, and how near the nearest negatives of the training set are, by n",
        SOURCE.format(4),
        f"{READING} Near 1 in the lower row all items lie at one place.",
        tidy(tables) if tables else {"n": [], "value": []},
        picture,
    )


def over_training(
    results: Results,
    dataset: common.RetrievalSet,
    groups: Sequence[int],
    steps: Sequence[int],
    factors_at: Callable[[common.RetrievalSet, str, int, int], Cell],
) -> Figure:
    """Nearest positive and nearest negative of training items, a row for each order and n, a column for each look."""
    rows = [(order, group) for order in COLOURS for group in groups]
    picture, axes = panels(len(rows), len(steps), height=0.7 + 1.3 * len(rows), sharex=True, sharey=True)
    records: list[Columns] = []
    for row, (order, group) in enumerate(rows):
        for column, step in enumerate(steps):
            panel, known = axes[row][column], factors_at(dataset, order, group, step)
            panel.plot([-1, 1], [-1, 1], color="#888888", linewidth=0.8, zorder=0)
            points = next(
                (stored for seed in results.seeds if (stored := results.get(seed, POINTS, step, **known))), None
            )
            if points is not None:
                s_ap, s_an = points
                panel.plot(s_ap, s_an, ".", color=COLOURS[order], markersize=2.5, alpha=0.5, markeredgewidth=0)
                records.append({"order": order, "n": group, "step": step, "s_ap": s_ap, "s_an": s_an})
            means = [results.numbers(measure, step, **known) for measure in (common.S_AP, common.S_AN)]
            if all(means):
                panel.plot(*map(statistics.fmean, means), "+", color=BLACK, markersize=7)
            panel.set(xlim=(-0.2, 1.04), ylim=(-0.2, 1.04), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
            if row == 0:
                panel.set_title(f"step {step}")
        axes[row][0].set_ylabel(f"{order}\nn = {group}", fontsize=8.5)
    picture.supxlabel("nearest of the same class, $S_{ap}$", fontsize=9)
    picture.supylabel("nearest of another class, $S_{an}$", fontsize=9)
    return Figure(
        f"over-training-{dataset.name.lower()}",
        f"Nearest neighbours of training items of {dataset.name} over the training, EPHN",
        SOURCE.format(6),
        f"Dots: up to {MOST_POINTS} items of the first seed; cross: the mean over all items and seeds.",
        tidy(records) if records else {"step": [], "s_ap": [], "s_an": []},
        picture,
    )


def moved(results: Results, dataset: common.RetrievalSet, phases: Mapping[str, int]) -> Figure:
    """Triplets before a step by the direction in which it moved them, a row for each order."""
    ways = ("top-left", "top-right", "bottom-left", "bottom-right")
    picture, axes = panels(len(COLOURS), len(ways), height=3.9, sharex=True, sharey=True)
    records: list[Columns] = []
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.5}
    for row, order in enumerate(COLOURS):
        for column, way in enumerate(ways):
            panel, lines = axes[row][column], 0
            panel.plot([-1, 1], [-1, 1], color="#888888", linewidth=0.8, zorder=0)
            for phase, step in phases.items():
                for mined, (mark, colours) in MARKS.items():
                    known = {"set": dataset.name, "order": order}
                    stored = results.get(results.seeds[0], f"{mined}/points", step, **known) if results.seeds else None
                    if stored is not None:
                        s_ap, s_an, direction = map(np.array, stored)
                        here = direction == DIRECTIONS.index(way)
                        panel.plot(
                            s_ap[here], s_an[here], mark, color=colours[phase], markersize=2.6, alpha=0.6,
                            markeredgewidth=0.7 if mark == "x" else 0,
                        )  # fmt: skip
                        factors = {"order": order, "phase": phase, "mined": mined, "direction": way}
                        if here.any():
                            records.append({**factors, "s_ap": s_ap[here], "s_an": s_an[here]})
                    shares = results.numbers(f"{mined}/{way}", step, **known)
                    if shares:
                        y = -0.6 - 0.13 * lines if way.startswith("top") else 0.93 - 0.13 * lines
                        text = f"{phase} {mined} {100 * statistics.fmean(shares):.0f} %"
                        panel.text(-0.95, y, text, color=colours[phase], fontsize=7, va="center", bbox=box)
                        lines += 1
            panel.set(xlim=(-1, 1), ylim=(-1.05, 1.05), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
            if row == 0:
                panel.set_title(f"to the {way.replace('-', ' ')}")
        axes[row][0].set_ylabel(order)
    picture.supxlabel("similarity to the positive, $S_{ap}$", fontsize=9)
    picture.supylabel("similarity to the negative, $S_{an}$", fontsize=9)
    return Figure(
        f"moved-{dataset.name.lower()}",
        f"Triplets of {dataset.name} before a step with them, by where it moved them",
        SOURCE.format(3),
        "Dots: triplets of the first seed, before their own step; circles are hard positives with hard negatives, "
        "crosses easy ones with easy ones. Numbers: shares, mean over the seeds.",
        tidy(records) if records else {"s_ap": [], "s_an": []},
        picture,
    )
