"""What micro-batches cost: peak memory, time beside the whole batch, and how exact their gradient is.

    TRIVET_DATA=... .venv/bin/python benchmarks/scale.py micro

Steps of `trivet train` (network, batch-hard loss, Adam) on images of Omniglot. Memory is that of a process of its own
above what it held before, after a step of two small pieces. Time is the median of the ratios of rounds in which both
ways alternate, in seconds of the processor.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.datasets import Dataset, load
from trivet.samplers import embed_in_pieces
from trivet.training.components import first_task
from trivet.training.config import RunConfig
from trivet.training.loop import Learner

RESULTS = Path(__file__).parent / "results"
SAMPLES = 4
CASES = {  # network, pixels
    "conv4": ("conv4", 28),
    "conv4-14": ("conv4", 14),
    "resnet18-28": ("timm:resnet18", 28),
    "resnet18": ("timm:resnet18", 64),
}
MEMORY = [  # case, items, items of a piece
    ("conv4", 64, None),
    ("conv4", 4096, 64),
    ("conv4", 4096, 256),
    ("conv4", 4096, None),
    ("resnet18", 64, None),
    ("resnet18", 256, 64),
    ("resnet18", 256, None),
]
TIMES = [
    ("conv4", 1024, 64),
    ("conv4", 4096, 64),
    ("conv4", 4096, 256),
    ("resnet18", 256, 64),
    ("resnet18-28", 256, 64),
    ("resnet18-28", 256, 128),
    ("conv4-14", 2048, 64),
    ("conv4-14", 2048, 512),
]


def made(case: str, items: int, micro: int | None) -> tuple[Learner, list[Tensor]]:
    """A network, loss and optimiser before the first step, and a batch as the loader hands it over."""
    network, size = CASES[case]
    values = {
        "data": {"name": "omniglot", "image_size": size, "level": "character", "channels": 3 if ":" in network else 1},
        "batch": {"num_classes": items // SAMPLES, "samples_per_class": SAMPLES, "micro": micro},
        "model": {"name": network, "embedding_dim": 128},
        "loss": {"name": "triplet", "positives": "hard", "negatives": "hard"},
        "training": {"steps": 1, "accelerator": "cpu"},
    }
    config = RunConfig.parse(values, source=case)
    train = images(size, 3 if ":" in network else 1)
    wide = config.model_copy(update={"batch": config.batch.model_copy(update={"num_classes": 2})})  # of any number
    task, _ = first_task(wide, train, "character", steps=1)
    return task, batch_of(train, items)


@functools.cache
def images(size: int, channels: int) -> Dataset:
    values = {"name": "omniglot", "image_size": size, "level": "character", "channels": channels}
    return load(RunConfig.parse({"data": values, "loss": {"name": "triplet"}}, source="images").data, None).train


def batch_of(train: Dataset, items: int) -> list[Tensor]:
    """Classes of `SAMPLES` items; a class may come twice, with other items."""
    labels = train.labels["character"]
    order = np.argsort(labels, kind="stable").reshape(-1, 20)  # of each character
    groups = np.concatenate([order[:, start : start + SAMPLES] for start in range(0, 20, SAMPLES)])
    index = groups[: items // SAMPLES].reshape(-1)
    return [train.inputs.batch(index), torch.arange(items) // SAMPLES]


def step(task: Learner, batch: list[Tensor], micro: int | None) -> float:
    """Seconds of the processor for a step: other work on the machine counts less than by the clock."""
    task.micro = micro
    began = time.process_time()
    task.train_on(batch)
    return time.process_time() - began


def held(what: str) -> float:
    """MiB by Linux's own account of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024


def alone(case: str, items: int, micro: int | None) -> None:
    """Print the peak of a step above what the process held."""
    task, batch = made(case, items, micro)
    step(task, [part[:32] for part in batch], 16)
    before = held("VmRSS")
    step(task, batch, micro)
    print(held("VmHWM") - before)


def peak(case: str, items: int, micro: int | None) -> float:
    command = [sys.executable, __file__, "--alone", case, str(items), str(micro or 0)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def times(case: str, items: int, micro: int, rounds: int) -> dict[str, Any]:
    task, batch = made(case, items, micro)
    step(task, batch, micro)  # the first loads what it needs
    step(task, batch, None)
    found = []
    for number in range(rounds):
        order = [None, micro] if number % 2 else [micro, None]
        seconds = {one: step(task, batch, one) for one in order}
        found.append((seconds[None], seconds[micro], seconds[micro] / seconds[None]))
    whole, pieces, ratio = (statistics.median(column) for column in zip(*found, strict=True))
    ratios = sorted(round(one, 3) for *_, one in found)
    return {
        "case": case,
        "items": items,
        "micro": micro,
        "whole": whole,
        "pieces": pieces,
        "ratio": ratio,
        "all": ratios,
    }


def error(case: str, items: int, micro: int) -> dict[str, Any]:
    """How far the gradient is from that of the whole batch, relative to its norm; batch norm is frozen."""
    task, (inputs, labels) = made(case, items, micro)
    for part in task.model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()
    found = []
    for size in (None, micro):
        model = copy.deepcopy(task.model)
        task.loss(embed_in_pieces(model, inputs, size), labels).backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    whole, pieces = found
    return {"case": case, "items": items, "micro": micro, "error": float((pieces - whole).norm() / whole.norm())}


def page(results: dict[str, Any]) -> str:
    known = results["environment"]
    lines = [
        "# Micro-batches",
        "",
        f"`.venv/bin/python benchmarks/scale.py micro`, {known['date']}: {known['cores']} cores, one thread, no GPU, "
        f"Python {known['python']}, torch {known['torch']}, timm {known['timm']}. Steps of `trivet train` on Omniglot: "
        "conv4 at 28 (conv4-14: 14) pixels, ResNet-18 at 64 (resnet18-28: 28), d = 128, batch-hard triplets, Adam. "
        "Times are those of the processor, medians of alternating rounds.",
        "",
        "| network | N | items of a piece | peak of a step, MiB | above N = 64, MiB | the embeddings, MiB |",
        "|---|---|---|---|---|---|",
    ]
    small = {row["case"]: row["mib"] for row in results["memory"] if row["items"] == 64}
    for row in results["memory"]:
        lines.append(
            f"| {row['case']} | {row['items']} | {row['micro'] or 'all'} | {row['mib']:.0f} | "
            f"{row['mib'] - small[row['case']]:.0f} | {row['items'] * 128 * 4 / 2**20:.1f} |"
        )
    lines += [
        "",
        "| network | N | items of a piece | whole batch, s per step | in pieces | ratio, median | range |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["times"]:
        lines.append(
            f"| {row['case']} | {row['items']} | {row['micro']} | {row['whole']:.2f} | {row['pieces']:.2f} | "
            f"{row['ratio']:.2f} | {row['all'][0]:.2f} to {row['all'][-1]:.2f} |"
        )
    lines += ["", "Gradient, batch norm frozen, float32, relative to the norm of that of the whole batch:", ""]
    lines += [
        f"- {row['case']}, N = {row['items']} in pieces of {row['micro']}: {row['error']:.1e}"
        for row in results["errors"]
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", nargs=3, metavar=("CASE", "ITEMS", "MICRO"), help="print the peak of one step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.alone:
        case, items, micro = options.alone
        return alone(case, int(items), int(micro) or None)
    results = {
        "environment": {
            "date": date.today().isoformat(),
            "cores": os.cpu_count(),
            "python": sys.version.split()[0],
            **{name: version(name) for name in ("torch", "timm")},
        },
        "memory": [
            {"case": case, "items": items, "micro": micro, "mib": peak(case, items, micro)}
            for case, items, micro in MEMORY
        ],
        "times": [times(*one, rounds=options.rounds) for one in TIMES],
        "errors": [error("conv4", 4096, 64), error("resnet18-28", 256, 64)],
    }
    (RESULTS / "scale_micro.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "scale_micro.md").write_text(page(results))
    print(page(results))
    return None


if __name__ == "__main__":
    main()
