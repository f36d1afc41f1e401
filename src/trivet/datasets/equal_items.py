"""Texts that occur more than once among the training items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trivet.datasets.dataset import Dataset
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted

LONGEST = 60  # characters of a text in a message


class Distinct(NamedTuple):
    """Selection of the texts that are trained on where some repeat.

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
    selected: Integers = rows[np.bincount(labels[rows])[labels[rows]] > 1]
    return selected


def duplicate_text_warnings(items: Dataset, level: str) -> tuple[str, ...]:
    """Sentences on what is left out of the batches of training texts; none where all texts differ."""
    distinct = distinct_texts(items, level)
    messages = []
    if distinct.repeated:
        messages.append(
            f"Of {len(items)} training texts, {distinct.repeated} came before in the same class: batches hold each "
            "text once."
        )
    if len(distinct.contrary):
        first = distinct.contrary[0]
        text = str(items.show(int(first)))
        others = [int(i) for i in distinct.contrary if items.show(int(i)) == text]
        classes = list(dict.fromkeys(items.names[level][items.labels[level][i]] for i in others))
        text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
        messages.append(
            f"{len(distinct.contrary)} of {len(items)} training texts have another class elsewhere, and are left out "
            f"of batches: first {text!r}, which is {' and '.join(map(repr, classes[:3]))} (items "
            f"{', '.join(items.ids[i] for i in others[:5])}); trivet audit shows them, and its decisions mend them."
        )
    labels = items.labels[level]
    alone = np.setdiff1d(labels[distinct.rows], labels[with_positive(distinct.rows, labels)])
    gone = np.setdiff1d(labels, labels[distinct.rows])
    if messages and len(alone) + len(gone):
        name = items.names[level][[*alone, *gone][0]]
        messages.append(
            f"{counted(len(alone) + len(gone), 'class')} at level {level!r} with one text or none left, such as "
            f"{name!r}: in no batch that needs two items of a class."
        )
    return tuple(messages)
