"""Time and memory of exact evaluation, against the bare products, pytorch-metric-learning and faiss.

    .venv/bin/python benchmarks/evaluation.py                      # about 25 minutes on two cores
    .venv/bin/python benchmarks/evaluation.py --parts clusters stream --rounds 3 --output /tmp/evaluation.json

clusters, random directions: 60,502 x 512 in 11,316 classes (the sizes of the Stanford Online Products test set), each
item against all others, all retrieval measures. The vectors are synthetic: "clusters", a random centre for each class
and noise around it, so that about 6 % of the nearest neighbours are wrong; "random directions" have no classes, so that
positives are anywhere in the ranking and every similarity must be counted against each of them. The floor is the bare
float32 products of the same blocks of 1024 x 4096, written to one block of memory. Floor and Trivet alternate in one
process. A ratio of times is taken within each round; the median over rounds counts. The peers, which do less (their
lists end after the largest class), run in the first round only. Peak memory is that of a process of its own.

stream: 1,000,000 x 128 in a memory-mapped file, 2,000 random items against all. k-means: NMI with k = 1,000 on
60,000 x 128. Every result is written as soon as it is finished, as JSON and as a table; parts that are not run keep
their former results. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trivet
from trivet.metrics import cluster, nmi, retrieve

ITEMS, WIDTH, CLASSES = 60_502, 512, 11_316
STREAM, STREAM_WIDTH, STREAM_CLASSES, ASKED = 1_000_000, 128, 100_000, 2_000
CLUSTERED, CLUSTERS = 60_000, 1_000
BLOCK = (1024, 4096)
KINDS = {"clusters": 2.0, "random directions": None}
PARTS = (*KINDS, "stream", "k-means")
GOALS = {
    "60,502 x 512": "at most 1.5 x the bare products in clusters, 2 x in random directions, and 2 GiB",
    "from a file": "at most 4 GiB",
}
Row = dict[str, Any]


def vectors(items: int, width: int, classes: int, noise: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows `(items, width)` float32 and their classes; without noise the rows know nothing of the classes."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, classes, items)
    rows = generator.standard_normal((items, width), dtype=np.float32)
    if noise is not None:
        rows *= noise
        rows += generator.standard_normal((classes, width), dtype=np.float32)[labels]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def products(queries: torch.Tensor, gallery: torch.Tensor) -> float:
    """Seconds for all similarities, block by block into the same memory."""
    block = torch.empty(BLOCK[0] * BLOCK[1])
    began = time.perf_counter()
    for left in queries.split(BLOCK[0]):
        for right in gallery.split(BLOCK[1]):
            torch.mm(left, right.T, out=block[: len(left) * len(right)].view(len(left), len(right)))
    return time.perf_counter() - began


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def pytorch_metric_learning(rows: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Its calculator with faiss, lists as long as the largest class."""
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_reciprocal_rank")
    return AccuracyCalculator(include=names, k="max_bin_count").get_accuracy(rows, labels)


def faiss_top(rows: np.ndarray, k: int) -> Any:
    import faiss

    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return index.search(rows, k)


def retrieval(kind: str, rounds: int) -> Row:
    rows, labels = vectors(ITEMS, WIDTH, CLASSES, KINDS[kind])
    tensor = torch.from_numpy(rows)
    longest = int(np.bincount(labels).max())
    row: Row = {"part": kind, "items": ITEMS, "width": WIDTH, "classes": CLASSES}
    floors, ours = [], []
    products(tensor[:4096], tensor)  # warm
    for number in range(rounds):
        floors.append(products(tensor, tensor))
        seconds, found = timed(lambda: retrieve(rows, labels))
        ours.append(seconds)
        if number == 0:
            row["measures"] = found.mean()
            row["faiss_seconds"], _ = timed(lambda: faiss_top(rows, longest))
            row["faiss_k"] = longest
            row["peer_seconds"], peer = timed(lambda: pytorch_metric_learning(tensor, torch.from_numpy(labels)))
            row["peer_measures"] = {name: float(value) for name, value in peer.items()}
    row |= summary(floors, ours)
    row["peak_mib"], row["total_mib"] = in_a_process(kind, rows, labels)
    return row


def stream(rounds: int) -> Row:
    rows, labels = vectors(STREAM, STREAM_WIDTH, STREAM_CLASSES, 1.0)
    asked = np.sort(np.random.default_rng(1).permutation(STREAM)[:ASKED])
    row: Row = {"part": "stream", "items": STREAM, "width": STREAM_WIDTH, "classes": STREAM_CLASSES, "asked": ASKED}
    tensor = torch.from_numpy(rows)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "rows.npy", rows)
        mapped = np.load(Path(folder) / "rows.npy", mmap_mode="r")
        floors, ours = [], []
        for _ in range(rounds):
            floors.append(products(tensor[asked], tensor))
            seconds, found = timed(lambda: retrieve(mapped, labels, sample=asked))
            ours.append(seconds)
        row["measures"] = found.mean()
    row |= summary(floors, ours)
    row["peak_mib"], row["total_mib"] = in_a_process("stream", rows, labels, asked)
    return row


def clusters() -> Row:
    rows, labels = vectors(CLUSTERED, STREAM_WIDTH, CLUSTERS, 1.0)
    seconds, found = timed(lambda: cluster(rows, CLUSTERS, seed=0))
    row: Row = {"part": "k-means", "items": CLUSTERED, "width": STREAM_WIDTH, "classes": CLUSTERS}
    row |= {"seconds": seconds, "nmi": nmi(labels, found.assignment), "inertia": found.inertia, "restarts": 10}
    row["nmi_seconds"], _ = timed(lambda: nmi(labels, found.assignment))
    return row


def summary(floors: list[float], ours: list[float]) -> Row:
    ratios = [one / floor for one, floor in zip(ours, floors, strict=True)]
    return {
        "floor_seconds": statistics.median(floors),
        "seconds": statistics.median(ours),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def in_a_process(part: str, *arrays: np.ndarray) -> list[float]:
    """MiB of memory beyond the input, and in all, at most, of a process that does the part once."""
    with tempfile.TemporaryDirectory() as folder:
        for number, array in enumerate(arrays):
            np.save(Path(folder) / f"{number}.npy", array)
        command = [sys.executable, __file__, "--worker", part, "--folder", folder]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def worker(part: str, folder: Path) -> None:
    rows, labels, *asked = (
        np.load(folder / f"{number}.npy", mmap_mode="r" if (part, number) == ("stream", 0) else None)
        for number in range(3 if part == "stream" else 2)
    )
    tiny = np.arange(8.0).reshape(4, 2)
    retrieve(tiny, np.array([0, 0, 1, 1]))  # libraries are loaded
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    retrieve(rows, labels, sample=asked[0] if asked else None)
    # Of this program alone: getrusage starts from the memory of the process that started it.
    most = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 2**10
    print(json.dumps([most - before, most]))


def environment() -> Row:
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "faiss-cpu", "pytorch-metric-learning")}
    return {
        "trivet": trivet.__version__,
        "torch": torch.__version__,
        **versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def page(record: Row) -> str:
    about = record["environment"]
    lines = [
        "# Exact evaluation: time and memory",
        "",
        f"`benchmarks/evaluation.py`, {max(row['created'] for row in record['rows'])[:10]}; {about['threads']} threads "
        f"of a shared {about['machine']} server, torch {about['torch']}, numpy {about['numpy']}, "
        f"faiss {about['faiss-cpu']}, pytorch-metric-learning {about['pytorch-metric-learning']} (PML). The method "
        "is described in that file.",
        "",
        "| what | bare products | Trivet | ratio | PML | faiss top-k | memory beyond the input | total |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        if row["part"] == "k-means":
            continue
        what = f"{row['items']:,} x {row['width']}, {row['classes']:,} classes"
        what += f", {row['asked']:,} queries, from a file" if "asked" in row else f", {row['part']}"
        peers = [f"{row[key]:.1f} s" if key in row else "" for key in ("peer_seconds", "faiss_seconds")]
        lines.append(
            f"| {what} | {row['floor_seconds']:.1f} s | {row['seconds']:.1f} s | {row['ratio']:.2f} | {peers[0]} | "
            f"{peers[1]} | {row['peak_mib']:.0f} MiB | {row['total_mib']:.0f} MiB |"
        )
    lines += ["", "Goals: " + "; ".join(f"{part}: {goal}" for part, goal in GOALS.items()) + ".", ""]
    for row in record["rows"]:
        if row["part"] == "k-means":
            lines.append(
                f"k-means with k = {row['classes']:,} on {row['items']:,} x {row['width']}, {row['restarts']} restarts "
                f"of 25 iterations: {row['seconds']:.1f} s; NMI of its clusters, {row['nmi']:.3f}, in "
                f"{row['nmi_seconds']:.2f} s."
            )
        else:
            found = ", ".join(f"{name} {100 * share:.2f}" for name, share in row["measures"].items())
            lines.append(f"{row['part']}: {found} (per cent).")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "evaluation.json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.folder)
        return
    before = json.loads(options.output.read_text())["rows"] if options.output.exists() else []
    rows = {row["part"]: row for row in before}
    work: dict[str, Callable[[], Row]] = {
        **{kind: lambda kind=kind: retrieval(kind, options.rounds) for kind in KINDS},
        "stream": lambda: stream(options.rounds),
        "k-means": clusters,
    }
    for part in options.parts:
        row = rows[part] = work[part]()
        row["created"] = datetime.now(UTC).isoformat(timespec="seconds")
        record: Row = {"environment": environment(), "rows": [rows[name] for name in PARTS if name in rows]}
        options.output.write_text(json.dumps(record, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(page(record))
        print(json.dumps({key: value for key, value in row.items() if "measures" not in key}), flush=True)


if __name__ == "__main__":
    main()
