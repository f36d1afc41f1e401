"""Memory that one forward and backward pass takes beyond its input, for batches of N x d, 4 items per class.

    .venv/bin/python benchmarks/memory.py

A process of its own for each row, because the peak of a process never falls. The N x N matrix of float32 stands beside.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import torch

import trivet

STRATEGIES = {
    "easy positives, hard negatives": lambda: trivet.TripletLoss(positives="easy", negatives="hard"),
    "all triplets": lambda: trivet.TripletLoss(positives="all", negatives="all"),
    "multi-similarity": lambda: trivet.MultiSimilarityLoss(threshold=0.5),
}


def peak() -> float:
    """The largest memory of this process so far, in MiB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, size: int, dimension: int = 128) -> float:
    """MiB beyond what the process held before the loss."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(
        torch.randn(size, dimension, generator=generator), dim=1
    ).requires_grad_()
    labels = torch.arange(size) % (size // 4)
    STRATEGIES[name]()(embeddings[:64], torch.arange(64) % 16).backward()  # what is loaded once
    before = peak()
    STRATEGIES[name]()(embeddings, labels).backward()
    return peak() - before


def main() -> None:
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], int(sys.argv[2])))
        return
    print(f"torch {torch.__version__}, d = 128, MiB")
    for size in (4096, 8192, 16384):
        found = [
            float(
                subprocess.run(
                    [sys.executable, __file__, name, str(size)], capture_output=True, text=True, check=True
                ).stdout
            )
            for name in STRATEGIES
        ]
        row = ", ".join(f"{name} {value:.0f}" for name, value in zip(STRATEGIES, found, strict=True))
        print(f"N = {size}: {row}; N x N float32 {size * size * 4 / 2**20:.0f}")


if __name__ == "__main__":
    main()
