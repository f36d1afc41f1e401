"""Large arrays on disk, numbers that smaller types would merge, and embeddings so degenerate that products cannot rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from trivet.evaluation import retrieve

NAMES = ("recall@1", "recall@8", "precision@10", "r-precision", "map@r", "map", "mrr")

MEASURE = """
import sys
from pathlib import Path
import numpy as np, torch
from trivet.evaluation import retrieve

def held(what):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024

torch.set_num_threads(1)
rows, labels = np.load(sys.argv[1], mmap_mode="r"), np.load(sys.argv[2])
small = np.random.default_rng(0).normal(size=(500, rows.shape[1])).astype(np.float32)
retrieve(small, np.arange(500) % 50)
before = held("RssAnon")
peak = 0
def watch(done, total):
    global peak
    peak = max(peak, held("RssAnon"))
import threading, time
stop = threading.Event()
def poll():
    while not stop.wait(0.001):
        watch(0, 0)
thread = threading.Thread(target=poll)
thread.start()
found = retrieve(rows, labels, sample=np.arange(0, len(rows), len(rows) // 100))
stop.set()
thread.join()
print(peak - before)
"""


def reference(points: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Recall at 1 and 8, precision at 10, R-precision, MAP@R, AP and reciprocal rank by sorting, in float64."""
    exact = points.astype(np.float64)
    rows = []
    for query in queries.tolist():
        distances = np.sqrt(((exact - exact[query]) ** 2).sum(axis=1))
        distances[query] = np.inf
        order = distances.argsort(kind="stable")[:-1]
        # In a list without near ties nothing hangs on how those are broken.
        gaps = np.diff(distances[order])
        assert (gaps > 1e-12 * distances[order][1:]).all()
        found = (labels[order] == labels[query]).astype(np.float64)
        ranks, total = np.flatnonzero(found) + 1, int(found.sum())
        precisions = np.arange(1, total + 1) / ranks
        rows.append(
            [
                found[0],
                found[:8].max(),
                found[:10].sum() / 10,
                found[:total].mean(),
                precisions[ranks <= total].sum() / total,
                precisions.mean(),
                1 / ranks[0],
            ]
        )
    return np.array(rows)


@pytest.mark.parametrize("classes", [8000, 100])
def test_an_array_on_disk_gives_what_it_gives_in_memory(classes: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(40_000) % classes
    points = generator.normal(size=(classes, 32))[labels] + generator.normal(size=(40_000, 32))
    np.save(tmp_path / "rows.npy", points.astype(np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    sample = generator.choice(40_000, 200, replace=False)
    on_disk = retrieve(mapped, labels, sample=sample, measures=NAMES)
    in_memory = retrieve(points.astype(np.float32), labels, sample=sample, measures=NAMES)
    as_tensor = retrieve(torch.from_numpy(points.astype(np.float32)), labels, sample=sample, measures=NAMES)
    np.testing.assert_array_equal(on_disk.values, in_memory.values)
    np.testing.assert_array_equal(on_disk.values, as_tensor.values)
    assert on_disk.positives.tolist() == [40_000 // classes - 1] * 200
    expected = reference(points.astype(np.float32), labels, sample[:10])
    np.testing.assert_allclose(on_disk.values[:10], expected, rtol=0, atol=1e-12)


# The peak is read from Linux's own account of the process; other systems have none like it.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process")
@pytest.mark.parametrize("classes", [10_000, 2])
def test_an_array_on_disk_is_not_read_whole(classes: int, tmp_path: Path) -> None:
    """As float64 these rows are 400 MiB."""
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.float32, shape=(100_000, 512))
    block = np.random.default_rng(0).normal(size=(5000, 512)).astype(np.float32)
    for start in range(0, 100_000, 5000):
        rows[start : start + 5000] = block + start
    rows.flush()
    np.save(tmp_path / "labels.npy", np.arange(100_000) % classes)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "rows.npy"), str(tmp_path / "labels.npy")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    print(found.stdout)
    assert 0 < float(found.stdout) < 250
