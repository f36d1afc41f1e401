"""Curves over the noise rate on three data sets: figures 1 to 3 and 5 to 7."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from trivet_papers.experiment import Claim, Experiment, Recipe, ResultTable, SeedValue, Size
from trivet_papers.le2018.experiments.common import (
    MIDDLE,
    OVER,
    RATES,
    SOURCES,
    NoisyDataset,
    cells,
    gap,
    ratio,
    recipe,
    references,
    untrained,
    where_noise_hurts,
)
from trivet_papers.le2018.noise_figures import METHODS, cell, curves_figure

GOOD = 0.8  # of a ratio: what counts as good relative performance
ALIKE = 0.05  # of a ratio: so much less is still as robust


def half_way(of: SeedValue, source: NoisyDataset, measure: str, method: str) -> float:
    """The rate at which half of the fall of the ratio between p = 0 and the largest p has happened."""
    falls = [1 - ratio(of, source, measure, method, p) for p in RATES]
    if not np.isfinite(falls).all() or falls[-1] <= 0:
        return math.nan
    later = next(index for index, fall in enumerate(falls) if fall >= falls[-1] / 2)
    low, high = falls[later - 1], falls[later]
    return RATES[later - 1] + (falls[-1] / 2 - low) / (high - low) * (RATES[later] - RATES[later - 1])


def without_noise(source: NoisyDataset) -> Claim:
    """The claim on clean labels."""
    return Claim(
        "Without noise, fixed semi-hard negatives are slightly better than random ones.",
        lambda of: of(source.recall, **cell(source.name, "fixed")) - of(source.recall, **cell(source.name, "random")),
        "fixed less random at p = 0, recall@1",
    )


def fixed_falls_faster(source: NoisyDataset) -> list[Claim]:
    return [
        where_noise_hurts(
            Claim(
                f"Under noise, fixed semi-hard negatives lose {name} faster than random ones.",
                partial(gap, source=source, measure=measure, method="random", other="fixed"),
                f"random less fixed, {name}, {OVER}",
            ),
            (source, measure),
        )
        for name, measure in (("recall@1", source.recall), ("NMI", source.nmi))
    ]


def as_robust(source: NoisyDataset) -> list[Claim]:
    """The claims that from a pretrained network the marginal loss is as robust as the triplet loss."""

    def not_less(measure: str) -> Callable[[SeedValue], float]:
        return lambda of: gap(of, source, measure, "marginal", "random") + ALIKE

    return [
        where_noise_hurts(
            Claim(
                f"From a pretrained network the marginal loss keeps as much {name} as the triplet loss, "
                "random negatives.",
                not_less(measure),
                f"marginal less random, plus five points, {name}, {OVER}",
            ),
            (source, measure),
        )
        for name, measure in (("recall@1", source.recall), ("NMI", source.nmi))
    ]


def sop_claims(source: NoisyDataset) -> tuple[Claim, ...]:
    def widens(of: SeedValue, method: str) -> float:
        """The fall of the ratio from p = 0.3 to 0.6 less that from 0 to 0.3."""
        return 2 * ratio(of, source, source.recall, method, 0.3) - ratio(of, source, source.recall, method, 0.6) - 1

    def last(measure: str) -> Callable[[SeedValue], dict[str, float]]:
        return lambda of: {method: gap(of, source, measure, method, "marginal") for method in ("random", "fixed")}

    def narrower(of: SeedValue) -> float:
        by_recall, by_nmi = (gap(of, source, measure, "random", "fixed") for measure in (source.recall, source.nmi))
        return by_recall - by_nmi

    by_recall = (
        Claim(
            "From p = 0.3 on the gap to the topline widens more with fixed semi-hard negatives than with random ones.",
            lambda of: widens(of, "fixed") - widens(of, "random"),
            "fall of the ratio from p = 0.3 to 0.6 less that from 0 to 0.3, fixed less random, recall@1",
        ),
        Claim(
            "Random semi-hard negatives still do well, beside the topline, at p = 0.5.",
            lambda of: ratio(of, source, source.recall, "random", 0.5) - GOOD,
            f"ratio to the topline at p = 0.5 less {GOOD:g}, recall@1",
        ),
        *(
            Claim(
                f"From random weights the marginal loss loses {name} faster than both triplet losses.",
                last(measure),
                f"random and fixed less marginal, {name}, {OVER}",
            )
            for name, measure in (("recall@1", source.recall), ("NMI", source.nmi))
        ),
        Claim(
            "Fixed semi-hard negatives fall behind random ones less in NMI than in recall@1.",
            narrower,
            f"random less fixed in recall@1, less the same in NMI, {OVER}",
        ),
    )
    tested = (where_noise_hurts(claim, (source, source.recall)) for claim in by_recall)
    return (without_noise(source), *fixed_falls_faster(source), *tested)


def cub_claims(source: NoisyDataset) -> tuple[Claim, ...]:
    return (
        without_noise(source),
        *fixed_falls_faster(source),
        *as_robust(source),
        where_noise_hurts(
            Claim(
                "The marginal loss breaks down earlier than the triplet loss with random negatives, at 50 % against "
                "60 %.",
                lambda of: (
                    half_way(of, source, source.recall, "random") - half_way(of, source, source.recall, "marginal")
                ),
                "p at which half of the fall of the ratio up to p = 0.8 has happened, random less marginal, recall@1",
            ),
            (source, source.recall),
        ),
    )


def flowers_claims(source: NoisyDataset) -> tuple[Claim, ...]:
    def fall(of: SeedValue, method: str, kind: str) -> float:
        start = of(source.recall, **cell(source.name, method))
        return start - float(np.mean([of(source.recall, **cell(source.name, method, kind, p)) for p in MIDDLE]))

    return (
        without_noise(source),
        *fixed_falls_faster(source),
        *as_robust(source),
        where_noise_hurts(
            Claim(
                "In plain recall@1 the marginal loss falls slightly faster under noise than the triplet loss.",
                lambda of: fall(of, "marginal", "noise") - fall(of, "random", "noise"),
                "fall of recall@1 from p = 0 to the mean of p = 0.3 to 0.6, marginal less random",
            ),
            (source, source.recall),
        ),
        Claim(
            "The marginal loss suffers more than the triplet loss from fewer clean items.",
            lambda of: fall(of, "marginal", "topline") - fall(of, "random", "topline"),
            "the same fall of the topline, marginal less random",
        ),
    )


def table(source: NoisyDataset) -> ResultTable:
    rows = tuple(
        (f"{METHODS[method]}, p = {p:g}{', topline' if kind == 'topline' else ''}", cell(source.name, method, kind, p))
        for method in METHODS
        for p in (0.0, 0.2, 0.4, 0.6, 0.8)
        for kind in (("noise", "topline") if p else ("noise",))
    )
    return ResultTable(f"{source.name}: test items with clean labels", (*references(source), *rows), source.columns)


def curves(
    key: str, title: str, ran: str, data: str, claims: Callable[[NoisyDataset], tuple[Claim, ...]], *figures: str
) -> Experiment:
    def made(size: Size) -> Recipe:
        source = SOURCES[size][data]
        drawings = [
            curves_figure(name, source.name, measure, figure, RATES, untrained(source))
            for name, measure, figure in zip(("recall", "nmi"), (source.recall, source.nmi), figures, strict=True)
        ]
        runs = [(source, cell) for cell in cells(source)]
        return recipe(size, runs, claims(source), (*drawings, table(source)))

    return Experiment(f"le2018-{key}", title, ran, made("here"), made("paper"))


EXPERIMENTS = (
    curves(
        "sop",
        "Many small classes, from random weights (figures 1 and 5)",
        "ResNet-34 from random weights on SOP. Curves of recall@1 and NMI over the noise rate, and their ratio to the "
        "topline of 1 - p clean items: fixed semi-hard negatives fall after 30 %, random ones still do well past 50 "
        "%, the marginal loss falls first.",
        *("SOP", sop_claims, "figure 1", "figure 5"),
    ),
    curves(
        "cub",
        "From a pretrained network: birds (figures 2 and 6)",
        "ResNet-34 of ImageNet on CUB. Fixed semi-hard negatives fall faster than random ones; the marginal loss is "
        "about as robust as the triplet loss with random ones, with the break at 50 against 60 %.",
        *("CUB", cub_claims, "figure 2", "figure 6"),
    ),
    curves(
        "flowers",
        "From a pretrained network: flowers (figures 3 and 7)",
        "ResNet-34 of ImageNet on Flowers-102. Fixed semi-hard negatives fall faster than random ones; the marginal "
        "loss falls slightly faster than the triplet loss, as it also suffers more from fewer items, and is as robust "
        "beside its topline.",
        *("Flowers", flowers_claims, "figure 3", "figure 7"),
    ),
)
