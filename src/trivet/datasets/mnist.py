"""MNIST and Fashion-MNIST."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from trivet.datasets.config import DATA_SETS, Channels, DatasetEntry, PooledConfig, Side
from trivet.datasets.data_root import fetch_by_torchvision, missing
from trivet.datasets.dataset import Dataset, Splits, choose_level
from trivet.datasets.digits import DIGITS, PARITIES
from trivet.datasets.idx import read_idx
from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import average_pool, in_memory

GROUPS = ("top", "trousers or dress", "shoe", "bag")
ITEMS = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
GROUP_OF_ITEM = np.array([0, 1, 0, 1, 0, 2, 0, 2, 3, 2])


class _Labels(NamedTuple):
    """Two label levels, the coarse class of each of ten fine ones, and the fine ones that are not trained on."""

    levels: tuple[str, str]
    coarse_names: tuple[str, ...]
    coarse_of: np.ndarray
    fine_names: tuple[str, ...]
    unseen: tuple[int, ...]


LABELS = {
    "mnist": _Labels(("parity", "digit"), PARITIES, np.arange(10) % 2, DIGITS, (6, 7, 8, 9)),
    "fashion-mnist": _Labels(("group", "item"), GROUPS, GROUP_OF_ITEM, ITEMS, (4, 6, 9)),
}
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


def load_idx(config: IdxConfig, data_root: Path, progress: Progress | None) -> Splits:
    """MNIST with levels parity > digit, or Fashion-MNIST with levels group > item.

    The groups: tops (T-shirt/top, Pullover, Coat, Shirt), trousers or dress, shoes (Sandal, Sneaker, Ankle boot), bag.
    Trained on: training images of digits 0-5, or of all items but Coat, Shirt and Ankle boot; "seen": test images of
    these; "unseen": test images of the others, of items of trained groups.
    """
    train, test = (_dataset(config, data_root, *names) for names in (("train", "train"), ("t10k", "test")))
    fine, unseen = LABELS[config.name].levels[1], LABELS[config.name].unseen
    trained = np.isin(train.labels[fine], unseen, invert=True)
    tested = np.isin(test.labels[fine], unseen)
    return Splits(
        train=train.subset(np.flatnonzero(trained)),
        evaluation={"seen": test.subset(np.flatnonzero(~tested)), "unseen": test.subset(np.flatnonzero(tested))},
        level=choose_level(config.level, train.labels),
    )


def _dataset(config: IdxConfig, root: Path, prefix: str, subset: str) -> Dataset:
    images, labels = _read(root, config.name, prefix)
    kind = LABELS[config.name]
    coarse, fine = kind.levels
    return Dataset(
        name=config.name,
        inputs=in_memory(average_pool(images, config.image_size), white=255, channels=config.channels),
        labels={coarse: kind.coarse_of[labels], fine: labels},
        names={coarse: kind.coarse_names, fine: kind.fine_names},
        ids=tuple(f"{subset}/{row:05d}" for row in range(len(images))),
    )


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
    folders = [root / folder for folder in DATA_SETS[name].folders]
    for folder in folders:
        for path in (folder / f"{file}.gz", folder / file):
            if path.is_file():
                return path
    raise missing(name, [f"{file}.gz (or {file})"], folders)


MNIST = DatasetEntry(
    MnistConfig,
    load_idx,
    description="70,000 digits of 28x28 pixels",
    levels=("parity", "digit"),
    published="LeCun, Cortes and Burges (CC BY-SA 3.0)",
    folders=("mnist", "MNIST/raw"),
    files=FILES,
    fetch=partial(fetch_by_torchvision, "MNIST", "MNIST/raw", [{}]),
)
FASHION_MNIST = DatasetEntry(
    FashionMnistConfig,
    load_idx,
    description="70,000 pieces of clothing of 28x28 pixels",
    levels=("group", "item"),
    published="https://github.com/zalandoresearch/fashion-mnist (MIT)",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    files=FILES,
    fetch=partial(fetch_by_torchvision, "FashionMNIST", "FashionMNIST/raw", [{}]),
)
