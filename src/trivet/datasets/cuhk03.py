"""CUHK03 in its new protocol: people seen by pairs of cameras."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.mat import Mat
from trivet.datasets.published_layouts import LEVEL, QueryGalleryConfig, find_published, load_published
from trivet.io.query_gallery import QueryGallery

RAW = "cuhk-03.mat"


class Cuhk03Config(QueryGalleryConfig):
    """CUHK03 in its new protocol."""

    name: Literal["cuhk03"] = "cuhk03"
    level: str | None = Field("identity", description=LEVEL)
    people: Literal["detected", "labeled"] = Field("detected", description="Boxes found by a detector, or by hand.")

    @property
    def published_version(self) -> str:
        return self.people


class SplitLists(NamedTuple):
    """The lists of the new protocol: N file names, identities and cameras, and the positions of each part from 0."""

    files: list[str]
    identities: list[str]
    cameras: np.ndarray
    subsets: dict[str, np.ndarray]


def load_cuhk03(config: Cuhk03Config, data_root: Path, progress: Progress | None) -> Splits:
    """CUHK03 by `cuhk03_new_protocol_config_detected.mat` (or `labeled`) and the images in `images_detected/`.

    Trained on: the 767 identities of its training list; "unseen": its queries of 700 others, which retrieve from its
    gallery, but none of their own identity and camera.
    """
    file = f"cuhk03_new_protocol_config_{config.people}.mat"
    folder = f"images_{config.people}"
    tree = find_published(config, data_root, f"{file} and {folder}/", lambda tree: tree.has(file))
    files, people, cameras, subsets = read_protocol(tree, file)
    if not tree.has(f"{folder}/{files[0]}") and tree.has(RAW):
        raise ValueError(
            f"cuhk03 needs its images as files, such as {folder}/{files[0]}: {tree.source(RAW)} holds them in a "
            f"mat file of version 7.3, which is not read; save each as a file in {folder}/ first."
        )
    query, gallery = (np.isin(np.arange(len(files)), subsets[subset]) for subset in ("query", "gallery"))
    return load_published(
        config,
        progress,
        tree,
        files,
        {"identity": numbered(people, sorted(set(people), key=int))},
        sources=[tree.source(f"{folder}/{name}") for name in files],
        subsets={"train": subsets["train"], "test": np.concatenate([subsets["query"], subsets["gallery"]])},
        protocol=QueryGallery(query, gallery, np.zeros(len(files), bool), cameras),
    )


def read_protocol(tree: Tree, file: str) -> SplitLists:
    """The lists in a mat file of the new protocol.

    Raises:
        ValueError: if it is broken, or names an image that it does not list.
    """
    mat = Mat(tree, file)
    files = mat.texts("filelist")
    labels, cameras = mat.integers("labels"), mat.integers("camId")
    if not files or not len(files) == len(labels) == len(cameras):
        raise ValueError(f"{mat.path} must hold a label and a camera of each file; get it again.")
    subsets = {subset: mat.positions(f"{subset}_idx", len(files)) for subset in ("train", "query", "gallery")}
    return SplitLists(files, [str(label) for label in labels.tolist()], cameras, subsets)


ENTRY = DatasetEntry(
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
)
