"""`trivet simulate risk`: the collapsed map against a class in two modes, the two theorems, and what is pushed away.

Source:
    Levi, Xiao, Wang, Darrell, "Rethinking preventing class-collapsing in metric learning with margin-based losses",
    2021, sections 4.1 and 4.2 and appendices A and B. The paper states these results without figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, MultipleLocator

from trivet.reports.figure import BLACK, BLUE, RED, SKY, panels, style
from trivet.runtime.arrays import Floats, Integers
from trivet_papers.figure import SEQUENTIAL, Figure, columns, direct_label, label_outer
from trivet_papers.levi2021 import easy_risk, risk
from trivet_papers.levi2021.push_figure import CORRECT, LEVELS, log_y, name_panel, push
from trivet_papers.lines import COLOURS, DARK, DASHES, GREY, MARKERS, Dashes, Row, handle, plot_line

LARGEST_MAP = 60  # samples of the maps whose loss is a sum over all triplets
LARGEST_RANK = 200
TOO_NOISY = (3, 0.6)  # t and p below the limit of theorem 2
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}  # behind text on lines
SELF_TERMS: dict[risk.SelfTerms, str] = {
    "exact": "for sure",
    "excluded": "left out",
    "independent": "by chance, with a fresh label",
}


def figures(
    *,
    classes: Sequence[int] = (2, 5),
    p: Sequence[float] = (0.6, 0.8, 0.95),
    margin: float = 1.0,
    beta: float = 1.0,
    largest: int = 4000,
    most_classes: int = 20,
    size: int = 4,
    rank: Sequence[int] = (1, 2, 3, 5),
) -> list[Figure]:
    """Collapsed or split, its thresholds, the two theorems, and what easy positives push away.

    Args:
        classes: numbers of classes t >= 2; the maps of the theorems have the least of them.
        p: probabilities in (1/2, 1) that a sample shows the label of its own class; the maps take the middle one.
        margin: alpha > 0, in the unit of D, the squared distance.
        beta: b >= 0 of the margin loss, in the unit of D.
        largest: class size up to which thresholds are sought, >= 2.
        most_classes: classes up to which thresholds are mapped, >= 3.
        size: samples per class of the maps of the theorems, >= 2; at most 60 in all classes together.
        rank: ranks of the nearer of two samples, 1 to 200.

    Raises:
        ValueError: if one of them is out of range, or a list is empty or has more than six different values.
    """
    classes, p, rank = _few(classes, name="classes"), _few(p, name="p"), _few(rank, name="rank")
    if most_classes < 3:
        raise ValueError(f"most_classes must be at least 3: got {most_classes}; the map needs two rows.")
    if size < 2 or size * classes[0] > LARGEST_MAP:
        raise ValueError(
            f"size must be at least 2 and size times classes at most {LARGEST_MAP}: got {size} for {classes[0]} "
            "classes; a map's loss is a sum over all its triplets."
        )
    if rank[-1] > LARGEST_RANK:
        raise ValueError(f"rank must be at most {LARGEST_RANK}: got {rank[-1]}; the numbers change little beyond.")
    pushed = push(p, rank)  # first: it allows the least p
    return [
        collapsed_or_split(classes, p, margin=margin, beta=beta, largest=largest),
        thresholds(most_classes, margin=margin, beta=beta, largest=largest),
        theorems(classes, p[len(p) // 2], margin=margin, size=size),
        pushed,
    ]


def _few(values: Sequence[Any], *, name: str) -> list[Any]:
    """The different values, ascending."""
    few = sorted(set(values))
    if not 1 <= len(few) <= len(COLOURS):
        raise ValueError(f"{name} must be given one to {len(COLOURS)} different values: got {len(few)}.")
    return few


# Claims 1 and 2


def collapsed_or_split(
    classes: Sequence[int], p: Sequence[float], *, margin: float, beta: float, largest: int
) -> Figure:
    """The loss of a class in two modes over that of the same class on one point, by class size."""
    known = {
        (t, level): (
            easy_risk.triplet_split_threshold(t, level, largest=largest),
            easy_risk.margin_split_threshold(t, level, beta=beta, margin=margin, largest=largest),
        )
        for t in classes
        for level in p
    }
    finite = [size for pair in known.values() for size in pair if size is not None]
    sizes = _sizes(max([64, *(2 * size for size in finite)]), largest, finite)
    rows: list[Row] = []
    with style():
        picture, axes = panels(len(classes), 2, height=0.55 + 2.6 * len(classes), sharex=True)
        for t, line in zip(classes, axes, strict=True):
            for which, (loss, ax) in enumerate(zip(("triplet", "margin"), line, strict=True)):
                marked = []
                for index, level in enumerate(p):
                    threshold = known[t, level][which]
                    for positives in get_args(easy_risk.TheoryPositives):
                        collapsed, split = (
                            easy_risk.collapsed_and_split_triplet_losses(
                                t, sizes, level, margin=margin, positives=positives
                            )
                            if loss == "triplet"
                            else easy_risk.collapsed_and_split_margin_losses(
                                t, sizes, level, beta=beta, margin=margin, positives=positives
                            )
                        )
                        ratio = split / collapsed
                        line_style = {"linestyle": _dash(positives), "marker": MARKERS[index], "markevery": [0, -1]}
                        plot_line(ax, sizes, ratio, index, **line_style, markersize=4, clip_on=False)
                        case = {"loss": loss, "classes": t, "p": level, "positives": positives}
                        if positives == "easy":
                            case |= {} if threshold is None else {"threshold": threshold}
                            marked.append(math.nan if threshold is None else float(ratio[sizes == threshold][0]))
                        losses = zip(sizes.tolist(), collapsed.tolist(), split.tolist(), strict=True)
                        rows += [
                            {**case, "class_size": size, "collapsed": before, "split": after, "ratio": after / before}
                            for size, before, after in losses
                        ]
                _mark_thresholds(ax, [known[t, level][which] for level in p], marked)
                ax.set_title(f"{loss.capitalize()} loss, {t} classes", loc="left")
        _ratio_axes(axes, rows)
        label_outer(axes, "samples of a class, $s$", "loss in two modes /\nloss on one point")
        handles = [
            handle(f"$p$ = {level:g}", COLOURS[index], marker=MARKERS[index], markersize=5)
            for index, level in enumerate(p)
        ]
        handles += [handle("easy positives", BLACK, _dash("easy")), handle("all positives", BLACK, _dash("all"))]
        picture.legend(handles=handles, loc="outside upper center", ncols=min(6, len(handles)))
    return Figure(
        "collapsed-or-split",
        "A class in two modes against the same class on one point",
        "Levi et al. 2021, claims 1 and 2",
        "Each line compares the expected loss of an anchor whose class lies in two halves with that of one whose class "
        "lies on one point. Below 1, two modes are cheaper. With easy positives (solid) the ratio falls below 1 for "
        "good at the marked class size. With all positives (dashed) it stays above 1 wherever theorems 1 and 2 hold.",
        columns(rows, ("loss", "classes", "p", "positives", "class_size", "collapsed", "split", "ratio", "threshold")),
        picture,
    )


def _sizes(end: int, largest: int, also: Iterable[int]) -> Integers:
    """Even class sizes, about evenly spread on a logarithmic axis, with those that are marked."""
    spread = 2 * np.round(np.geomspace(1, max(1, min(end, largest) // 2), 80)).astype(np.int64)
    return np.unique(np.concatenate([spread, np.array([*also], dtype=np.int64)]))


def _dash(positives: easy_risk.TheoryPositives) -> Dashes:
    return DASHES[get_args(easy_risk.TheoryPositives).index(positives)]


def _mark_thresholds(ax: Axes, sizes: Sequence[int | None], ratios: Sequence[float]) -> None:
    """A mark on each line where it falls below 1 for good; the class size below the lowest mark of that size."""
    ax.axhline(1, color=DARK, linewidth=0.8, zorder=0)
    lowest: dict[int, float] = {}
    for index, (size, ratio) in enumerate(zip(sizes, ratios, strict=True)):
        if size is not None:
            ax.plot([size], [ratio], MARKERS[index], color=COLOURS[index], markeredgecolor="white", markersize=7)
            lowest[size] = min(ratio, lowest.get(size, ratio))
    low = False
    for before, size in pairwise([0, *sorted(lowest)]):
        low = size < 1.5 * before and not low
        ax.annotate(
            f"{size}",
            (size, lowest[size]),
            xytext=(0, -27 if low else -15),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            bbox=_PAPER,
        )


def _ratio_axes(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Logarithmic axes, with one range of ratios for all panels of a loss."""
    for which, loss in enumerate(("triplet", "margin")):
        ratios = [row["ratio"] for row in rows if row["loss"] == loss]
        low, high = min([*ratios, 0.9]), max([*ratios, 1.1])
        for ax in axes[:, which]:
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            log_y(ax)
            wide = high / low > 3
            ax.set_ylim(low / (1.4 if wide else 1.04), high * 1.04)
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MultipleLocator(0.1))


def thresholds(most_classes: int, *, margin: float, beta: float, largest: int) -> Figure:
    """The class size from which on two modes are cheaper, by number of classes and p."""
    classes = range(2, most_classes + 1)
    grids = {
        "triplet": [
            [easy_risk.triplet_split_threshold(t, p, largest=largest) or math.nan for p in LEVELS] for t in classes
        ],
        "margin": [
            [
                easy_risk.margin_split_threshold(t, p, beta=beta, margin=margin, largest=largest) or math.nan
                for p in LEVELS
            ]
            for t in classes
        ],
    }
    rows = [
        {"loss": loss, "classes": t, "p": p, "threshold": size, "never": int(math.isnan(size))}
        for loss, grid in grids.items()
        for t, line in zip(classes, grid, strict=True)
        for p, size in zip(LEVELS, line, strict=True)
    ]
    with style():
        picture, axes = panels(1, 2, height=3.3, sharey=True)
        for ax, (loss, grid) in zip(axes[0], grids.items(), strict=True):
            values = np.array(grid, dtype=np.float64)
            ax.patch.set(facecolor=GREY, edgecolor=BLACK, hatch="////", linewidth=0)  # seen where there is none
            image = ax.imshow(
                values,
                norm=LogNorm(2, max(100, largest)),
                cmap=SEQUENTIAL,
                aspect="auto",
                interpolation="nearest",
                extent=(LEVELS[0] - 0.005, LEVELS[-1] + 0.005, 1.5, most_classes + 0.5),
            )
            _label_sizes(ax, classes, values)
            ax.set_title(f"{loss.capitalize()} loss", loc="left")
            ax.set_xlabel(CORRECT)
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0, 0].set_ylabel("number of classes, $t$")
        bar = picture.colorbar(image, ax=axes[0], label="smallest sufficient class size, $s$", pad=0.02)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        picture.legend(
            handles=[Patch(facecolor=GREY, edgecolor=BLACK, hatch="////", label=f"never, up to $s$ = {largest}")],
            loc="outside upper right",
        )
    return Figure(
        "thresholds",
        "How large a class must be for two modes to be cheaper with easy positives",
        "Levi et al. 2021, claims 1 and 2, whose M has no value there",
        "The colour is the smallest even class size from which splitting a class lowers the expected loss. Hatched "
        f"cells have none up to {largest}. For the triplet loss this size grows with the number of classes and as "
        "noise vanishes, far beyond the samples of a class in any batch. For the margin loss a handful is enough.",
        columns(rows, ("loss", "classes", "p", "threshold", "never")),
        picture,
    )


def _label_sizes(ax: Axes, classes: Sequence[int], values: Floats) -> None:
    """Lines of equal size with their number; where there are few different sizes, the size in the middle of each."""
    different = np.unique(values[~np.isnan(values)])
    if len(different) > 4:
        steps = [10.0, 30.0, 100.0, 300.0, 1000.0, 10000.0]
        inside = [step for step in steps if different[0] < step < different[-1]]
        lines = ax.contour(LEVELS, classes, values, levels=inside, colors="white", linewidths=1)
        ax.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=8.5)
        return
    for size in different:
        cells = np.argwhere(values == size)
        row, column = cells[np.abs(cells - np.median(cells, axis=0)).sum(1).argmin()]
        ax.text(LEVELS[column], classes[row], f"from {size:g} on", ha="center", va="center", bbox=_PAPER)


# Theorems 1 and 2


def theorems(classes: Sequence[int], p: float, *, margin: float, size: int) -> Figure:
    """Minima of the expected losses, and where they are not collapsed."""
    t = classes[0]
    rows: list[Row] = []
    with style():
        picture, axes = panels(3, 2, height=8.2)
        _maps(picture, axes[0], rows, t, size, p, margin)
        _valley(axes[1, 0], rows, t, size, p, margin)
        _turn(axes[1, 1], rows, classes)
        _pair(axes[2, 0], rows, p, margin)
        _limit(axes[2, 1], rows)
    return Figure(
        "theorems",
        "The minima of the expected losses: collapsed, and where they are not",
        "Levi et al. 2021, theorems 1 and 2",
        "Noise turns the region without triplet loss (a) into a line of minimum loss (b). The collapsed map lies on "
        "it, but is the only minimum in two cases: each mention draws a fresh label (c), or dimensions are few and "
        "classes larger than the line in (d). The margin loss pulls two samples of a class to distance 0 only under "
        "two conditions. Beta must be the margin (e, with its least value marked), and p above the line in (f).",
        columns(rows, ("panel", "case", "classes", "class_size", "p", "within", "across", "beta", "value")),
        picture,
    )


def _maps(picture: Picture, axes: Any, rows: list[Row], t: int, size: int, p: float, margin: float) -> None:
    """The triplet loss of all maps with one distance inside classes and one across."""
    steps, gaps = margin * np.linspace(0, 2.25, 46), margin * np.linspace(0, 3.5, 71)
    within = np.tile(steps, (len(gaps), 1))
    least = within * (1 - 1 / size)  # less would put the squared distance of two classes' centres below 0
    across = least + gaps[:, None]
    grids = []
    for case, level in (("no noise", 1.0), ("noise", p)):
        labels = risk.label_probabilities(t, size, level)
        near, far = (torch.from_numpy(each.ravel())[:, None, None] for each in (within, across))
        d = near * risk.class_distances(t, size, within=1, across=0) + far * risk.class_distances(
            t, size, within=0, across=1
        )
        # In pieces: a map takes n^3 numbers.
        pieces = torch.split(d, max(1, 4_000_000 // len(labels) ** 3))
        values = torch.cat(
            [risk.expected_triplet_loss(piece, labels, margin=margin, self_terms="excluded") for piece in pieces]
        )
        rows += [
            {
                "panel": "ab",
                "case": case,
                "classes": t,
                "class_size": size,
                "p": level,
                "within": float(inside),
                "across": float(between),
                "value": float(value),
            }
            for inside, between, value in zip(within.ravel(), across.ravel(), values, strict=True)
        ]
        grids.append(values.reshape(within.shape).numpy())
    end, top = 3.375 * margin, max(float(grid[across <= 3.375 * margin].max()) for grid in grids)
    for ax, grid, title in zip(axes, grids, ("a  No noise: $p$ = 1", f"b  Noise: $p$ = {p:g}"), strict=True):
        ax.set_facecolor(GREY)
        image = ax.pcolormesh(
            within, across, grid, vmin=0, vmax=top, cmap=SEQUENTIAL, shading="gouraud", rasterized=True
        )
        ax.plot(steps, steps + margin, color="white", linestyle="--", linewidth=1.2)
        ax.plot([0], [margin], "o", color="white", markeredgecolor=BLACK, markersize=7, clip_on=False)
        ax.annotate("collapsed", (0, margin), xytext=(8, -5), textcoords="offset points", color="white")
        ax.annotate("no such points", (steps[-1], 0), xytext=(-4, 5), textcoords="offset points", ha="right")
        ax.set_title(f"{title}, {t} classes of {size}", loc="left")
        ax.set_xlabel("squared distance inside classes, $D$")
        ax.set_xlim(0, steps[-1])
        ax.set_ylim(0, end)
    axes[0].set_ylabel("squared distance across")
    axes[0].annotate("no loss", (0.2 * margin, 2.6 * margin), color="white")
    axes[1].annotate("minimum loss: the line", (0.2 * margin, 2.6 * margin), color="white")
    axes[1].tick_params(labelleft=False)
    picture.colorbar(image, ax=axes[1], label="expected triplet loss", pad=0.02)


def _valley(ax: Axes, rows: list[Row], t: int, size: int, p: float, margin: float) -> None:
    """The triplet loss along the line of b, for three ways to count an anchor as its own positive."""
    steps = margin * np.linspace(0, 2, 41)
    labels = risk.label_probabilities(t, size, p)
    for index, (kind, name) in enumerate(SELF_TERMS.items()):
        values = []
        for near in steps.tolist():
            d = risk.class_distances(t, size, within=near, across=near + margin)
            values.append(float(risk.expected_triplet_loss(d, labels, margin=margin, self_terms=kind)))
            rows.append(
                {"panel": "c", "case": kind, "classes": t, "class_size": size, "p": p}
                | {"within": near, "across": near + margin, "value": values[-1]}
            )
        plot_line(ax, steps, values, index, label=name)
    low, high = ax.get_ylim()
    ax.set_ylim(low, low + 1.45 * (high - low))
    ax.legend(title="the anchor as its own positive:", title_fontsize=8.5, loc="upper left", alignment="left")
    name_panel(ax, "c  Along the dashed line of b", "squared distance inside classes, $D$", "expected triplet loss")


def _turn(ax: Axes, rows: list[Row], classes: Sequence[int]) -> None:
    """The class size from which on the collapsed map is a local minimum in few dimensions."""
    for index, t in enumerate(classes):
        levels = [round(0.01 * index, 2) for index in range(math.ceil(100 / t) + 2, 100)]
        limits = [risk.collapse_turn_limit(t, level) for level in levels]
        rows += [
            {"panel": "d", "case": "turn", "classes": t, "p": level, "value": limit}
            for level, limit in zip(levels, limits, strict=True)
        ]
        plot_line(ax, levels, limits, index, label=f"{t} classes")
    log_y(ax)
    ax.set_ylim(2, 500)
    ax.axvline(0.5, color=DARK, linewidth=0.8, linestyle=DASHES[2], zorder=0, label="the paper's 1/2")
    ax.text(0.98, 0.6, "above the line,\ncollapse is\na local minimum", ha="right", va="top", transform=ax.transAxes)
    ax.legend(loc="upper right", frameon=True, framealpha=1, edgecolor="none", borderpad=0.1)
    name_panel(ax, "d  Classes too small to collapse", CORRECT, "samples of a class, $s$")


def _pair(ax: Axes, rows: list[Row], p: float, margin: float) -> None:
    """The expected margin loss of two samples of one class, by their distance."""
    t, low = TOO_NOISY
    cases = (
        ("no noise", 2, 1.0, 2 * margin),
        ("beta fixed above the margin", 2, p, 2 * margin),
        ("beta at the margin", 2, p, margin),
        ("too noisy", t, low, margin),
    )
    distances = margin * np.linspace(0, 3, 61)
    for index, (case, count, level, beta) in enumerate(cases):
        match = float(risk.match_probabilities(risk.label_probabilities(count, 2, level))[0, 1])
        values = risk.opposed_hinges(distances - beta, match, 1 - match, margin=margin)
        least = risk.opposed_hinges_minimum(match, 1 - match, margin=margin)
        rows += [
            {
                "panel": "e",
                "case": case,
                "classes": count,
                "class_size": 2,
                "p": level,
                "within": float(near),
                "beta": beta,
                "value": float(value),
            }
            for near, value in zip(distances.tolist(), values.tolist(), strict=True)
        ]
        name = f"$p$ = {level:g}, $\\beta$ = {beta:g}" + (f", {count} classes" if count > 2 else "")
        plot_line(ax, distances, values, index, label=name)
        if math.isfinite(least.low):
            ax.plot(
                [beta + least.low], [least.value], MARKERS[index], color=COLOURS[index], markersize=7, clip_on=False
            )
    low_end, high_end = ax.get_ylim()
    ax.set_ylim(low_end, low_end + 1.6 * (high_end - low_end))
    ax.legend(loc="upper left", ncols=1)
    name_panel(
        ax, "e  A pair of one class, margin loss", "squared distance of the pair, $D$", "expected loss of the pair"
    )


def _limit(ax: Axes, rows: list[Row]) -> None:
    """The p that theorem 2 needs."""
    classes = np.unique(np.round(np.geomspace(2, 1000, 60)).astype(int)).tolist()
    limits = [risk.margin_noise_limit(t) for t in classes]
    rows += [
        {"panel": "f", "case": "limit", "classes": t, "value": limit} for t, limit in zip(classes, limits, strict=True)
    ]
    ax.plot(classes, limits, color=BLUE)
    ax.fill_between(classes, limits, 1, color=SKY, alpha=0.25, linewidth=0)
    ax.axhline(0.5, color=RED, linestyle=DASHES[1])
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_ylim(0.45, 1)
    ax.text(0.95, 0.82, "same-class pairs are pulled", ha="right", transform=ax.transAxes)
    ax.text(0.95, 0.27, "same-class pairs are pushed", ha="right", transform=ax.transAxes)
    direct_label(ax, 1000, 0.5, "the paper's 1/2", RED, xytext=(-4, 4), ha="right")
    name_panel(ax, "f  Noise that theorem 2 tolerates", "number of classes, $t$", CORRECT)
