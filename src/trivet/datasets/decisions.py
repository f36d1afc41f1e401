"""Applies decisions on labels to the training items."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.datasets.dataset import Splits, check_trainable
from trivet.io.label_decisions import DECISIONS, UNDECIDED, Decision


def apply_decisions(splits: Splits, decisions: Iterable[Decision], path: Path) -> Splits:
    """The splits with the training labels of the trained level, and the training items, as decisions have them.

    Other levels and the evaluation splits stay as they are. Of a fold that is held out for validation, decisions on
    its items are passed over, and training items that are given one of its classes are dropped.

    Raises:
        ValueError: if an id is no training item's, a label no class that is trained on or the one
            that the item has; or if a class is left with one item, or less than two classes are.
    """
    train, level = splits.train, splits.level
    names, labels = train.names[level], train.labels[level].copy()
    trained = {names[label]: label for label in np.unique(labels).tolist()}
    position = {name: i for i, name in enumerate(train.ids)}
    holdout, elsewhere = _validation_fold(splits)
    mask = np.ones(len(labels), bool)
    counts = Counter(dict.fromkeys((*DECISIONS, UNDECIDED), 0))
    for row in decisions:
        if row.id in holdout:
            continue
        if row.id not in position:
            raise ValueError(
                f"each id must be that of a training item: line {row.line} of {path} has {row.id!r}, and none of the "
                f"{len(train)} items has it;{_similar(row.id, train.ids)} remove the row, or use the file made for "
                "these data."
            )
        item, decision = position[row.id], row.decision
        if decision == "relabel" and row.label in elsewhere:
            decision = "drop"
        if decision == "relabel":
            if row.label not in trained:
                raise ValueError(
                    f"a new label must be one of the {len(trained)} classes trained on at level {level!r}: line "
                    f"{row.line} of {path} has {row.label!r};{_similar(row.label, trained)} correct it."
                )
            if trained[row.label] == labels[item]:
                raise ValueError(
                    f"relabel needs a different label from the item's current one: line {row.line} of {path} has "
                    f"{row.label!r}, as {row.id!r} is labelled already; write the new label in the column label, or "
                    "keep."
                )
            labels[item] = trained[row.label]
        mask[item] = decision != "drop"
        counts[decision] += 1
    labels = labels[mask]
    before = np.bincount(train.labels[level])
    single = np.flatnonzero((np.bincount(labels, minlength=len(before)) == 1) & (before > 1))
    if len(single):
        raise ValueError(
            f"decisions must leave each class at least two items, or none: those of {path} leave {names[single[0]]!r} "
            f"one ({len(single)} of {len(trained)} classes at level {level!r}); keep another of its items, or drop "
            "the last one as well."
        )
    rows = np.flatnonzero(mask)
    train = train.subset(rows)
    train = replace(train, labels={**train.labels, level: labels})
    check_trainable(train, level)
    noise = splits.noise and replace(splits.noise, true_labels=splits.noise.true_labels[rows])
    return replace(splits, train=train, noise=noise, decisions=dict(counts))


def _validation_fold(splits: Splits) -> tuple[set[str], set[str]]:
    """The ids and the classes of the fold that is held out; empty without one."""
    data, level = splits.evaluation.get("validation"), splits.level
    if data is None:
        return set(), set()
    return set(data.ids), {data.names[level][label] for label in np.unique(data.labels[level]).tolist()}


def _similar(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" did you mean {close[0]!r}?" if close else ""
