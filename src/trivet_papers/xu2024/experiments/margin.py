"""Margins above 0: experiment C."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from trivet_papers.experiment import Cell, Claim, Experiment, Recipe, SeedValue, Size
from trivet_papers.xu2024.collapse_figures import COLLAPSED, collapse_figure
from trivet_papers.xu2024.experiments import common


def threshold(of: SeedValue, cells: Sequence[Cell]) -> float:
    """log2 of the batch at which the line through what is shrinkage, both in logarithms, crosses collapse.

    NaN where it crosses none that is between the smallest and the largest batch: then no batch is that from which on.
    """
    x = [math.log2(common.items(cell)) for cell in cells]
    y = [math.log2(common.shrinkage(of, cell)) for cell in cells]
    if not np.isfinite(y).all():
        return math.nan
    rise, start = np.polyfit(x, y, 1)
    crossing = float((math.log2(COLLAPSED) - start) / rise) if rise < 0 else math.nan
    return crossing if min(x) <= crossing <= max(x) else math.nan


def made(size: Size) -> Recipe:
    batches = {margin: common.grid(size, margin=margin) for margin in (0.0, *common.MARGINS)}
    dimensions = {margin: common.swept(size, margin=margin) for margin in common.MARGINS}

    def of_batch_and_margin(of: SeedValue) -> dict[str, float]:
        """The gap between the smallest and the largest batch, or dimension, less what a margin changes at any."""

        def beyond(of_margin: Sequence[Cell], others: Sequence[Cell], name: Callable[[Cell], str]) -> dict[str, float]:
            ends = [math.log2(common.shrinkage(of, of_margin[end])) for end in (0, -1)]
            return {
                f"margin {other['margin']:g}, {name(other)}": abs(ends[1] - ends[0])
                - abs(math.log2(common.shrinkage(of, other)) - math.log2(common.shrinkage(of, cell)))
                for cell, other in zip(of_margin, others, strict=True)
            }

        low, high = common.MARGINS
        gaps = beyond(dimensions[low], dimensions[high], common.by_dimension)
        for margin in common.MARGINS:
            gaps |= beyond(batches[0.0], batches[margin], common.by_batch)
        return gaps

    def moved(of: SeedValue) -> dict[str, float]:
        at = {margin: threshold(of, cells) for margin, cells in batches.items()}
        return {
            f"margin {margin:g}, {way}": 1 - sign * (at[margin] - at[0.0])
            for margin in common.MARGINS
            for way, sign in (("larger batch", 1), ("smaller batch", -1))
        }

    def larger(of: SeedValue) -> float:
        low, high = ([of("diameter", **cell) for cell in batches[margin]] for margin in common.MARGINS)
        return float(np.mean(np.log2(np.maximum(high, common.FLOOR)) - np.log2(np.maximum(low, common.FLOOR))))

    claims = [common.falls_with_batch(batches[margin], f"Margin {margin:g}: ") for margin in common.MARGINS]
    claims += [
        common.for_single_length(size, common.grows_with_dimension(dimensions[margin], f"Margin {margin:g}: "))
        for margin in common.MARGINS
    ]
    claims += [
        Claim(
            f"After {common.STEPS[size][-1]:,} steps the margin matters less for collapse than the batch does, and "
            "less than the dimension.",
            of_batch_and_margin,
            "change of log2(kept) from the smallest to the largest batch, or dimension, less the change by a margin",
            unit="",
        ),
        Claim(
            "The batch from which on it collapses is the same for all margins, to a factor of two.",
            moved,
            "1 less the shift of log2(N) at which the fitted line crosses 0.05",
            unit="",
        ),
        Claim(
            "The larger the margin, the larger is the diameter at the end.",
            larger,
            "log2 of the diameter with margin 0.05 over that with 0.01, mean over batches",
            unit="",
        ),
    ]
    cells = [cell for margin in (0.0, *common.MARGINS) for cell in batches[margin]]
    cells += [cell for margin in common.MARGINS for cell in dimensions[margin] if cell["d"] != common.DIMENSION]
    return common.recipe(
        size,
        cells,
        tuple(claims),
        (
            collapse_figure(
                "margin-batches",
                "Diameter by the batch, with a margin",
                "Xu et al. (2024), figure 6",
                [common.batch_panel(f"d = 128, margin {margin:g}", of_margin) for margin, of_margin in batches.items()],
            ),
            collapse_figure(
                "margin-dimensions",
                "Diameter by the dimension, with a margin",
                "Xu et al. (2024), figure 7",
                [
                    common.dimension_panel(f"8 x 4 = 32, margin {margin:g}", dimensions[margin])
                    for margin in common.MARGINS
                ],
            ),
        ),
    )


EXPERIMENT = Experiment(
    "xu2024-C",
    "Margins above 0",
    "As A and B, with margins of 0.01 and 0.05 (figures 6 and 7). The trends are the same, the diameters are "
    "larger with a larger margin, and collapse begins near N = 128 whatever the margin. A margin of 0.1 was left "
    "out: the training loss stayed at 0.1.",
    made("here"),
    made("paper"),
)
