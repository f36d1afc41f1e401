"""In-shop: clothes of DeepFashion, queries and gallery."""

from __future__ import annotations

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
    LEVEL,
    QueryGalleryConfig,
    by_id,
    find_published,
    load_published,
    numbers,
)
from trivet.io.query_gallery import QueryGallery

PARTITION, BOXES = "list_eval_partition.txt", "list_bbox_inshop.txt"


class InShopConfig(QueryGalleryConfig):
    """In-shop clothes retrieval."""

    name: Literal["in-shop"] = "in-shop"
    level: str | None = Field("item", description=LEVEL)
    boxes: bool = Field(False, description="Cut each image to its published box.")


def load_in_shop(config: InShopConfig, data_root: Path, progress: Progress | None) -> Splits:
    """In-shop clothes by `list_eval_partition.txt`, with levels category > item, the category from the path.

    Trained on: its part train; "unseen": its queries, which retrieve from its gallery.
    """
    tree = find_published(config, data_root, PARTITION, lambda tree: _file(tree, PARTITION) is not None)
    rows = _rows(tree, PARTITION, 3)
    paths, status = [row[0] for row in rows], np.array([row[2] for row in rows], np.str_)
    unknown = sorted(set(status.tolist()) - {"train", "query", "gallery"})
    if unknown:
        raise ValueError(f"{PARTITION} must say train, query or gallery of each image: it has {unknown[0]!r}.")
    boxes = None
    if config.boxes:
        listed = _rows(tree, BOXES, 7)  # image, clothes type, pose type, then the edges
        boxes = numbers((row[2:] for row in by_id(listed, paths, BOXES)), BOXES)
        boxes[:, :2] -= 1  # pixels are counted from 1
    folder = next((name for name in ("", "Img/") if paths and tree.has(name + paths[0])), "")
    return load_published(
        config,
        progress,
        tree,
        paths,
        {"category": numbered([_category(path) for path in paths]), "item": numbered([row[1] for row in rows])},
        sources=[tree.source(folder + path) for path in paths],
        subsets={"train": np.flatnonzero(status == "train"), "test": np.flatnonzero(status != "train")},
        protocol=QueryGallery(status == "query", status == "gallery", np.zeros(len(status), bool)),
        boxes=boxes,
    )


def _category(path: str) -> str:
    """The category in a path: WOMEN/Dresses in img/WOMEN/Dresses/id_00000002/02_1_front.jpg."""
    folders = path.split("/")[:-2]
    if len(folders) < 2:
        raise ValueError(
            f"{PARTITION} must name images as img/WOMEN/Dresses/id_.../...jpg: it has {path}; get it again."
        )
    return "/".join(folders[-2:])


def _rows(tree: Tree, name: str, columns: int) -> list[list[str]]:
    """The rows of a list below the number of them and the names of the columns.

    Raises:
        ValueError: if a row has other columns, or there are not as many as its first line says.
    """
    location = _file(tree, name) or name
    lines = tree.text(location).splitlines()
    rows = [line.split() for line in lines[2:] if line.strip()]
    wrong = next((row for row in rows if len(row) != columns), None)
    if wrong is not None:
        raise ValueError(
            f"each line of {tree.source(location)} must hold {columns} values: got {' '.join(wrong)[:60]!r}; get the "
            "file again."
        )
    if not lines or lines[0].strip() != str(len(rows)) or not rows:
        raise ValueError(
            f"{tree.source(location)} must list as many images as its first line says: got {''.join(lines[:1])[:60]!r} "
            f"and {len(rows)} images; get the file again."
        )
    return rows


def _file(tree: Tree, name: str) -> str | None:
    """The path of a list in the tree; None if it is not there."""
    return next((folder + name for folder in ("", "Eval/", "Anno/") if tree.has(folder + name)), None)


ENTRY = DatasetEntry(
    InShopConfig,
    load_in_shop,
    description="52,712 photographs of 7,982 clothes, with queries and boxes",
    levels=("category", "item"),
    published="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (non-commercial research)",
    folders=("in-shop", "In-shop", "InShop", "In-shop Clothes Retrieval Benchmark", "In_shop"),
    counts={"": {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}},
    files=(PARTITION, "img"),
)
