"""Applies decisions on labels, classes or sets of tags, to the training items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.datasets.dataset import Dataset, Splits, check_classes, check_trainable
from trivet.datasets.tags import tag_relations
from trivet.io.label_decisions import UNDECIDED, Decision, decide
from trivet.io.tag_cells import JOINED
from trivet.runtime.text import counted


def apply_decisions(splits: Splits, decisions: Iterable[Decision], path: Path) -> Splits:
    """The splits with the training labels of the trained level, and the training items, as decisions have them.

    Other levels and the evaluation splits stay as they are, so that runs before and after are measured by the same
    labels: decisions on their items are passed over, and training items that are given a class that only they have are
    dropped.

    Raises:
        ValueError: as `decide`; also of pairs, if a class is left with one item, or less than two classes are.
    """
    level, decisions, train = splits.level, list(decisions), splits.train
    if level in train.numbers:
        raise ValueError(
            "data.decisions is for classes and tags, and rows of pairs are no items of a run: got "
            f"{path}; apply it to the table, with trivet audit TABLE --pairs --apply {path} -o NEW, and train on that."
        )
    tagged = level in train.tag_matches
    if not tagged:
        check_classes(train, level, "data.decisions")
    names, labels = train.names[level], train.labels[level].copy()
    outside = {id for evaluated in splits.evaluation.values() for id in evaluated.ids}.difference(train.ids)
    elsewhere = {
        evaluated.names[level][label]
        for evaluated in splits.evaluation.values()
        for label in np.unique(evaluated.labels[level]).tolist()
    }.difference(names[label] for label in np.unique(labels).tolist())
    if tagged:
        elsewhere = set()  # what is trained on are tags
    passed_over = sum(row.id in outside and row.decision not in ("keep", UNDECIDED) for row in decisions)
    decided = decide(
        (row for row in decisions if row.id not in outside),
        path,
        train.ids,
        [names[label] for label in labels.tolist()],
        items="training item",
        classes=f"trained on at level {level!r}",
        elsewhere=elsewhere,
        tags={tag for name in names for tag in name.split(JOINED)} if tagged else None,
    )
    if made := sorted({*decided.labels.values()}.difference(names)):
        names = (*names, *made)
        splits = _with_sets(splits, names)
        train = splits.train
    for item, label in decided.labels.items():
        labels[item] = names.index(label)
    before = np.bincount(train.labels[level], minlength=len(names))
    after = np.bincount(labels[decided.remaining], minlength=len(names))
    single = np.flatnonzero((after == 1) & (before > 1))
    if len(single) and not tagged:
        raise ValueError(
            f"decisions must leave each class at least two items, or none: those of {path} leave {names[single[0]]!r} "
            f"one ({len(single)} of {np.count_nonzero(before)} classes at level {level!r}); keep another of its items, "
            "or drop the last one as well."
        )
    rows = np.flatnonzero(decided.remaining)
    train = replace(train, labels={**train.labels, level: labels}).subset(rows)
    check_trainable(train, level)
    noise = splits.noise and replace(splits.noise, true_labels=splits.noise.true_labels[rows])
    warnings = [*splits.warnings]
    if passed_over:
        warnings.append(
            f"{counted(passed_over, 'decision')} of {path.name} would change items that are evaluated, which stay as "
            "they are: runs before and after are measured by the same labels."
        )
    moved = sum(row.decision == "relabel" and row.label in elsewhere for row in decisions if row.id not in outside)
    if moved:
        warnings.append(
            f"{counted(moved, 'item')} {'is' if moved == 1 else 'are'} left out of the training: {path.name} gives "
            f"{'it' if moved == 1 else 'them'} a class that is not trained on."
        )
    return replace(splits, train=train, noise=noise, decisions=dict(decided.counts), warnings=tuple(warnings))


def _with_sets(splits: Splits, names: tuple[str, ...]) -> Splits:
    """The splits, which know these sets of tags."""
    level = splits.level

    def knowing(data: Dataset) -> Dataset:
        rule = tag_relations({level: names}, {level: data.tag_matches[level]})
        return replace(data, names={**data.names, level: names}, relations={**data.relations, **rule})

    evaluation = {name: knowing(data) for name, data in splits.evaluation.items()}
    return replace(splits, train=knowing(splits.train), evaluation=evaluation)
