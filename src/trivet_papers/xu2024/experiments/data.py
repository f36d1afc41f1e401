"""Other data, and batches as they come: experiment D."""

from __future__ import annotations

from trivet_papers.experiment import Cell, Experiment, Recipe, Size
from trivet_papers.xu2024.collapse_figures import collapse_figure
from trivet_papers.xu2024.experiments import common

SIZES = {
    **dict.fromkeys(("Omniglot",), (4, 16, 64, 144, 360)),
    **dict.fromkeys(("CUB-50", "Fashion-MNIST"), (4, 16, 64, 144)),
    **dict.fromkeys(("SOP", "CUB", "Cars196"), (4, 8, 16, 32, 64, 128, 256, 576)),
}
FAIR_D = (
    " Omniglot, with 964 classes, stands for SOP: most of its items meet no other of their class in a batch. CUB-50 "
    "(25 classes, 32 x 32 pixels) and Fashion-MNIST (7 classes) stand for CUB and Cars196, whose classes are few. One "
    "trial with a seed that is not reported had N = 4, 64 and 360 of each."
)


def shuffled(data: str, n: int, d: int = common.DIMENSION) -> Cell:
    """The factors of a run with N items as they come."""
    return {"data": data, "N": n, "d": d}


def made(size: Size) -> Recipe:
    many, *few = ("Omniglot", "CUB-50", "Fashion-MNIST") if size == "here" else ("SOP", "CUB", "Cars196")
    batches = {data: [shuffled(data, n) for n in SIZES[data]] for data in (many, *few)}
    largest = {data: SIZES[data][-1] for data in (many, *few)}
    wide = common.DIMENSIONS if size == "paper" else (4, 16, 64, 256, 1024)
    dimensions = [shuffled(many, largest[many], d) for d in wide]
    ends = {data: [shuffled(data, n, d) for n in (4, largest[data]) for d in (4, 1024)] for data in few}
    claims = [common.falls_with_batch(cells, f"{data}: ") for data, cells in batches.items()]
    by_dimension = common.grows_with_dimension(dimensions, f"{many}, batches of {largest[many]}: ")
    claims.append(common.for_single_length(size, by_dimension))
    claims += [common.costs_retrieval(cells, f"{data}: ") for data, cells in batches.items()]
    for data in few:
        low, high = ends[data][:2], ends[data][2:]
        never = f"{data}: with batches of 4 it does not collapse, at 4 or at 1,024 dimensions."
        always = f"{data}: with batches of {largest[data]} it collapses at 4 and at 1,024 dimensions."
        claims += [
            common.whatever_the_stop(size, low, common.survives(low, never)),
            common.whatever_the_stop(size, high, common.collapses(high, always)),
        ]
    many_items = batches[many][-1:]
    always = f"{many}: the largest batch, of {largest[many]}, collapses."
    claims.append(common.whatever_the_stop(size, many_items, common.collapses(many_items, always)))
    cells = [cell for group in (*batches.values(), dimensions, *ends.values()) for cell in group]
    claims.append(common.fails_with_many(cells))
    return common.recipe(
        size,
        cells,
        tuple(claims),
        (
            collapse_figure(
                "data",
                "Diameter by the batch, of items as they come",
                "Xu et al. (2024), figures 8 and 9",
                [
                    *(common.batch_panel(f"{data}, d = 128", batches[data]) for data in batches),
                    common.dimension_panel(f"{many}, N = {largest[many]}", dimensions),
                ],
            ),
            *(
                common.table(
                    f"{data}: held-out embeddings before and after training, by the items of a batch",
                    cells,
                    common.by_batch,
                )
                for data, cells in batches.items()
            ),
            *(
                common.table(
                    f"{data}: few and many dimensions in small and large batches",
                    cells,
                    lambda cell: f"N = {cell['N']}, d = {cell['d']}",
                )
                for data, cells in ends.items()
            ),
        ),
        FAIR_D,
        seeds=5,
    )


EXPERIMENT = Experiment(
    "xu2024-D",
    "Other data, and batches as they come",
    "ResNet-18 from random weights on SOP, CUB and Cars196, batches of a fixed size without a number of items for "
    "each class, margin 0, three repeats (figures 8 and 9). Large batches collapse in all three, few dimensions on "
    "SOP. On CUB and Cars196 a small batch never collapses and a large one always does, whatever the dimension.",
    made("here"),
    made("paper"),
)
