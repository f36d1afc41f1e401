"""Flowers-102: flowers of Oxford."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.data_root import fetch_by_torchvision
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.mat import Mat
from trivet.datasets.published_layouts import SPLIT, OrPublished, PublishedConfig, find_published, load_published

LABELS, SUBSETS = "imagelabels.mat", "setid.mat"
LISTS = {"train": "trnid", "test": "tstid", "val": "valid"}


class Flowers102Config(PublishedConfig):
    """Flowers-102."""

    name: Literal["flowers102"] = "flowers102"
    split: OrPublished = Field(
        "auto", description=f"{SPLIT} published: setid.mat, in which all classes are trained on."
    )


def load_flowers102(config: Flowers102Config, data_root: Path, progress: Progress | None) -> Splits:
    """Flowers-102 by `imagelabels.mat` and `jpg/image_00001.jpg`; a class is named by its number.

    Trained on: the first half of the classes by number, 1-51; "unseen": the others, 52-102. With split = "published"
    10 images of every class; "seen": its test images; "val": its validation images.
    """
    tree = find_published(config, data_root, f"{LABELS} and jpg/", lambda tree: tree.has(LABELS))
    numbers = Mat(tree, LABELS).integers("labels")
    classes = numbered([str(number) for number in numbers.tolist()], [str(value) for value in np.unique(numbers)])
    files = [f"jpg/image_{number:05d}.jpg" for number in range(1, len(numbers) + 1)]
    subsets = read_subsets(tree, len(files)) if config.split == "published" else None
    return load_published(config, progress, tree, files, {"class": classes}, subsets=subsets)


def read_subsets(tree: Tree, count: int) -> dict[str, np.ndarray]:
    """The positions, from 0, of the images of each published part; ValueError if one is none of `count` images."""
    mat = Mat(tree, SUBSETS)
    return {subset: mat.positions(name, count) for subset, name in LISTS.items()}


ENTRY = DatasetEntry(
    Flowers102Config,
    load_flowers102,
    description="8,189 flowers of 102 kinds",
    levels=("class",),
    published="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ (terms not stated)",
    folders=("flowers102", "flowers-102", "oxford-flowers-102"),
    counts={"": {"": (8_189, 102)}},
    files=("jpg", LABELS, SUBSETS),
    fetch=partial(fetch_by_torchvision, "Flowers102", "flowers-102", [{}]),
)
