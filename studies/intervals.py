"""Coverage of the intervals of measures: how often those of draws from known populations contain the truth.

    .venv/bin/python studies/intervals.py --draws 400     # about an hour on one core, 15 minutes for 100 draws

Each design has a population of classes and items. "queries": the same classes, other items in each draw; "classes":
other classes in each draw. The truth is the mean of the measure over all draws of the design. Two embeddings, each of
the items of a draw with noise of its own, are equally good: how often their difference is called one is the last
column. The method was chosen on other designs (sizes, dimensions and seeds; BANKING77 in place of CLINC150). Results go
to studies/results/intervals.json, design by design.

    TRIVET_CLINC=clinc150_minilm.npz     vectors of CLINC150: `embeddings (N, 384)`, `intent (N,)`; without, that design
                                         is left out
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trivet
from trivet.metrics import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Callable[[np.random.Generator, bool], tuple[Array, Array]]
RESULTS = Path(__file__).parent / "results" / "intervals.json"
MEASURES = (
    "recall@1", "recall@8", "precision@10", "r-precision", "map@r", "map", "mrr", "nmi", "ami", "roc-auc", "tar@far",
    "verification-accuracy",
)  # fmt: skip
NOISE = 0.5  # standard deviation of the noise of either embedding, over that of all coordinates


def gaussian(sizes: Array, dimension: int, spread: float, *, tail: float = 0, modes: int = 1) -> Draw:
    """Classes around Gaussian centres of this spread, items of unit variance about them, or of Student's t.

    Args:
        sizes: `(C,)` items of the classes.
        tail: degrees of freedom of Student's t; 0 for normal.
        modes: centres of a class.
    """
    fixed = np.random.default_rng(2026).normal(size=(len(sizes), modes, dimension)) * spread

    def draw(generator: np.random.Generator, fresh: bool) -> tuple[Array, Array]:
        centres = generator.normal(size=fixed.shape) * spread if fresh else fixed
        labels = np.repeat(np.arange(len(sizes)), generator.permutation(sizes) if fresh else sizes)
        shape = len(labels), dimension
        noise = generator.standard_t(tail, size=shape) if tail else generator.normal(size=shape)
        return centres[labels, generator.integers(modes, size=len(labels))] + noise, labels

    return draw


def subset(rows: Array, classes: Array, count: int, items: int) -> Draw:
    """So many items of so many classes of a set, which is the population."""
    members = [np.flatnonzero(classes == number) for number in np.unique(classes)]
    fixed = np.random.default_rng(2026).permutation(len(members))[:count]

    def draw(generator: np.random.Generator, fresh: bool) -> tuple[Array, Array]:
        chosen = generator.permutation(len(members))[:count] if fresh else fixed
        numbers = np.concatenate([generator.permutation(members[number])[:items] for number in chosen])
        return rows[numbers], np.repeat(np.arange(count), items)

    return draw


def designs() -> dict[str, Draw]:
    """Name -> how to draw from it."""
    all_of: dict[str, Draw] = {
        "12 classes of 16": gaussian(np.full(12, 16), 12, 0.9),
        "30 classes of 6": gaussian(np.full(30, 6), 10, 1.0),
        "48 classes of 4": gaussian(np.full(48, 4), 20, 0.9),
        "64 classes of 3": gaussian(np.full(64, 3), 12, 1.1),
        "8 classes of 24, 4 dimensions": gaussian(np.full(8, 24), 4, 1.1),
        "16 classes of 3 to 32": gaussian(np.round(np.geomspace(3, 32, 16)).astype(int), 9, 0.9),
        "14 classes of 13, heavy tails": gaussian(np.full(14, 13), 9, 1.1, tail=4),
        "10 classes of 18, two modes": gaussian(np.full(10, 18), 8, 1.2, modes=2),
        "12 classes of 15, by chance": gaussian(np.full(12, 15), 10, 0),
        "15 classes of 12, recall@1 0.98": gaussian(np.full(15, 12), 20, 1.4),
        "80 classes of 2": gaussian(np.full(80, 2), 12, 1.2),
    }
    if path := os.environ.get("TRIVET_CLINC"):
        with np.load(path) as arrays:
            rows, intents = arrays["embeddings"].astype(np.float64), arrays["intent"]
        all_of["CLINC150, 24 intents of 8 texts"] = subset(rows, intents, 24, 8)
    return all_of


def coverage(draw: Draw, draws: int, *, fresh: bool, seed: int) -> dict[str, dict[str, float]]:
    """Measure -> truth, deviation over draws, mean width, share of intervals that hold it, and differences called."""
    generator, over = np.random.default_rng(seed), "classes" if fresh else "queries"
    rows: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(draws):
        points, labels = draw(generator, fresh)
        scale = NOISE * points.std()
        first, second = (
            evaluate(points + scale * generator.normal(size=points.shape), {"": labels}, measures=MEASURES)[""]
            for _ in range(2)
        )
        means, ends, differences = first.mean(), first.intervals(), first.differences(second)
        macro = first.intervals("macro")
        for name, mean in means.items():
            if mean is not None and name in differences:
                interval, other = ends[name][over], differences[name][over].interval  # type: ignore[index]  # one of both
                macro_mean = first.mean("macro")[name]
                rows.setdefault(name, []).append(
                    (mean, interval.low, interval.high, other.low, other.high, macro_mean or math.nan,
                     macro[name][over].low, macro[name][over].high)
                )  # fmt: skip
    results = {}
    for name, values in rows.items():
        mean, low, high, below, above, macro_means, macro_low, macro_high = np.array(values).T
        known = np.isfinite(low)
        results[name] = {
            "draws": int(known.sum()),
            "truth": float(mean.mean()),
            "deviation": float(mean.std(ddof=1)),
            "width": float((high - low)[known].mean()),
            "coverage": float(((low <= mean.mean()) & (mean.mean() <= high))[known].mean()),
            "macro_coverage": float(
                ((macro_low <= np.nanmean(macro_means)) & (np.nanmean(macro_means) <= macro_high))[known].mean()
            ),
            "called_different": float(((below > 0) | (above < 0))[np.isfinite(below)].mean()),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--designs", nargs="*", type=int, help="their numbers, from 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    named = list(designs().items())
    record: dict[str, Any] = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {"trivet": trivet.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "draws": arguments.draws,
        "designs": {},
    }
    for number in arguments.designs or range(len(named)):
        name, draw = named[number]
        began = time.perf_counter()
        record["designs"][name] = {
            over: coverage(draw, arguments.draws, fresh=over == "classes", seed=arguments.seed + number)
            for over in ("queries", "classes")
        }
        for over, measures in record["designs"][name].items():
            for measure, row in measures.items():
                print(
                    f"{name:32s} {over:8s} {measure:22s}",
                    *(f"{key} {value:.3f}" for key, value in row.items()),
                    flush=True,
                )
        print(name, f"{time.perf_counter() - began:.0f} s", flush=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
