"""The batch and the dimension decide on collapse: experiments A and B."""

from __future__ import annotations

from trivet_papers.experiment import Experiment, Recipe, Size
from trivet_papers.xu2024.collapse_figures import collapse_figure
from trivet_papers.xu2024.experiments import common

FULL_GRID = "P in 2, 4, 8, 18 and K in 2, 4, 8, 16, 32"


def by_batch(size: Size) -> Recipe:
    cells = common.grid(size)
    claims = (
        common.falls_with_batch(cells),
        common.collapses(size, [cells[-1]], f"The largest batch, {common.by_batch(cells[-1])}, collapses."),
        common.survives(size, [c for c in cells if common.items(c) <= 8], "Batches of 4 and 8 items do not collapse."),
        common.costs_retrieval(cells[-1]),
        common.bound_holds(cells, "at each batch size"),
    )
    panel = common.batch_panel("d = 128, margin 0", cells)
    title, source = "Diameter of held-out embeddings by the batch", "Xu et al. (2024), figure 5, left"
    table = common.table("Held-out embeddings before and after training, by the batch P x K", cells, common.by_batch)
    return common.recipe(
        size,
        cells,
        claims,
        (collapse_figure("batches", title, source, [panel], with_shrinkage=True), table),
        seeds=5,
        lengths=common.LENGTHS[size],
    )


def by_dimension(size: Size) -> Recipe:
    cells = common.swept(size)
    claims = (
        common.grows_with_dimension(cells),
        common.collapses(size, [cells[0]], "At 4 dimensions, the fewest, the embedding collapses."),
        common.survives(size, cells[-3:], "From 256 dimensions on it does not collapse."),
        common.bound_holds(cells, "at each dimension"),
    )
    panel = common.dimension_panel("8 x 4 = 32, margin 0", cells)
    title, source = "Diameter of held-out embeddings by the dimension", "Xu et al. (2024), figure 5, right"
    table = common.table("Held-out embeddings before and after training, by the dimension", cells, common.by_dimension)
    return common.recipe(
        size,
        cells,
        claims,
        (collapse_figure("dimensions", title, source, [panel], with_shrinkage=True), table),
        seeds=5,
        lengths=common.LENGTHS[size],
    )


BATCH = Experiment(
    "xu2024-A",
    "How the batch decides on collapse",
    f"ResNet-18 from random weights on Market-1501, d = 128, margin 0, {FULL_GRID}, 40,000 steps, three repeats "
    "(figure 5, left). The diameter falls as N grows, and large batches collapse. The bound (17) with factor 2 "
    "appears to hold.",
    by_batch("here"),
    by_batch("paper"),
)
DIMENSION = Experiment(
    "xu2024-B",
    "How the dimension decides on collapse",
    "As A, with batches of 8 x 4 and d from 4 to 1,024 (figure 5, right). The diameter falls with the dimension, "
    "until the network collapses. The bound (17) with factor 2 appears to hold.",
    by_dimension("here"),
    by_dimension("paper"),
)
