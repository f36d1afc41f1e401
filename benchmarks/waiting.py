"""Seconds of training, and from the last step until the report, of `trivet train` on the examples.

    python benchmarks/waiting.py                                # Omniglot and MNIST, 200 steps each, in TRIVET_DATA
    python benchmarks/waiting.py --steps 800 --examples omniglot --threads 2

Each example is trained twice, in a fresh process: cold, with no baseline measured before, and warm, with those of the
first time. The home folder is a temporary one, so that what is cached there is not touched. The wait is from the last
checkpoint, which is written after the last step, until report.html is there. CPU seconds are those of the whole
process. Compared: whether both records hold the same numbers. Results in benchmarks/results/waiting.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
TIMES = ("seconds", "seconds_per_step", "created", "command", "peak_memory_mb")


def measured(example: str, steps: int, run: Path, data: Path, home: Path, threads: int) -> dict[str, float]:
    """Train into a run folder; its seconds."""
    command = [sys.executable, "-m", "trivet", "train", str(EXAMPLES / f"{example}.toml"), "-o", str(run)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HOME": str(home)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        [*command, "--set", f"training.steps={steps}", "--data-root", str(data)],
        check=True,
        capture_output=True,
        env=environment,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = max((run / "checkpoints").iterdir(), key=lambda file: file.stat().st_mtime)
    return {
        "training": json.loads((run / "record.json").read_text())["seconds"]["training"],
        "wait": round((run / "report.html").stat().st_mtime - last.stat().st_mtime, 2),
        "wall": round(wall, 2),
        "cpu": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two records differ, but for times."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in {**one, **other} if key not in TIMES]
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{place}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line for i, pair in enumerate(zip(one, other, strict=True)) for line in differences(*pair, f"{place}/{i}")
        ]
    return [] if one == other else [f"{place}: {one!r}, {other!r}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", nargs="+", default=["omniglot", "mnist_parity"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data-root", type=Path, default=os.environ.get("TRIVET_DATA"))
    options = parser.parse_args()
    if options.data_root is None:
        parser.error("say where the data sets are, with --data-root or TRIVET_DATA")
    results: dict[str, Any] = {}
    for example in options.examples:
        with tempfile.TemporaryDirectory() as scratch:
            home, runs = Path(scratch), [Path(scratch) / name for name in ("cold", "warm")]
            data = Path(options.data_root).resolve()
            results[example] = {
                run.name: measured(example, options.steps, run, data, home, options.threads) for run in runs
            }
            records = [json.loads((run / "record.json").read_text()) for run in runs]
            results[example]["differences"] = differences(*records)
        print(f"{example}: {json.dumps(results[example])}", flush=True)
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "steps": options.steps,
        "versions": {name: version(name) for name in ("torch", "numpy", "faiss-cpu", "scikit-learn")},
    }
    text = json.dumps(about | {"results": results}, indent=1)
    (HERE / "results" / "waiting.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
