"""iNaturalist: species in the wild, by the json files of its competitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.published_layouts import LEVEL, SPLIT, Levels, PublishedConfig, find_published, load_published
from trivet.datasets.splitting import Split
from trivet.runtime.safe_read import parse_json

FILES = {
    "2017": ("train2017.json", "val2017.json"),
    "2018": ("train2018.json", "val2018.json"),
    "2019": ("train2019.json", "val2019.json"),
    "2021": ("train.json", "val.json"),
    "2021-mini": ("train_mini.json", "val.json"),
}
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")
TAXONOMY = "categories.json"  # of 2018, whose lists name no ranks


class INaturalistConfig(PublishedConfig):
    """iNaturalist."""

    name: Literal["inaturalist"] = "inaturalist"
    split: Split = Field("auto", description=SPLIT)
    level: str | None = Field("species", description=LEVEL)
    version: Literal["2017", "2018", "2019", "2021", "2021-mini"] = Field(
        "2018", description="The year of the competition; mini is the smaller training set of 2021."
    )

    @property
    def label_levels(self) -> None:
        """None: the lists decide, by the ranks that they name."""

    @property
    def published_version(self) -> str:
        return self.version


def load_inaturalist(config: INaturalistConfig, data_root: Path, progress: Progress | None) -> Splits:
    """iNaturalist by its json files of images, annotations and categories.

    Levels: the ranks that the categories name, kingdom > phylum > class > order > family > genus > species; else
    supercategory > species, or species. Trained on: the training list; "seen": the validation list.
    """
    files = FILES[config.version]
    tree = find_published(config, data_root, " and ".join(files), lambda tree: all(map(tree.has, files)))
    lists = [_read(tree, file) for file in files]
    images = [_images(values, file) for file, values in zip(files, lists, strict=True)]
    paths, categories = ([row[column] for rows in images for row in rows] for column in (0, 1))
    taxa = _taxa(tree, lists[0])
    missing = next((category for category in categories if category not in taxa), None)
    if missing is not None:
        raise ValueError(f"{files[0]} must name each category: it has no {missing!r}; get the files of one year.")
    subsets = {"train": np.arange(len(images[0])), "test": np.arange(len(images[0]), len(paths))}
    return load_published(config, progress, tree, paths, _levels(taxa, categories), subsets=subsets)


def _read(tree: Tree, file: str) -> Mapping[str, Any]:
    try:
        values = parse_json(tree.text(file))
    except ValueError as error:
        raise ValueError(f"{tree.source(file)} must be a json file: {error}; get it again.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{tree.source(file)} must hold images, annotations and categories: it does not.")
    return values


def _images(values: Mapping[str, Any], file: str) -> list[tuple[str, Any]]:
    """The path and the category of each image."""
    try:
        category = {row["image_id"]: row["category_id"] for row in values["annotations"]}
        return [(str(row["file_name"]), category[row["id"]]) for row in values["images"]]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{file} must hold images, each with an annotation that names its category: {error} is missing; get the "
            "file of training or validation, as the test images have no labels."
        ) from None


def _taxa(tree: Tree, values: Mapping[str, Any]) -> dict[Any, tuple[tuple[str, str], ...]]:
    """Category -> (level, name) from coarse to fine."""
    try:
        rows = values["categories"]
        if tree.has(TAXONOMY) and not all(rank in rows[0] for rank in RANKS):
            text = parse_json(tree.text(TAXONOMY))
            rows = text if all(rank in text[0] for rank in RANKS) else rows
        ranks = [rank for rank in (*RANKS, "supercategory") if all(rank in row for row in rows)]
        if len(ranks) > 1 and "supercategory" in ranks:
            ranks.remove("supercategory")
        return {row["id"]: (*((rank, str(row[rank])) for rank in ranks), ("species", str(row["name"]))) for row in rows}
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(
            f"the categories of {tree.root} must each have an id and a name: {error} is missing; get the files again."
        ) from None


def _levels(taxa: Mapping[Any, tuple[tuple[str, str], ...]], categories: Sequence[Any]) -> Levels:
    """Labels and names of each level; taxa of one name, such as genera in two kingdoms, are told by their parents."""
    levels = {}
    for depth, (level, _) in enumerate(next(iter(taxa.values()), ())):
        lineages = {category: tuple(name for _, name in lineage[: depth + 1]) for category, lineage in taxa.items()}
        counts = Counter(lineage[-1] for lineage in set(lineages.values()))
        titles = {
            category: "/".join(lineage) if counts[lineage[-1]] > 1 else lineage[-1]
            for category, lineage in lineages.items()
        }
        levels[level] = numbered([titles[category] for category in categories])
    return levels


ENTRY = DatasetEntry(
    INaturalistConfig,
    load_inaturalist,
    description="461,939 photographs of 8,142 species (2018), and other years",
    levels=(*RANKS, "species"),
    published="https://github.com/visipedia/inat_comp (non-commercial research and education)",
    folders=("inaturalist", "inat", "iNaturalist"),
    counts={
        "2017": {"train": (579_184, 5_089), "test": (95_986, 5_089)},
        "2018": {"train": (437_513, 8_142), "test": (24_426, 8_142)},
        "2019": {"train": (265_213, 1_010), "test": (3_030, 1_010)},
        "2021": {"train": (2_686_843, 10_000), "test": (100_000, 10_000)},
        "2021-mini": {"train": (500_000, 10_000), "test": (100_000, 10_000)},
    },
    files=(*FILES["2018"], "train_val2018"),
)
