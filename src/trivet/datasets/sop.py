"""SOP: Stanford Online Products."""

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
from trivet.datasets.published_layouts import SPLIT, PublishedConfig, find_published, load_published
from trivet.datasets.splitting import Split

KINDS = (
    *("bicycle", "cabinet", "chair", "coffee_maker", "fan", "kettle"),
    *("lamp", "mug", "sofa", "stapler", "table", "toaster"),
)
LISTS = ("Ebay_train.txt", "Ebay_test.txt")


class SopConfig(PublishedConfig):
    """Stanford Online Products."""

    name: Literal["sop"] = "sop"
    split: Split = Field("auto", description=SPLIT)


def load_sop(config: SopConfig, data_root: Path, progress: Progress | None) -> Splits:
    """Stanford Online Products by `Ebay_train.txt` and `Ebay_test.txt`, with levels super-class > class.

    Trained on: the training list; "unseen": the test list, which has other classes.
    """
    tree = find_published(config, data_root, " and ".join(LISTS), lambda tree: all(map(tree.has, LISTS)))
    train, test = (_rows(tree, file) for file in LISTS)
    rows = [*train, *test]
    supers = numbered([row[3].split("/")[0].removesuffix("_final") for row in rows])
    classes = numbered([row[1] for row in rows], sorted({row[1] for row in rows}, key=lambda id: (len(id), id)))
    subsets = {"train": np.arange(len(train)), "test": np.arange(len(train), len(rows))}
    levels = {"super-class": supers, "class": classes}
    return load_published(config, progress, tree, [row[3] for row in rows], levels, subsets=subsets)


def _rows(tree: Tree, file: str) -> list[list[str]]:
    """Image number, class, super class and path of each image."""
    rows = tree.rows(file, 4)
    rows = rows[1:] if rows[0][0] == "image_id" else rows
    if not rows:
        raise ValueError(f"{tree.source(file)} must list images: it has a header alone; get it again.")
    return rows


ENTRY = DatasetEntry(
    SopConfig,
    load_sop,
    description="120,053 photographs of 22,634 products",
    levels=("super-class", "class"),
    published="https://cvgl.stanford.edu/projects/lifted_struct/ (research use)",
    folders=("sop", "Stanford_Online_Products"),
    counts={"": {"train": (59_551, 11_318), "test": (60_502, 11_316)}},
    files=(*LISTS, *(f"{kind}_final" for kind in KINDS)),
)
