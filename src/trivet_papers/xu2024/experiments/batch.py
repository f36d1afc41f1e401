"""The batch and the dimension decide on collapse: experiments A and B."""

from __future__ import annotations

from trivet_papers.experiment import Experiment, Recipe, Size
from trivet_papers.xu2024.collapse_figures import collapse_figure, length_figure
from trivet_papers.xu2024.experiments import common

HERMANS = 72  # items: no collapse in Hermans et al. (2017), which the paper wants to explain (sections 1 and 4)
FULL_GRID = "P in 2, 4, 8, 18 and K in 2, 4, 8, 16, 32"
FAIR_A = (
    " Of the paper's 20 batches five are run, for their length: the smallest, one of 8 items, that of B, the 72 items "
    "of Hermans et al. (2017), the largest. xu2024-C has all 20, after 500 steps."
)


def by_batch(size: Size) -> Recipe:
    five = [
        common.cell(size, shape)
        for shape in (common.SMALLEST, (4, 2), common.BATCH, (18, 4), (18, common.ITEMS[size][-1]))
    ]
    cells = five if size == "here" else common.grid(size)
    small, largest = [cell for cell in cells if common.items(cell) <= HERMANS], cells[-1]
    claims = (
        common.falls_with_batch(cells),
        common.collapses([largest], f"The largest batch, {common.by_batch(largest)}, collapses."),
        common.survives(small, f"Batches of up to {HERMANS} items do not collapse."),
        common.costs_retrieval(cells),
        common.promises_no_retrieval(size, [common.NETWORK[size]]),
        common.keeps_retrieval(small, f"With batches of up to {HERMANS} items"),
        common.bound_holds(cells, "at each batch size"),
    )
    panel = common.batch_panel("d = 128, margin 0", cells)
    title, source = "Diameter of held-out embeddings by the batch", "Xu et al. (2024), figure 5, left"
    shows = (
        collapse_figure("batches", title, source, [panel], with_shrinkage=True),
        length_figure("batches-lengths", [(common.by_batch(cell), cell) for cell in five]),
        common.table("Held-out embeddings before and after training, by the batch P x K", cells, common.by_batch),
    )
    return common.recipe(size, cells, claims, shows, FAIR_A, seeds=5, lengths=common.LENGTHS[size])


def by_dimension(size: Size) -> Recipe:
    cells = common.swept(size)
    fewest, widest = cells[0], cells[-1]
    claims = (
        common.grows_with_dimension(cells),
        common.collapses([fewest], "At 4 dimensions, the fewest, the embedding collapses."),
        common.survives([widest], "At 1,024 dimensions, the most, it does not collapse."),
        common.keeps_retrieval([fewest], "At 4 dimensions"),
        common.keeps_retrieval([widest], "At 1,024 dimensions"),
        common.bound_holds(cells, "at each dimension"),
    )
    panel = common.dimension_panel("8 x 4 = 32, margin 0", cells)
    title, source = "Diameter of held-out embeddings by the dimension", "Xu et al. (2024), figure 5, right"
    shows = (
        collapse_figure("dimensions", title, source, [panel], with_shrinkage=True),
        length_figure("dimensions-lengths", [(common.by_dimension(cell), cell) for cell in cells[::2]]),
        common.table("Held-out embeddings before and after training, by the dimension", cells, common.by_dimension),
    )
    return common.recipe(size, cells, claims, shows, seeds=5, lengths=common.LENGTHS[size])


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
