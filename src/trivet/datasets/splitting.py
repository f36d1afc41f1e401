"""How labelled items are split: as they are given, by classes, or with a share of every class held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from trivet.datasets.config import DataConfig
from trivet.datasets.dataset import Dataset, Splits

Split = Literal["auto", "class-disjoint", "in-class"]

TRAIN, TEST, VAL = "train", "test", "val"
VALIDATION = (VAL, "valid", "validation", "dev")  # what a column may call a part for validation
RESERVED_LEVELS = ("id", "split", "embedding")  # the other columns of a table of embeddings
SHOWN = 3  # names that a message lists


class ListedConfig(DataConfig):
    """Of vectors or texts that one file lists."""

    path: Path

    levels: tuple[str, ...] | None = Field(
        None,
        description="The columns that are label levels, coarse first. Default: those that hold texts or integers, the "
        "one of fewest classes first, but none in which nearly every row has a value of its own.",
    )
    split: Split = Field(
        "auto",
        description="auto: as the column split says, which has train beside test, val or other names; without that "
        "column class-disjoint. class-disjoint: the first half of the classes in sorted order is trained on, the rest "
        "is unseen. in-class: a share of every class is held out. With a column split these two only check it.",
    )
    holdout: float = Field(0.2, gt=0, lt=1, description='The share of every class held out by split = "in-class".')
    seed: int = Field(0, ge=0, description='Decides which items split = "in-class" holds out.')

    @property
    def label_levels(self) -> tuple[str, ...] | None:
        """The names of the levels, where they are set."""
        return self.levels

    @model_validator(mode="after")
    def _check_listed(self) -> Self:
        levels = self.levels
        if levels is not None and (len(set(levels)) != len(levels) or not levels or not all(levels)):
            raise ValueError(f"levels must be different, non-empty names: got {list(levels)}; rename them.")
        if clash := [name for name in levels or () if name in RESERVED_LEVELS]:
            raise ValueError(
                f"levels must not be named {', '.join(RESERVED_LEVELS)}, which are columns of the embeddings: "
                f"got {clash[0]!r}; rename it."
            )
        fields = type(self).model_fields
        unused = [key for key in ("holdout", "seed") if getattr(self, key) != fields[key].default]
        if unused and self.split != "in-class":
            raise ValueError(f'{unused[0]} is used by split = "in-class" only: remove it, or set that split.')
        return self


def split_items(
    whole: Dataset, level: str, parts: Mapping[str, np.ndarray], *, split: str, holdout: float, seed: int, place: Path
) -> dict[str, np.ndarray]:
    """The positions of the items of each part, "train" first: as they are given, else as the settings divide them.

    Args:
        level: the label level trained on.
        parts: those given, "train" first; empty where the settings divide.
        split, holdout, seed: of the settings. With given parts, "class-disjoint" and "in-class" only check these.
        place: where the items are, which errors name.

    Raises:
        ValueError: if the given parts are not what `split` says of them, or the classes do not allow it.
    """
    if parts:
        _check_told(whole, level, parts, split, place)
        return dict(parts)
    if split == "in-class":
        return _share_of_every_class(whole, holdout, seed, place)
    return _half_of_the_classes(whole, level, place)


def arranged(whole: Dataset, level: str, parts: Mapping[str, np.ndarray], kept: np.ndarray | None = None) -> Splits:
    """The items in their parts.

    The part "test", or "val" without it, is called "seen" if all its classes are trained on, "unseen" if none is, else
    "mixed". The others keep their names, and so does a part whose new name another one has.

    Args:
        parts: as `split_items` gives them.
        kept: positions of the items that can be read; all, if not given.
    """
    labels = whole.labels[level]
    trained = set(labels[parts[TRAIN]].tolist())
    evaluation: dict[str, Dataset] = {}
    for part, index in parts.items():
        if part == TRAIN:
            continue
        name = part
        if not evaluation and part in (TEST, VAL):
            tested = set(labels[index].tolist())
            said = "seen" if tested <= trained else "mixed" if tested & trained else "unseen"
            name = part if said in parts else said
        evaluation[name] = whole.subset(index if kept is None else index[np.isin(index, kept)])
    rows = parts[TRAIN] if kept is None else parts[TRAIN][np.isin(parts[TRAIN], kept)]
    return Splits(replace(whole.subset(rows), protocol=None), evaluation, level)


def parts_of(column: np.ndarray | None, path: Path) -> dict[str, np.ndarray]:
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
    found = names.tolist()
    if TRAIN not in found or len(found) < 2:
        raise ValueError(
            f"the column split must say train of some rows and test or val of others: {path} has {_some(found)}; "
            "rename them, or remove the column."
        )
    if wrong := [name for name in found if not name.strip() or Path(name).name != name]:  # each becomes a file
        raise ValueError(f"the names in the column split must be names that a file can have: got {wrong[0]!r}.")
    order = sorted(range(len(found)), key=lambda i: (found[i] != TRAIN, found[i] in VALIDATION, found[i] != TEST))
    parts = {VAL if found[i] in VALIDATION else found[i]: np.flatnonzero(numbers == i) for i in order}
    if len(parts) < len(found):
        raise ValueError(f"the column split must name one part for validation: {path} has {_some(found)}.")
    return parts


def _check_told(whole: Dataset, level: str, parts: Mapping[str, np.ndarray], split: str, place: Path) -> None:
    """ValueError if a given part is not what data.split says of it."""
    labels = whole.labels[level]
    trained = set(labels[parts[TRAIN]].tolist())
    for part, index in parts.items():
        tested = set(labels[index].tolist())
        wrong = {"class-disjoint": tested & trained, "in-class": tested - trained}.get(split, set())
        if part != TRAIN and wrong:
            told = "is" if len(wrong) == 1 else "are"
            told += " in train, too" if split == "class-disjoint" else " not in train"
            raise ValueError(
                f"split = {split!r} must be true of the given parts: {len(wrong)} of the {len(tested)} classes of "
                f"{part!r} in {place}, such as {whole.names[level][min(wrong)]!r}, {told}; correct them, or remove "
                "data.split."
            )


def _half_of_the_classes(whole: Dataset, level: str, place: Path) -> dict[str, np.ndarray]:
    classes = len(whole.names[level])
    if classes < 4:
        finer = list(whole.names)[list(whole.names).index(level) + 1 :]
        enough = next((name for name in finer if len(whole.names[name]) >= 4), None)
        raise ValueError(
            f'split = "class-disjoint" needs at least four classes, two to train on and two unseen: {place} has '
            f"{classes} at level {level!r}; add classes, "
            + (f'train on a finer level (data.level = "{enough}" has {len(whole.names[enough])}), ' if enough else "")
            + 'or set data.split = "in-class".'
        )
    trained = whole.labels[level] < (classes + 1) // 2
    return {TRAIN: np.flatnonzero(trained), TEST: np.flatnonzero(~trained)}


def _share_of_every_class(whole: Dataset, holdout: float, seed: int, place: Path) -> dict[str, np.ndarray]:
    """Hold out a share of every finest class, at least two items, leaving two; a class of two or three stays whole."""
    fine = list(whole.labels.values())[-1]
    generator = np.random.default_rng(seed)
    held = np.zeros(len(fine), bool)
    order = np.argsort(fine, kind="stable")
    for items in np.split(order, np.flatnonzero(np.diff(fine[order])) + 1):
        items = generator.permutation(items)
        count = min(max(round(holdout * len(items)), 2), len(items) - 2)
        if count >= 2:
            held[items[:count]] = True
    if not held.any():
        raise ValueError(f'split = "in-class" needs classes of at least four items: {place} has none; add some.')
    return {TRAIN: np.flatnonzero(~held), TEST: np.flatnonzero(held)}


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
