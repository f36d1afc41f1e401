"""Batches of workers are those of no worker, in memory that is used again once nobody holds it."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import weakref
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from trivet.datasets import DataConfig, Dataset, augmentation, load
from trivet.datasets.image_decoding import decode_image
from trivet.datasets.inputs import FileInputs
from trivet.samplers import PKBatches
from trivet.training.distributed import shared_batches
from trivet.training.distributed.shared_batches import BatchMemory, SharedBatch, SharedBuffers
from trivet.training.loop import Batches


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


def loader(folder: Path, workers: int, *, steps: int = 6, **data: Any) -> DataLoader[tuple[Tensor, ...] | SharedBatch]:
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
        came = list(loader(folder, workers, **data))  # all are held: no memory is used again
        for batch, other in zip(expected, came, strict=True):
            assert len(batch) == len(other) == 3
            for one, two in zip(batch, other, strict=True):
                assert torch.equal(one, two)
                assert (one.dtype, one.stride()) == (two.dtype, two.stride())


def test_two_iterations_at_once_do_not_meet(folder: Path) -> None:
    expected = [batch[0] for batch in loader(folder, 0, augment="crop-flip")]
    twice = loader(folder, 1, augment="crop-flip")
    ahead, behind = iter(twice), iter(twice)
    assert torch.equal(next(ahead)[0], expected[0])  # type: ignore[index]  # they have arrived
    for one, two, wanted, before in zip(ahead, behind, expected[1:], expected, strict=False):
        assert torch.equal(one[0], wanted)  # type: ignore[index]  # arrived: a tuple
        assert torch.equal(two[0], before)  # type: ignore[index]  # arrived: a tuple


def test_what_the_receiver_holds_is_never_overwritten(folder: Path) -> None:
    expected = [batch[0] for batch in loader(folder, 0, steps=40, augment="crop-flip")]
    held: list[Tensor | np.ndarray] = []
    for step, (images, *_) in enumerate(loader(folder, 1, steps=40, augment="crop-flip")):
        held.append(images[2:4] if step % 3 else images[2:4].numpy())  # the batch itself is gone
    for one, batch in zip(held, expected, strict=True):
        assert torch.equal(torch.as_tensor(one), batch[2:4])


def arrived(parcel: SharedBatch) -> tuple[Tensor, ...]:
    batch: tuple[Tensor, ...] = ForkingPickler.loads(ForkingPickler.dumps(parcel))
    return batch


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    arrivals, labels = SharedBuffers(), (torch.arange(4),)
    memory = BatchMemory(arrivals.name)
    first = memory.pack(torch.full((4, 3), 1.0), labels)
    inputs, came = arrived(first)
    assert came.tolist() == [0, 1, 2, 3]
    view = inputs[1:].detach()
    del inputs
    second = memory.pack(torch.full((4, 3), 2.0), labels)
    assert second.memory.data_ptr() != first.memory.data_ptr()
    assert view.tolist() == [[1.0] * 3] * 3
    del view
    third = memory.pack(torch.full((4, 3), 3.0), labels)
    assert third.memory.data_ptr() == first.memory.data_ptr()
    assert arrived(second)[0].tolist() == [[2.0] * 3] * 4
    assert arrived(third)[0].tolist() == [[3.0] * 3] * 4


def test_memory_does_not_grow_while_batches_are_let_go() -> None:
    arrivals, places = SharedBuffers(), set()
    memory = BatchMemory(arrivals.name)
    for step in range(50):
        size = 3 + step % 5  # texts of several lengths: what was too small is given up
        parcel = memory.pack(torch.full((4, size), step), ())
        places.add((parcel.memory.data_ptr(), len(parcel.memory)))
        (inputs,) = arrived(parcel)
        assert inputs.tolist() == [[step] * size] * 4
        del inputs
    assert len({length for _, length in places}) == 5
    assert len(places) == 5


def test_memory_that_became_too_small_is_given_up() -> None:
    arrivals = SharedBuffers()
    memory = BatchMemory(arrivals.name)
    parcel = memory.pack(torch.zeros(4), ())
    small = weakref.ref(parcel.memory)
    came = weakref.ref(arrived(parcel)[0])
    assert came() is None  # so the memory is free
    assert list(arrivals) == [(memory.sender, 0)]
    del parcel
    arrived(memory.pack(torch.zeros(5), ()))
    assert list(arrivals) == [(memory.sender, 0)]
    assert small() is None
    assert len(arrivals[memory.sender, 0]) == 4 * 5 + 1


def test_memory_is_sent_once_to_each_receiver() -> None:
    arrivals, others = SharedBuffers(), SharedBuffers()
    memory, other = BatchMemory(arrivals.name), BatchMemory(others.name)
    known = []
    for step in range(6):
        for one in (memory, other):
            parcel = one.pack(torch.full((3,), step), ())
            known.append(parcel.known)
            assert arrived(parcel)[0].tolist() == [step] * 3
    assert known == [False, False] + [True] * 10
    assert len(arrivals) == len(others) == 1
    name, held = arrivals.name, weakref.ref(arrivals[memory.sender, 0])
    del arrivals
    assert held() is None  # with its receiver
    assert name not in shared_batches._arrivals


@pytest.mark.parametrize(
    "inputs",
    [
        torch.arange(24, dtype=torch.uint8).view(2, 3, 2, 2).to(memory_format=torch.channels_last),
        torch.arange(6.0, dtype=torch.float64)[::2],
        torch.tensor([[1, 2]]).expand(3, 2),
        torch.zeros(0, 3, 4, 4),
        torch.arange(8, dtype=torch.float32).view(2, 4).bfloat16(),
    ],
    ids=["channels last", "with gaps", "expanded", "empty", "bfloat16"],
)
def test_any_tensor_arrives_as_it_was(inputs: Tensor) -> None:
    arrivals = SharedBuffers()
    came, labels = arrived(BatchMemory(arrivals.name).pack(inputs, (torch.tensor([5, 2**40]),)))
    assert torch.equal(came, inputs)
    assert came.dtype == inputs.dtype
    assert came.stride() == inputs.clone().stride()
    assert labels.tolist() == [5, 2**40]


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


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_breaks_is_the_same_error_in_a_worker(folder: Path, tmp_path: Path, workers: int) -> None:
    for path in folder.rglob("*.jpg"):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    batches = loader(tmp_path, workers, steps=100, augment="crop-flip")
    (tmp_path / "bee" / "3.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"bee.3\.jpg could be decoded when the run began and no longer can \("):
        list(batches)


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
    monkeypatch.setattr("trivet.datasets.image_decoding.decode_image", counted)
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
    came: list[object] = []
    with pytest.raises(ValueError, match="could be decoded when the run began"):
        came.extend(made)
    assert len(came) == step_of[last]


def fail_at(batches: DataLoader[tuple[Tensor, ...] | SharedBatch]) -> None:
    for _ in batches:
        raise KeyboardInterrupt


@pytest.mark.usefixtures("left_as_found")
def test_an_interruption_of_who_trains_ends_the_threads(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail_at(loader(folder, 0, steps=1000, augment="crop-flip"))
