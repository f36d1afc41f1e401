"""Intervals of verification: how often they contain the truth, their width against a true bootstrap, and their time.

    .venv/bin/python studies/intervals.py     # about five minutes on two cores

coverage: 400 sets of 40 Gaussian classes of five items in three dimensions, each class with a spread of its own; the
share of 90 % intervals over classes (500 resamples) that contain the ROC AUC and the TAR at FAR 0.1 of four sets of 400
such classes. width: one set of 20 classes of 9 items; the width of the intervals over 1.96 x 2 standard deviations of
1,000 true resamples of items, or of classes, each measured anew. time: 60,000 items in 1,000 classes, 2,000,000 pairs,
1,000 resamples. Results go to studies/results/intervals.json.
"""

from __future__ import annotations

import json
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trivet.metrics.roc import Roc
from trivet.metrics.verification import verify

Array = np.ndarray[Any, np.dtype[Any]]
FARS = (0.1, 0.02)


def gaussian_classes(generator: np.random.Generator, classes: int, items: int) -> tuple[Array, Array]:
    """Points `(classes * items, 3)` and their classes."""
    labels = np.repeat(np.arange(classes), items)
    spread = (0.3 + generator.random(classes))[labels, None]
    return generator.normal(size=(classes, 3))[labels] + spread * generator.normal(size=(len(labels), 3)), labels


def coverage() -> dict[str, float]:
    """Share of the intervals over classes that hold the truth."""
    generator = np.random.default_rng(5)
    whole = [verify(*gaussian_classes(generator, 400, 5), fars=FARS[:1]) for _ in range(4)]
    truth = {
        "roc-auc": float(np.mean([one.roc_auc for one in whole])),
        "tar@far=0.1": float(np.mean([one.tar_at_far[0.1] for one in whole])),
    }
    hits = dict.fromkeys(truth, 0)
    for seed in range(400):
        one = verify(*gaussian_classes(generator, 40, 5), fars=FARS[:1])
        found = one.intervals(resamples=500, seed=seed, level=0.9)
        for name, value in truth.items():
            hits[name] += found[name]["classes"].low <= value <= found[name]["classes"].high
    return {name: count / 400 for name, count in hits.items()}


def resampled(points: Array, labels: Array, over: str, generator: np.random.Generator) -> Roc:
    """The curve of a resample; copies of one item are no pair, nor are items of two copies of one class."""
    if over == "queries":
        rows = generator.integers(len(points), size=len(points))
        own = labels[rows]
    else:
        drawn = generator.integers(labels.max() + 1, size=labels.max() + 1)
        rows = np.concatenate([np.flatnonzero(labels == one) for one in drawn])
        own = np.repeat(np.arange(len(drawn)), [int((labels == one).sum()) for one in drawn])
    left, right = np.triu_indices(len(rows), 1)
    same = own[left] == own[right]
    kept = (rows[left] != rows[right]) & (same | (labels[rows[left]] != labels[rows[right]]))
    left, right = left[kept], right[kept]
    return Roc.of(np.linalg.norm(points[rows[left]] - points[rows[right]], axis=1), own[left] == own[right])


def width() -> dict[str, dict[str, float]]:
    """Width of the intervals over that of a true bootstrap."""
    generator = np.random.default_rng(0)
    points, labels = gaussian_classes(generator, 20, 9)
    found = verify(points, labels, fars=FARS).intervals()
    ratios: dict[str, dict[str, float]] = {}
    for over in ("queries", "classes"):
        curves = [resampled(points, labels, over, generator) for _ in range(1000)]
        values = {
            "roc-auc": [curve.area for curve in curves],
            **{f"tar@far={far:g}": [curve.true_at(far) for curve in curves] for far in FARS},
        }
        for name, column in values.items():
            ends = found[name][over]
            ratios.setdefault(name, {})[over] = float((ends.high - ends.low) / (2 * 1.96 * np.std(column)))
    return ratios


def seconds() -> dict[str, float]:
    """Of the intervals alone."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(1000), 60)
    points = generator.standard_normal((1000, 16))[labels] + generator.standard_normal((len(labels), 16))
    one = verify(points, labels)
    times = {}
    for average in ("micro", "macro"):
        began = time.perf_counter()
        one.intervals(average)  # type: ignore[arg-type]  # one of the two
        times[average] = time.perf_counter() - began
    return times


def main() -> None:
    record = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {"torch": torch.__version__, "numpy": np.__version__, "machine": platform.machine()},
        "seconds": seconds(),
        "width": width(),
        "coverage": coverage(),
    }
    path = Path(__file__).parent / "results" / "intervals.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
