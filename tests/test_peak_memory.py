"""Memory grows with the rows of a batch, not with its pairs: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import sys
from pathlib import Path
import torch, trivet

def held(what):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024

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


# The peak is read from Linux's own account of the process; other systems have none like it.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process")
def test_a_large_batch_is_worked_through_in_blocks() -> None:
    """All pairs of 8192 rows would be a matrix of 256 MiB, and a step needs several."""
    found = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    assert 0 < float(found.stdout) < 160
