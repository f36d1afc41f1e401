"""Time and memory of a comparison of new vectors with a reference, against the bare products.

    .venv/bin/python benchmarks/drift.py                     # a few minutes on two cores
    .venv/bin/python benchmarks/drift.py --items 20000 --output /tmp/drift.md

Both sets have as many vectors of 512 coordinates, around 1,000 means at random. The floor is the float32 products of
the same sizes, block by block: with the frequencies, of the assignments with the features, and with the anchors. Both
take turns in one process, backwards in every other round; a ratio is taken within each round, and the median counts.
Processor seconds are those of all threads, which a busy machine changes less than the time on the clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from core import environment, seconds, table
from trivet.drift import find_drift
from trivet.drift.comparison import COMPARED, FREQUENCIES, ROWS, SCALES
from trivet.drift.permutation import BLOCK
from trivet.drift.planted import DRAWS, SHARES
from trivet.drift.scope import ANCHORS, SOUGHT

WIDTH, MEANS, ASSIGNMENTS = 512, 1000, 1000 + len(SHARES) * DRAWS


def made(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors `(N, WIDTH)` of both sets."""
    draw = np.random.default_rng(0)
    means = draw.normal(size=(MEANS, WIDTH)).astype(np.float32)
    reference, now = (
        means[draw.integers(MEANS, size=count)] + 1.5 * draw.standard_normal((count, WIDTH), dtype=np.float32)
        for _ in range(2)
    )
    return reference, now


def multiply(count: int) -> None:
    """The bare products."""
    features = len(SCALES) * FREQUENCIES
    block, frequencies = torch.ones(BLOCK, WIDTH), torch.ones(WIDTH, features)
    assigned, waves = torch.ones(ASSIGNMENTS, BLOCK), torch.ones(BLOCK, 2 * features)
    for _ in range(0, 2 * count, BLOCK):
        torch.mm(block, frequencies)
        torch.mm(assigned, waves)
    anchors = min(ANCHORS, count // 2)
    for queries, searched in (
        (count + 2 * anchors, anchors),
        (min(COMPARED, 2 * count), min(COMPARED, 2 * count)),
        (min(SOUGHT, count // 2), min(SOUGHT, count // 2)),
    ):
        left, right = torch.ones(ROWS, WIDTH), torch.ones(WIDTH, searched)
        out = torch.empty(ROWS, searched)
        for _ in range(0, queries, ROWS):
            torch.mm(left, right, out=out)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "drift.md")
    arguments = parser.parse_args()
    count, load = arguments.items, os.getloadavg()[0]
    reference, now = made(count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    steps: list[Callable[[], object]] = [lambda: find_drift(reference, now), lambda: multiply(count)]
    times: list[list[float]] = []
    for number in range(arguments.rounds):
        taken = {}
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            used = time.process_time()
            taken[which] = seconds(steps[which], 1), time.process_time() - used
        times.append([*taken[0], *taken[1]])
        print(times[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = [
        f"{count:,} x {WIDTH}",
        *(f"{statistics.median(column):.1f}" for column in zip(*times, strict=True)),
        f"{statistics.median(each[1] / each[3] for each in times):.2f}",
        f"{peak:.2f}",
        f"{before:.2f}",
    ]
    head = [
        "each set",
        "drift, s",
        "processor, s",
        "products, s",
        "processor, s",
        "x products",
        "peak, GiB",
        "vectors, GiB",
    ]
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment().items())
    arguments.output.write_text(
        f"# New data compared with a reference\n\nWritten by `benchmarks/drift.py`, {arguments.rounds} rounds, at load "
        f"{load:.2f} (goal: 30 s on two cores); the method is described in that file. The ratio is of processor "
        f"seconds. {facts}.\n\n{table(head, [row])}\n"
    )


if __name__ == "__main__":
    main()
