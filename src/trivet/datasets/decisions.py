"""Applies decisions on labels to the training items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.datasets.dataset import Splits, check_trainable
from trivet.io.label_decisions import Decision, decide


def apply_decisions(splits: Splits, decisions: Iterable[Decision], path: Path) -> Splits:
    """The splits with the training labels of the trained level, and the training items, as decisions have them.

    Other levels and the evaluation splits stay as they are. Of a fold that is held out for validation, decisions on
    its items are passed over, and training items that are given one of its classes are dropped.

    Raises:
        ValueError: as `decide`; also if a class is left with one item, or less than two classes are.
    """
    train, level = splits.train, splits.level
    names, labels = train.names[level], train.labels[level].copy()
    fold = splits.evaluation.get("validation")
    outside = set() if fold is None else set(fold.ids)
    elsewhere = set() if fold is None else {fold.names[level][label] for label in np.unique(fold.labels[level])}
    decided = decide(
        (decision for decision in decisions if decision.id not in outside),
        path,
        train.ids,
        [names[label] for label in labels.tolist()],
        items="training item",
        classes=f"trained on at level {level!r}",
        elsewhere=elsewhere,
    )
    for item, label in decided.labels.items():
        labels[item] = names.index(label)
    before = np.bincount(train.labels[level], minlength=len(names))
    after = np.bincount(labels[decided.remaining], minlength=len(names))
    single = np.flatnonzero((after == 1) & (before > 1))
    if len(single):
        raise ValueError(
            f"decisions must leave each class at least two items, or none: those of {path} leave {names[single[0]]!r} "
            f"one ({len(single)} of {np.count_nonzero(before)} classes at level {level!r}); keep another of its items, "
            "or drop the last one as well."
        )
    rows = np.flatnonzero(decided.remaining)
    train = replace(train, labels={**train.labels, level: labels}).subset(rows)
    check_trainable(train, level)
    noise = splits.noise and replace(splits.noise, true_labels=splits.noise.true_labels[rows])
    return replace(splits, train=train, noise=noise, decisions=dict(decided.counts))
