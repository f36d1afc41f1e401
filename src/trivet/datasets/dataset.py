"""Labelled images: inputs, one or more label levels, stable ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from trivet.config.base import nearest
from trivet.datasets.preview import Preview
from trivet.io.parquet_files import level_line
from trivet.io.query_gallery import QueryGallery, RetrievalArguments
from trivet.io.tag_cells import PAIRS, TagMatch
from trivet.mining import Relation
from trivet.runtime.arrays import Integers

DISJOINT = ("unseen", "validation")  # evaluation splits whose classes are not trained on


class Inputs(Protocol):
    """The inputs of a data set, such as images, in memory or on disk."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of one input, (C, H, W) of an image; of inputs of two sides a shape for each."""

    def __len__(self) -> int: ...

    def batch(self, index: np.ndarray) -> Tensor:
        """Inputs `(B, *shape)` at the positions `index (B,)`; images are bytes, or float32 in [0, 1]."""

    def show(self, index: int) -> Preview:
        """The preview of an input for pages: an image of at most 64 pixels a side, grey or RGB, or a text."""

    def subset(self, index: np.ndarray) -> Inputs:
        """The inputs at the positions `index`, in that order; nothing is copied."""


class RowInputs:
    """Inputs that are the rows `rows (N,)` of what all subsets share; a base of frozen dataclasses."""

    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, index: np.ndarray) -> Self:
        return replace(self, rows=self.rows[index])  # type: ignore[type-var]  # each is a dataclass


@dataclass(frozen=True)
class Skipped:
    """An image that could not be decoded."""

    id: str
    reason: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Items with labels at one or more levels.

    Attributes:
        name: of the data set.
        inputs: N inputs.
        labels: level -> `(N,)` int64, coarse level first; a value indexes `names[level]`.
        names: level -> class names; some may have no item here.
        ids: N different strings that stay the same from run to run.
        skipped: images that could not be decoded; they are not among the items.
        protocol: of an evaluation split, which items are queries and which are retrieved; None: each item is a query
            and retrieves from all others.
        columns: other columns of the items, `(N,)` texts each, which a table of embeddings keeps.
        relations: the levels whose items do not belong together by equal labels alone, such as those of tags, where a
            "class" is a set of tags -> the rule by which the items 0 .. C - 1, one of each class, do.
        numbers: the levels of pairs, whose "classes" are groups that pairs connect -> `(N,)` int64, the number by which
            the relation knows each item.

    Raises:
        ValueError: if these do not go together.
    """

    name: str
    inputs: Inputs
    labels: Mapping[str, np.ndarray]
    names: Mapping[str, tuple[str, ...]]
    ids: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()
    protocol: QueryGallery | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relations: Mapping[str, Relation] = field(default_factory=dict)
    numbers: Mapping[str, Integers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.ids)
        if list(self.labels) != list(self.names) or len(self.inputs) != count or len(set(self.ids)) != count:
            raise ValueError(
                f"a data set needs a different id for each input, and names for each label level: got "
                f"{len(self.inputs)} inputs, {count} ids of which {len(set(self.ids))} differ, labels of "
                f"{list(self.labels)} and names of {list(self.names)}; make them agree."
            )
        for level, values in self.labels.items():
            low, high, classes = values.min(initial=0), values.max(initial=-1), len(self.names[level])
            if values.shape != (count,) or values.dtype != np.int64 or low < 0 or high >= classes:
                raise ValueError(
                    f"the labels of level {level!r} must be int64 of shape ({count},) from 0 to {classes - 1}, the "
                    f"places of its names: got {values.dtype} of shape {values.shape} from {low} to {high}."
                )
        others = {name: len(column) for name, column in self.columns.items()}
        if self.protocol is not None:
            others["protocol"] = len(self.protocol.query)
        for name, length in others.items():
            if length != count:
                raise ValueError(f"{name} must have a value for each of the {count} items: got {length}.")

    def __len__(self) -> int:
        return len(self.ids)

    def show(self, index: int) -> Preview:
        """The preview of an item for pages."""
        return self.inputs.show(index)

    def evaluation_arguments(self, embeddings: np.ndarray) -> RetrievalArguments:
        """Arguments of `trivet.metrics.evaluate` for the embeddings `(N, d)` of the items, by their protocol."""
        labels = {level: self.relation(level) for level in self.labels}
        if self.protocol is None:
            return {"embeddings": embeddings, "labels": labels}
        return self.protocol.arguments(embeddings, labels)

    def relation(self, level: str) -> Integers | Relation:
        """Return what says which items belong together at a level: labels `(N,)` int64, or a relation of the N."""
        numbers, rule = self.items_of(level), self.relations.get(level)
        return numbers if rule is None else rule.with_items(torch.from_numpy(numbers))

    def items_of(self, level: str) -> Integers:
        """The numbers `(N,)` by which the rule of a level knows the items; without a rule the labels."""
        return self.numbers.get(level, self.labels[level])

    def has_tags(self, level: str) -> bool:
        """True if an item may have several classes at a level, which then do not divide the items."""
        return level in self.relations and level not in self.numbers

    def unit(self, level: str) -> str:
        """The noun for what an item has at a level: "class", "tag" of several, or "group" that pairs connect."""
        return "tag" if self.has_tags(level) else "group" if level in self.numbers else "class"

    def num_classes(self, level: str) -> int:
        """The number of classes or tags that are known at a level, of which some may have no item here."""
        return len(getattr(self.relations.get(level), "names", self.names[level]))

    def classes(self, level: str, index: np.ndarray | slice = slice(None)) -> Integers:
        """The numbers of the classes, or tags, that the items at the positions `index` have at a level, in order."""
        labels = self.labels[level][index]
        if self.has_tags(level):
            rule = self.relations[level]
            with suppress(ValueError):  # of a relation without classes or tags
                labels = rule.numbers(torch.from_numpy(labels)).numpy()
        return np.unique(labels)

    @property
    def level_lines(self) -> list[str]:
        """The label levels, as a file of embeddings says what they are."""
        rules = {**self.tag_matches, **dict.fromkeys(self.numbers, PAIRS)}
        return [level_line(level, rules.get(level)) for level in self.labels]

    @property
    def tag_matches(self) -> dict[str, TagMatch]:
        """The levels of tags -> which items belong together, see `trivet.Tags`."""
        return {level: rule.match for level, rule in self.relations.items() if hasattr(rule, "match")}

    def related(self, level: str) -> np.ndarray:
        """Positions of the items that have a class at a level which some query has: all, without a protocol."""
        return np.arange(len(self)) if self.protocol is None else self.protocol.related(self.labels[level])

    def subset(self, index: np.ndarray) -> Dataset:
        """The items at the positions `index (M,)`, in that order; class names and label values stay."""
        return replace(
            self,
            inputs=self.inputs.subset(index),
            labels={level: values[index] for level, values in self.labels.items()},
            numbers={level: values[index] for level, values in self.numbers.items()},
            ids=tuple(self.ids[i] for i in index.tolist()),
            protocol=None if self.protocol is None else self.protocol.subset(index),
            columns={name: tuple(column[i] for i in index.tolist()) for name, column in self.columns.items()},
        )


@dataclass(frozen=True, eq=False)
class TrainingNoise:
    """Label noise in the training items.

    Attributes:
        kind: as in the settings.
        topline: whether clean items were left out instead.
        true_labels: `(N,)`, what the labels of the trained level were.
        dropped: items left out because no other was labelled as their class.
    """

    kind: str
    topline: bool
    true_labels: np.ndarray
    dropped: int


@dataclass(frozen=True, eq=False)
class Splits:
    """The items that are trained on and those that are evaluated.

    Attributes:
        train: the training items; its `skipped` lists the unreadable images of all splits.
        evaluation: split name -> items, the main one first. "seen": other items of the trained classes; "unseen":
            classes that are not trained on; "mixed": some of both; "val": a second given folder.
        level: the label level trained on.
        noise: what was done to the labels of `train` at that level; None if they are as they were found.
        decisions: "keep", "relabel", "drop", "undecided" -> how many of the training items; None without decisions.
        summary: what was found of a published set or a file, in a sentence; may be empty.
        warnings: what is wrong with it, such as other counts than were published, in sentences.
    """

    train: Dataset
    evaluation: Mapping[str, Dataset]
    level: str
    noise: TrainingNoise | None = None
    decisions: Mapping[str, int] | None = None
    summary: str = ""
    warnings: tuple[str, ...] = ()


def choose_level(wanted: str | None, levels: Iterable[str]) -> str:
    """The level to train on: the one wanted, or else the coarsest; ValueError if there is no such level."""
    known = list(levels)
    if wanted is None:
        return known[0]
    if wanted not in known:
        raise ValueError(f"data.level = {wanted!r} is not a label level of these data; {nearest(wanted, known)}")
    return wanted


def check_classes(train: Dataset, level: str, setting: str) -> None:
    """Raise ValueError if a setting needs a class for each item of a level, and it is one of tags or pairs."""
    if level in train.relations:
        raise ValueError(
            f"{setting} needs one class for each item: those of level {level!r} have tags or partners; remove it, or "
            "train on a level of classes."
        )


def check_trainable(train: Dataset, level: str) -> None:
    """Raise ValueError unless the training items hold two classes or more, contents of pairs, or items that share no
    tag."""
    if len(np.unique(train.items_of(level))) < 2:
        only = [train.names[level][i] for i in np.unique(train.labels[level])]
        raise ValueError(
            f"training needs at least two classes, so that there is a negative: got {only} at level {level!r}; add a "
            "class, or train on a finer level."
        )
    if train.has_tags(level):
        sets = torch.from_numpy(np.unique(train.labels[level]))
        if all(bool(train.relations[level].compared(tags, sets)[1].all()) for tags in torch.split(sets, 1)):
            raise ValueError(
                f"training needs two items that share no tag, so that there is a negative: all {len(train)} share one "
                f"at level {level!r}; leave out the tags that every item has."
            )


def check_evaluable(evaluation: Mapping[str, Dataset]) -> None:
    """Raise ValueError unless there is an evaluation split, and every one holds two items or more."""
    if not evaluation:
        raise ValueError("data need at least one evaluation split: they have none; hold some classes or items out.")
    for split, data in evaluation.items():
        if len(data) < 2:
            raise ValueError(
                f"an evaluation split needs at least two images, so that there is something to retrieve: {split!r} "
                f"has {len(data)}; add images to its folder (test/ or val/)."
            )
        if data.protocol is None:
            continue
        level, labels = list(data.labels.items())[-1]
        lacking = data.protocol.unanswered(labels)
        if len(lacking) and level not in data.relations:
            names = ", ".join(repr(data.names[level][i]) for i in lacking[:5]) + (", ..." if len(lacking) > 5 else "")
            raise ValueError(
                f"each class of a query needs an item in the gallery of {split!r}: {names} ({len(lacking)} of "
                f"{len(np.unique(labels[data.protocol.query]))} classes at level {level!r}) has none; add one, or "
                "leave its queries out."
            )


def trained_classes(splits: Splits, split: str) -> dict[str, int]:
    """Level -> how many classes of an evaluation split the training items have as well."""
    train, evaluated = splits.train, splits.evaluation[split]
    return {level: len(np.intersect1d(train.classes(level), evaluated.classes(level))) for level in train.labels}


def check_disjoint(splits: Splits, disjoint: Collection[str] = DISJOINT) -> None:
    """Raise ValueError if an item is both trained on and evaluated, or classes of the `disjoint` splits are.

    At one level the classes must be apart: those of digits never seen may still be odd or even, as trained ones are. Of
    pairs, whose splits may search one collection, whoever splits them checks this.
    """
    if splits.level in splits.train.numbers:
        return
    trained = set(splits.train.ids)
    for split, data in splits.evaluation.items():
        both = [id for id in data.ids if id in trained]
        if both:
            raise ValueError(
                f"no item may be both trained on and evaluated: {len(both)} of {split!r} are, first {both[0]!r}; "
                "remove them from one."
            )
        shared = trained_classes(splits, split)
        if split in disjoint and all(shared.values()):
            level, count = list(shared.items())[-1]
            raise ValueError(
                f"no class of {split!r} may be trained on: {count} are, at level {level!r}; name the split "
                '"seen" or "mixed", or leave these classes out.'
            )
