"""Claims 3 and 4: which samples easy positives push away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from trivet.papers.figure import BLACK, BLUE, GREEN, PINK, RED, SKY, Figure, columns, panels, style
from trivet.theory import risk

COLOURS, MARKERS = (BLUE, RED, GREEN, PINK, SKY, BLACK), ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (9, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
LEVELS = tuple(round(0.01 * place, 2) for place in range(52, 100))  # p along an axis
GREY, DARK_GREY = "#e4e7eb", "#5b6470"


def push(p: Sequence[float], rank: Sequence[int]) -> Figure:
    """Pull over push of a sample that is not among the nearest, and from where on the push wins."""
    rows: list[dict[str, Any]] = []
    with style():
        picture, axes = panels(2, 2, height=5.6)
        _single_ratios(axes[0, 0], rows, p)
        _single_thresholds(axes[0, 1], rows)
        _pair_ratios(axes[1, 0], rows, p, rank)
        _pair_thresholds(axes[1, 1], rows, rank)
    return Figure(
        "push",
        "From where on a sample is pushed away with easy positives",
        "Levi et al. 2021, claims 3 and 4, whose M has no value there",
        "Left: the weight that pulls a sample in, over the weight that pushes it away, in the worst order of two "
        "classes. From the mark on the ratio is below 1, and the best place is a margin beyond beta (a) or beyond the "
        "nearer sample (c). Right: where that mark lies, by the probability of the own label. The fewer wrong labels, "
        "the more nearer samples it takes, unless those are of the anchor's class.",
        columns(rows, ("panel", "case", "p", "rank", "nearer", "ratio", "threshold")),
        picture,
    )


def _counts(start: int, end: int, also: Iterable[int]) -> list[int]:
    """Whole numbers from start to end, at most about 200, with those that are marked."""
    return sorted({*np.unique(np.linspace(start, max(end, start + 4), 200).round().astype(int)).tolist(), *also})


def _single_ratios(ax: Axes, rows: list[dict[str, Any]], p: Sequence[float]) -> None:
    known = [risk.push_threshold(level) for level in p]
    counts = _counts(0, int(1.25 * max(known)), known)
    for place, (level, threshold) in enumerate(zip(p, known, strict=True)):
        ratios = [risk.pull_push_ratio(level, count) for count in counts]
        rows += [
            {"panel": "a", "case": "worst", "p": level, "nearer": count, "ratio": ratio, "threshold": threshold}
            for count, ratio in zip(counts, ratios, strict=True)
        ]
        _ratio_line(ax, counts, ratios, threshold, place, f"$p$ = {level:g}, from {threshold} on")
    _finish_ratios(ax)
    ax.set_title("a  Claim 3: a sample and beta", loc="left")
    ax.set_xlabel("nearer samples")


def _pair_ratios(ax: Axes, rows: list[dict[str, Any]], p: Sequence[float], rank: Sequence[int]) -> None:
    first = rank[0]
    known = [risk.pair_push_threshold(level, first) for level in p]
    counts = _counts(1, int(1.25 * max(known)), known)
    for place, (level, threshold) in enumerate(zip(p, known, strict=True)):
        ratios = [risk.pair_pull_push_ratio(level, first, count) for count in counts]
        rows += [
            {"panel": "c", "case": "worst", "p": level, "rank": first, "nearer": count, "ratio": ratio}
            | {"threshold": threshold}
            for count, ratio in zip(counts, ratios, strict=True)
        ]
        _ratio_line(ax, counts, ratios, threshold, place, f"$p$ = {level:g}, from {threshold} on")
    _finish_ratios(ax)
    ax.set_title(f"c  Claim 4: a sample and that of rank {first}", loc="left")
    ax.set_xlabel("ranks apart, $j$")


def _ratio_line(
    ax: Axes, counts: Sequence[int], ratios: Sequence[float], threshold: int, place: int, name: str
) -> None:
    ax.plot(
        counts,
        ratios,
        color=COLOURS[place],
        linestyle=DASHES[place],
        marker=MARKERS[place],
        markevery=[list(counts).index(threshold)],
        markeredgecolor="white",
        markersize=7,
        label=name,
    )


def _finish_ratios(ax: Axes) -> None:
    ax.axhline(1, color=DARK_GREY, linewidth=0.8, zorder=0)
    ax.set_yscale("log")
    largest = max(float(np.max(line.get_ydata())) for line in ax.get_lines())
    ax.set_ylim(1e-2, 5 * max(8, largest))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("pull / push, worst order")
    ax.legend()


def _single_thresholds(ax: Axes, rows: list[dict[str, Any]]) -> None:
    names: dict[risk.NearerOrder, str] = {"worst": "worst order", "same-class": "nearer ones of its class"}
    for place, (nearer, name) in enumerate(names.items()):
        counts = [risk.push_threshold(level, nearer=nearer) for level in LEVELS]
        rows += [
            {"panel": "b", "case": nearer, "p": level, "threshold": count}
            for level, count in zip(LEVELS, counts, strict=True)
        ]
        ax.plot(LEVELS, counts, color=COLOURS[place], linestyle=DASHES[place], drawstyle="steps-mid", label=name)
    ax.set_title("b  Claim 3: enough nearer samples", loc="left")
    _finish_thresholds(ax, "nearer samples that suffice")


def _pair_thresholds(ax: Axes, rows: list[dict[str, Any]], rank: Sequence[int]) -> None:
    for place, each in enumerate(rank):
        counts = [risk.pair_push_threshold(level, each) for level in LEVELS]
        rows += [
            {"panel": "d", "case": "worst", "p": level, "rank": each, "threshold": count}
            for level, count in zip(LEVELS, counts, strict=True)
        ]
        ax.plot(
            LEVELS, counts, color=COLOURS[place], linestyle=DASHES[place], drawstyle="steps-mid", label=f"rank {each}"
        )
    ax.set_title("d  Claim 4: enough ranks apart", loc="left")
    _finish_thresholds(ax, "ranks apart that suffice, $j$")


def _finish_thresholds(ax: Axes, name: str) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("probability of the own label, $p$")
    ax.set_ylabel(name)
    ax.legend(loc="upper left")
