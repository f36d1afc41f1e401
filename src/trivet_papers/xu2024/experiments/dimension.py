"""The dimension decides on collapse: experiment B."""

from __future__ import annotations

from trivet_papers.experiment import Experiment, Recipe, Size
from trivet_papers.xu2024.collapse_figures import collapse_figure
from trivet_papers.xu2024.experiments import common


def made(size: Size) -> Recipe:
    cells = common.swept(size)
    return common.recipe(
        size,
        cells,
        (
            common.grows_with_dimension(cells),
            common.collapses([cells[0]], "At 4 dimensions, the fewest, the embedding collapses."),
            common.survives(cells[-3:], "From 256 dimensions on it does not collapse."),
            common.bound_holds(cells, "at each dimension"),
        ),
        (
            collapse_figure(
                "dimensions",
                "Diameter of held-out embeddings by the dimension",
                "Xu et al. (2024), figure 5, right",
                [common.dimension_panel("8 x 4 = 32, margin 0", cells)],
                with_shrinkage=True,
            ),
            common.table("Held-out embeddings before and after training, by the dimension", cells, common.by_dimension),
        ),
        seeds=5,
    )


EXPERIMENT = Experiment(
    "xu2024-B",
    "How the dimension decides on collapse",
    "As A, with batches of 8 x 4 and d from 4 to 1,024 (figure 5, right). The diameter falls with the dimension, "
    "until the network collapses. The bound (17) with factor 2 appears to hold.",
    made("here"),
    made("paper"),
)
