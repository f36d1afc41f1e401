"""The batch decides on collapse: experiment A."""

from __future__ import annotations

from trivet_papers.experiment import Experiment, Recipe, Size
from trivet_papers.xu2024.collapse_figures import collapse_figure
from trivet_papers.xu2024.experiments.common import (
    batch_panel,
    bound_holds,
    by_batch,
    collapses,
    falls_with_batch,
    grid,
    items,
    recipe,
    survives,
    table,
)

FULL_GRID = "P in 2, 4, 8, 18 and K in 2, 4, 8, 16, 32"


def made(size: Size) -> Recipe:
    cells = grid(size)
    return recipe(
        size,
        cells,
        (
            falls_with_batch(cells),
            collapses([cells[-1]], f"The largest batch, {by_batch(cells[-1])}, collapses."),
            survives(
                [cell for cell in cells if items(cell) <= 8],
                "Batches of 4 and 8 items do not collapse.",
            ),
            bound_holds(cells, "at each batch size"),
        ),
        (
            collapse_figure(
                "batches",
                "Diameter of held-out embeddings by the batch",
                "Xu et al. (2024), figure 5, left",
                [batch_panel("d = 128, margin 0", cells)],
                with_shrinkage=True,
            ),
            table("Held-out embeddings before and after training, by the batch P x K", cells, by_batch),
        ),
    )


EXPERIMENT = Experiment(
    "xu2024-A",
    "How the batch decides on collapse",
    f"ResNet-18 from random weights on Market-1501, d = 128, margin 0, {FULL_GRID}, 40,000 steps, three repeats "
    "(figure 5, left). The diameter falls as N grows, and large batches collapse. The bound (17) with factor 2 "
    "appears to hold.",
    made("here"),
    made("paper"),
)
