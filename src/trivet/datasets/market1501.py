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
from trivet.datasets.image_files import Listing, numbered
from trivet.datasets.published_layouts import IMAGES, LEVEL, Facts, QueryGalleryConfig, find_published, load_published
from trivet.io.query_gallery import QueryGallery

FACTS = Facts(
    "market1501",
    "https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html (research use)",
    folders=("market1501", "Market-1501-v15.09.15", "Market-1501"),
    level="identity",
    counts={"train": (12_936, 751), "query": (3_368, 750), "gallery": (19_732, 752)},
)
FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
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
    folders = tuple(FOLDERS.values())

    def complete(tree: Tree) -> bool:
        return all(tree.names(folder, IMAGES) for folder in folders)

    tree = find_published(FACTS, config, data_root, ", ".join(f"{folder}/" for folder in folders), complete)
    files = {subset: tree.names(folder, IMAGES) for subset, folder in FOLDERS.items()}
    paths = [f"{FOLDERS[subset]}/{name}" for subset, names in files.items() for name in names]
    subset = np.repeat(np.arange(3), [len(names) for names in files.values()])
    people, cameras = parse_names([path.split("/")[1] for path in paths])
    identities, names = numbered(people)
    junk = np.array([person == JUNK for person in people])
    listing = Listing(
        name="market1501",
        location=tree.root,
        sources=[tree.source(path) for path in paths],
        ids=tuple(paths),
        labels={"identity": identities},
        names={"identity": names},
        subsets={"train": np.flatnonzero(subset == 0), "test": np.flatnonzero(subset > 0)},
        protocol=QueryGallery(subset == 1, subset == 2, junk, cameras),
    )
    counted = {name: np.flatnonzero(subset == number) for number, name in enumerate(files)}
    return load_published(FACTS, config, listing, progress, counted)


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
    published=FACTS.published,
    counts={"": FACTS.counts},
    files=tuple(FOLDERS.values()),
)
