"""Memory grows with the rows of a batch, not with its pairs: each case is measured in a process of its own."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.programs import Programs
from torch import nn

import trivet
from trivet.label_noise.classifiers import class_scores
from trivet.label_noise.neighbourhoods import LabelledPoints, Neighborhoods
from trivet.metrics import retrieve
from trivet.metrics.points import as_points
from trivet.samplers import micro_batches


def held(what: str) -> float:
    """What Linux tells of this process, in MiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024


def step_of_losses(size: int) -> None:
    for loss in (trivet.MultiSimilarityLoss(positives="easy"), trivet.UnhingedTripletLoss()):
        rows = nn.functional.normalize(torch.randn(size, 16), dim=1).requires_grad_()
        loss(rows, torch.arange(size) % (size // 4)).backward()


def points(items: int) -> None:
    as_points(torch.ones(items, 512), distance="cosine")


def views(items: int) -> None:
    rows = np.ones((items, 512), np.float32)
    rows[:, 0] = labels = np.arange(items) % 2
    setting = LabelledPoints.of(rows, labels, folds=None, distance="cosine")
    distances = np.ones((items, 50))
    around = Neighborhoods(np.zeros((items, 50), np.int64), distances, distances[:, 0], distances[:, 0])
    class_scores(setting, around, np.ones(items), ())


def pieces(count: int) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4608, 8)
    )
    loss = trivet.TripletLoss(positives="hard", negatives="hard")
    micro_batches(model, loss, torch.randn(count, 1, 16, 16), torch.arange(count) % (count // 4), size=32).backward()


def growth(work: str, few: int, many: int) -> None:
    """Print how much more is held at most by the work on many rows than after that on few."""
    globals()[work](few)
    before = held("VmRSS")
    globals()[work](many)
    print(held("VmHWM") - before)


def growth_on_disk() -> None:
    """Print that of ranking rows on disk, without what of the file is in memory."""
    rows = np.lib.format.open_memmap("rows.npy", mode="w+", dtype=np.float32, shape=(64_000, 512))
    block = np.random.default_rng(0).normal(size=(4000, 512)).astype(np.float32)
    for start in range(0, 64_000, 4000):
        rows[start : start + 4000] = np.roll(block, start // 4000 * 31, axis=1)
    rows.flush()
    rows = np.load("rows.npy", mmap_mode="r")
    retrieve(block[:500], np.arange(500) % 50)
    before = held("RssAnon")
    done, peaks = threading.Event(), []

    def watch() -> None:
        while not done.wait(0.003):
            peaks.append(held("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    retrieve(rows, np.arange(64_000) % 9000, sample=np.arange(0, len(rows), len(rows) // 100))
    done.set()
    thread.join()
    print(max(peaks) - before)


# The peak is read from Linux's own account of the process; other systems have none like it.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process")
@pytest.mark.parametrize(
    ("call", "least", "most"),  # the MiB that it may take
    [
        # All pairs of 8192 rows are 256 MiB, and a step would need several such matrices.
        (("growth", "step_of_losses", 64, 8192), 0, 160),
        # Rows of 78 MiB are points of 156 MiB,
        (("growth", "points", 64, 40_000), 0, 400),
        # which are needed three times at once, beside 50 neighbours of each.
        (("growth", "views", 64, 40_000), 0, 760),
        # The activations of a whole batch are 90 MiB, those of one of its pieces 3.
        (("growth", "pieces", 64, 1024), 0, 40),
        # Rows on disk are 250 MiB as float64, and 125 in float32.
        (("growth_on_disk",), 125, 350),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_what_is_large_is_worked_through_in_blocks(
    programs: Programs, tmp_path: Path, call: tuple[str | int, ...], least: int, most: int
) -> None:
    function, *arguments = call
    ended = programs.run(f"tests.test_peak_memory:{function}", *arguments, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr.decode()
    assert least < float(ended.stdout) < most
