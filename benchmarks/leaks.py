"""Time and memory of the search for near copies across two sets of vectors, against the bare products.

    .venv/bin/python benchmarks/leaks.py                     # about 20 minutes on two cores
    .venv/bin/python benchmarks/leaks.py --items 20000 --output /tmp/leaks.md

Directions at random, 512 coordinates, 1,000 classes; 1 % of the items are planted copies of items of the other set. The
floor is the bare float32 products of the same blocks, written to one block of memory. Both take turns in one process,
backwards in every other round; a ratio is taken within each round, and the median over the rounds counts. Peak memory
is that of a process of its own that makes the vectors and searches once, beside one that only makes them. Of random
directions 1 in 1,000 is nearer to the other set than the limit by chance.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from core import environment, seconds, table
from trivet.label_noise.near_copies import COLUMNS, ROWS, NearCopies, find_near_copies

WIDTH, CLASSES, COPIES, NOISE = 512, 1000, 100, 0.01


def made(count: int) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
    """Items and searched items `(N, WIDTH)`, and their classes."""
    draw = torch.Generator().manual_seed(0)
    searched, items = (normalize(torch.randn(count, WIDTH, generator=draw)) for _ in range(2))
    copies = count // COPIES
    items[:copies] = normalize(searched[:copies] + NOISE * items[:copies])
    classes, others = (np.random.default_rng(seed).integers(0, CLASSES, count) for seed in (0, 1))
    return items, searched, classes, others


def search(items: Tensor, searched: Tensor, classes: np.ndarray, others: np.ndarray) -> NearCopies:
    """Near copies among the items."""
    return find_near_copies(lambda rows: [(items if rows is None else searched[rows], searched)], classes, others)


def multiply(items: Tensor, searched: Tensor) -> None:
    """The bare products, block by block."""
    block = torch.empty(ROWS, COLUMNS)
    for start in range(0, len(items), ROWS):
        for at in range(0, len(searched), COLUMNS):
            left, right = items[start : start + ROWS], searched[at : at + COLUMNS]
            torch.mm(left, right.T, out=block[: len(left), : len(right)])


def peak(count: int, *, searching: bool) -> float:
    """Peak memory in GiB of a process that makes the vectors, and searches or not."""
    arguments = ["--items", str(count), "--peak", "search" if searching else "vectors"]
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", choices=["vectors", "search"], help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "leaks.md")
    arguments = parser.parse_args()
    count, load = arguments.items, os.getloadavg()[0]
    vectors = made(count)
    if arguments.peak is not None:
        if arguments.peak == "search":
            search(*vectors)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return
    steps: list[Callable[[], object]] = [partial(search, *vectors), partial(multiply, *vectors[:2])]
    times: list[list[float]] = []
    for number in range(arguments.rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        taken = {which: seconds(steps[which], 1) for which in order}
        times.append([taken[0], taken[1]])
        print(times[-1], flush=True)
    found = search(*vectors)
    copies = count // COPIES
    row = [
        f"{count:,} x {WIDTH}",
        *(f"{statistics.median(column):.1f}" for column in zip(*times, strict=True)),
        f"{statistics.median(one / floor for one, floor in times):.2f}",
        *(f"{peak(count, searching=searching):.2f}" for searching in (True, False)),
        f"{int(found.copy[:copies].sum()):,} of {copies:,}",
        f"{int(found.copy[copies:].sum()):,} of {count - copies:,}",
    ]
    head = ["each set", "search, s", "products, s", "x products", "peak, GiB", "vectors alone, GiB", "copies", "others"]
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment().items())
    arguments.output.write_text(
        f"# Near copies across two sets of vectors\n\nWritten by `benchmarks/leaks.py`, {arguments.rounds} rounds, at "
        f"load {load:.2f} (goals: 3 x the bare products, 2 GiB); the method is described in that file. Copies and "
        f"others: how many are called. {facts}.\n\n{table(head, [row])}\n"
    )


if __name__ == "__main__":
    main()
