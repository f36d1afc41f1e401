"""Batches of mined hard negatives: the triplets of a file, found again among the training items by their ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trivet.datasets import Dataset
from trivet.io.formats import open_rows
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted
from trivet.samplers import MinedBatches, SubsetBatches

ROLES = ("anchor", "positive", "negative")


def mined_batches(path: Path, items: Dataset, level: str, *, size: int, seed: int) -> SubsetBatches:
    """Batches of the mined triplets whose three items are among these and have the classes that make them triplets.

    Each has as many pairs of an anchor and a positive, with all mined negatives of each, as `size` items hold.

    Args:
        path: as `trivet mine` writes it: any table with the columns anchor, positive and negative, which are ids.
        items: to train on.
        level: of the classes.
        size: the most items of a batch.

    Raises:
        ValueError: if the file cannot be read, there is no such triplet, or `size` does not hold a pair.
    """
    entries, labels = mined_triplets(path, items)[0], items.labels[level]
    entries = entries[_agree(entries, labels)]
    if not len(entries):
        raise ValueError(
            f"batch.mined must hold triplets of items that are trained on: none of {path} is; mine among those that "
            "are, as in the file embeddings/train.parquet of a run."
        )
    counts = np.unique(entries[:, :2], axis=0, return_counts=True)[1]
    most = int(counts.max())
    if size < 2 + most:
        raise ValueError(
            f"batch.size must hold an anchor with its positive and its {counted(most, 'mined negative')}: got {size}; "
            f"set {2 + most} or more, or mine fewer."
        )
    plan = MinedBatches(entries, size=min(size // (2 + most), len(counts)), seed=seed)
    return SubsetBatches(plan, np.arange(len(items)), labels)


def check_mined(path: Path, train: Dataset, level: str) -> str:
    """A sentence on the mined triplets that are left out, as they are not of training items; empty where none is.

    Raises:
        ValueError: if the file cannot be read, or the classes of the training items contradict a triplet.
    """
    entries, total = mined_triplets(path, train)
    labels, names = train.labels[level], train.names[level]
    wrong = np.flatnonzero(~_agree(entries, labels))
    if len(wrong):
        anchor, *others = entries[wrong[0]].tolist()
        role, other = next(
            (role, item)
            for role, item in zip(ROLES[1:], others, strict=True)
            if (labels[item] == labels[anchor]) != (role == "positive")
        )
        label = f"{names[labels[other]]!r}"
        label = f"also of {label}" if role == "negative" else f"of {label}"
        raise ValueError(
            f"batch.mined must agree with the classes that are trained on: {path} has {train.ids[other]!r}, {label}, "
            f"as a {role} of {train.ids[anchor]!r}, of {names[labels[anchor]]!r} "
            f"({counted(len(wrong), 'such triplet')}); mine the same items again, by {level!r}."
        )
    left = total - len(entries)
    sentence = f"{left} of {counted(total, 'mined triplet')} hold items that are not trained on, and are left out."
    return sentence if left else ""


def mined_triplets(path: Path, items: Dataset) -> tuple[Integers, int]:
    """The triplets of a file whose items are all among these, as their positions `(T, 3)`, and how many it has."""
    table = open_rows(path, "batch.mined")
    known = pa.array(items.ids, pa.large_string())
    columns = [
        pc.index_in(table.column(role, f"the {role}s of batch.mined").cast(pa.large_string()), known) for role in ROLES
    ]
    entries = np.stack([pc.fill_null(column, -1).to_numpy() for column in columns], axis=1).astype(np.int64)
    return entries[(entries >= 0).all(axis=1)], len(entries)


def _agree(entries: Integers, labels: Integers) -> np.ndarray:
    """Mask `(T,)` of the triplets with a positive of the class of their anchor and a negative of another."""
    anchor, positive, negative = labels[entries].T
    agree: np.ndarray = (anchor == positive) & (anchor != negative)
    return agree
