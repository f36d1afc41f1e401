"""Texts that occur more than once among the training items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trivet.datasets.dataset import Dataset
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted

SHOWN = 60  # characters of a text in a message


class Distinct(NamedTuple):
    """What is trained on of texts that repeat.

    Attributes:
        rows: `(M,)` the positions of the texts of one class only, each once: where it comes first.
        repeated: how many items are left out because an earlier one has their text and class.
        contrary: the positions of the items whose text has several classes, which are left out.
    """

    rows: Integers
    repeated: int
    contrary: Integers


def distinct_texts(items: Dataset, level: str) -> Distinct:
    """The items of which no two have the same text, letter by letter, and no text has two classes at a level."""
    texts = [items.show(i) for i in range(len(items))]
    number: dict[object, int] = {}
    same = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
    first = np.unique(same, return_index=True)[1]
    labels = items.labels[level]
    torn = np.zeros(len(first), bool)
    torn[same[labels != labels[first][same]]] = True
    rows = np.sort(first[~torn])
    contrary = np.flatnonzero(torn[same])
    return Distinct(rows, len(items) - len(rows) - len(contrary), contrary)


def with_positive(rows: Integers, labels: Integers) -> Integers:
    """Those of the rows whose class `labels[rows]` another of them has."""
    kept: Integers = rows[np.bincount(labels[rows])[labels[rows]] > 1]
    return kept


def equal_texts_said(items: Dataset, level: str) -> tuple[str, ...]:
    """What is left out of the batches of training texts, in sentences; none where all texts differ."""
    found = distinct_texts(items, level)
    said = []
    if found.repeated:
        said.append(
            f"Of {len(items)} training texts, {found.repeated} came before in the same class: batches hold each text "
            "once."
        )
    if len(found.contrary):
        first = found.contrary[0]
        text = str(items.show(int(first)))
        others = [int(i) for i in found.contrary if items.show(int(i)) == text]
        classes = list(dict.fromkeys(items.names[level][items.labels[level][i]] for i in others))
        text = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
        said.append(
            f"{len(found.contrary)} of {len(items)} training texts have another class elsewhere, and are left out of "
            f"batches: first {text!r}, which is {' and '.join(map(repr, classes[:3]))} (items "
            f"{', '.join(items.ids[i] for i in others[:5])}); trivet audit shows them, and its decisions mend them."
        )
    labels = items.labels[level]
    alone = np.setdiff1d(labels[found.rows], labels[with_positive(found.rows, labels)])
    gone = np.setdiff1d(labels, labels[found.rows])
    if said and len(alone) + len(gone):
        name = items.names[level][[*alone, *gone][0]]
        said.append(
            f"{counted(len(alone) + len(gone), 'class')} at level {level!r} with one text or none left, such as "
            f"{name!r}: in no batch that needs two items of a class."
        )
    return tuple(said)
