"""NMI under noise on all three data sets: figure 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from trivet_papers.experiment import Claim, Experiment, Recipe, SeedValue, Size
from trivet_papers.le2018.experiments.common import (
    OVER,
    RATES,
    SOURCES,
    NoisyDataset,
    cells,
    gap,
    recipe,
    where_noise_hurts,
)
from trivet_papers.le2018.noise_figures import clustering_figure


def clustering_claims(sources: Mapping[str, NoisyDataset]) -> tuple[Claim, ...]:
    def ahead(of: SeedValue, source: NoisyDataset, other: str) -> float:
        return gap(of, source, source.nmi, "random", other)

    def closer(name: str) -> Callable[[SeedValue], float]:
        return lambda of: ahead(of, sources["SOP"], "marginal") - ahead(of, sources[name], "marginal")

    measures = {name: (source, source.nmi) for name, source in sources.items()}
    return (
        where_noise_hurts(
            Claim(
                "Over all three data sets, fixed semi-hard negatives lose NMI faster than random ones.",
                lambda of: float(np.mean([ahead(of, source, "fixed") for source in sources.values()])),
                f"random less fixed, NMI, {OVER}, mean over data sets",
            ),
            *measures.values(),
        ),
        *(
            where_noise_hurts(
                Claim(
                    f"A pretrained start makes the marginal loss robust: on {sources[name].name} it lies less behind "
                    f"the triplet loss than on {sources['SOP'].name}, which is trained from random weights.",
                    closer(name),
                    f"random less marginal on {sources['SOP'].name}, less that on {sources[name].name}, NMI, {OVER}",
                ),
                measures["SOP"],
                measures[name],
            )
            for name in ("CUB", "Flowers")
        ),
    )


def made(size: Size) -> Recipe:
    sources = {key: SOURCES[size][key] for key in ("SOP", "CUB", "Flowers")}
    runs = [(source, cell) for source in sources.values() for cell in cells(source)]
    shows = (clustering_figure([(source.name, source.nmi) for source in sources.values()], RATES),)
    return recipe(size, runs, clustering_claims(sources), shows)


EXPERIMENT = Experiment(
    "le2018-clustering",
    "What noise leaves of NMI on all three data sets (figure 4)",
    "The runs of the three data sets. Random semi-hard negatives are more robust than fixed ones; the marginal "
    "loss with a pretrained start is as robust as the triplet loss, and from random weights it is not.",
    made("here"),
    made("paper"),
)
