"""Features are computed once for each item of an encoder; a cache that is damaged, full or shared costs time alone."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.training.test_features import settings

from trivet.datasets import Inputs
from trivet.datasets.features import FeatureInputs, item_keys
from trivet.datasets.inputs import FileInputs, in_memory
from trivet.io.image_file import Frame
from trivet.models import build
from trivet.training import feature_cache
from trivet.training.components import begun, load_splits
from trivet.training.feature_cache import FeatureCache
from trivet.training.features import encoder_fingerprint

KEYS = [bytes([number]) * 16 for number in range(10)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIVET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(feature_cache, "SHARD", 4)
    monkeypatch.setattr(feature_cache, "WAIT", 0.01)
    return tmp_path / "cache" / "features"


class Encoder:
    """Features of the items with these keys: the first byte of each, twice."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys, self.computed = keys, list[int]()

    def __call__(self, index: np.ndarray) -> np.ndarray:
        numbers = [self.keys[position][0] for position in index.tolist()]
        self.computed += numbers
        return np.array([[number, 2 * number] for number in numbers], np.float32)


def computed(keys: list[bytes], encoder: str = "a") -> list[int]:
    """What was not cached yet; all features are right."""
    cache, network = FeatureCache(encoder), Encoder(keys)
    rows = cache.rows(keys, network, lambda done, total: None)
    np.testing.assert_array_equal(cache.features[rows][:, 1], [2 * key[0] for key in keys])
    return sorted(network.computed)


def test_only_what_is_new_is_computed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert computed(KEYS[:6]) == [0, 1, 2, 3, 4, 5]
    assert computed([KEYS[4], KEYS[2], KEYS[4]]) == []
    assert computed([KEYS[7], *KEYS[:7], KEYS[7]]) == [6, 7]
    assert computed(KEYS[:2], encoder="b") == [0, 1]
    assert len([*folder.rglob("*.npy")]) == 4
    assert not [*folder.rglob(".*")]
    monkeypatch.setattr(feature_cache, "SHARDS", 1)
    assert computed(KEYS, encoder="c") == [*range(10)]
    assert len([*(folder / "c").iterdir()]) == 1


def test_finished_shards_survive_a_kill_and_damaged_ones_are_computed_again(folder: Path) -> None:
    class Killed(Encoder):
        def __call__(self, index: np.ndarray) -> np.ndarray:
            if self.computed:
                raise KeyboardInterrupt
            return super().__call__(index)

    with pytest.raises(KeyboardInterrupt):
        FeatureCache("a").rows(KEYS, Killed(KEYS), lambda done, total: None)
    assert computed(KEYS) == [4, 5, 6, 7, 8, 9]
    for damage in (lambda content: content[:-3], lambda content: b"", lambda content: b"\x93NUMPY" + content[9:]):
        file = sorted(folder.rglob("*.npy"))[0]
        file.write_bytes(damage(file.read_bytes()))
        assert len(computed(KEYS)) in (2, 4)
        assert computed(KEYS) == []
    file, second = sorted(folder.rglob("*.npy"))[:2]
    file.write_bytes(second.read_bytes())
    assert len(computed(KEYS)) in (2, 4)
    other = folder / "a" / "other.npy"
    np.save(other, np.zeros(3))
    assert computed(KEYS) == []


def test_the_oldest_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for encoder in ("first", "last"):
        computed(KEYS[:4], encoder)
    (first,), (last,) = ([*(folder / encoder).glob("*.npy")] for encoder in ("first", "last"))
    os.utime(first, (0, 0))
    os.utime(last, (9, 9))
    computed(KEYS[:4], "first")  # which is now the one used last
    monkeypatch.setenv("TRIVET_CACHE_LIMIT", str(2.5e-9 * first.stat().st_size))
    computed(KEYS[:4], "new")
    assert first.exists()
    assert not last.exists()
    computed(KEYS[:4])
    (first,) = (folder / "a").glob("*.npy")
    monkeypatch.setenv("TRIVET_CACHE_LIMIT", str(1.5e-9 * first.stat().st_size))
    computed(KEYS[4:8])
    assert not first.exists()
    assert computed(KEYS[4:8]) == []
    monkeypatch.setenv("TRIVET_CACHE_LIMIT", "0")
    assert computed(KEYS) == [0, 1, 2, 3, 8, 9]
    monkeypatch.setenv("TRIVET_CACHE_LIMIT", "much")
    with pytest.raises(ValueError, match=r"TRIVET_CACHE_LIMIT must be a number of GB, from 0 on: got 'much'"):
        computed(KEYS)


def test_a_folder_that_cannot_be_written_is_done_without(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.mkdir()
    folder.write_text("no folder")
    with caplog.at_level(logging.WARNING, logger="trivet"):
        assert computed(KEYS) == [*range(10)]
    (message,) = caplog.messages
    assert message.startswith(f"features of items could not be kept in {folder / 'a'}")
    assert message.endswith("set TRIVET_CACHE to a folder with room that can be written.")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    folder.unlink()
    monkeypatch.setattr(np, "save", full)
    assert computed(KEYS) == [*range(10)]
    assert "No space left on device" in caplog.text


def test_two_at_once_share_the_work(folder: Path) -> None:
    first, started = Encoder(KEYS), threading.Event()

    class Slow(Encoder):
        def __call__(self, index: np.ndarray) -> np.ndarray:
            started.set()
            assert waiting.wait(9)
            return super().__call__(index)

    waiting, slow, caches = threading.Event(), Slow(KEYS), (FeatureCache("a"), FeatureCache("a"))
    thread = threading.Thread(target=caches[0].rows, args=(KEYS, slow, lambda done, total: None))
    thread.start()
    assert started.wait(9)
    rows = caches[1].rows(KEYS, first, lambda done, total: waiting.set() if done == 6 else None)
    thread.join()
    np.testing.assert_array_equal(caches[1].features[rows][:, 0], range(10))
    assert sorted(first.computed + slow.computed) == [*range(10)]
    assert slow.computed == [0, 1, 2, 3]


def sources(tmp_path: Path) -> Iterator[Inputs]:
    """The same two images: in memory, from files, and from files under other names in another order."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4), np.uint8)
    yield in_memory(pixels)
    for names in ("ab", "dc"):
        for name, image in zip(names, pixels if names == "ab" else pixels[::-1], strict=True):
            Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / f"{name}.png")
        yield FileInputs([tmp_path / f"{name}.png" for name in names], Frame(3, (4, 4)), np.arange(2))


def test_an_item_is_known_by_its_content(tmp_path: Path) -> None:
    memory, files, renamed = sources(tmp_path)
    keys = item_keys(files)
    assert item_keys(renamed) == keys[::-1]
    assert len({*keys, *item_keys(memory)}) == 4
    assert item_keys(memory.subset(np.array([1]))) == item_keys(memory)[1:]
    assert isinstance(files, FileInputs)
    larger = FileInputs(files.sources, Frame(3, (8, 8)), files.rows)
    boxed = FileInputs(files.sources, files.frame, files.rows, boxes=np.array([[0, 0, 2, 2], [0, 0, 3, 3]]))
    assert not {*keys} & {*item_keys(larger), *item_keys(boxed)}
    (tmp_path / "a.png").unlink()
    assert item_keys(files)[1] == keys[1]
    assert len({*item_keys(files), *item_keys(files), keys[1]}) == 3


def test_a_second_run_computes_nothing_and_other_weights_or_texts_all(tmp_path: Path, folder: Path) -> None:
    config = settings(tmp_path, "texts")
    splits = load_splits(config, None)
    _, first = begun(config, splits)
    written = {file: file.stat().st_ino for file in folder.rglob("*.npy")}
    _, again = begun(config, splits)
    assert {file: file.stat().st_ino for file in folder.rglob("*.npy")} == written
    assert isinstance(again.train.inputs, FeatureInputs)
    assert not again.train.inputs.batch(np.arange(2)).sub(first.train.inputs.batch(np.arange(2))).any()
    names = [
        encoder_fingerprint(build(config.model.model_copy(update=change), (1,), 0))
        for change in ({}, {"embedding_dim": 3, "normalize": True}, {"prefix": "a "}, {"pooling": "cls"})
    ]
    assert names[0] == names[1]
    assert len({*names}) == 3
