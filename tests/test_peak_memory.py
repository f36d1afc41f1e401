"""Memory grows with the rows of a batch, not with its pairs: each case is measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# What is slow to load is loaded once, and each process is forked from that one.
PROGRAM = """
import json, os, sys, threading
from pathlib import Path
import numpy as np, torch, trivet
from torch import nn
from trivet.label_noise.classifiers import class_scores
from trivet.label_noise.neighbourhoods import LabelledPoints, Neighborhoods
from trivet.metrics import retrieve
from trivet.metrics.points import as_points
from trivet.samplers import micro_batches

def held(what):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024

for name, code in json.load(sys.stdin).items():
    if os.fork() == 0:
        exec(code)
        print(json.dumps([name, found]), flush=True)
        os._exit(0)
    os.wait()
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
found = held("VmHWM") - before
"""
POINTS = """
as_points(torch.ones(64, 512), distance="cosine")
before = held("VmRSS")
as_points(torch.ones(40_000, 512), distance="cosine")
found = held("VmHWM") - before
"""
VIEWS = """
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
found = held("VmHWM") - before
"""

PIECES = """
model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4608, 8))
loss = trivet.TripletLoss(positives="hard", negatives="hard")

def step(count):
    micro_batches(model, loss, torch.randn(count, 1, 16, 16), torch.arange(count) % (count // 4), size=32).backward()

step(64)
before = held("VmRSS")
step(1024)
found = held("VmHWM") - before
"""
DISK = """
torch.set_num_threads(1)
rows = np.lib.format.open_memmap("rows.npy", mode="w+", dtype=np.float32, shape=(64_000, 512))
block = np.random.default_rng(0).normal(size=(4000, 512)).astype(np.float32)
for start in range(0, 64_000, 4000):
    rows[start : start + 4000] = np.roll(block, start // 4000 * 31, axis=1)
rows.flush()
rows = np.load("rows.npy", mmap_mode="r")
retrieve(block[:500], np.arange(500) % 50)
before = held("RssAnon")
done, peaks = threading.Event(), []

def watch():
    while not done.wait(0.003):
        peaks.append(held("RssAnon"))

thread = threading.Thread(target=watch)
thread.start()
retrieve(rows, np.arange(64_000) % 9000, sample=np.arange(0, len(rows), len(rows) // 100))
done.set()
thread.join()
found = max(peaks) - before
"""
CASES = {  # code -> the least and the most MiB that it may take
    "all pairs of 8192 rows are 256 MiB, and a step would need several such matrices": (LOSSES, 0, 160),
    "rows of 78 MiB are points of 156 MiB": (POINTS, 0, 400),
    "which are needed three times at once, beside 50 neighbours of each": (VIEWS, 0, 760),
    "the activations of a whole batch are 90 MiB, those of one of its pieces 3": (PIECES, 0, 40),
    "rows on disk are 250 MiB as float64, and 125 in float32": (DISK, 125, 350),
}


# The peak is read from Linux's own account of the process; other systems have none like it.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process")
def test_what_is_large_is_worked_through_in_blocks(tmp_path: Path) -> None:
    codes = json.dumps({name: code for name, (code, _, _) in CASES.items()})
    ended = subprocess.run([sys.executable, "-c", PROGRAM], input=codes, capture_output=True, text=True, cwd=tmp_path)
    found = dict(map(json.loads, ended.stdout.splitlines()))
    assert found.keys() == CASES.keys(), ended.stderr
    assert {name: found[name] for name, (_, least, most) in CASES.items() if not least < found[name] < most} == {}
