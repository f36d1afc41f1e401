"""CUB-200-2011: birds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.published_layouts import (
    SPLIT,
    BoxedConfig,
    OrPublished,
    by_id,
    find_published,
    load_published,
    numbers,
)

LISTS = ("images.txt", "image_class_labels.txt")
PARENTS, NODES = "cub_flat.parent-child.txt", "classes_flat.txt"


class CubConfig(BoxedConfig):
    """CUB-200-2011."""

    name: Literal["cub"] = "cub"
    split: OrPublished = Field("auto", description=f"{SPLIT} published: train_test_split.txt.")
    hierarchy: bool = Field(
        False,
        description="Add the levels order and family, from cub_flat.parent-child.txt and classes_flat.txt of "
        "https://github.com/cvjena/semantic-embeddings (MIT), in the folder of the set or in hierarchy/ below it.",
    )

    @property
    def label_levels(self) -> tuple[str, ...]:
        return ("order", "family", "class") if self.hierarchy else ("class",)


def load_cub(config: CubConfig, data_root: Path, progress: Progress | None) -> Splits:
    """CUB-200-2011 as published: `images.txt`, `image_class_labels.txt`, `images/`, and other lists where asked for.

    Trained on: the first half of the classes by number, 1-100; "unseen": the others, 101-200.
    """
    tree = find_published(config, data_root, " and ".join(LISTS), lambda tree: all(map(tree.has, LISTS)))
    images = tree.rows(LISTS[0], 2)
    ids = [id for id, _ in images]
    class_ids = [row[0] for row in by_id(tree.rows(LISTS[1], 2), ids, LISTS[1])]
    named = dict(tree.rows("classes.txt", 2)) if tree.has("classes.txt") else {}
    order = sorted(set(class_ids), key=lambda id: (len(id), id))
    classes = [named.get(id, id) for id in class_ids]
    levels = {"class": numbered(classes, [named.get(id, id) for id in order])}
    if config.hierarchy:
        above = _hierarchy(tree, data_root)
        for depth, level in reversed(list(enumerate(("order", "family")))):
            texts = [above[id][depth] if id in above else "" for id in class_ids]
            if "" in texts:
                raise ValueError(f"{PARENTS} must hold each class: {classes[texts.index('')]} has no {level} in it.")
            levels = {level: numbered(texts), **levels}
    subsets: dict[str, np.ndarray] = {}
    if config.split == "published":
        file = "train_test_split.txt"
        training = numbers(by_id(tree.rows(file, 2), ids, file), file)[:, 0] == 1
        subsets = {"train": np.flatnonzero(training), "test": np.flatnonzero(~training)}
    return load_published(
        config,
        progress,
        tree,
        [path for _, path in images],
        levels,
        sources=[tree.source(f"images/{path}") for _, path in images],
        subsets=subsets,
        boxes=_boxes(tree, ids) if config.boxes else None,
    )


def _boxes(tree: Tree, ids: Sequence[str]) -> np.ndarray:
    file = "bounding_boxes.txt"  # image, left, upper, width, height
    boxes = numbers(by_id(tree.rows(file, 5), ids, file), file)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def _hierarchy(tree: Tree, data_root: Path) -> Mapping[str, tuple[str, str]]:
    """Order and family of each class by its number."""
    folders = [tree, *(Tree(base / "hierarchy") for base in (tree.root, tree.root.parent, data_root / "cub"))]
    source = next((folder for folder in folders if folder.has(PARENTS) and folder.has(NODES)), None)
    if source is None:
        raise ValueError(
            f"data.hierarchy needs {PARENTS} and {NODES}: not found in {tree.root} or "
            f"{tree.root.parent / 'hierarchy'}; get them from https://github.com/cvjena/semantic-embeddings."
        )
    names = {row[0]: row[1] for row in source.rows(NODES, 2)}
    parent = {child: above for above, child in source.rows(PARENTS, 2)}
    taxa = {}
    for id in names:
        chain: list[str] = []
        node = id
        while node in parent and len(chain) < len(names):
            node = parent[node]
            chain.append(names.get(node, node))
        if len(chain) >= 3:  # genus, family, order, class of animals
            taxa[id] = (chain[-2], chain[-3])
    return taxa


ENTRY = DatasetEntry(
    CubConfig,
    load_cub,
    description="11,788 birds of 200 species, with boxes",
    levels=("class",),
    published="https://www.vision.caltech.edu/datasets/cub_200_2011/ (non-commercial research and education)",
    folders=("cub", "CUB_200_2011"),
    counts={"": {"": (11_788, 200)}},
    files=("images.txt", "image_class_labels.txt", "classes.txt", "images"),
)
