"""Time of the theory's functions and of the checks of the four papers.

    .venv/bin/python benchmarks/theory.py                      # about 10 minutes on two cores
    .venv/bin/python benchmarks/theory.py --parts dynamics --rounds 3 --output /tmp/theory.json

dynamics: one simulated step on 200 x 200 cells and the shares of its movement, for 3 losses, 3 values of gamma, 3
strengths of entanglement and both of its forms: 54 fields. isometry: the distance of 20 random points of the plane in
two classes to the nearest separated ones, from 8 starts, for 4 seeds; the slowest counts, and each distance is compared
with one that 3 starts of another search reached. checks: `trivet simulate --check`, all four papers, in a process of
its own.
Times are the median of the rounds, the checks of one. Every result is written as soon as it is finished, as JSON and as
a table; parts that are not run keep their former results. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

import trivet
from trivet_papers.xu2024.nearest_separated import distance_to_separation
from trivet_papers.xuan2020.dynamics import EntanglementFactor, SimulatedLoss, movement_areas, vector_field

GOALS = {
    "dynamics": "at most 5 s",
    "isometry": "at most 20 s, and no distance more than 5 % above the reference",
    "checks": "at most 5 minutes",
}
PARTS = tuple(GOALS)
REACHED = (1.8564, 1.4564, 1.5494, 1.8493)  # of the seeds 0 to 3, by 3 starts of 600 steps of another search
Row = dict[str, Any]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def fields() -> int:
    losses, factors = get_args(SimulatedLoss), get_args(EntanglementFactor)
    keys = list(product(losses, (0.2, 0.5, 0.8), (0.0, 0.4, 0.8), factors))
    for loss, gamma, strength, factor in keys:
        movement_areas(vector_field(loss=loss, gamma=gamma, strength=strength, factor=factor, size=200))
    return len(keys)


def dynamics(rounds: int) -> Row:
    fields()  # warm
    seconds, counts = zip(*(timed(fields) for _ in range(rounds)), strict=True)
    return {"seconds": statistics.median(seconds), "fields": counts[0], "rounds": seconds}


def isometry() -> Row:
    labels = np.arange(20) % 2
    distance_to_separation(np.random.RandomState(9).randn(6, 2), labels[:6], starts=1)  # warm
    seconds, values = [], []
    for seed in range(len(REACHED)):
        points = np.random.RandomState(seed).randn(20, 2)
        taken, found = timed(lambda points=points: distance_to_separation(points, labels, starts=8))
        seconds.append(taken)
        values.append(found.value)
    over = max(value / reached for value, reached in zip(values, REACHED, strict=True)) - 1
    return {"seconds": max(seconds), "rounds": seconds, "values": values, "reached": REACHED, "over": over}


def checks() -> Row:
    command = [str(Path(sys.executable).with_name("trivet")), "simulate", "--check", "--json"]
    seconds, run = timed(lambda: subprocess.run(command, capture_output=True, text=True, check=False))
    rows = json.loads(run.stdout)["checks"]
    return {"seconds": seconds, "checks": len(rows), "held": sum(row["holds"] for row in rows)}


def environment() -> Row:
    return {
        "trivet": trivet.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def page(record: Row) -> str:
    about = record["environment"]
    what = {
        "dynamics": lambda row: f"{row['fields']} fields of 200 x 200 triplets, with their areas",
        "isometry": lambda row: (
            f"distance to separation of 20 points in the plane, 8 starts, the slowest of {len(row['rounds'])} seeds; "
            f"at most {100 * row['over']:+.1f} % from the reference"
        ),
        "checks": lambda row: f"`trivet simulate --check`: {row['held']} of {row['checks']} statements hold",
    }
    lines = [
        "# Theory: time",
        "",
        f"`benchmarks/theory.py`, {max(row['created'] for row in record['rows'])[:10]}; {about['threads']} threads of "
        f"a shared {about['machine']} server, torch {about['torch']}, numpy {about['numpy']}. The method "
        "is described in that file.",
        "",
        "| what | time | goal |",
        "|---|---|---|",
    ]
    lines += [f"| {what[row['part']](row)} | {row['seconds']:.2f} s | {GOALS[row['part']]} |" for row in record["rows"]]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "theory.json")
    options = parser.parse_args()
    before = json.loads(options.output.read_text())["rows"] if options.output.exists() else []
    rows = {row["part"]: row for row in before}
    work: dict[str, Callable[[], Row]] = {
        "dynamics": lambda: dynamics(options.rounds),
        "isometry": isometry,
        "checks": checks,
    }
    for part in options.parts:
        row = rows[part] = {"part": part, **work[part](), "created": datetime.now(UTC).isoformat(timespec="seconds")}
        record: Row = {"environment": environment(), "rows": [rows[name] for name in PARTS if name in rows]}
        options.output.write_text(json.dumps(record, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(page(record))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
