"""Recall of a run beside that of what it is compared with, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from trivet.commands.train.outcome import ComparedLevel
from trivet.reports.figure import panels, style

PANEL, ROW = 0.9, 0.32  # inches of a plot without its bars, and of a bar


def draw_recalls(results: Mapping[str, Sequence[ComparedLevel]]) -> Figure:
    """Recall@1 of each split and level in a plot: a bar for the network, for each reference, and for chance."""
    plots = [
        (f"{split}: recall@1 by {result.level}", result.bars) for split, each in results.items() for result in each
    ]
    heights = [PANEL + ROW * len(bars) for _, bars in plots] or [PANEL]
    with style():
        picture, axes = panels(max(1, len(plots)), 1, height=sum(heights), gridspec_kw={"height_ratios": heights})
        for (title, bars), axis in zip(plots, axes[:, 0], strict=False):
            names, shares = zip(*bars, strict=True)
            drawn = axis.barh(
                range(len(bars)), [100 * share for share in shares], color=["C0", *["0.7"] * len(bars[1:])]
            )
            axis.bar_label(drawn, fmt="%.1f", padding=3)
            axis.set_yticks(range(len(bars)), names)
            axis.invert_yaxis()
            axis.set_xlim(0, 109)
            axis.set_xlabel("per cent")
            axis.set_title(title, loc="left")
    return picture
