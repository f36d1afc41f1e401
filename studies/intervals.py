"""Coverage of the intervals of measures: how often those of draws from known populations contain the truth.

    TRIVET_DATA=... .venv/bin/python studies/intervals.py     # about an hour on one core

Each design has a population of classes and items. "queries": the same classes, other items in each draw; "classes":
other classes in each draw, and with them their sizes; of sizes that stay the same, intervals of what depends on them
are too wide. The truth is the mean of the measure over all draws of the design. Two embeddings, each of the items of a
draw with noise of its own, are equally good: how often their difference is called one is the last column. The method
was chosen on other designs (sizes, dimensions and seeds; CLINC150 and other characters of Omniglot as real ones); these
were written down when it was final. Items of MNIST are drawn from thousands of each digit: an interval is about a
population without end, and 8 of the 20 images of a character would vary less than 8 of thousands.
Results go to studies/results/intervals.json, design by design.

Of exact intervals one in fifteen would lie outside 0.93 to 0.97, by the chance of 400 draws.

A TAR of fewer than ten accepted negative pairs has no interval: of earlier populations, the two pairs that a FAR of
1e-4 leaves gave intervals of which 0.67 to 0.98 held the truth. Ten was chosen on other characters, CLINC150 and
Fashion-MNIST. That classes of unlike sizes count as fewer, what pairs do alone once and a half in ROC AUC, and what two
items do to each other twice in a difference, was chosen on other populations.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import trivet
from trivet.datasets.download import find_root
from trivet.metrics import evaluate
from trivet.metrics.intervals import OVERS, Over

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Callable[[np.random.Generator, bool], tuple[Array, Array]]
RESULTS = Path(__file__).parent / "results" / "intervals.json"
MEASURES = (
    "recall@1", "recall@8", "precision@10", "r-precision", "map@r", "map", "mrr", "rbp", "nmi", "ami", "roc-auc",
    "tar@far", "verification-accuracy",
)  # fmt: skip
NOISE = 0.5  # standard deviation of the noise of either embedding, over that of all coordinates


def gaussian(sizes: Array, dimension: int, spread: float, *, tail: float = 0, modes: int = 1) -> Draw:
    """Classes around Gaussian centres of this spread, items of unit variance about them, or of Student's t.

    Args:
        sizes: `(C,)` items of the classes.
        tail: degrees of freedom of Student's t; 0 for normal.
        modes: centres of a class.
    """
    fixed = np.random.default_rng(4111).normal(size=(len(sizes), modes, dimension)) * spread

    def draw(generator: np.random.Generator, fresh: bool) -> tuple[Array, Array]:
        centres = generator.normal(size=fixed.shape) * spread if fresh else fixed
        labels = np.repeat(np.arange(len(sizes)), generator.choice(sizes, len(sizes)) if fresh else sizes)
        shape = len(labels), dimension
        noise = generator.standard_t(tail, size=shape) if tail else generator.normal(size=shape)
        return centres[labels, generator.integers(modes, size=len(labels))] + noise, labels

    return draw


def subset(rows: Array, classes: Array, count: int, items: int) -> Draw:
    """So many items of so many classes of a set, which is the population."""
    members = [np.flatnonzero(classes == number) for number in np.unique(classes)]
    fixed = np.random.default_rng(4111).permutation(len(members))[:count]

    def draw(generator: np.random.Generator, fresh: bool) -> tuple[Array, Array]:
        chosen = generator.permutation(len(members))[:count] if fresh else fixed
        numbers = np.concatenate([generator.permutation(members[number])[:items] for number in chosen])
        return rows[numbers], np.repeat(np.arange(count), items)

    return draw


def designs() -> dict[str, tuple[Draw, Sequence[Over]]]:
    """Name -> how to draw from it, and what may vary."""
    drawn = {
        "14 classes of 14": gaussian(np.full(14, 14), 9, 0.9),
        "25 classes of 8": gaussian(np.full(25, 8), 13, 0.9),
        "34 classes of 6": gaussian(np.full(34, 6), 11, 1.05),
        "58 classes of 3": gaussian(np.full(58, 3), 12, 1.1),
        "9 classes of 21, 5 dimensions": gaussian(np.full(9, 21), 5, 1.1),
        "18 classes of 3 to 26": gaussian(np.round(np.geomspace(3, 26, 18)).astype(int), 10, 0.95),
        "12 classes of 5 to 40": gaussian(np.round(np.geomspace(5, 40, 12)).astype(int), 9, 0.9),
        "17 classes of 11, heavy tails": gaussian(np.full(17, 11), 10, 1.1, tail=4),
        "13 classes of 15, three modes": gaussian(np.full(13, 15), 9, 1.25, modes=3),
        "15 classes of 13, by chance": gaussian(np.full(15, 13), 9, 0),
        "16 classes of 12, recall@1 0.98": gaussian(np.full(16, 12), 21, 1.45),
        "62 classes of 2": gaussian(np.full(62, 2), 12, 1.25),
    }
    return {
        **{name: (draw, OVERS) for name, draw in drawn.items()},
        "MNIST, 10 digits of 18 images": (subset(*mnist(), 10, 18), ("queries",)),
        "Omniglot, 23 characters of 9 images": (subset(*omniglot(), 23, 9), ("classes",)),
    }


def mnist() -> tuple[Array, Array]:
    """Images `(60000, 30)` of the training set on their first axes, and digits `(60000,)`."""
    images, digits = (
        np.frombuffer(gzip.decompress((find_root(None) / "mnist" / f"train-{name}-ubyte.gz").read_bytes()), np.uint8)
        for name in ("images-idx3", "labels-idx1")
    )
    return on_axes(images[16:].reshape(-1, 784) / 255), digits[8:].astype(np.int64)


def omniglot() -> tuple[Array, Array]:
    """Images `(8000, 30)` on their first axes, and characters `(8000,)`, of the first 400 characters of Omniglot."""
    rows, characters = [], []
    with zipfile.ZipFile(find_root(None) / "omniglot" / "images_background.zip") as archive:
        for name in sorted(entry for entry in archive.namelist() if entry.endswith(".png"))[:8000]:
            image = Image.open(archive.open(name)).convert("L").resize((14, 14), Image.Resampling.BOX)
            rows.append(np.asarray(image, np.float64).ravel() / 255)
            characters.append(name.rsplit("/", 1)[0])
    return on_axes(np.stack(rows)), np.unique(characters, return_inverse=True)[1]


def on_axes(rows: Array) -> Array:
    """Rows `(N, d)` on their first 30 principal axes."""
    centred = rows - rows.mean(axis=0)
    return np.asarray(centred @ np.linalg.eigh(centred.T @ centred)[1][:, -30:])


def coverage(draw: Draw, draws: int, *, over: Over, seed: int) -> dict[str, dict[str, float]]:
    """Measure -> truth, deviation over draws, mean width, share of intervals that hold it, and differences called."""
    generator = np.random.default_rng(seed)
    rows: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(draws):
        points, labels = draw(generator, over == "classes")
        scale = NOISE * points.std()
        first, second = (
            evaluate(points + scale * generator.normal(size=points.shape), {"": labels}, measures=MEASURES)[""]
            for _ in range(2)
        )
        means, ends, differences = first.mean(), first.intervals(), first.differences(second)
        macro_means, macro = first.mean("macro"), first.intervals("macro")
        for name, mean in means.items():
            if mean is not None and name in differences:
                interval, other = ends[name][over], differences[name][over].interval
                rows.setdefault(name, []).append(
                    (mean, interval.low, interval.high, other.low, other.high,
                     math.nan if (macro_mean := macro_means[name]) is None else macro_mean,
                     macro[name][over].low, macro[name][over].high)
                )  # fmt: skip
    results = {}
    for name, values in rows.items():
        mean, low, high, below, above, macro_means, macro_low, macro_high = np.array(values).T
        known = np.isfinite(low)
        if not known.any():  # a TAR of too few accepted pairs
            continue
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
    parser.add_argument("--seed", type=int, default=211)
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
        name, (draw, overs) = named[number]
        began = time.perf_counter()
        record["designs"][name] = {
            over: coverage(draw, arguments.draws, over=over, seed=arguments.seed + number) for over in overs
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
