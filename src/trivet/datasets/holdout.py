"""Held-out training items, which choose and compare: whole classes or groups, or items or queries of trained ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from trivet.datasets.dataset import Dataset, Splits
from trivet.datasets.judged_pairs import JudgedPairs, hang_together
from trivet.io.query_gallery import QueryGallery
from trivet.metrics.folds import class_folds, stratified_folds
from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.text import counted

HoldoutUnit = Literal["classes", "items"]

LEAST = 4  # items of a class, of which some are held out
LEAST_CLASSES = 4  # of which some are held out: two to train on, and two to tell apart
FOLDS = 4  # as many as are suggested


def holdout_unit(train: Dataset, level: str, wanted: HoldoutUnit = "classes") -> HoldoutUnit:
    """Unit of the hold-out at a level: items where these have tags, queries where pairs connect most, else `wanted`.

    Returns:
        "classes", of pairs whole groups; "items", of pairs queries.
    """
    if train.has_tags(level):
        return "items"
    if level not in train.numbers:
        return wanted
    relation = pairs_of(train, level)
    return "items" if hang_together(relation.groups[relation.paired_left(train.numbers[level])]) else wanted


def num_units(train: Dataset, level: str) -> int:
    """The number of training classes, or groups of pairs, that can be held out."""
    if level not in train.numbers:
        return len(np.unique(train.labels[level]))
    relation = pairs_of(train, level)
    return len(np.unique(relation.groups[relation.paired_left(train.numbers[level])]))


def holds_items_out(splits: Splits) -> bool:
    """True if a step is best chosen by items of trained classes: if most that are evaluated are of these.

    Of pairs by queries, where something that is trained on belongs to most queries that are evaluated, or where pairs
    connect most of them. Where no class has four items, none can be held out. Items with tags have no classes.
    """
    level, train = splits.level, splits.train
    if holdout_unit(train, level) == "items":
        return True
    if level not in train.numbers and np.bincount(train.labels[level]).max() < LEAST:
        return False
    known = [_known(train, items, level) for split, items in splits.evaluation.items() if split != "validation"]
    return bool(known) and bool(np.concatenate(known).mean() > 0.5)


def _known(train: Dataset, items: Dataset, level: str) -> Booleans:
    """Mask of the items of an evaluation split, of pairs its left queries, that belong to something trained on."""
    if level in train.numbers:
        relation, queries = pairs_of(train, level), items.numbers[level]
        if items.protocol is not None:
            queries = queries[items.protocol.query]
        trained = np.isin(relation.pairs[:, 1], train.numbers[level])
        return np.isin(queries[queries < relation.first_of_right], relation.pairs[trained, 0])
    trained_names = {train.names[level][label] for label in np.unique(train.labels[level])}
    known: Booleans = np.array([name in trained_names for name in items.names[level]])[items.labels[level]]
    return known


def pairs_of(items: Dataset, level: str) -> JudgedPairs:
    """The relation of a level of pairs."""
    relation = items.relations[level]
    assert isinstance(relation, JudgedPairs)
    return relation


def suggested_folds(classes: int) -> int:
    """The number of class-disjoint folds to suggest for so many training classes: each has two; below 2 for none."""
    return min(FOLDS, classes // 2)


def folds_advice(splits: Splits) -> str:
    """The end of a sentence of advice, to hold training items out; empty where there are too few."""
    train, level = splits.train, splits.level
    of_items = holdout_unit(train, level) == "items"
    folds = FOLDS if of_items else suggested_folds(num_units(train, level))
    units = "queries" if of_items and level in train.numbers else "items" if of_items else "classes"
    return f", or set data.folds = {folds}, which holds out a part of the training {units}" if folds > 1 else ""


def hold_out_fold(splits: Splits, folds: int, fold: int, of: HoldoutUnit = "classes") -> Splits:
    """With one of the folds of the training items as the main evaluation split, "validation".

    Args:
        of: the folds share no class, or have items of each class that has four or more. Of a level of tags they have
            random items. Of pairs they share no group and are measured in both directions, or have random queries,
            with what belongs to them; see `holdout_unit` and `JudgedPairs.without`.

    Raises:
        ValueError: if there are fewer than two classes for each fold, or no class of four items.

    Source:
        Of classes: Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.3.
    """
    train, level = splits.train, splits.level
    of = holdout_unit(train, level, of)
    if level in train.numbers:
        return _hold_out_pairs(splits, folds, fold, of)
    labels = np.zeros(len(train), np.int64) if train.has_tags(level) else train.labels[level]
    holdout = _fold_rows(labels, folds, fold, of, level)
    rest = np.setdiff1d(np.arange(len(train)), holdout)
    noise = splits.noise and replace(splits.noise, true_labels=splits.noise.true_labels[rest])
    return replace(
        splits,
        noise=noise,
        train=train.subset(rest),
        evaluation={"validation": train.subset(holdout), **splits.evaluation},
    )


def _hold_out_pairs(splits: Splits, folds: int, fold: int, of: HoldoutUnit) -> Splits:
    train, level = splits.train, splits.level
    relation, numbers = pairs_of(train, level), train.numbers[level]
    left = relation.paired_left(numbers)
    labels = np.zeros(len(left), np.int64) if of == "items" else relation.groups[left]
    divided = relation.without(left[_fold_rows(labels, folds, fold, of, level)], numbers)
    rows = np.flatnonzero(np.isin(numbers, divided.evaluated))
    queries = divided.queries if of == "items" else np.union1d(divided.queries, divided.answers)
    every = np.ones(len(rows), bool)
    protocol = QueryGallery(np.isin(numbers[rows], queries), every, ~every)
    return replace(
        splits,
        train=train.subset(np.flatnonzero(np.isin(numbers, divided.trained))),
        evaluation={"validation": replace(train.subset(rows), protocol=protocol), **splits.evaluation},
    )


def _fold_rows(labels: Integers, folds: int, fold: int, of: HoldoutUnit, level: str) -> Integers:
    """The positions of the items of a fold, by the class of each item `(N,)`."""
    if of == "items":
        number = stratified_folds(labels, folds, np.random.default_rng(0))
        rows = np.flatnonzero((number == fold) & (np.bincount(labels)[labels] >= LEAST))
        if len(rows) < 2:
            raise ValueError(
                f"data.folds of items need training classes of at least {LEAST}, so that two are left to train on: "
                f'there are none at level {level!r}; set data.folds_of = "classes", or data.folds = 0.'
            )
        return rows
    classes = len(np.unique(labels))
    if 2 * folds > classes:
        most = f"at most {classes // 2} folds" if classes >= LEAST_CLASSES else "none"
        raise ValueError(
            "data.folds must be at most half the number of training classes, as two are held out to tell apart: "
            f"got {folds} for {counted(classes, 'class')} at level {level!r}; use {most}, or train on a finer level."
        )
    return class_folds(labels, folds)[fold]
