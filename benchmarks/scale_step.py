"""What a step of training costs as batch, embedding and network grow: measured, a model fitted to it, and its error.

    python benchmarks/scale.py step                    # about ten minutes on two quiet cores
    python benchmarks/scale.py step --paper            # only what the fitted model says of GPUs

The loss, forward and backward: N items of N / K classes, d dimensions. The network: forward and backward per item. The
exchange: all N x d embeddings gathered, and the gradient of so many parameters averaged, by 2 and 4 processes on
127.0.0.1. Each time is the median of alternating rounds.

Loss: seconds = c0 + c1 N + c2 N^2 + c3 N^2 d, coefficients at least 0, least squares of the relative error, one set for
each strategy. Fitted to N <= 4096; the error is that of N = 8192, which is not seen.
Exchange: seconds = latency + bytes / bandwidth. Results in benchmarks/results/scale_step.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from scipy.optimize import nnls
from torch import Tensor

from trivet.losses import MarginLoss, MultiSimilarityLoss, TripletLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.mining.gather import gather_rows
from trivet.models import ModelConfig, build

RESULTS = Path(__file__).parent / "results" / "scale_step.json"
STRATEGIES: dict[str, Callable[[], EmbeddingLoss]] = {
    "batch-hard": lambda: TripletLoss(positives="hard", negatives="hard", distance="euclidean"),
    "easy, semihard": lambda: TripletLoss(positives="easy", negatives="semihard"),
    "all triplets": lambda: TripletLoss(positives="all", negatives="all"),
    "easy, distance-weighted": lambda: MarginLoss(positives="easy", negatives="distance-weighted"),
    "multi-similarity": lambda: MultiSimilarityLoss(threshold=1.0),
}
SIZES, UNSEEN, DIMS, PER_CLASS = (128, 256, 512, 1024, 2048, 4096), (8192,), (64, 128, 512), (4, 16)
NETWORKS = {"conv4": (1, 28, 28), "timm:resnet18": (3, 64, 64)}
PIECES = (16, 64, 256)
# Of one H100 SXM with NVLink and 400 Gb/s InfiniBand, by its data sheet (NVIDIA, 2023): dense bfloat16, bytes/s.
FLOPS, LINK, NETWORK_LINK = 989e12, 450e9, 50e9
USE = 0.4  # share of the peak that training of image networks commonly reaches
RESNET50 = {"flop_per_item": 3 * 2 * 4.1e9, "parameters": 25.6e6}  # 4.1 G multiplications: He et al. 2016, table 1


def step_of(loss: EmbeddingLoss, n: int, d: int, per_class: int) -> Callable[[], None]:
    """One forward and backward pass on unit rows of N / K classes."""
    generator = torch.Generator().manual_seed(n + d + per_class)
    rows = torch.nn.functional.normalize(torch.randn(n, d, generator=generator)).requires_grad_()
    labels = torch.arange(n) // per_class

    def step() -> None:
        rows.grad = None
        loss(rows, labels).backward()

    return step


def medians(ways: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """Seconds of each, the median of rounds that alternate, after one that is not timed."""
    times: dict[Any, list[float]] = {key: [] for key in ways}
    for repeat in range(rounds + 1):
        for key, way in ways.items():
            began = time.perf_counter()
            way()
            if repeat:
                times[key].append(time.perf_counter() - began)
    return {key: statistics.median(values) for key, values in times.items()}


def terms(n: float, d: float) -> list[float]:
    return [1.0, n, n * n, n * n * d]


def losses(rounds: int) -> dict[str, Any]:
    """Coefficients of each strategy, and how far the model is from what it has seen and from what it has not."""
    found = {}
    for name, make in STRATEGIES.items():
        cells = list(product((*SIZES, *UNSEEN), DIMS, PER_CLASS))
        times = {}
        for size in (*SIZES, *UNSEEN):  # sizes apart: a small step beside a large one would find its memory gone
            of_size = [cell for cell in cells if cell[0] == size]
            times |= medians({cell: step_of(make(), *cell) for cell in of_size}, rounds if size < 8192 else 3)
        seen = [cell for cell in cells if cell[0] in SIZES]
        matrix = np.array([np.array(terms(n, d)) / times[n, d, k] for n, d, k in seen])
        scale = matrix.max(0)
        coefficients = nnls(matrix / scale, np.ones(len(seen)))[0] / scale

        def error(n: int, d: int, k: int, *, c: np.ndarray = coefficients, t: dict[Any, float] = times) -> float:
            return float(np.dot(c, terms(n, d)) / t[n, d, k] - 1)

        unseen = [cell for cell in cells if cell[0] in UNSEEN]
        found[name] = {
            "coefficients": coefficients.tolist(),
            "median_error_seen": statistics.median(abs(error(*cell)) for cell in seen),
            "largest_error_seen": max(abs(error(*cell)) for cell in seen),
            "errors_unseen": {f"{n} x {d}, K = {k}": error(n, d, k) for n, d, k in unseen},
            "milliseconds": {f"{n} x {d}, K = {k}": 1e3 * value for (n, d, k), value in times.items()},
        }
        print(name, json.dumps({key: found[name][key] for key in list(found[name])[:4]}), flush=True)
    return found


def networks(rounds: int) -> dict[str, Any]:
    """Milliseconds per item, forward and backward, in pieces of several sizes."""
    found = {}
    for name, shape in NETWORKS.items():
        model = build(ModelConfig(name=name, embedding_dim=128), input_shape=shape, seed=0)
        parameters = sum(parameter.numel() for parameter in model.parameters())

        def passed(images: Tensor, model: torch.nn.Module = model) -> None:
            model.zero_grad()
            model(images).sum().backward()

        ways = {size: partial(passed, torch.rand(size, *shape)) for size in PIECES}
        times = medians(ways, rounds)
        found[name] = {
            "parameters": parameters,
            "milliseconds_per_item": {size: 1e3 * value / size for size, value in times.items()},
        }
        print(name, found[name], flush=True)
    return found


def exchange(size: int, rounds: int) -> dict[str, Any]:
    """Seconds to gather N x d embeddings, and to average the gradient of so many parameters, by `size` processes."""
    context = processes.get_context("spawn")
    queue = context.SimpleQueue()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    running = processes.start_processes(_exchange, (size, store.port, rounds, queue), nprocs=size, join=False)
    found = queue.get()
    while not running.join():
        pass
    return found


def _exchange(rank: int, size: int, port: int, rounds: int, queue: Any) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    cells = {("gather", n * d * 4): (n, d) for n, d in ((256, 64), (1024, 128), (4096, 128), (8192, 512))}
    ways: dict[Any, Callable[[], object]] = {
        key: partial(gather_rows, torch.zeros(n // size, d), [n // size] * size) for key, (n, d) in cells.items()
    }
    for count in (10_000, 100_000, 1_000_000, 11_000_000):
        ways["average", count * 4] = partial(dist.all_reduce, torch.zeros(count))
    times = medians(ways, rounds)
    if rank == 0:
        found: dict[str, Any] = {}
        for kind in ("gather", "average"):
            sizes = [key[1] for key in ways if key[0] == kind]
            matrix = np.array([[1 / times[kind, b], b / times[kind, b]] for b in sizes])
            scale = matrix.max(0)
            latency, per_byte = nnls(matrix / scale, np.ones(len(sizes)))[0] / scale
            found[kind] = {
                "latency_ms": 1e3 * latency,
                "megabytes_per_second": 1e-6 / per_byte if per_byte else None,
                "milliseconds": {b: 1e3 * times[kind, b] for b in sizes},
            }
        queue.put(found)
    dist.destroy_process_group()


def paper(processes_: int, per_process: int, d: int, *, micro: bool) -> dict[str, float]:
    """Milliseconds of a step of ResNet-50 at 224 pixels on H100s, from their data sheet: nothing of this was measured.

    Each process embeds its items, gathers all N embeddings, computes the loss of the whole batch, 3 products of
    N x N x d in float32, and averages the gradient of the network in a ring.
    """
    n = processes_ * per_process
    link = LINK if processes_ <= 8 else NETWORK_LINK
    share = (processes_ - 1) / processes_
    return {
        "N": n,
        "network": 1e3 * per_process * RESNET50["flop_per_item"] * (4 / 3 if micro else 1) / (USE * FLOPS),
        "loss": 1e3 * 3 * 2 * n * n * d / (USE * FLOPS / 16),  # 67e12 of float32 stand beside 989e12 of bfloat16
        "gather": 1e3 * share * n * d * 4 / link,
        "gradient": 1e3 * 2 * share * RESNET50["parameters"] * 4 / link,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paper", action="store_true", help="only what follows for GPUs")
    given = parser.parse_args()
    if not given.paper:
        found = {
            "date": str(date.today()),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("torch", "numpy", "scipy")},
            "losses": losses(given.rounds),
            "networks": networks(given.rounds),
            "exchange": {size: exchange(size, 4 * given.rounds) for size in (2, 4)},
            "load": os.getloadavg()[0],
        }
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found["exchange"]))
    print("| GPUs | items each | N | network, ms | loss, ms | gather, ms | gradient, ms | loss and gather |")
    print("|---" * 8 + "|")
    for count, each in product((1, 8, 64), (64, 256, 1024)):
        one = paper(count, each, 512, micro=each > 256)
        whole = one["network"] + one["loss"] + one["gather"] + one["gradient"]
        print(
            f"| {count} | {each} | {one['N']:,.0f} | {one['network']:.1f} | {one['loss']:.2f} | {one['gather']:.2f} | "
            f"{one['gradient']:.2f} | {100 * (one['loss'] + one['gather']) / whole:.0f} % |"
        )


if __name__ == "__main__":
    main()
