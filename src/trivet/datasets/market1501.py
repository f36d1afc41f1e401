"""Market-1501: people seen by six cameras."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.published_layouts import IMAGES, LEVEL, QueryGalleryConfig, find_published, load_published
from trivet.io.query_gallery import QueryGallery

FOLDERS = ("bounding_box_train", "query", "bounding_box_test")  # trained on, queries, gallery
NAME = re.compile(r"(-1|[0-9]+)_c([0-9]+)s[0-9]+_.*", re.DOTALL)
JUNK = "-1"


class Market1501Config(QueryGalleryConfig):
    """Market-1501."""

    name: Literal["market1501"] = "market1501"
    level: str | None = Field("identity", description=LEVEL)


def load_market1501(config: Market1501Config, data_root: Path, progress: Progress | None) -> Splits:
    """Market-1501 by its file names, such as `query/0002_c1s1_000451_03.jpg`, identity 0002 seen by camera 1.

    Trained on: `bounding_box_train/`; "unseen": `query/`, which retrieves from `bounding_box_test/`, but none of its
    own identity and camera. The identity 0000 are distractors, -1 is junk.
    """

    def complete(tree: Tree) -> bool:
        return all(tree.names(folder, IMAGES) for folder in FOLDERS)

    tree = find_published(config, data_root, ", ".join(f"{folder}/" for folder in FOLDERS), complete)
    paths = [[f"{folder}/{name}" for name in tree.names(folder, IMAGES)] for folder in FOLDERS]
    subset = np.repeat(np.arange(3), [len(names) for names in paths])
    ids = [path for names in paths for path in names]
    people, cameras = parse_names([path.split("/")[1] for path in ids])
    junk = np.array([person == JUNK for person in people])
    return load_published(
        config,
        progress,
        tree,
        ids,
        {"identity": numbered(people)},
        subsets={"train": np.flatnonzero(subset == 0), "test": np.flatnonzero(subset > 0)},
        protocol=QueryGallery(subset == 1, subset == 2, junk, cameras),
    )


def parse_names(names: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The identity and the camera `(N,)` of each image, from its file name.

    Raises:
        ValueError: if a name has another form.
    """
    people, cameras = [], []
    for name in names:
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"the images of market1501 must be named as in 0002_c1s1_000451_03.jpg, identity 0002 and camera 1: "
                f"got {name!r}; remove it."
            )
        people.append(match[1])
        cameras.append(int(match[2]))
    return people, np.array(cameras, np.int64)


ENTRY = DatasetEntry(
    Market1501Config,
    load_market1501,
    description="32,668 images of 1,501 people, with queries and cameras",
    levels=("identity",),
    published="https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html (research use)",
    folders=("market1501", "Market-1501-v15.09.15", "Market-1501"),
    counts={"": {"train": (12_936, 751), "query": (3_368, 750), "gallery": (19_732, 752)}},
    files=FOLDERS,
)
