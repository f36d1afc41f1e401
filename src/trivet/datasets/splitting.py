"""Splits of labelled items: as published, by classes, or with a share of every class held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from trivet.datasets.config import DataConfig
from trivet.datasets.dataset import Dataset, Splits, choose_level
from trivet.io.label_columns import split_names
from trivet.io.tag_cells import TagCells, TagMatch
from trivet.runtime.text import abbreviated

Split = Literal["auto", "class-disjoint", "in-class"]

TRAIN, TEST, VAL = "train", "test", "val"
LISTED = 3  # names that a message lists


class SplitConfig(DataConfig):
    """Settings of labelled items that are split as their source says, else as these settings say.

    Args:
        holdout: share of every class held out by split = "in-class": more for surer measures.
        seed: decides which items split = "in-class" holds out.
    """

    split: str = "auto"  # narrowed to what each data set offers
    holdout: float = Field(0.2, gt=0, lt=1)
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _check_holdout(self) -> Self:
        fields = type(self).model_fields
        unused = [key for key in ("holdout", "seed") if getattr(self, key) != fields[key].default]
        if unused and self.split != "in-class":
            raise ValueError(f'{unused[0]} is used by split = "in-class" only: remove it, or set that split.')
        return self


class LevelsConfig(SplitConfig):
    """Settings of items whose label levels can be named."""

    levels: tuple[str, ...] | None = None
    reserved: ClassVar[tuple[str, ...]] = ("id", "split", "embedding")  # the other columns of a table of embeddings

    @property
    def label_levels(self) -> tuple[str, ...] | None:
        """The names of the levels, where they are set."""
        return self.levels

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        levels = self.levels
        if levels is not None and (len(set(levels)) != len(levels) or not levels or not all(levels)):
            raise ValueError(f"levels must be different, non-empty names: got {list(levels)}; rename them.")
        if clash := [name for name in levels or () if name in self.reserved]:
            raise ValueError(
                f"levels must not be named {', '.join(self.reserved)}, which are columns of the embeddings: "
                f"got {clash[0]!r}; rename it."
            )
        return self


class TagsConfig(LevelsConfig):
    """Settings of items whose label columns may hold several labels in a cell.

    Args:
        separator: the mark between tags in a cell, such as ";"; "list" for cells that are lists, "none" for classes.
        match: which items belong together by their tags: "any" shared one, "all" alike, or a Jaccard index from 0 to 1.
    """

    separator: Annotated[str, Field(min_length=1)] | None = None
    match: TagMatch = "any"

    @property
    def tag_cells(self) -> TagCells | None:
        """The answer to what cells of several labels are; None without one."""
        return None if self.separator is None else TagCells(self.separator, self.match)

    @model_validator(mode="after")
    def _check_match(self) -> Self:
        if self.match not in ("any", "all") and not 0 < float(self.match) <= 1:
            raise ValueError(f'match must be "any", "all" or a Jaccard index in (0, 1]: got {self.match}.')
        if self.match != "any" and self.separator is None:
            raise ValueError("match is for tags: set separator too, the mark between the tags of a cell.")
        return self


class ListedConfig(TagsConfig):
    """Settings of vectors or texts that one file lists.

    Args:
        levels: columns that are label levels, coarse first; by default texts and integers that repeat, of fewest
            classes first.
        split: "auto" follows the column split, else "class-disjoint", half of the classes, or "in-class", a share of
            each; of tags a share of the items.
        skip_empty: leave out rows without a label, a text or another value that each must have.
    """

    path: Path
    levels: tuple[str, ...] | None = None
    split: Split = "auto"
    skip_empty: bool = False


def make_splits(
    items: Dataset,
    config: SplitConfig,
    declared: Mapping[str, np.ndarray],
    location: Path,
    readable: np.ndarray | None = None,
) -> Splits:
    """The items in their parts: as they are declared, else as the settings divide them.

    The part "test", or "val" without it, is called "seen" if all its classes are trained on, "unseen" if none is, else
    "mixed". The others keep their names, and so does a part whose new name another one has.

    Args:
        declared: the positions of the items of each part, "train" first; empty where the settings divide. Where there
            are some, split = "class-disjoint" and "in-class" only check these.
        location: where the items are, which errors name.
        readable: positions of the items that can be read; all, if not given.

    Raises:
        ValueError: if the declared parts are not what the settings say of them, or the classes do not allow the split.
    """
    level = choose_level(config.level, items.labels)
    if declared:
        _check_subsets(items, level, declared, config.split, location)
        subsets = dict(declared)
    elif config.split == "in-class" or (config.split == "auto" and level in items.relations):
        subsets = _share_of_every_class(items, level, config.holdout, config.seed, location)
    else:
        subsets = _half_of_the_classes(items, level, location)
    named = dict[str, Dataset]()
    trained = set(items.classes(level, subsets[TRAIN]).tolist())
    for subset, index in subsets.items():
        name = subset
        if subset != TRAIN and len(named) == 1 and subset in (TEST, VAL):
            tested = set(items.classes(level, index).tolist())
            title = "seen" if tested <= trained else "mixed" if tested & trained else "unseen"
            name = subset if title in subsets else title
        named[name] = items.subset(index if readable is None else index[np.isin(index, readable)])
    train = named.pop(TRAIN)
    return Splits(replace(train, protocol=None), named, level)


def column_subsets(column: np.ndarray | None, path: Path) -> dict[str, np.ndarray]:
    """The positions of each part of a column split, "train" first, then "test", then the others, "val" last.

    Args:
        column: `(N,)` the name of the part of each row; None without such a column, which gives no parts.
        path: of the file, which errors name.

    Raises:
        ValueError: if there is no part to train on, or none beside it, or a name cannot be used.
    """
    if column is None:
        return {}
    names, numbers = np.unique(column, return_inverse=True)
    values = names.tolist()
    roles = [split_names([name])[name] for name in values]
    if TRAIN not in roles or len(values) < 2:
        raise ValueError(
            f"the column split must say train of some rows and test or val of others: {path} has "
            f"{abbreviated(values, LISTED)}; rename them, or remove the column."
        )
    if wrong := [name for name in values if not name.strip() or Path(name).name != name]:  # each becomes a file
        raise ValueError(f"the names in the column split must be names that a file can have: got {wrong[0]!r}.")
    order = sorted(range(len(values)), key=lambda i: (roles[i] != TRAIN, roles[i] == VAL, roles[i] != TEST))
    subsets = {roles[i]: np.flatnonzero(numbers == i) for i in order}
    if len(subsets) < len(values):
        raise ValueError(
            "the column split must have one name for each part, to train on, to test and to validate: "
            f"{path} has {abbreviated(values, LISTED)}; write each alike."
        )
    return subsets


def _check_subsets(items: Dataset, level: str, subsets: Mapping[str, np.ndarray], split: str, location: Path) -> None:
    """ValueError if a given part is not what data.split says of it."""
    if level in items.relations:
        return
    labels = items.labels[level]
    trained = set(labels[subsets[TRAIN]].tolist())
    for subset, index in subsets.items():
        tested = set(labels[index].tolist())
        wrong = {"class-disjoint": tested & trained, "in-class": tested - trained}.get(split, set())
        if subset != TRAIN and wrong:
            problem = "is" if len(wrong) == 1 else "are"
            problem += " in train, too" if split == "class-disjoint" else " not in train"
            raise ValueError(
                f"split = {split!r} must be true of the given parts: {len(wrong)} of the {len(tested)} classes of "
                f"{subset!r} in {location}, such as {items.names[level][min(wrong)]!r}, {problem}; correct them, or "
                "remove data.split."
            )


def _half_of_the_classes(items: Dataset, level: str, location: Path) -> dict[str, np.ndarray]:
    if level in items.relations:
        raise ValueError(
            f'split = "class-disjoint" needs one class for each item: those of {location} have tags or partners at '
            f'level {level!r}; set data.split = "in-class", or write a column split.'
        )
    classes = len(items.names[level])
    if classes < 4:
        finer = list(items.names)[list(items.names).index(level) + 1 :]
        enough = next((name for name in finer if len(items.names[name]) >= 4), None)
        raise ValueError(
            f'split = "class-disjoint" needs at least four classes, two to train on and two unseen: {location} has '
            f"{classes} at level {level!r}; add classes, "
            + (f'train on a finer level (data.level = "{enough}" has {len(items.names[enough])}), ' if enough else "")
            + 'or set data.split = "in-class".'
        )
    trained = items.labels[level] < (classes + 1) // 2
    return {TRAIN: np.flatnonzero(trained), TEST: np.flatnonzero(~trained)}


def _share_of_every_class(
    dataset: Dataset, level: str, holdout: float, seed: int, location: Path
) -> dict[str, np.ndarray]:
    """Hold out a share of every finest class, at least two items, leaving two; a class of two or three stays whole.

    Of a level of tags or pairs a share of all items is held out.
    """
    fine = np.zeros(len(dataset), np.int64) if level in dataset.relations else list(dataset.labels.values())[-1]
    generator = np.random.default_rng(seed)
    holdout_mask = np.zeros(len(fine), bool)
    order = np.argsort(fine, kind="stable")
    for items in np.split(order, np.flatnonzero(np.diff(fine[order])) + 1):
        items = generator.permutation(items)
        count = min(max(round(holdout * len(items)), 2), len(items) - 2)
        if count >= 2:
            holdout_mask[items[:count]] = True
    if not holdout_mask.any():
        raise ValueError(f'split = "in-class" needs classes of at least four items: {location} has none; add some.')
    return {TRAIN: np.flatnonzero(~holdout_mask), TEST: np.flatnonzero(holdout_mask)}
