"""Layouts of published data sets: settings, where files are looked for, and counts of what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree, find_tree
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import ImageFilesConfig, Listing, check_there, load_listing

IMAGES = (".jpg", ".jpeg", ".png", ".bmp")
OrPublished = Literal["auto", "published", "class-disjoint", "in-class"]
LEVEL = "The label level trained on; by default the one of the papers."
SPLIT = (
    "auto: the split of the papers, see the table. class-disjoint: the first half of the classes in the published "
    "order is trained on, the rest is unseen. in-class: a share of every class is held out."
)


class PublishedConfig(ImageFilesConfig):
    """Settings of a published data set, read as it was downloaded."""

    level: str | None = Field("class", description=LEVEL)
    root: Path | None = Field(
        None,
        description="The folder or zip file of the published files; by default it is looked for in the folder of the "
        "data sets.",
    )


class BoxedConfig(PublishedConfig):
    """Settings of a published data set with a box in each image."""

    boxes: bool = Field(False, description="Cut each image to its published box.")


class QueryGalleryConfig(PublishedConfig):
    """Settings of a data set that is published with queries and a gallery, its only split."""

    split: Literal["auto"] = Field("auto", description="The published one; data.folds validates within its classes.")


@dataclass(frozen=True)
class Facts:
    """A data set as it was published.

    Attributes:
        name: in the settings.
        published: where, and under which terms.
        folders: what its folder below that of the data sets may be called.
        level: the label level whose classes are counted.
        counts: part -> images and classes; the part "" is the whole set.
    """

    name: str
    published: str
    folders: tuple[str, ...]
    level: str
    counts: Mapping[str, tuple[int, int]]


def find_published(
    facts: Facts, config: PublishedConfig, data_root: Path, files: str, matches: Callable[[Tree], bool]
) -> Tree:
    """The folder or zip file of a published set.

    Args:
        files: the names of the files that `matches` looks for.

    Raises:
        ValueError: if there is none, in a sentence that says where the set is published.
    """
    bases = [data_root / folder for folder in facts.folders] if config.root is None else [config.root]
    tree = find_tree(bases, matches)
    if tree is None:
        raise ValueError(
            f"{facts.name} needs {files}: not found in {' or '.join(map(str, bases))}; get the set from "
            f"{facts.published} and put its files there, or say with data.root where they are."
        )
    return tree


def load_published(
    facts: Facts,
    config: PublishedConfig,
    listing: Listing,
    progress: Progress | None,
    counted: Mapping[str, np.ndarray] | None = None,
) -> Splits:
    """The images of a published list, with what was found and, where it is not what was published, a warning.

    Args:
        counted: part of `facts.counts` -> the positions of its items; None where the whole set is counted.
    """
    classes = listing.labels[facts.level]
    counted = {"": np.arange(len(classes))} if counted is None else counted
    here = {subset: (len(index), len(np.unique(classes[index]))) for subset, index in counted.items()}
    assert set(here) == set(facts.counts)
    check_there(listing, facts.published)
    splits = load_listing(config, listing, progress)
    summary = counts_text(here)
    if here == facts.counts:
        return replace(splits, summary=f"{facts.name}: {summary}, as published.")
    warning = (
        f"{facts.name} is not the published set: {summary}, where {counts_text(facts.counts)} were published. Its "
        "results cannot be compared with those of papers."
    )
    return replace(splits, summary=f"{facts.name}: {summary}.", warnings=(warning,))


def counts_text(counts: Mapping[str, tuple[int, int]]) -> str:
    """Images and classes of each part, in words."""
    return "; ".join(
        f"{subset}{' ' if subset else ''}{images:,} images of {classes:,} classes"
        for subset, (images, classes) in counts.items()
    )


def by_id(rows: Iterable[Sequence[str]], ids: Sequence[str], file: str) -> list[Sequence[str]]:
    """The values of each id, in the order of `ids`, from rows (id, value, ...).

    Raises:
        ValueError: if an id has none.
    """
    values = {row[0]: row[1:] for row in rows}
    lacking = next((id for id in ids if id not in values), None)
    if lacking is not None:
        raise ValueError(f"{file} must have a line for each image: that of image {lacking} is missing; get it again.")
    return [values[id] for id in ids]


def numbers(texts: Iterable[Sequence[str]], file: str) -> np.ndarray:
    """Rows of numbers in texts as an array of float64; ValueError if one is none."""
    try:
        return np.array([[float(text) for text in row] for row in texts], np.float64)
    except ValueError as error:
        raise ValueError(f"{file} must hold numbers: {error}; get it again.") from None
