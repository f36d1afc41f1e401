"""Claims 3 and 4: which samples easy positives push away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from trivet.reports.figure import panels, style
from trivet_papers.figure import Figure, columns
from trivet_papers.levi2021 import easy_risk
from trivet_papers.lines import DARK, MARKERS, Row, plot_line

LEVELS = tuple(round(0.01 * step, 2) for step in range(52, 100))  # p along an axis
RATIO, CORRECT = "pull / push, worst order", "probability of the own label, $p$"


def push(p: Sequence[float], rank: Sequence[int]) -> Figure:
    """Pull over push of a sample that is not among the nearest, and from where on the push wins."""
    rows: list[Row] = []
    first = rank[0]
    with style():
        picture, axes = panels(2, 2, height=5.6)
        _ratios(axes[0, 0], rows, {"panel": "a"}, 0, p, easy_risk.push_threshold, easy_risk.pull_push_ratio)
        name_panel(axes[0, 0], "a  Claim 3: a sample and beta", "nearer samples", RATIO)
        orders: dict[easy_risk.NearerOrder, str] = {"worst": "worst order", "same-class": "nearer ones of its class"}
        nearer = [
            (name, {"panel": "b", "case": order}, partial(easy_risk.push_threshold, nearer=order))
            for order, name in orders.items()
        ]
        _thresholds(axes[0, 1], rows, nearer)
        name_panel(axes[0, 1], "b  Claim 3: enough nearer samples", CORRECT, "nearer samples that suffice")
        _ratios(
            axes[1, 0],
            rows,
            {"panel": "c", "rank": first},
            1,
            p,
            partial(easy_risk.pair_push_threshold, rank=first),
            lambda level, count: easy_risk.pair_pull_push_ratio(level, first, count),
        )
        name_panel(axes[1, 0], f"c  Claim 4: a sample and that of rank {first}", "ranks apart, $j$", RATIO)
        ranks: list[tuple[str, Row, Callable[[float], int]]] = [
            (
                f"rank {each}",
                {"panel": "d", "case": "worst", "rank": each},
                partial(easy_risk.pair_push_threshold, rank=each),
            )
            for each in rank
        ]
        _thresholds(axes[1, 1], rows, ranks)
        name_panel(axes[1, 1], "d  Claim 4: enough ranks apart", CORRECT, "ranks apart that suffice, $j$")
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


def _ratios(
    ax: Axes,
    rows: list[Row],
    same: Row,
    start: int,
    p: Sequence[float],
    threshold: Callable[[float], int],
    ratio: Callable[[float, int], float],
) -> None:
    """The ratio by the number of nearer samples or of ranks, from `start` on, a line for each p with its threshold."""
    known = [threshold(level) for level in p]
    counts = _counts(start, int(1.25 * max(known)), known)
    largest = 8.0
    for step, (level, least) in enumerate(zip(p, known, strict=True)):
        ratios = [ratio(level, count) for count in counts]
        rows += [
            {**same, "case": "worst", "p": level, "nearer": count, "ratio": value, "threshold": least}
            for count, value in zip(counts, ratios, strict=True)
        ]
        largest = max(largest, *ratios)
        plot_line(
            ax,
            counts,
            ratios,
            step,
            marker=MARKERS[step],
            markevery=[counts.index(least)],
            markeredgecolor="white",
            markersize=7,
            label=f"$p$ = {level:g}, from {least} on",
        )
    ax.axhline(1, color=DARK, linewidth=0.8, zorder=0)
    log_y(ax)
    ax.set_ylim(1e-2, 5 * largest)
    ax.legend()


def _thresholds(ax: Axes, rows: list[Row], lines: Sequence[tuple[str, Row, Callable[[float], int]]]) -> None:
    """The thresholds by p, a line for each `(name, columns that its rows share, threshold of a p)`."""
    for step, (name, same, threshold) in enumerate(lines):
        counts = [threshold(level) for level in LEVELS]
        rows += [{**same, "p": level, "threshold": count} for level, count in zip(LEVELS, counts, strict=True)]
        plot_line(ax, LEVELS, counts, step, drawstyle="steps-mid", label=name)
    log_y(ax)
    ax.legend(loc="upper left")


def log_y(ax: Axes) -> None:
    """A logarithmic y axis with numbers in full."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def name_panel(ax: Axes, title: str, x: str, y: str) -> None:
    """The title, at the left, and what the axes show."""
    ax.set_title(title, loc="left")
    ax.set(xlabel=x, ylabel=y)
