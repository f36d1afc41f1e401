"""How the items of a list are split: as it says, by classes, or with a share of every class held out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from trivet.data.config import DataConfig
from trivet.data.dataset import Dataset, Splits

VALIDATION = ("val", "valid", "validation", "dev")  # what a column may call a part for validation, which is "val" here
RESERVED_LEVELS = ("id", "split", "embedding")  # the other columns of a table of embeddings
SHOWN = 3  # classes or names that a message lists


class SplitConfig(DataConfig):
    """Of items that are split as settings say."""

    split: str = "auto"  # narrowed to what each data set offers
    holdout: float = Field(0.2, gt=0, lt=1, description='The share of every class held out by split = "in-class".')
    seed: int = Field(0, ge=0, description='Decides which items split = "in-class" holds out.')

    @model_validator(mode="after")
    def _check_held_out(self) -> Self:
        fields = type(self).model_fields
        unused = [key for key in ("holdout", "seed") if getattr(self, key) != fields[key].default]
        if unused and self.split != "in-class":
            raise ValueError(f'{unused[0]} is used by split = "in-class" only: remove it, or set that split.')
        return self


class ListedConfig(SplitConfig):
    """Of items that one file lists."""

    levels: tuple[str, ...] | None = Field(
        None,
        description="The columns that are label levels, coarse first. Default: those that hold texts or integers, the "
        "one of fewest classes first, but none in which nearly every row has a value of its own.",
    )
    split: Literal["auto", "class-disjoint", "in-class"] = Field(
        "auto",
        description="auto: as the column split says, which has train beside test, val or other names; without that "
        "column class-disjoint. class-disjoint: the first half of the classes in sorted order is trained on, the rest "
        "is unseen. in-class: a share of every class is held out. With a column split these two only check it.",
    )

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
        return self


def split_items(whole: Dataset, level: str, config: SplitConfig, given: np.ndarray | None, path: Path) -> Splits:
    """The items as the settings split them; `Splits.level` is the level trained on.

    Args:
        given: `(N,)` the name of the part of each item; None without a column split.
        path: of the file, which errors name.

    Raises:
        ValueError: if a part is missing, or the classes do not allow the split.
    """
    if given is not None:
        train, held_out = _given(whole, level, config, given, path)
    elif config.split == "in-class":
        train, held_out = _share_of_every_class(whole, config, path)
    else:
        train, held_out = _half_of_the_classes(whole, level, path)
    return Splits(whole.subset(train), {name: whole.subset(rows) for name, rows in held_out.items()}, level)


def _given(
    whole: Dataset, level: str, config: SplitConfig, given: np.ndarray, path: Path
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    parts = list(dict.fromkeys(given.tolist()))
    if "train" not in parts or len(parts) < 2:
        raise ValueError(
            f"the column split must say train of some rows and test, val or another name of others: {path} has "
            f"{_some(parts)}; rename them, or remove the column."
        )
    labels = whole.labels[level]
    train = np.flatnonzero(given == "train")
    trained = set(labels[train].tolist())
    held_out: dict[str, np.ndarray] = {}
    for part in sorted(parts, key=lambda part: (part in VALIDATION, part != "test")):
        if part == "train":
            continue
        if not part or part != part.strip() or "/" in part or "\\" in part or part in (".", ".."):  # becomes a file
            raise ValueError(f"the names in the column split must be names that a file can have: got {part!r}.")
        rows = np.flatnonzero(given == part)
        tested = set(labels[rows].tolist())
        _check_told(whole, level, config, part, trained, tested, path)
        name = "val" if part in VALIDATION else part
        if part == "test":
            name = "seen" if tested <= trained else "mixed" if tested & trained else "unseen"
        if name in held_out:
            raise ValueError(
                f"the column split must have one name for each part: {path} has {_some(parts)}, of which two would be "
                f"called {name!r}; rename one."
            )
        held_out[name] = rows
    return train, held_out


def _check_told(
    whole: Dataset, level: str, config: SplitConfig, part: str, trained: set[int], tested: set[int], path: Path
) -> None:
    """ValueError if the classes of a part are not what data.split says of them."""
    wrong = {"class-disjoint": tested & trained, "in-class": tested - trained}.get(config.split, set())
    if wrong:
        names = [repr(whole.names[level][label]) for label in sorted(wrong)]
        what = "are in train, too" if config.split == "class-disjoint" else "are not in train"
        raise ValueError(
            f"split = {config.split!r} must be true of the column split: {len(wrong)} of the {len(tested)} classes of "
            f"{part!r} in {path} {what} ({_some(names)} at level {level!r}); correct the column, or remove data.split."
        )


def _half_of_the_classes(whole: Dataset, level: str, path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    labels, classes = whole.labels[level], len(whole.names[level])
    if classes < 4:
        finer = list(whole.names)[list(whole.names).index(level) + 1 :]
        enough = next((name for name in finer if len(whole.names[name]) >= 4), None)
        raise ValueError(
            f'split = "class-disjoint" needs at least four classes, two to train on and two unseen: {path} has '
            f"{classes} at level {level!r}; add classes, "
            + (f'train on a finer level (data.level = "{enough}" has {len(whole.names[enough])}), ' if enough else "")
            + 'or set data.split = "in-class".'
        )
    trained = (classes + 1) // 2
    return np.flatnonzero(labels < trained), {"unseen": np.flatnonzero(labels >= trained)}


def _share_of_every_class(whole: Dataset, config: SplitConfig, path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Hold out a share of every finest class, at least two items, leaving two; a class of two or three stays whole."""
    fine = list(whole.labels.values())[-1]
    generator = np.random.default_rng(config.seed)
    held = np.zeros(len(whole), bool)
    order = np.argsort(fine, kind="stable")
    for items in np.split(order, np.flatnonzero(np.diff(fine[order])) + 1):  # class by class
        items = generator.permutation(items)
        count = min(max(round(config.holdout * len(items)), 2), len(items) - 2)
        if count >= 2:
            held[items[:count]] = True
    if not held.any():
        raise ValueError(f'split = "in-class" needs classes of at least four items: {path} has none; add some.')
    return np.flatnonzero(~held), {"seen": np.flatnonzero(held)}


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
