"""Memory grows with the rows of a batch, not with its pairs: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HELD = """
from pathlib import Path
import numpy as np, torch, trivet

def held(what):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024
"""
LOSSES = """
def step(loss, size):
    rows = torch.nn.functional.normalize(torch.randn(size, 16), dim=1).requires_grad_()
    loss(rows, torch.arange(size) % (size // 4)).backward()

losses = [trivet.MultiSimilarityLoss(positives="easy"), trivet.UnhingedTripletLoss()]
for loss in losses:
    step(loss, 64)
before = held("VmRSS")
for loss in losses:
    step(loss, 8192)
print(held("VmHWM") - before)
"""
POINTS = """
from trivet.metrics.points import as_points

as_points(torch.ones(64, 512), distance="cosine")
before = held("VmRSS")
as_points(torch.ones(40_000, 512), distance="cosine")
print(held("VmHWM") - before)
"""
VIEWS = """
from trivet.label_noise.classifiers import class_scores
from trivet.label_noise.neighbourhoods import LabelledPoints, Neighborhoods

def views(items):
    rows = np.ones((items, 512), np.float32)
    rows[:, 0] = labels = np.arange(items) % 2
    setting = LabelledPoints.of(rows, labels, folds=None, distance="cosine")
    distances = np.ones((items, 50))
    around = Neighborhoods(np.zeros((items, 50), np.int64), distances, distances[:, 0], distances[:, 0])
    class_scores(setting, around, np.ones(items), ())

views(64)
before = held("VmRSS")
views(40_000)
print(held("VmHWM") - before)
"""


# The peak is read from Linux's own account of the process; other systems have none like it.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process")
@pytest.mark.parametrize(
    ("what", "most"),
    [
        pytest.param(LOSSES, 160, id="all pairs of 8192 rows are 256 MiB, and a step would need several such matrices"),
        pytest.param(POINTS, 400, id="rows of 78 MiB are points of 156 MiB"),
        pytest.param(VIEWS, 760, id="which are needed three times at once, beside 50 neighbours of each"),
    ],
)
def test_what_is_large_is_worked_through_in_blocks(what: str, most: float) -> None:
    found = subprocess.run([sys.executable, "-c", HELD + what], capture_output=True, text=True, check=True)
    assert 0 < float(found.stdout) < most
