"""Cars196: Stanford Cars."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.mat import Mat
from trivet.datasets.published_layouts import SPLIT, BoxedConfig, OrPublished, find_published, load_published

SOURCE = "https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
ALL = "cars_annos.mat"
TRAIN, TEST, WITHOUT = "cars_train_annos.mat", "cars_test_annos_withlabels.mat", "cars_test_annos.mat"
META = "cars_meta.mat"
EDGES = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


class Cars196Config(BoxedConfig):
    """Cars196."""

    name: Literal["cars196"] = "cars196"
    split: OrPublished = Field("auto", description=f"{SPLIT} published: cars_train and cars_test.")


def load_cars196(config: Cars196Config, data_root: Path, progress: Progress | None) -> Splits:
    """Stanford Cars by `cars_annos.mat` and `car_ims/`, or by the devkit, `cars_train/` and `cars_test/`.

    Trained on: the first half of the classes by their number, 1-98; "unseen": the others, 99-196.
    """
    files = f"{ALL}, or {TRAIN} and {TEST}"
    tree = find_published(config, data_root, files, lambda tree: tree.has(ALL) or _devkit(tree) is not None)
    paths, classes, boxes, testing, names = read_annotations(tree)
    subsets = {"train": np.flatnonzero(~testing), "test": np.flatnonzero(testing)}
    return load_published(
        config,
        progress,
        tree,
        paths,
        {"class": (classes, names)},
        subsets=subsets if config.split == "published" else None,
        boxes=boxes if config.boxes else None,
    )


def read_annotations(tree: Tree) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Paths, classes `(N,)` from 0, boxes `(N, 4)`, whether each is a test image, and the class names by number.

    Raises:
        ValueError: if a file is missing or broken, or the test images have no classes.
    """
    if tree.has(ALL):
        mats, folders = [Mat(tree, ALL)], [""]
        names_of = mats[0]
    else:
        kit = _devkit(tree) or ""
        test = next((file for file in (kit + TEST, TEST) if tree.has(file)), None)
        if test is None:
            raise ValueError(
                f"cars196 needs the classes of its test images: {tree.source(kit + WITHOUT)} has none; get {TEST} from "
                f"{SOURCE} too, or {ALL}, which has all."
            )
        mats = [Mat(tree, kit + TRAIN), Mat(tree, test)]
        folders, names_of = ["cars_train/", "cars_test/"], Mat(tree, kit + META)
    path = "annotations.relative_im_path" if mats[0].has_field("annotations.relative_im_path") else "annotations.fname"
    paths = [folder + name for mat, folder in zip(mats, folders, strict=True) for name in mat.texts(path)]
    classes = np.concatenate([mat.integers("annotations.class") for mat in mats]) - 1
    boxes = np.concatenate([np.stack([mat.floats(f"annotations.{edge}") for edge in EDGES], axis=1) for mat in mats])
    boxes[:, :2] -= 1  # pixels are counted from 1, and the last one belongs to the box
    if len(mats) == 2:
        testing = np.repeat([False, True], [len(mat.column("annotations")) for mat in mats])
    else:
        testing = mats[0].integers("annotations.test").astype(bool)
    names = tuple(names_of.texts("class_names"))
    if classes.min(initial=0) < 0 or classes.max(initial=0) >= len(names):
        raise ValueError(
            f"{names_of.path} must name each class: got {len(names)} names and a class {classes.max() + 1}."
        )
    return paths, classes, boxes, testing, names


def _devkit(tree: Tree) -> str | None:
    """The folder in the tree with the annotations of the training images; None if there is none."""
    return next((folder for folder in ("devkit/", "") if tree.has(folder + TRAIN)), None)


ENTRY = DatasetEntry(
    Cars196Config,
    load_cars196,
    description="16,185 cars of 196 models, with boxes",
    levels=("class",),
    published=f"{SOURCE} (research use)",
    folders=("cars196", "cars196-devkit", "stanford_cars", "CARS196"),
    counts={"": {"": (16_185, 196)}},
    files=(ALL, "car_ims"),
)
