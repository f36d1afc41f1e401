"""Coverage of the intervals of retrieval by relations: how often those of draws from known populations hold the truth.

    .venv/bin/python studies/relation_intervals.py     # about ten minutes on one core

Each draw has other items: with tags or grades, single ones; with pairs, groups of what belongs together. The truth is
the mean of the measure over all draws of the design. Two embeddings, each of the items of a draw with noise of its own,
are equally good: how often their difference is called one is the last column. Results go to
studies/results/relation_intervals.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trivet
from trivet import Grades, Pairs, Tags
from trivet.metrics import Retrieval, retrieve, retrieve_both_ways

Array = np.ndarray[Any, np.dtype[Any]]
Noise = Callable[[Array], Array]
Draw = Callable[[np.random.Generator], Callable[[Noise], Retrieval]]
RESULTS = Path(__file__).parent / "results" / "relation_intervals.json"
MEASURES = ("recall@1", "precision@10", "r-precision", "map", "mrr", "ndcg@10")
NOISE = 0.3  # standard deviation of the noise of either embedding
FIXED = np.random.default_rng(1128)
CENTRES, PLANE = FIXED.normal(size=(15, 7)), FIXED.uniform(-1, 1, size=(40, 2))


def tagged(generator: np.random.Generator, *, match: Any = "any", queries: int = 0) -> Callable[[Noise], Retrieval]:
    """160 items with one to some of 15 tags, rare and frequent ones, near the mean of what these stand for."""
    carried = generator.random((160, 15)) < 1 / np.arange(2, 17)
    carried[np.arange(160), generator.integers(15, size=160)] = True
    rows = carried @ CENTRES / np.sqrt(carried.sum(axis=1))[:, None] + generator.normal(size=(160, 7))
    tags = Tags(carried.astype(int), match=match)

    def of(noise: Noise) -> Retrieval:
        found = noise(rows)
        if not queries:
            return retrieve(found, tags, measures=MEASURES)
        asked, others = slice(queries), slice(queries, None)
        return retrieve(
            found[asked], tags[asked], gallery=found[others], gallery_labels=tags[others], measures=MEASURES
        )

    return of


def paired(generator: np.random.Generator, *, groups: int, size: int, way: str) -> Callable[[Noise], Retrieval]:
    """Groups of an item of the left side and some of the right."""
    left = generator.normal(size=(groups, 5))
    right = np.repeat(left, size, axis=0) + 0.7 * generator.normal(size=(groups * size, 5))
    listed = np.stack([np.repeat(np.arange(groups), size), np.arange(groups * size)], axis=1)
    pairs = Pairs(groups, groups * size, listed, aligned=False)
    return lambda noise: retrieve_both_ways(noise(left), noise(right), pairs, measures=MEASURES)[way]


def graded(generator: np.random.Generator) -> Callable[[Noise], Retrieval]:
    """Items of 40 places, graded by how near these are; a grade of 1 is ignored."""
    places = generator.integers(40, size=160)
    between = np.linalg.norm(PLANE[:, None] - PLANE, axis=2)
    grades = Grades(
        np.select([between < 0.15, between < 0.4, between < 0.6], [3, 2, 1], 0),
        positive=2, negative=1, items=torch.from_numpy(places),
    )  # fmt: skip
    rows = np.pad(2 * PLANE[places], ((0, 0), (0, 3))) + 0.6 * generator.normal(size=(160, 5))
    return lambda noise: retrieve(noise(rows), grades, measures=MEASURES)


DESIGNS: dict[str, tuple[str, Draw]] = {
    "tags, any": ("queries", tagged),
    "tags, half of them": ("queries", partial(tagged, match=0.5)),
    "tags, 60 queries and a gallery": ("queries", partial(tagged, queries=60)),
    "grades": ("queries", graded),
    "110 pairs": ("classes", partial(paired, groups=110, size=1, way="left to right")),
    "50 groups of 1 and 4": ("classes", partial(paired, groups=50, size=4, way="left to right")),
    "50 groups of 4 and 1": ("classes", partial(paired, groups=50, size=4, way="right to left")),
}


def coverage(draw: Draw, over: Any, draws: int, seed: int) -> dict[str, dict[str, float]]:
    """Measure -> truth, deviation over draws, mean width, share of intervals that hold it, and differences called."""
    generator = np.random.default_rng(seed)
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in MEASURES}
    for _ in range(draws):
        of = draw(generator)
        first, second = (of(lambda found: found + NOISE * generator.normal(size=found.shape)) for _ in range(2))
        means, ends, differences = first.mean(), first.intervals(), first.differences(second)
        for name in MEASURES:
            interval, other = ends[name][over], differences[name][over].interval
            rows[name].append((means[name], interval.low, interval.high, other.low, other.high))
    results = {}
    for name, values in rows.items():
        mean, low, high, below, above = np.array(values).T
        results[name] = {
            "truth": float(mean.mean()),
            "deviation": float(mean.std(ddof=1)),
            "width": float((high - low).mean()),
            "coverage": float(((low <= mean.mean()) & (mean.mean() <= high)).mean()),
            "called_different": float(((below > 0) | (above < 0)).mean()),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {"trivet": trivet.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "draws": arguments.draws,
        "designs": {},
    }
    for number, (name, (over, draw)) in enumerate(DESIGNS.items()):
        found = coverage(draw, over, arguments.draws, seed=28 + number)
        record["designs"][name] = {"over": over, "measures": found}
        for measure, row in found.items():
            print(f"{name:32s} {measure:14s}", *(f"{key} {value:.3f}" for key, value in row.items()), flush=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
