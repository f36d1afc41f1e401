"""CIFAR-10 and CIFAR-100, with the labels of people (CIFAR-N)."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry, Side
from trivet.datasets.dataset import Dataset, Splits, TrainingNoise, choose_level
from trivet.datasets.image_decoding import Progress
from trivet.datasets.published import (
    IMAGES,
    SPLIT,
    Levels,
    PublishedConfig,
    find_published,
    halves,
    load_published,
)
from trivet.datasets.splitting import Split
from trivet.io.image_file import Source
from trivet.io.npz_files import read_integers

NAMES = ("coarse_label_names.txt", "fine_label_names.txt")  # of CIFAR-100
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {
    "cifar10": ("cifar-10-batches-bin", tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
    "cifar100": ("cifar-100-binary", ("train.bin",), "test.bin"),
}
DOWNLOADS = {  # file and MD5, as the publisher's page says them
    "cifar10": ("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": ("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
}
PIXELS = 3 * 32 * 32
ENCODED = (
    "cifar10 was read from image files, whose pixels may have been encoded anew: its results may differ from those of "
    "the published binary version."
)
HUMAN = "cifar_n_labels.npz"
# level -> array of the labels that people gave, array of the published ones, and the level of these
HUMAN_LEVELS = {
    "cifar10": {
        "aggregate": ("c10_aggre_label", "c10_clean_label", "class"),
        "random1": ("c10_random_label1", "c10_clean_label", "class"),
        "random2": ("c10_random_label2", "c10_clean_label", "class"),
        "random3": ("c10_random_label3", "c10_clean_label", "class"),
        "worse": ("c10_worse_label", "c10_clean_label", "class"),
    },
    "cifar100": {
        "noisy-coarse": ("c100_noisy_coarse_label", "c100_clean_coarse_label", "coarse"),
        "noisy-fine": ("c100_noisy_label", "c100_clean_label", "fine"),
    },
}
LEVELS = {"cifar10": ("class", *HUMAN_LEVELS["cifar10"]), "cifar100": ("coarse", "fine", *HUMAN_LEVELS["cifar100"])}


class CifarConfig(PublishedConfig):
    """Settings shared by CIFAR-10 and -100: images of 32x32 pixels, also with the labels of people."""

    image_size: Side = 32
    split: Split = Field("auto", description=SPLIT)
    human_labels: Path | None = Field(
        None,
        description=f"The npz file of CIFAR-N's labels, for a level of these; by default {HUMAN}, looked for beside "
        "the images and in cifar-n/.",
    )

    @property
    def label_levels(self) -> tuple[str, ...]:
        return LEVELS[self.name]

    @model_validator(mode="after")
    def _check_human(self) -> Self:
        if self.level in HUMAN_LEVELS.get(self.name, {}):
            if self.noise is not None:
                raise ValueError(
                    f"level = {self.level!r} has the noise of people already: remove data.noise, or set another level."
                )
            if self.split != "auto":
                raise ValueError(
                    f'level = {self.level!r} is for the published training images only: set split = "auto".'
                )
        return self


class Cifar10Config(CifarConfig):
    """CIFAR-10."""

    name: Literal["cifar10"] = "cifar10"


class Cifar100Config(CifarConfig):
    """CIFAR-100."""

    name: Literal["cifar100"] = "cifar100"
    level: str | None = "fine"


class _Images(NamedTuple):
    """Training images first; `published` is the position of each of these among the 50,000, -1 if not known."""

    sources: Sequence[Source]
    ids: list[str]
    training: np.ndarray
    levels: Levels
    published: np.ndarray


def load_cifar(config: CifarConfig, data_root: Path, progress: Progress | None) -> Splits:
    """CIFAR-10 or -100 by its binary version, or CIFAR-10 by `train/CLASS/` and `test/CLASS/` in a zip file or folder.

    Levels: "class", or "coarse" > "fine". Trained on: the training images; "seen": the test images. With
    `config.level` = "worse", say, the training labels of the level "class" are those of people; what is evaluated has
    the published ones.
    """
    folder, train, test = BATCHES[config.name]

    def complete(tree: Tree) -> bool:
        return all(map(tree.has, (*train, test))) or (config.name == "cifar10" and _has_folders(tree))

    files = [f"{folder}/ ({train[0]}, ..., {test})"]
    tree = find_published(config, data_root, files, complete)
    images = _binary(tree, config.name) if tree.has(test) else _folders(tree)
    level = choose_level(config.level, LEVELS[config.name])
    human = HUMAN_LEVELS[config.name].get(level)
    levels = dict(images.levels)
    if human is not None:
        levels[level] = (_human_labels(config, data_root, tree, images, *human), levels[human[2]][1])
    subsets = halves(images.training)
    splits = load_published(config, progress, tree, images.ids, levels, sources=images.sources, subsets=subsets)
    if not tree.has(test):
        splits = replace(splits, warnings=(*splits.warnings, ENCODED))
    return splits if human is None else _as_noise(splits, level, human[2])


def _binary(tree: Tree, name: str) -> _Images:
    """The images of the binary version: one or two label bytes, then three planes of 32x32 pixels."""
    _, train, test = BATCHES[name]
    names: dict[str, tuple[str, ...]] = {"class": CLASSES}
    if name == "cifar100":
        names = {level: tuple(tree.text(f"{level}_label_names.txt").split()) for level in ("coarse", "fine")}
    width, rows = len(names) + PIXELS, []
    for file in (*train, test):
        data = tree.read(file)
        if not data or len(data) % width:
            raise ValueError(
                f"{tree.source(file)} must hold {width} bytes for each image: it has {len(data):,}; get it again."
            )
        rows.append(np.frombuffer(data, np.uint8).reshape(-1, width))
    every, tested = np.concatenate(rows), len(rows[-1])
    levels = {level: (every[:, i].astype(np.int64), classes) for i, (level, classes) in enumerate(names.items())}
    for labels, classes in levels.values():
        if labels.max() >= len(classes):
            raise ValueError(
                f"{tree.root} must hold labels from 0 to {len(classes) - 1}: it has {labels.max()}; get it again."
            )
    pixels = np.ascontiguousarray(every[:, len(names) :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    index = np.arange(len(every) - tested)
    ids = [f"train/{number:05d}" for number in index.tolist()] + [f"test/{number:05d}" for number in range(tested)]
    return _Images(list(pixels), ids, np.arange(len(every)) < len(index), levels, index)


def _has_folders(tree: Tree) -> bool:
    return all(tree.names(f"{subset}/{CLASSES[0]}", IMAGES) for subset in ("train", "test"))


def _folders(tree: Tree) -> _Images:
    """CIFAR-10 as image files; train_index.csv, where there is one, names the published place of training images."""
    paths = [
        f"{subset}/{name}/{file}"
        for subset in ("train", "test")
        for name in CLASSES
        for file in tree.names(f"{subset}/{name}", IMAGES)
    ]
    indices = {}
    if tree.has("train_index.csv"):
        for row in csv.DictReader(io.StringIO(tree.text("train_index.csv"))):
            index = row.get("original_index") or ""
            if not index.isdecimal():
                raise ValueError(f"original_index of {tree.source('train_index.csv')} must be a number: got {index!r}.")
            indices[row.get("path")] = int(index)
    labels = np.array([CLASSES.index(path.split("/")[1]) for path in paths], np.int64)
    training = np.array([path.startswith("train/") for path in paths])
    published = np.array([indices.get(path, -1) for path in paths], np.int64)[training]
    return _Images([tree.source(path) for path in paths], paths, training, {"class": (labels, CLASSES)}, published)


def _human_labels(
    config: CifarConfig, data_root: Path, tree: Tree, images: _Images, array: str, clean: str, level: str
) -> np.ndarray:
    """The labels that people gave the training images, and the published ones of the test images."""
    folder_of_images = tree.root if tree.root.is_dir() else tree.root.parent
    folders = [folder_of_images, folder_of_images.parent, data_root / config.name, data_root / "cifar-n"]
    paths = [folder / HUMAN for folder in folders] if config.human_labels is None else [config.human_labels]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ValueError(
            f"level = {config.level!r} needs the labels of CIFAR-N as {paths[-1].name}, with the arrays {array} and "
            f"{clean}: not found in {paths[-1].parent}; save them with numpy.savez from the files of "
            "https://github.com/UCSC-REAL/cifar-10-100n, which are pickles and are not read."
        )
    people, published = read_integers(path, (array, clean))
    labels, classes = images.levels[level]
    labels, index = labels.copy(), images.published
    if people.shape != published.shape or index.min(initial=0) < 0 or index.max(initial=-1) >= len(people):
        raise ValueError(
            f"{path} must have a label for each training image at its published place: {tree.root} has images whose "
            "place is not known; use the binary version, or add train_index.csv."
        )
    if (published[index] != labels[images.training]).any():
        raise ValueError(
            f"{path} must be in the order of the images: {clean} differs from the labels of {tree.root}; use the order "
            "of the published files."
        )
    if people.min() < 0 or people.max() >= len(classes):
        raise ValueError(f"{array} of {path} must lie in 0 to {len(classes) - 1}; save it again.")
    labels[images.training] = people[index]
    return labels


def _as_noise(splits: Splits, human: str, level: str) -> Splits:
    """The labels of people as those of their level, and what they should have been, as of noise that was put in."""

    def with_human_labels(data: Dataset) -> Dataset:
        labels = {kind: data.labels[human if kind == level else kind] for kind in data.labels if kind != human}
        return replace(data, labels=labels, names={kind: data.names[kind] for kind in labels})

    noise = TrainingNoise("human", topline=False, true_labels=splits.train.labels[level], dropped=0)
    evaluation = {name: with_human_labels(data) for name, data in splits.evaluation.items()}
    return replace(splits, train=with_human_labels(splits.train), evaluation=evaluation, level=level, noise=noise)


def _fetch(name: str, folder: Path) -> Path:
    from torchvision.datasets.utils import download_url

    archive, checksum = DOWNLOADS[name]
    download_url(f"https://www.cs.toronto.edu/~kriz/{archive}", str(folder), md5=checksum)
    batches, train, test = BATCHES[name]
    (folder / batches).mkdir()
    with tarfile.open(folder / archive) as packed:
        for file in packed:  # only what is read, by its last name: no member says where it is written
            last = PurePosixPath(file.name).name
            if last in (*train, test, *NAMES) and (content := packed.extractfile(file)) is not None:
                (folder / batches / last).write_bytes(content.read())
    return folder


ENTRIES = {
    name: DatasetEntry(
        config,
        load_cifar,
        description=f"60,000 images of 32x32 pixels in {classes} classes, also with human labels",
        levels=levels,
        published="https://www.cs.toronto.edu/~kriz/cifar.html, the binary version (terms not stated)",
        folders=folders,
        counts={"": {"train": (50_000, classes), "test": (10_000, classes)}},
        files=(BATCHES[name][0],),
        fetch=partial(_fetch, name),
    )
    for name, config, classes, levels, folders in (
        ("cifar10", Cifar10Config, 10, ("class",), ("cifar10", "cifar-n")),
        ("cifar100", Cifar100Config, 100, ("coarse", "fine"), ("cifar100",)),
    )
}
