"""Seconds per step and peak memory of the loop of `trivet train` beside the barest PyTorch loop.

    python benchmarks/training.py                       # both networks, about ten minutes
    python benchmarks/training.py --cases conv2 --steps 100 --rounds 3

Both loops have the same network, batches, loss and optimiser, and end with the same weights, which is checked. The bare
loop is `zero_grad`, `forward`, `backward`, `step` over the batches. That of `trivet train` also seeds each step, sets
its learning rate, watches for collapse, counts what the loss picks, and writes metrics.csv and progress. Its looks at
fixed samples, after 1, 2, 5, 10, ... steps, and at held-out items are timed apart: there are about ten in a run. Rounds
alternate in one process, after the first steps of each; peak memory is that of a fresh process with the same modules
loaded. Results in benchmarks/results/training.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trivet.datasets import Splits, load
from trivet.training import RunConfig
from trivet.training.components import Components
from trivet.training.loop import fit
from trivet.training.run_folder import RunFolder
from trivet.training.trainer import Trainer

RESULTS = Path(__file__).parent / "results"
WARM = 3  # first steps that are not timed
STEPS = {"conv2": 300, "resnet18": 12}
TRIPLET = {"name": "triplet", "positives": "easy", "negatives": "semihard"}
RUN = {"steps": 800, "accelerator": "cpu", "checkpoint_every": 10_000}


def settings(case: str, folder: Path) -> RunConfig:
    """conv2 on the digits of scikit-learn, 8 x 8 pixels, or ResNet-18 on random images of 64 x 64, both in 64s."""
    sections: dict[str, Any] = {"loss": TRIPLET, "training": RUN, "evaluation": {"every": 10_000, "sample": 64}}
    if case == "conv2":
        data: dict[str, Any] = {"name": "digits", "level": "digit"}
        model: dict[str, Any] = {"name": "conv2", "embedding_dim": 16}
        batch = {"num_classes": 4, "samples_per_class": 16}
    else:
        _images(folder)
        data = {"name": "folder", "root": str(folder), "image_size": 64}
        model = {"name": "timm:resnet18", "embedding_dim": 128}
        batch = {"num_classes": 16, "samples_per_class": 4}
    return RunConfig.parse(sections | {"data": data, "model": model, "batch": batch}, source="benchmark")


def _images(folder: Path) -> None:
    random = np.random.default_rng(0)
    for place in range(48 * 12):
        path = folder / f"class-{place // 12:02d}" / f"{place:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)


def bare(config: RunConfig, splits: Splits, steps: int) -> tuple[float, dict[str, Tensor]]:
    """Seconds per step, and the weights at the end."""
    parts = Components(config, splits)
    model, loss, batches = parts.state.learner.model, parts.state.learner.loss, parts.batches_from(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.training.learning_rate)
    batches.steps, stamps = steps, []
    for images, labels, *_ in batches:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()
        stamps.append(time.perf_counter())
    return _per_step(stamps, 0.0), model.state_dict()


def trivet(config: RunConfig, splits: Splits, steps: int) -> tuple[float, float, dict[str, Tensor]]:
    """Seconds per step, seconds per look at a fixed sample, and the weights at the end."""
    parts, stamps, checks = Components(config, splits), [], []
    history, learner = parts.state.history, parts.state.learner
    look = history.measure

    def timed(step: int, model: Any) -> None:
        began, seen = time.perf_counter(), len(history.moments)
        look(step, model)
        if len(history.moments) > seen:
            checks.append((step, time.perf_counter() - began))

    history.measure = timed  # type: ignore[method-assign]  # to time the looks apart
    with tempfile.TemporaryDirectory() as folder, RunFolder(Path(folder) / "run").new(config, force=False):
        Trainer(RunFolder(Path(folder) / "run"), parts, lambda *_: None)
        after = learner.after_step

        def stamp() -> None:
            after()
            stamps.append(time.perf_counter())

        learner.after_step = stamp
        batches = parts.batches_from(0)
        batches.steps = steps
        fit(learner, batches)
    apart = sum(seconds for step, seconds in checks if step > WARM)
    return _per_step(stamps, apart), statistics.mean(seconds for _, seconds in checks), learner.model.state_dict()


def _per_step(stamps: list[float], apart: float) -> float:
    return (stamps[-1] - stamps[WARM - 1] - apart) / (len(stamps) - WARM)


def times(case: str, steps: int, rounds: int) -> dict[str, Any]:
    """Medians over alternating rounds, and the median of the ratios of a round."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(case, Path(folder))
        splits = load(config.data, None)
        found = []
        for number in range(rounds):
            order: list[Callable[..., Any]] = [bare, trivet] if number % 2 else [trivet, bare]
            one = {loop.__name__: loop(config, splits, steps) for loop in order}
            (seconds, weights), (own, look, its) = one["bare"], one["trivet"]
            assert all(torch.equal(weights[name], its[name]) for name in weights), "the loops must do the same"
            found.append((seconds, own, own / seconds, look))
    medians = dict(
        zip(("bare", "trivet", "ratio", "look"), map(statistics.median, zip(*found, strict=True)), strict=True)
    )
    return medians | {"steps": steps, "rounds": rounds, "ratios": [round(ratio, 4) for _, _, ratio, _ in found]}


def peak(case: str, loop: str) -> float:
    """MiB of a fresh process that runs one of the loops."""
    command = [sys.executable, __file__, "--alone", loop, "--cases", case]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(said.split()[-1])


def alone(case: str, loop: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = settings(case, Path(folder))
        (bare if loop == "bare" else trivet)(config, load(config.data, None), WARM + 4)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def page(results: dict[str, Any]) -> str:
    """The results as a table."""
    known = results["environment"]
    lines = [
        "# The loop of trivet train beside the barest loop",
        "",
        f"`python benchmarks/training.py`, {known['date']}: {known['cores']} cores, {known['threads']} threads, Python "
        f"{known['python']}, torch {known['torch']}, numpy {known['numpy']}, timm {known['timm']}. Batches of 64, "
        "triplet loss with easy positives and semi-hard negatives, Adam. Medians of alternating rounds.",
        "",
        "| network | ms per step, bare | `trivet train` | ratio | range | look, ms | peak MiB, bare | `trivet train` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = {"conv2": "conv2, 8 px", "resnet18": "ResNet-18, 64 px"}
    for case in (name for name in names if name in results):
        one = results[case]
        lines.append(
            f"| {names[case]} | {1e3 * one['bare']:.2f} | {1e3 * one['trivet']:.2f} | {one['ratio']:.3f} | "
            f"{min(one['ratios']):.3f} to {max(one['ratios']):.3f} | {1e3 * one['look']:.0f} | "
            f"{one['peak']['bare']:.0f} | {one['peak']['trivet']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the cases that are asked for, and write what is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, help="of a round; default: 300 for conv2, 12 for resnet18")
    parser.add_argument("--alone", choices=["bare", "trivet"], help="run one loop and print its peak memory")
    args = parser.parse_args()
    if args.alone:
        return alone(args.cases[0], args.alone)
    path = RESULTS / "training.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results["environment"] = {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": sys.version.split()[0],
        **{name: version(name) for name in ("torch", "numpy", "timm")},
    }
    for case in args.cases:
        results[case] = times(case, args.steps or STEPS[case], args.rounds)
        peaks = {loop: statistics.median(peak(case, loop) for _ in range(3)) for loop in ("bare", "trivet")}
        results[case]["peak"] = peaks
    path.write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "training.md").write_text(page(results))
    print(page(results))
    return None


if __name__ == "__main__":
    main()
