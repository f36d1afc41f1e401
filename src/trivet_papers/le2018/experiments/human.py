"""Labels of people in place of drawn noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from trivet_papers.experiment import Cell, Claim, Experiment, Recipe, ResultTable, SeedValue, Size
from trivet_papers.le2018.experiments.common import HUMAN, SOURCES, NoisyDataset, recipe, references, untrained
from trivet_papers.le2018.noise_figures import METHODS, cell, human_figure

UNIFORM = "uniform"


def human_cell(source: NoisyDataset, method: str, kind: str) -> Cell:
    """The factors of a run on the labels of people, or on drawn noise as frequent as the worst of these."""
    p = HUMAN.get(kind, HUMAN["worse"])
    return {"data": source.name, "method": method, "labels": "noise" if kind == UNIFORM else kind, "p": p}


def human_claims(source: NoisyDataset) -> tuple[Claim, ...]:
    def left(of: SeedValue, method: str, kind: str) -> float:
        p = HUMAN[kind]
        return of(source.recall, **human_cell(source, method, kind)) / of(
            source.recall, **cell(source.name, method, "topline", p)
        )

    def mean(of: SeedValue, method: str) -> float:
        return float(np.mean([left(of, method, kind) for kind in HUMAN]))

    def slope(of: SeedValue) -> float:
        rates = [0.0, *HUMAN.values()]
        cells = [cell(source.name, "random"), *(human_cell(source, "random", kind) for kind in HUMAN)]
        values = [of(source.recall, **factors) for factors in cells]
        return -float(np.polyfit(rates, values, 1)[0]) if np.isfinite(values).all() else math.nan

    claims = (
        Claim(
            "The more labels of people are wrong, the lower is recall@1.",
            slope,
            "fall of recall@1 for each unit of the rate, random negatives",
        ),
        Claim(
            "Under the labels of people, too, fixed semi-hard negatives lose recall@1 faster than random ones.",
            lambda of: mean(of, "random") - mean(of, "fixed"),
            "random less fixed, recall@1, ratio to the topline, mean over three sets of labels",
        ),
        Claim(
            "Under the labels of people, too, the marginal loss from random weights loses recall@1 faster than both "
            "triplet losses.",
            lambda of: {method: mean(of, method) - mean(of, "marginal") for method in ("random", "fixed")},
            "random and fixed less marginal, recall@1, ratio to the topline, mean over the same",
        ),
    )
    return tuple(replace(claim, ours=True) for claim in claims)  # the paper draws its noise


def made(size: Size) -> Recipe:
    source = SOURCES[size]["CIFAR"]
    rows: list[tuple[str, Cell]] = references(source)
    for method, name in METHODS.items():
        rows.append((f"{name}, clean", cell(source.name, method)))
        for kind, p in HUMAN.items():
            rows.append((f"{name}, {kind}, {100 * p:.0f} % wrong", human_cell(source, method, kind)))
            rows.append((f"{name}, {100 * (1 - p):.0f} % of the items, clean", cell(source.name, method, "topline", p)))
        rows.append((f"{name}, drawn, {100 * HUMAN['worse']:.0f} % wrong", human_cell(source, method, UNIFORM)))
    shows = (
        human_figure(source.name, source.recall, HUMAN, untrained(source)),
        ResultTable(f"{source.name}: test images with clean labels", tuple(rows), source.columns),
    )
    return recipe(size, [(source, factors) for _, factors in rows], human_claims(source), shows)


EXPERIMENT = Experiment(
    "le2018-human",
    "Labels of people in place of drawn noise",
    "Not run by the paper, whose noise is drawn and uniform; it says that its analysis can be applied to other "
    "noise. Its sentences on drawn noise, asked of the labels that people gave CIFAR-10.",
    made("here"),
    made("paper"),
)
