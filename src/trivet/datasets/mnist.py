"""MNIST and Fashion-MNIST."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from trivet.datasets.config import Channels, DatasetEntry, PooledConfig, Side
from trivet.datasets.data_root import missing
from trivet.datasets.dataset import Dataset, Splits, choose_level
from trivet.datasets.digits import DIGITS, PARITIES
from trivet.datasets.idx import read_idx
from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import average_pool, in_memory

GROUPS = ("top", "trousers or dress", "shoe", "bag")
ITEMS = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
GROUP_OF_ITEM = np.array([0, 1, 0, 1, 0, 2, 0, 2, 3, 2])

FOLDERS = {"mnist": ("mnist", "MNIST/raw"), "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw")}
FILES = tuple(f"{subset}-{kind}-ubyte.gz" for subset in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


class IdxConfig(PooledConfig):
    """Settings of images of 28x28 pixels; a size of 2, 4, 7 or 14 is an average."""

    image_size: Side = 28
    channels: Channels = 1
    side = 28


class MnistConfig(IdxConfig):
    """MNIST."""

    name: Literal["mnist"] = "mnist"


class FashionMnistConfig(IdxConfig):
    """Fashion-MNIST."""

    name: Literal["fashion-mnist"] = "fashion-mnist"


def load_mnist(config: MnistConfig, root: Path, progress: Progress | None) -> Splits:
    """MNIST with levels parity > digit.

    Trained on: training images of digits 0-5; "seen": test images of 0-5; "unseen": test images of 6-9.
    """
    train, digit = _read(root, "mnist", "train")
    test, test_digit = _read(root, "mnist", "t10k")

    def make(images: np.ndarray, digit: np.ndarray, subset: str) -> Dataset:
        labels = {"parity": digit % 2, "digit": digit}
        return _dataset(config, images, labels, {"parity": PARITIES, "digit": DIGITS}, subset)

    return _split_classes(config, make(train, digit, "train"), make(test, test_digit, "test"), holdout=(6, 7, 8, 9))


def load_fashion_mnist(config: FashionMnistConfig, root: Path, progress: Progress | None) -> Splits:
    """Fashion-MNIST with levels group > item.

    The groups: tops (T-shirt/top, Pullover, Coat, Shirt), trousers or dress, shoes (Sandal, Sneaker, Ankle boot), bag.
    Trained on: training images of all items but Coat, Shirt and Ankle boot; "seen": test images of the trained items;
    "unseen": test images of these three, whose groups are trained.
    """
    train, item = _read(root, "fashion-mnist", "train")
    test, test_item = _read(root, "fashion-mnist", "t10k")

    def make(images: np.ndarray, item: np.ndarray, subset: str) -> Dataset:
        labels = {"group": GROUP_OF_ITEM[item], "item": item}
        return _dataset(config, images, labels, {"group": GROUPS, "item": ITEMS}, subset)

    return _split_classes(config, make(train, item, "train"), make(test, test_item, "test"), holdout=(4, 6, 9))


def _read(root: Path, name: str, subset: str) -> tuple[np.ndarray, np.ndarray]:
    images_path = _find(root, name, f"{subset}-images-idx3-ubyte")
    labels_path = _find(root, name, f"{subset}-labels-idx1-ubyte")
    images = read_idx(images_path, dimensions=3)
    labels = read_idx(labels_path, dimensions=1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max(initial=0) > 9:
        raise ValueError(
            f"{images_path} and {labels_path} must hold 28x28 images and as many labels 0 to 9: got shapes "
            f"{images.shape} and {labels.shape}, largest label {labels.max(initial=0)}; download both again."
        )
    return images, labels.astype(np.int64)


def _find(root: Path, name: str, file: str) -> Path:
    folders = [root / folder for folder in FOLDERS[name]]
    for folder in folders:
        for path in (folder / f"{file}.gz", folder / file):
            if path.is_file():
                return path
    raise missing(name, [f"{file}.gz (or {file})"], folders)


def _dataset(
    config: IdxConfig,
    images: np.ndarray,
    labels: dict[str, np.ndarray],
    names: dict[str, tuple[str, ...]],
    subset: str,
) -> Dataset:
    return Dataset(
        name=config.name,
        inputs=in_memory(average_pool(images, config.image_size), white=255, channels=config.channels),
        labels=labels,
        names=names,
        ids=tuple(f"{subset}/{row:05d}" for row in range(len(images))),
    )


def _split_classes(config: IdxConfig, train: Dataset, test: Dataset, *, holdout: tuple[int, ...]) -> Splits:
    level = choose_level(config.level, train.labels)
    fine = list(train.labels)[-1]
    unseen = np.isin(test.labels[fine], holdout)
    return Splits(
        train=train.subset(np.flatnonzero(~np.isin(train.labels[fine], holdout))),
        evaluation={"seen": test.subset(np.flatnonzero(~unseen)), "unseen": test.subset(np.flatnonzero(unseen))},
        level=level,
    )


def _fetch(name: Literal["MNIST", "FashionMNIST"], folder: Path) -> Path:
    from torchvision import datasets

    getattr(datasets, name)(folder, download=True)
    return folder / name / "raw"


MNIST = DatasetEntry(
    MnistConfig,
    load_mnist,
    description="70,000 digits of 28x28 pixels",
    levels=("parity", "digit"),
    published="LeCun, Cortes and Burges (CC BY-SA 3.0)",
    files=FILES,
    fetch=partial(_fetch, "MNIST"),
)
FASHION_MNIST = DatasetEntry(
    FashionMnistConfig,
    load_fashion_mnist,
    description="70,000 pieces of clothing of 28x28 pixels",
    levels=("group", "item"),
    published="https://github.com/zalandoresearch/fashion-mnist (MIT)",
    files=FILES,
    fetch=partial(_fetch, "FashionMNIST"),
)
