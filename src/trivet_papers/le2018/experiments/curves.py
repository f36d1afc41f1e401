"""Curves over the noise rate on three data sets: figures 1 to 3 and 5 to 7."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from trivet_papers.experiment import Claim, Experiment, Recipe, ResultTable, SeedValue, Size
from trivet_papers.le2018.experiments.common import (
    MIDDLE,
    OVER,
    RATES,
    SOURCES,
    Left,
    NoisyDataset,
    cells,
    gains,
    gap,
    ratio,
    recipe,
    references,
    robustness,
    untrained,
)
from trivet_papers.le2018.noise_figures import METHODS, cell, curves_figure

GOOD = 0.8  # of a ratio: what counts as good relative performance
ALIKE = 0.05  # of a ratio: so much less is still as robust


def half_way(of: SeedValue, source: NoisyDataset, measure: str, method: str, left: Left) -> float:
    """The rate at which half of the fall of what is left between p = 0 and the largest p has happened."""
    falls = [1 - left(of, source, measure, method, p) for p in RATES]
    if not np.isfinite(falls).all() or falls[-1] <= 0:
        return math.nan
    later = next(index for index, fall in enumerate(falls) if fall >= falls[-1] / 2)
    low, high = falls[later - 1], falls[later]
    return RATES[later - 1] + (falls[-1] / 2 - low) / (high - low) * (RATES[later] - RATES[later - 1])


def named(source: NoisyDataset) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two measures with their names."""
    return ("recall@1", source.recall), ("NMI", source.nmi)


def sampling_claims(source: NoisyDataset) -> list[Claim]:
    """The claims on the two ways to choose negatives, of every data set."""
    methods = ("fixed", "random")

    def faster(of: SeedValue, left: Left, measure: str) -> float:
        return gap(of, source, measure, "random", "fixed", left)

    def narrower(of: SeedValue, left: Left) -> float:
        return faster(of, left, source.recall) - faster(of, left, source.nmi)

    return [
        Claim(
            "Without noise, fixed semi-hard negatives are slightly better than random ones.",
            lambda of: (
                of(source.recall, **cell(source.name, "fixed")) - of(source.recall, **cell(source.name, "random"))
            ),
            "fixed less random at p = 0, recall@1",
            requires=partial(gains, source=source, measure=source.recall, methods=methods),
            untested="training gains less than a point",
        ),
        *(
            robustness(
                f"Under noise, fixed semi-hard negatives lose {name} faster than random ones.",
                partial(faster, measure=measure),
                f"random less fixed, {name}, {OVER}",
                methods,
                (source, measure),
            )
            for name, measure in named(source)
        ),
        robustness(
            "Fixed semi-hard negatives fall behind random ones less in NMI than in recall@1.",
            narrower,
            f"random less fixed in recall@1, less the same in NMI, {OVER}",
            methods,
            (source, source.recall),
            (source, source.nmi),
            premise=lambda of: faster(of, ratio, source.recall),
        ),
    ]


def as_robust(source: NoisyDataset) -> list[Claim]:
    """The claims that from a pretrained network the marginal loss is as robust as the triplet loss."""

    def not_less(of: SeedValue, left: Left, measure: str) -> float:
        return gap(of, source, measure, "marginal", "random", left) + ALIKE

    return [
        robustness(
            f"From a pretrained network the marginal loss keeps as much {name} as the triplet loss, random negatives.",
            partial(not_less, measure=measure),
            f"marginal less random, plus five points, {name}, {OVER}",
            ("marginal", "random"),
            (source, measure),
        )
        for name, measure in named(source)
    ]


def sop_claims(source: NoisyDataset) -> list[Claim]:
    def late(of: SeedValue, left: Left, measure: str, p: float) -> float:
        """The fall of what is left from p to 2 p less that from 0 to p, fixed negatives."""
        return 2 * left(of, source, measure, "fixed", p) - left(of, source, measure, "fixed", 2 * p) - 1

    def good(of: SeedValue, left: Left, measure: str) -> float:
        return left(of, source, measure, "random", 0.5) - GOOD

    def last(of: SeedValue, left: Left, measure: str) -> dict[str, float]:
        return {method: gap(of, source, measure, method, "marginal", left) for method in ("random", "fixed")}

    def rates(p: float) -> str:
        return f"fall of the ratio from p = {p:g} to {2 * p:g} less that from 0 to {p:g}, fixed"

    return [
        *sampling_claims(source),
        robustness(
            "From p = 0.3 on recall@1 with fixed semi-hard negatives falls further behind its topline than before.",
            partial(late, measure=source.recall, p=0.3),
            f"{rates(0.3)}, recall@1",
            ("fixed",),
            (source, source.recall),
        ),
        robustness(
            "From p = 0.4 on NMI with fixed semi-hard negatives falls faster than before.",
            partial(late, measure=source.nmi, p=0.4),
            f"{rates(0.4)}, NMI",
            ("fixed",),
            (source, source.nmi),
        ),
        *(
            robustness(
                "Random semi-hard negatives still do well beside the topline at p = 0.5, with four fifths of its "
                f"{name}.",
                partial(good, measure=measure),
                f"ratio to the topline at p = 0.5 less {GOOD:g}, {name}",
                ("fixed", "random"),
                (source, measure),
            )
            for name, measure in named(source)
        ),
        *(
            robustness(
                f"From random weights the marginal loss loses {name} faster than both triplet losses.",
                partial(last, measure=measure),
                f"random and fixed less marginal, {name}, {OVER}",
                tuple(METHODS),
                (source, measure),
            )
            for name, measure in named(source)
        ),
    ]


def cub_claims(source: NoisyDataset) -> list[Claim]:
    def later(of: SeedValue, left: Left) -> float:
        random, marginal = (half_way(of, source, source.recall, name, left) for name in ("random", "marginal"))
        return random - marginal

    return [
        *sampling_claims(source),
        *as_robust(source),
        robustness(
            "The marginal loss breaks down at a lower noise rate than the triplet loss with random negatives.",
            later,
            "p at which half of the fall of the ratio up to p = 0.8 has happened, random less marginal, recall@1",
            ("marginal", "random"),
            (source, source.recall),
            unit="",
        ),
    ]


def flowers_claims(source: NoisyDataset) -> list[Claim]:
    methods = ("marginal", "random")

    def fall(of: SeedValue, method: str, kind: str) -> float:
        start = of(source.recall, **cell(source.name, method))
        return start - float(np.mean([of(source.recall, **cell(source.name, method, kind, p)) for p in MIDDLE]))

    def scarce(of: SeedValue) -> dict[str, float]:
        falls = [fall(of, method, "topline") for method in methods]
        return gains(of, source, source.recall, methods) | {"fewer items": max(falls)}

    return [
        *sampling_claims(source),
        *as_robust(source),
        robustness(
            "In plain recall@1 the marginal loss falls slightly faster under noise than the triplet loss.",
            lambda of, _: fall(of, "marginal", "noise") - fall(of, "random", "noise"),
            "fall of recall@1 from p = 0 to the mean of p = 0.3 to 0.6, marginal less random",
            methods,
            (source, source.recall),
        ),
        Claim(
            "The marginal loss suffers more than the triplet loss from fewer clean items, which the paper takes for a "
            "possible cause.",
            lambda of: fall(of, "marginal", "topline") - fall(of, "random", "topline"),
            "the same fall of the topline, marginal less random",
            requires=scarce,
            untested="training gains less than a point, or fewer items cost nothing",
            ours=True,
        ),
    ]


def table(source: NoisyDataset) -> ResultTable:
    rows = tuple(
        (f"{METHODS[method]}, p = {p:g}{', topline' if kind == 'topline' else ''}", cell(source.name, method, kind, p))
        for method in METHODS
        for p in (0.0, 0.2, 0.4, 0.6, 0.8)
        for kind in (("noise", "topline") if p else ("noise",))
    )
    return ResultTable(f"{source.name}: test items with clean labels", (*references(source), *rows), source.columns)


def curves(
    key: str, title: str, ran: str, data: str, claims: Callable[[NoisyDataset], list[Claim]], *figures: str
) -> Experiment:
    def made(size: Size) -> Recipe:
        source = SOURCES[size][data]
        drawings = [
            curves_figure(name, source.name, measure, figure, RATES, untrained(source))
            for name, measure, figure in zip(("recall", "nmi"), (source.recall, source.nmi), figures, strict=True)
        ]
        runs = [(source, cell) for cell in cells(source)]
        named = tuple(replace(claim, sentence=f"{source.name}: {claim.sentence}") for claim in claims(source))
        return recipe(size, runs, named, (*drawings, table(source)))

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
        "From a pretrained network: birds, and CIFAR-10 in their place (figures 2 and 6)",
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
