"""Published sets of products: Stanford Online Products, and the in-shop clothes of DeepFashion."""

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
from trivet.datasets.published import (
    SPLIT,
    PublishedConfig,
    QueryGalleryConfig,
    by_id,
    find_published,
    halves,
    load_published,
    numbers,
)
from trivet.datasets.splitting import Split
from trivet.io.query_gallery import QueryGallery

KINDS = (
    *("bicycle", "cabinet", "chair", "coffee_maker", "fan", "kettle"),
    *("lamp", "mug", "sofa", "stapler", "table", "toaster"),
)
PRODUCT_LISTS = ("Ebay_train.txt", "Ebay_test.txt")
PARTITION, BOXES = "list_eval_partition.txt", "list_bbox_inshop.txt"


class SopConfig(PublishedConfig):
    """Stanford Online Products."""

    name: Literal["sop"] = "sop"
    split: Split = Field("auto", description=SPLIT)


def load_sop(config: SopConfig, data_root: Path, progress: Progress | None) -> Splits:
    """Stanford Online Products by `Ebay_train.txt` and `Ebay_test.txt`, with levels super-class > class.

    Trained on: the training list; "unseen": the test list, which has other classes.
    """
    tree = find_published(config, data_root, PRODUCT_LISTS)
    rows, counts = [], []
    for file in PRODUCT_LISTS:  # image number, class, super class and path
        listed = [row for row in tree.rows(file, 4) if row[0] != "image_id"]
        if not listed:
            raise ValueError(f"{tree.source(file)} must list images: it has a header alone; get it again.")
        rows += listed
        counts.append(len(listed))
    supers = numbered([row[3].split("/")[0].removesuffix("_final") for row in rows])
    classes = numbered([row[1] for row in rows], sorted({row[1] for row in rows}, key=lambda id: (len(id), id)))
    levels, subsets = {"super-class": supers, "class": classes}, halves(np.repeat([True, False], counts))
    return load_published(config, progress, tree, [row[3] for row in rows], levels, subsets=subsets)


class InShopConfig(QueryGalleryConfig):
    """In-shop clothes retrieval.

    Args:
        boxes: cut each image to its published box.
    """

    name: Literal["in-shop"] = "in-shop"
    level: str | None = "item"
    boxes: bool = False


def load_in_shop(config: InShopConfig, data_root: Path, progress: Progress | None) -> Splits:
    """In-shop clothes by `list_eval_partition.txt`, with levels category > item, the category from the path.

    Trained on: its part train; "unseen": its queries, which retrieve from its gallery.
    """
    tree = find_published(config, data_root, (PARTITION,), lambda tree: _file(tree, PARTITION) is not None)
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
    return load_published(
        config,
        progress,
        tree,
        paths,
        {"category": numbered([_category(path) for path in paths]), "item": numbered([row[1] for row in rows])},
        folder="Img/" if tree.has(f"Img/{paths[0]}") else "",
        subsets=halves(status == "train"),
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
    """The rows of a list below the number of them and the names of the columns; ValueError if it is damaged."""
    location = _file(tree, name) or name
    rows = tree.rows(location, columns, skip=2)
    first = tree.text(location).partition("\n")[0]
    if first.strip() != str(len(rows)):
        raise ValueError(
            f"{tree.source(location)} must list as many images as its first line says: got {first[:60]!r} "
            f"and {len(rows)} images; get the file again."
        )
    return rows


def _file(tree: Tree, name: str) -> str | None:
    """The path of a list in the tree; None if it is not there."""
    return next((folder + name for folder in ("", "Eval/", "Anno/") if tree.has(folder + name)), None)


ENTRIES = {
    "sop": DatasetEntry(
        SopConfig,
        load_sop,
        description="120,053 photographs of 22,634 products",
        levels=("super-class", "class"),
        published="https://cvgl.stanford.edu/projects/lifted_struct/ (research use)",
        folders=("sop", "Stanford_Online_Products"),
        counts={"": {"train": (59_551, 11_318), "test": (60_502, 11_316)}},
        files=(*PRODUCT_LISTS, *(f"{kind}_final" for kind in KINDS)),
    ),
    "in-shop": DatasetEntry(
        InShopConfig,
        load_in_shop,
        description="52,712 photographs of 7,982 clothes, with queries and boxes",
        levels=("category", "item"),
        published="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (non-commercial research)",
        folders=("in-shop", "In-shop", "InShop", "In-shop Clothes Retrieval Benchmark", "In_shop"),
        counts={"": {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}},
        files=(PARTITION, "img"),
    ),
}
