"""Published sets of people whom several cameras recorded: Market-1501, and CUHK03 in its new protocol."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.mat import Mat
from trivet.datasets.published import IMAGES, QueryGalleryConfig, find_published, halves, load_published
from trivet.io.query_gallery import QueryGallery

FOLDERS = ("bounding_box_train", "query", "bounding_box_test")  # of Market-1501: trained on, queries, gallery
NAME = re.compile(r"(-1|[0-9]+)_c([0-9]+)s[0-9]+_.*", re.DOTALL)
JUNK = "-1"
RAW = "cuhk-03.mat"


class Market1501Config(QueryGalleryConfig):
    """Market-1501."""

    name: Literal["market1501"] = "market1501"
    level: str | None = "identity"


def load_market1501(config: Market1501Config, data_root: Path, progress: Progress | None) -> Splits:
    """Market-1501 by its file names, such as `query/0002_c1s1_000451_03.jpg`, identity 0002 seen by camera 1.

    Trained on: `bounding_box_train/`; "unseen": `query/`, which retrieves from `bounding_box_test/`, but none of its
    own identity and camera. The identity 0000 are distractors, -1 is junk.
    """
    files = [f"{folder}/" for folder in FOLDERS]
    tree = find_published(config, data_root, files, lambda tree: all(tree.names(folder, IMAGES) for folder in FOLDERS))
    names = [tree.names(folder, IMAGES) for folder in FOLDERS]
    subset = np.repeat(np.arange(3), [len(listed) for listed in names])
    people, cameras = parse_names([name for listed in names for name in listed])
    return load_published(
        config,
        progress,
        tree,
        [f"{folder}/{name}" for folder, listed in zip(FOLDERS, names, strict=True) for name in listed],
        {"identity": numbered(people)},
        subsets=halves(subset == 0),
        protocol=QueryGallery(subset == 1, subset == 2, np.array(people) == JUNK, cameras),
    )


def parse_names(names: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The identity and the camera `(N,)` of each image, from its file name; ValueError if one has another form."""
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


class Cuhk03Config(QueryGalleryConfig):
    """CUHK03 in its new protocol.

    Args:
        people: boxes found by a detector, or by hand.
    """

    name: Literal["cuhk03"] = "cuhk03"
    level: str | None = "identity"
    people: Literal["detected", "labeled"] = "detected"

    @property
    def published_version(self) -> str:
        return self.people


def load_cuhk03(config: Cuhk03Config, data_root: Path, progress: Progress | None) -> Splits:
    """CUHK03 by `cuhk03_new_protocol_config_detected.mat` (or `labeled`) and the images in `images_detected/`.

    Trained on: the 767 identities of its training list; "unseen": its queries of 700 others, which retrieve from its
    gallery, but none of their own identity and camera.
    """
    file, folder = f"cuhk03_new_protocol_config_{config.people}.mat", f"images_{config.people}/"
    tree = find_published(config, data_root, (file, folder), lambda tree: tree.has(file))
    mat = Mat(tree, file)
    files, labels, cameras = mat.texts("filelist"), mat.integers("labels"), mat.integers("camId")
    if not files or not len(files) == len(labels) == len(cameras):
        raise ValueError(f"{mat.path} must hold a label and a camera of each file; get it again.")
    subsets = {subset: mat.positions(f"{subset}_idx", len(files)) for subset in ("train", "query", "gallery")}
    if not tree.has(folder + files[0]) and tree.has(RAW):
        raise ValueError(
            f"cuhk03 needs its images as files, such as {folder}{files[0]}: {tree.source(RAW)} holds them in a "
            f"mat file of version 7.3, which is not read; save each as a file in {folder} first."
        )
    query, gallery = (np.isin(np.arange(len(files)), subsets[subset]) for subset in ("query", "gallery"))
    identities = numbered([str(label) for label in labels.tolist()], [str(label) for label in np.unique(labels)])
    return load_published(
        config,
        progress,
        tree,
        files,
        {"identity": identities},
        folder=folder,
        subsets={"train": subsets["train"], "test": np.concatenate([subsets["query"], subsets["gallery"]])},
        protocol=QueryGallery(query, gallery, np.zeros(len(files), bool), cameras),
    )


ENTRIES = {
    "market1501": DatasetEntry(
        Market1501Config,
        load_market1501,
        description="32,668 images of 1,501 people, with queries and cameras",
        levels=("identity",),
        published="https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html (research use)",
        folders=("market1501", "Market-1501-v15.09.15", "Market-1501"),
        counts={"": {"train": (12_936, 751), "query": (3_368, 750), "gallery": (19_732, 752)}},
        files=FOLDERS,
    ),
    "cuhk03": DatasetEntry(
        Cuhk03Config,
        load_cuhk03,
        description="14,097 images of 1,467 people, with queries and cameras",
        levels=("identity",),
        published="https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html, lists from "
        "https://github.com/zhunzhong07/person-re-ranking (research use)",
        folders=("cuhk03", "CUHK03", "reid-lists/cuhk03"),
        counts={
            "detected": {"train": (7_365, 767), "query": (1_400, 700), "gallery": (5_332, 700)},
            "labeled": {"train": (7_368, 767), "query": (1_400, 700), "gallery": (5_328, 700)},
        },
        files=("cuhk03_new_protocol_config_detected.mat", "images_detected"),
    ),
}
