"""Embeddings that are compared must be of the same items, with the same labels."""

from __future__ import annotations

import numpy as np

from trivet.io.embedding_table import Vectors
from trivet.runtime.text import counted


def check_same_items(first: tuple[str, Vectors], other: tuple[str, Vectors]) -> None:
    """The items of two files, given with their names, must be the same, with the same labels.

    Raises:
        ValueError: if they are not, or share no label level.
    """
    (name, vectors), (its_name, others) = first, other
    if not vectors.labels.keys() & others.labels.keys():
        raise ValueError(
            f"compared embeddings must share a label level: {name} has {list(vectors.labels)}, {its_name} "
            f"{list(others.labels)}; name the column alike in both."
        )
    rows = same_queries((name, its_name), vectors.ids, others.ids, (len(vectors), len(others)))
    for level in vectors.labels.keys() & others.labels.keys():
        if vectors.labels[level].tolist() != others.labels[level][rows].tolist():
            raise ValueError(
                f"compared embeddings must have the same labels: {level} differs between {name} and {its_name}; give "
                "files made from one data set."
            )


def same_queries(
    names: tuple[str, str], ids: np.ndarray | None, others: np.ndarray | None, counts: tuple[int, int]
) -> np.ndarray:
    """Positions of the queries of the first, with these ids, among those of the other."""
    if counts[0] != counts[1]:
        raise ValueError(
            f"compared embeddings must be of the same items: {names[0]} has {counted(counts[0], 'query')} and "
            f"{names[1]} {counts[1]}; give files made from one data set."
        )
    if ids is None or others is None:
        return np.arange(counts[0])
    rows = positions_of(ids, others)
    if (rows < 0).any():
        raise ValueError(
            f"compared embeddings must be of the same items: {names[1]} has no {str(ids[rows < 0][0])!r}, which "
            f"{names[0]} has; give files made from one data set."
        )
    return rows


def self_rows(queries: Vectors, gallery: Vectors) -> np.ndarray | None:
    """Position of the item of each query in the gallery, -1 if absent; None where not both have ids."""
    return None if queries.ids is None or gallery.ids is None else positions_of(queries.ids, gallery.ids)


def positions_of(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Position of each id among the others, -1 if absent."""
    if not len(others):
        return np.full(len(ids), -1)
    order = np.argsort(others)
    positions = order[np.searchsorted(others, ids, sorter=order).clip(max=len(order) - 1)]
    rows: np.ndarray = np.where(others[positions] == ids, positions, -1)
    return rows
