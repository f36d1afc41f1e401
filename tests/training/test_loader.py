"""Batches that a loader makes: the same of workers and of none, decoded one ahead, and nothing left running."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from trivet.datasets import DataConfig, Dataset, augmentation, load
from trivet.datasets.inputs import FileInputs
from trivet.io.image_file import decode_image
from trivet.losses import TripletLoss
from trivet.models import ModelConfig, build
from trivet.samplers import PKBatches
from trivet.training import TrainingConfig, loop
from trivet.training.loop import Batches, Learner, fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of four classes, of several shapes."""
    root, generator = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for name in ("ant", "bee", "cat", "dog"):
        (root / name).mkdir()
        for i in range(6):
            pixels = generator.integers(0, 256, (20 + 3 * i, 30 - i, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.jpg")
    return root


def loader(folder: Path, workers: int, *, steps: int = 6, **data: Any) -> DataLoader[tuple[Tensor, ...]]:
    settings = {"name": "folder", "root": str(folder), "image_size": [12, 14], "resize": 16, "memory_gb": 0, **data}
    config = DataConfig.parse(settings, source="test")
    train: Dataset = load(config, None).train
    plan = PKBatches(train.labels["class"], num_classes=2, samples_per_class=3, seed=0)
    batches = Batches(train, "class", plan, augmentation(config), seed=1, start=2, steps=steps, fine="class")
    return DataLoader(batches, batch_size=None, num_workers=workers)


@pytest.mark.parametrize(
    "data",
    [
        {"augment": "crop-flip"},
        {"augment": "none"},
        {"augment": "random-resized-crop", "jitter": 0.3, "erase": 0.5},
        {"augment": "crop-flip", "memory_gb": 1},
        {"augment": "none", "memory_gb": 1, "channels": 1},
    ],
    ids=["files", "files, unchanged", "floats", "in memory", "grey"],
)
def test_workers_give_the_batches_of_no_worker(folder: Path, data: dict[str, Any]) -> None:
    expected = list(loader(folder, 0, **data))
    assert len(expected) == 4
    for workers in (1, 2):
        came = list(loader(folder, workers, **data))
        for batch, other in zip(expected, came, strict=True):
            assert len(batch) == len(other) == 3
            for one, two in zip(batch, other, strict=True):
                assert torch.equal(one, two)
                assert (one.dtype, one.stride()) == (two.dtype, two.stride())


@pytest.mark.parametrize(
    ("data", "from_memory"),
    [
        ({"augment": "crop-flip"}, False),
        ({"augment": "crop-flip", "memory_gb": 1}, True),
        ({"augment": "none", "memory_gb": 1}, True),
        ({"augment": "flip", "memory_gb": 1, "jitter": 0.3}, False),
        ({"augment": "flip", "memory_gb": 1, "erase": 0.5}, False),
    ],
)
def test_batches_that_are_cut_from_memory_alone_need_no_workers(
    folder: Path, data: dict[str, Any], from_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = loader(folder, 0, **data).dataset
    assert isinstance(batches, Batches)
    processes: list[int] = []
    monkeypatch.setattr(loop, "DataLoader", lambda *_, num_workers, **__: processes.append(num_workers) or [])
    model = build(ModelConfig(name="linear"), batches.dataset.inputs.shape, 0)
    fit(Learner(model, TripletLoss(), TrainingConfig(), seed=0), batches, workers=2)
    assert processes == [0 if from_memory else 2]


@pytest.fixture
def left_as_found() -> Iterator[None]:
    """Threads and processes that a test starts have ended."""
    before, workers = set(threading.enumerate()), set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= workers  # those of an error live until it is forgotten
    assert {thread for thread in threading.enumerate() if not thread.daemon} <= before


@pytest.mark.usefixtures("left_as_found")
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_early_end_leaves_nothing_running(folder: Path, workers: int) -> None:
    batches = iter(loader(folder, workers, steps=1000, augment="crop-flip"))
    next(batches)
    del batches


class Counted:
    """Counts what is decoded, and lets a test wait for a number of images."""

    def __init__(self) -> None:
        self.count, self.changed = 0, threading.Condition()

    def __call__(self, *given: Any, **named: Any) -> np.ndarray:
        decoded = decode_image(*given, **named)
        with self.changed:
            self.count += 1
            self.changed.notify_all()
        return decoded

    def wait_for(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.count >= count, timeout=60)


@pytest.mark.usefixtures("left_as_found")
@pytest.mark.parametrize("augment", ["crop-flip", "none"])
def test_one_batch_is_decoded_ahead_and_no_more(folder: Path, augment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = loader(folder, 0, steps=7, augment=augment)  # five steps of six images
    counted = Counted()
    monkeypatch.setattr("trivet.datasets.inputs.decode_image", counted)
    for step, _ in enumerate(made):
        begun = 6 * min(step + 2, 5)
        assert counted.wait_for(begun)
        assert counted.count == begun


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_breaks_stops_the_step_that_needs_it(folder: Path, tmp_path: Path, workers: int) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    made = loader(tmp_path, workers, steps=40, augment="crop-flip")
    batches = made.dataset
    assert isinstance(batches, Batches)
    needed = [batches.batches.batch(*divmod(step, batches.batches.steps_per_epoch)) for step in range(2, 40)]
    step_of = {row: step for step, rows in reversed(list(enumerate(needed))) for row in rows.tolist()}
    last = max(step_of, key=lambda row: step_of[row])  # needed at this step for the first time
    assert step_of[last] > 0
    source = batches.dataset.inputs
    assert isinstance(source, FileInputs)
    path = source.sources[last]
    assert isinstance(path, Path)
    path.write_bytes(b"no image")
    came, said = read_to_error(made)
    assert re.search(rf"{path.name} could be decoded when the run began and no longer can \(", said)
    assert came == step_of[last]


def read_to_error(batches: DataLoader[tuple[Tensor, ...]]) -> tuple[int, str]:
    """How many batches came, and what the error said, which is forgotten: if it lives on, workers end 5 s late."""
    came = 0
    try:
        for _ in batches:
            came += 1
    except ValueError as error:
        return came, str(error)
    pytest.fail(f"{came} batches without an error")


def fail_at(batches: DataLoader[tuple[Tensor, ...]]) -> None:
    for _ in batches:
        raise KeyboardInterrupt


@pytest.mark.usefixtures("left_as_found")
def test_an_interruption_of_who_trains_ends_the_threads(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail_at(loader(folder, 0, steps=1000, augment="crop-flip"))
