"""The batch decides on collapse: experiment A."""

from __future__ import annotations

from trivet_papers.experiment import Experiment, Recipe, Size
from trivet_papers.xu2024.collapse_figures import collapse_figure
from trivet_papers.xu2024.experiments import common

FULL_GRID = "P in 2, 4, 8, 18 and K in 2, 4, 8, 16, 32"


def made(size: Size) -> Recipe:
    cells = common.grid(size)
    return common.recipe(
        size,
        cells,
        (
            common.falls_with_batch(cells),
            common.collapses([cells[-1]], f"The largest batch, {common.by_batch(cells[-1])}, collapses."),
            common.survives(
                [cell for cell in cells if common.items(cell) <= 8],
                "Batches of 4 and 8 items do not collapse.",
            ),
            common.bound_holds(cells, "at each batch size"),
        ),
        (
            collapse_figure(
                "batches",
                "Diameter of held-out embeddings by the batch",
                "Xu et al. (2024), figure 5, left",
                [common.batch_panel("d = 128, margin 0", cells)],
                with_shrinkage=True,
            ),
            common.table("Held-out embeddings before and after training, by the batch P x K", cells, common.by_batch),
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
