"""Other networks: experiment E."""

from __future__ import annotations

import numpy as np

from trivet_papers.experiment import Claim, Experiment, Recipe, SeedValue, Size
from trivet_papers.xu2024.collapse_figures import COLLAPSED, collapse_figure
from trivet_papers.xu2024.experiments import common

FAIR_E = (
    " ResNet-50 and GoogLeNet are too slow here: conv3 and an mlp stand for them. The network of two convolutions is "
    "Trivet's conv2, at the end with two linear maps. Six batches and six dimensions are run of the paper's. "
    "That no collapse does not promise retrieval was asked with these runs in view, first of each network: it is so of "
    "conv3, and the reverse of the other two, where 8 x 4 collapses. The paper says that it need not; one is enough."
)


def made(size: Size) -> Recipe:
    names = ("two convolutions", "conv3", "mlp") if size == "here" else ("ResNet-50", "GoogLeNet", "two convolutions")
    if size == "here":
        shapes = [(2, 2), (4, 4), (8, 4), (8, 8), (18, 8), (18, 20)]
        batches = {name: [common.cell(size, shape, network=name) for shape in shapes] for name in names}
        dimensions = {name: common.swept(size, (4, 16, 64, 128, 256, 1024), network=name) for name in names}
    else:
        batches = {name: common.grid(size, network=name) for name in names}
        dimensions = {name: common.swept(size, network=name) for name in names}
    claims: list[Claim] = []
    for name in names:
        claims += [
            common.falls_with_batch(batches[name], f"{name}: "),
            common.whatever_the_stop(
                size, batches[name][-1:], common.collapses(batches[name][-1:], f"{name}: the largest batch collapses.")
            ),
            common.costs_retrieval(batches[name], f"{name}: "),
            common.for_single_length(size, common.grows_with_dimension(dimensions[name], f"{name}: ")),
        ]
    wide = [item for item in dimensions["GoogLeNet" if size == "paper" else "mlp"] if common.dimension(item) > 256]

    def most_collapsed(of: SeedValue) -> float:
        return float(np.max([-common.above_collapse(of, item) for item in wide]))

    claims.append(common.promises_no_retrieval(size, names, " in some network"))
    claims.append(
        Claim(
            "GoogLeNet collapses at some dimension above 256, which the authors lay to memory.",
            most_collapsed,
            f"log2({COLLAPSED:g}) less log2(kept), the largest of all d above 256",
            unit="",
            not_comparable="" if size == "paper" else "no stand-in runs short of memory, as the authors' machine did",
        )
    )
    cells = [item for name in names for item in batches[name]]
    cells += [item for name in names for item in dimensions[name] if item["d"] != common.DIMENSION]
    panels = [
        panel
        for name in names
        for panel in (
            common.batch_panel(f"{name}, d = 128", batches[name]),
            common.dimension_panel(f"{name}, 8 x 4", dimensions[name]),
        )
    ]
    return common.recipe(
        size,
        cells,
        tuple(claims),
        (
            collapse_figure(
                "networks",
                "Diameter by batch and dimension, of other networks",
                "Xu et al. (2024), figures 10 to 12",
                panels,
            ),
            *(
                common.table(
                    f"{name}: held-out embeddings before and after training, by the batch",
                    batches[name],
                    common.by_batch,
                )
                for name in names
            ),
        ),
        FAIR_E,
        seeds=5,
    )


EXPERIMENT = Experiment(
    "xu2024-E",
    "Other networks",
    "As A and B, with ResNet-50, GoogLeNet and a network of two convolutions (figures 10 to 12). Large batches and "
    "few dimensions collapse in all three. GoogLeNet also collapses at some d above 256, which the authors lay to "
    "memory.",
    made("here"),
    made("paper"),
)
