from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from trivet.datasets import load
from trivet.datasets.mnist import GROUP_OF_ITEM, GROUPS, ITEMS, FashionMnistConfig, MnistConfig

REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def write(folder: Path, part: str, labels: list[int], *, compress: bool = True) -> None:
    """Images whose pixels all equal 10 x label + position."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = b"".join(bytes([10 * label + i]) * 784 for i, label in enumerate(labels))
    files = {
        f"{part}-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, len(labels), 28, 28) + pixels,
        f"{part}-labels-idx1-ubyte": struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + bytes(labels),
    }
    for name, data in files.items():
        (folder / (f"{name}.gz" if compress else name)).write_bytes(gzip.compress(data) if compress else data)


@pytest.mark.parametrize(("folder", "compress"), [("mnist", True), ("mnist", False), ("MNIST/raw", False)])
def test_mnist_holds_out_6_to_9(folder: str, compress: bool, tmp_path: Path) -> None:
    write(tmp_path / folder, "train", [0, 6, 1, 1, 9, 2, 4], compress=compress)
    write(tmp_path / folder, "t10k", [7, 5, 8, 3], compress=compress)
    splits = load(MnistConfig(image_size=14), tmp_path)
    assert splits.train.ids == ("train/00000", "train/00002", "train/00003", "train/00005", "train/00006")
    assert splits.train.labels["digit"].tolist() == [0, 1, 1, 2, 4]
    assert splits.train.labels["parity"].tolist() == [0, 1, 1, 0, 0]
    assert (splits.train.inputs.batch(np.array([3])) * 255).unique().round().tolist() == [25]
    assert {name: data.ids for name, data in splits.evaluation.items()} == {
        "seen": ("test/00001", "test/00003"),
        "unseen": ("test/00000", "test/00002"),
    }


def test_fashion_mnist_holds_out_items_of_trained_groups(tmp_path: Path) -> None:
    write(tmp_path / "fashion-mnist", "train", [*range(10), *range(10)])
    write(tmp_path / "fashion-mnist", "t10k", list(range(10)))
    splits = load(FashionMnistConfig(), tmp_path)
    group = {ITEMS[i]: GROUPS[GROUP_OF_ITEM[i]] for i in range(10)}
    assert group["Ankle boot"] == group["Sandal"] == "shoe"
    assert group["Shirt"] == group["T-shirt/top"] == "top"
    unseen = splits.evaluation["unseen"]
    assert [unseen.names["item"][i] for i in unseen.labels["item"]] == ["Coat", "Shirt", "Ankle boot"]
    assert [unseen.names["group"][i] for i in unseen.labels["group"]] == ["top", "top", "shoe"]
    assert set(unseen.labels["group"]) <= set(splits.train.labels["group"])
    assert splits.level == "group"
    assert len(splits.train) == 14


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "mnist", "train", [0, 1])
    write(tmp_path / "mnist", "t10k", [0, 1])
    other = tmp_path / "other"
    write(other, "t10k", [0, 1, 2])
    (other / "t10k-labels-idx1-ubyte.gz").rename(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz")
    with pytest.raises(ValueError, match=r"t10k-images.*as many labels 0 to 9: got shapes \(2, 28, 28\) and \(3,\)"):
        load(MnistConfig(), tmp_path)


def test_the_real_files() -> None:
    if not (REAL / "mnist").is_dir() or not (REAL / "fashion-mnist").is_dir():
        pytest.skip(f"needs the data sets mnist and fashion-mnist: not in {REAL}")
    mnist = load(MnistConfig(), REAL)
    assert (len(mnist.train), *map(len, mnist.evaluation.values())) == (36017, 6031, 3969)
    fashion = load(FashionMnistConfig(), REAL)
    assert (len(fashion.train), *map(len, fashion.evaluation.values())) == (42000, 7000, 3000)
    for splits in (mnist, fashion):
        images = splits.evaluation["unseen"].inputs.batch(np.arange(500))
        assert images[:, :, 0, 0].float().mean() < 13  # a dark background
        assert images.max() == 255
