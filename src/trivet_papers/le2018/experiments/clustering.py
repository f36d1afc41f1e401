"""NMI under noise on all three data sets: figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from trivet_papers.experiment import Claim, Experiment, Recipe, SeedValue, Size
from trivet_papers.le2018.experiments.common import (
    MIDDLE,
    OVER,
    RATES,
    SOURCES,
    Left,
    NoisyDataset,
    cells,
    gap,
    ratio,
    recipe,
    robustness,
)
from trivet_papers.le2018.noise_figures import clustering_figure


def clustering_claims(sources: Mapping[str, NoisyDataset]) -> tuple[Claim, ...]:
    def ahead(of: SeedValue, source: NoisyDataset, other: str, left: Left = ratio) -> float:
        return gap(of, source, source.nmi, "random", other, left)

    def closer(of: SeedValue, left: Left, name: str) -> float:
        return ahead(of, sources["SOP"], "marginal", left) - ahead(of, sources[name], "marginal", left)

    def resists(of: SeedValue, left: Left, name: str) -> float:
        pretrained, scratch = (
            np.mean([left(of, source, source.nmi, "random", p) for p in MIDDLE])
            for source in (sources[name], sources["SOP"])
        )
        return float(pretrained - scratch)

    measures = {name: (source, source.nmi) for name, source in sources.items()}
    return (
        robustness(
            "Over all three data sets, fixed semi-hard negatives lose NMI faster than random ones.",
            lambda of, left: float(np.mean([ahead(of, source, "fixed", left) for source in sources.values()])),
            f"random less fixed, NMI, {OVER}, mean over data sets",
            ("fixed", "random"),
            *measures.values(),
        ),
        *(
            robustness(
                f"A pretrained start makes the marginal loss robust: on {sources[name].name} it lies less behind the "
                f"triplet loss than on {sources['SOP'].name}, which is trained from random weights.",
                partial(closer, name=name),
                f"random less marginal on {sources['SOP'].name}, less that on {sources[name].name}, NMI, {OVER}",
                ("marginal", "random"),
                measures["SOP"],
                measures[name],
                premise=lambda of: ahead(of, sources["SOP"], "marginal"),
            )
            for name in ("CUB", "Flowers")
        ),
        *(
            robustness(
                f"A pretrained start helps the triplet loss too: on {sources[name].name} it resists noise more than on "
                f"{sources['SOP'].name}, which is trained from random weights.",
                partial(resists, name=name),
                f"{sources[name].name} less {sources['SOP'].name}, random negatives, NMI, {OVER}",
                ("random",),
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
