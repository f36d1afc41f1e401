"""Time of a step by other relations than classes: tags beside classes, pairs of two sides beside the bare softmax.

    .venv/bin/python benchmarks/relations.py
    .venv/bin/python benchmarks/relations.py --size 1024 --rounds 5 --output /tmp/relations.md
    .venv/bin/python benchmarks/relations.py --only mining --items 20000 --output /tmp/mining.md

Tags: N items with 20 tags of 500 each, at random. "any": a shared tag makes a positive, which is more than half of the
batch; "0.1": a Jaccard index of that much does, and all others with a shared tag are ignored. Beside them the same loss
by classes of which each has as many items as an item has positives by the tags, and by 500 classes. Pairs: N rows on
each side, whose floor is one matrix product, its softmax with cross-entropy and their gradients by torch. All take
turns in one process, one call each, backwards in every other round; a ratio is taken within each round, and the median
over the rounds counts. Opening: the time to make `Tags` of a sparse matrix of a million items. Mining: the time to find
hard negatives of 1,024 items against an HNSW index of all, by 20 tags of 5,000 each, "any" and a Jaccard index of 0.05,
in 128 dimensions, beside classes with as many items as an item has positives; 3 rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

import trivet
from core import environment, seconds, short, table
from trivet.knn.hard_negatives import hard_negatives
from trivet.knn.index import build_index

PARTS = ["steps", "pairs", "opening", "mining"]
Step = Callable[[], None]
LOSSES: dict[str, Callable[[], trivet.EmbeddingLoss]] = {
    "triplet, easy x semi-hard": lambda: trivet.TripletLoss(positives="easy", negatives="semihard"),
    "contrastive, all": lambda: trivet.ContrastiveLoss(margin=1.0),
    "multi-similarity": trivet.MultiSimilarityLoss,
    "supcon": trivet.SupConLoss,
}


def unit_rows(size: int, seed: int) -> Tensor:
    """Random directions `(N, 128)` that want a gradient."""
    rows = torch.randn(size, 128, generator=torch.Generator().manual_seed(seed))
    return normalize(rows, dim=1).requires_grad_()


def tags_of(size: int, match: str | float) -> trivet.Tags:
    """Twenty of 500 tags for each item."""
    numbers = np.random.default_rng(0)
    return trivet.Tags([numbers.choice(500, 20, replace=False).tolist() for _ in range(size)], match=match)


def medians(steps: dict[str, Step], rounds: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The median time of each, and of its ratio to each of the others."""
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps)[:: -1 if number % 2 else 1]:
            times[name].append(seconds(steps[name], 1))
    ratios = {
        name: {
            other: statistics.median(a / b for a, b in zip(times[name], times[other], strict=True)) for other in steps
        }
        for name in steps
    }
    return {name: statistics.median(each) for name, each in times.items()}, ratios


def backward_of(loss: trivet.EmbeddingLoss, rows: Tensor, labels: Tensor | trivet.Relation) -> Step:
    """One step, forward and backward."""

    def step() -> None:
        loss(rows, labels).backward()
        rows.grad = None

    return step


def of_tags(size: int, rounds: int) -> list[list[str]]:
    """The rows on tags."""
    rows, written = unit_rows(size, 1), []
    shuffled = torch.randperm(size, generator=torch.Generator().manual_seed(2))
    for match in ("any", 0.1):
        tags = tags_of(size, match)
        positives = sum(int(tags.positive(some, tags.items).sum()) for some in tags.items.split(256)) / size - 1
        alike = max(2, round(size / (positives + 1)))
        for name, make in LOSSES.items():
            steps = {
                "tags": backward_of(make(), rows, tags),
                "classes": backward_of(make(), rows, shuffled % alike),
                "500": backward_of(make(), rows, shuffled % 500),
            }
            times, ratios = medians(steps, rounds)
            found = [times["tags"] * 1e3, times["classes"] * 1e3, times["500"] * 1e3]
            shares = [ratios["tags"]["classes"], ratios["tags"]["500"]]
            written.append([name, str(match), f"{positives:.0f}", *map(short, found), *map(short, shares)])
            print(written[-1], flush=True)
    return written


def of_pairs(size: int, rounds: int) -> list[list[str]]:
    """The rows on pairs."""
    left, right, pairs, target = unit_rows(size, 3), unit_rows(size, 4), trivet.Pairs(size, size), torch.arange(size)
    loss = trivet.SupConLoss(temperature=0.05)
    both = trivet.SymmetricLoss(loss)
    given = {"references": right, "reference_labels": pairs.right}

    def of(value: Callable[[], Tensor]) -> Step:
        def step() -> None:
            value().backward()
            left.grad = right.grad = None

        return step

    def floor(*, directions: int) -> Tensor:
        similarities = left @ right.T / 0.05
        value = cross_entropy(similarities, target)
        return value if directions == 1 else (value + cross_entropy(similarities.T, target)) / 2

    written = []
    for name, step, directions in (
        ("one direction", of(lambda: loss(left, pairs.left, **given)), 1),
        ("both directions", of(lambda: both(left, pairs.left, **given)), 2),
    ):
        bare = of(lambda directions=directions: floor(directions=directions))
        times, ratios = medians({"trivet": step, "floor": bare}, rounds)
        written.append(
            [name, short(times["trivet"] * 1e3), short(times["floor"] * 1e3), short(ratios["trivet"]["floor"])]
        )
        print(written[-1], flush=True)
    return written


def incidence(items: int, tags: int) -> sparse.csr_array:
    """A sparse matrix of items with 20 tags each."""
    columns = np.random.default_rng(0).integers(tags - 19, size=(items, 20))
    columns.sort(axis=1)
    columns += np.arange(20)  # all different, in order
    return sparse.csr_array(
        (np.ones(columns.size, np.uint8), columns.ravel(), np.arange(items + 1) * 20), shape=(items, tags)
    )


def opening(items: int, tags: int, rounds: int) -> float:
    """The median time in which the tags of so many items are made of a sparse matrix, 20 each."""
    matrix = incidence(items, tags)

    def make() -> None:
        trivet.Tags(matrix)

    return statistics.median(seconds(make, 1) for _ in range(rounds))


def mining(items: int, rounds: int) -> list[list[str]]:
    """The rows on hard negatives against an index."""
    numbers = np.random.default_rng(0)
    index = build_index(numbers.standard_normal((items, 128)).astype(np.float32), kind="hnsw")
    matrix, rows = incidence(items, 5_000), numbers.choice(items, 1024, replace=False)
    written = []
    for match in ("any", 0.05):
        tags = trivet.Tags(matrix, match)
        positives = statistics.fmean(len(each) for each in tags.search(tags.items).positives(torch.from_numpy(rows)))
        classes = numbers.permutation(items) % round(items / (positives + 1))
        steps: dict[str, Step] = {
            name: partial(hard_negatives, index, labels, rows=rows)
            for name, labels in (("tags", tags), ("classes", classes))
        }
        times, ratios = medians(steps, rounds)
        found = [times["tags"], times["classes"], ratios["tags"]["classes"]]
        written.append([str(match), f"{positives:.0f}", *map(short, found)])
        print(written[-1], flush=True)
    return written


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--items", type=int, default=100_000, help="of mining")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "relations.md")
    arguments = parser.parse_args()
    load, size, rounds, items = os.getloadavg()[0], arguments.size, arguments.rounds, arguments.items
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment().items())
    head = ["loss", "match", "positives", "tags, ms", "classes, ms", "500 classes, ms", "x classes", "x 500 classes"]
    parts: dict[str, Callable[[], str]] = {
        "steps": lambda: (
            f"## {size:,} items with 20 tags of 500 (goal: 1.5 x classes)\n\n{table(head, of_tags(size, rounds))}"
        ),
        "pairs": lambda: (
            f"## Pairs, in-batch softmax of {size:,} against {size:,} (goal: 1.1 x floor)\n\n"
            f"{table(['direction', 'ms', 'floor, ms', 'x floor'], of_pairs(size, rounds))}"
        ),
        "opening": lambda: (
            f"## Opening\n\n1,000,000 items with 20 of 5,000 tags, of a sparse matrix: "
            f"{opening(1_000_000, 5_000, 3):.2f} s (goal: 10 s)."
        ),
        "mining": lambda: (
            f"## Hard negatives of 1,024 items against an HNSW index of {items:,} with 20 of 5,000 tags (goal: like "
            "classes)\n\n"
            f"{table(['match', 'positives', 'tags, s', 'classes, s', 'x classes'], mining(items, 3))}"
        ),
    }
    title = (
        f"# A step by other relations than classes\n\nWritten by `benchmarks/relations.py`, {rounds} rounds, at load "
        f"{load:.2f}; the method is described in that file. {facts}."
    )
    chosen = [arguments.only] if arguments.only else PARTS
    arguments.output.write_text("\n\n".join([title, *(parts[name]() for name in chosen)]) + "\n")


if __name__ == "__main__":
    main()
