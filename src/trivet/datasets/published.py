"""Published data sets: settings, where files are looked for, and counts of what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from trivet.datasets.archives import Tree, find_tree
from trivet.datasets.config import DATA_SETS, DataConfig
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import ImageFilesConfig, Listing, check_there, load_listing
from trivet.io.image_file import Source
from trivet.io.query_gallery import QueryGallery

IMAGES = (".jpg", ".jpeg", ".png", ".bmp")
OrPublished = Literal["auto", "published", "class-disjoint", "in-class"]
SPLIT = '"auto" takes the split of the papers, "class-disjoint" half of the classes, "in-class" a share of each.'
Levels = Mapping[str, tuple[np.ndarray, tuple[str, ...]]]  # level -> labels `(N,)` and class names, coarse first


class PublishedConfig(ImageFilesConfig):
    """Settings of a published data set, read as it was downloaded.

    Args:
        root: the folder or zip file of the published files, where it is not in the folder of the data sets.
    """

    level: str | None = "class"
    root: Path | None = None

    @property
    def published_version(self) -> str:
        """The version of the data set, as in the published counts."""
        return ""


class BoxedConfig(PublishedConfig):
    """Settings of a published data set with a box in each image.

    Args:
        boxes: cut each image to its published box.
    """

    boxes: bool = False


class QueryGalleryConfig(PublishedConfig):
    """Settings of a data set that is published with queries and a gallery, its only split.

    Args:
        split: the published one; data.folds validates within its classes.
    """

    split: Literal["auto"] = "auto"


def find_published(
    config: DataConfig, data_root: Path, files: Sequence[str], matches: Callable[[Tree], object] | None = None
) -> Tree:
    """The folder or zip file of a published set: its root, if it is set, or in the folder of the data sets.

    Args:
        files: that it must hold; for errors alone where `matches` says what it must.

    Raises:
        ValueError: if there is none, in a sentence that says where the set comes from.
    """
    name, root = config.name, getattr(config, "root", None)
    entry = DATA_SETS[name]
    bases = [data_root / folder for folder in entry.folders] if root is None else [root]
    tree = find_tree(bases, matches or (lambda tree: all(map(tree.has, files))))
    if tree is None:
        fetch = (
            f"run `trivet data download {name}`"
            if entry.fetch
            else f"get the set from {entry.published} and put its files there"
        )
        option = "data.root" if "root" in entry.config.model_fields else "--data-root"
        raise ValueError(
            f"{name} needs {' and '.join(files)}: not found in {' or '.join(map(str, bases))}; {fetch}, or say "
            f"with {option} where they are."
        )
    return tree


def load_published(
    config: PublishedConfig,
    progress: Progress | None,
    tree: Tree,
    ids: Sequence[str],
    levels: Levels,
    *,
    folder: str = "",
    sources: Sequence[Source] | None = None,
    subsets: Mapping[str, np.ndarray] | None = None,
    protocol: QueryGallery | None = None,
    boxes: np.ndarray | None = None,
) -> Splits:
    """The images of a published list, with what was found and, where it is not what was published, a warning.

    Args:
        ids: of the N images.
        folder: with the ids the names of their files in the tree, "images/".
        sources: their files, where the ids are no names.
        subsets: "train", "test", "val" -> the positions of its images; used where the split is the published one.
        protocol: of the subset "test".
        boxes: `(N, 4)`, what each image is cut to.
    """
    entry, subsets = DATA_SETS[config.name], subsets or {}
    listing = Listing(
        name=config.name,
        location=tree.root,
        sources=[tree.source(folder + id) for id in ids] if sources is None else sources,
        ids=tuple(ids),
        labels={level: labels for level, (labels, _) in levels.items()},
        names={level: names for level, (_, names) in levels.items()},
        subsets=subsets if config.split in ("auto", "published") else {},
        protocol=protocol,
        boxes=boxes,
    )
    published = entry.counts[config.published_version]
    if protocol is not None:
        subsets = {**subsets, "query": np.flatnonzero(protocol.query), "gallery": np.flatnonzero(protocol.gallery)}
    classes = listing.labels[type(config).model_fields["level"].default]
    counted = {subset: classes[subsets[subset]] if subset else classes for subset in published}
    here = {subset: (len(labels), len(np.unique(labels))) for subset, labels in counted.items()}
    check_there(listing, entry.published)
    splits = load_listing(config, listing, progress)
    summary = counts_text(here)
    if here == published:
        return replace(splits, summary=f"{config.name}: {summary}, as published.")
    warning = (
        f"{config.name} is not the published set: {summary}, where {counts_text(published)} were published. Its "
        "results cannot be compared with those of papers."
    )
    return replace(splits, summary=f"{config.name}: {summary}.", warnings=(warning,))


def counts_text(counts: Mapping[str, tuple[int, int]]) -> str:
    """Images and classes of each subset, in words."""
    return "; ".join(
        f"{subset}{' ' if subset else ''}{images:,} images of {classes:,} classes"
        for subset, (images, classes) in counts.items()
    )


def halves(training: np.ndarray) -> dict[str, np.ndarray]:
    """The positions of the images of a published split, from whether each `(N,)` is trained on."""
    return {"train": np.flatnonzero(training), "test": np.flatnonzero(~training)}


def by_id(rows: Iterable[Sequence[str]], ids: Sequence[str], file: str) -> list[Sequence[str]]:
    """The values of each id, in the order of `ids`, from rows (id, value, ...); ValueError if an id has none."""
    values = {row[0]: row[1:] for row in rows}
    missing = next((id for id in ids if id not in values), None)
    if missing is not None:
        raise ValueError(f"{file} must have a line for each image: that of image {missing} is missing; get it again.")
    return [values[id] for id in ids]


def numbers(texts: Iterable[Sequence[str]], file: str) -> np.ndarray:
    """Rows of numbers in texts as an array of float64; ValueError if one is none."""
    try:
        return np.array([[float(text) for text in row] for row in texts], np.float64)
    except ValueError as error:
        raise ValueError(f"{file} must hold numbers: {error}; get it again.") from None
