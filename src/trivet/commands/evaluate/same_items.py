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
    (name, first_vectors), (its_name, others) = first, other
    names = name, its_name
    share_a_level(names, list(first_vectors.labels), list(others.labels))
    rows = same_queries(names, first_vectors.ids, others.ids, (len(first_vectors), len(others)))
    for level in first_vectors.labels.keys() & others.labels.keys():
        same_labels(names, level, first_vectors.labels[level], others.labels[level][rows])


def share_a_level(names: tuple[str, str], levels: list[str], others: list[str]) -> None:
    """One level at least must be in both."""
    if not {*levels} & {*others}:
        raise ValueError(
            f"compared embeddings must share a label level: {names[0]} has {levels}, {names[1]} {others}; name the "
            "column alike in both."
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
    order = np.argsort(others)
    positions = np.searchsorted(others, ids, sorter=order).clip(max=len(order) - 1)
    if not (others[order[positions]] == ids).all():
        missing = ids[others[order[positions]] != ids][0]
        raise ValueError(
            f"compared embeddings must be of the same items: {names[1]} has no {str(missing)!r}, which {names[0]} has; "
            "give files made from one data set."
        )
    rows: np.ndarray = order[positions]
    return rows


def same_labels(names: tuple[str, str], level: str, labels: np.ndarray, others: np.ndarray) -> None:
    """The class names of the same queries must be equal."""
    if labels.tolist() != others.tolist():
        raise ValueError(
            f"compared embeddings must have the same labels: {level} differs between {names[0]} and {names[1]}; give "
            "files made from one data set."
        )


def self_rows(queries: Vectors, gallery: Vectors) -> np.ndarray | None:
    """Position of the item of each query in the gallery, -1 if absent; None where not both have ids."""
    if queries.ids is None or gallery.ids is None:
        return None
    if not len(gallery):
        return np.full(len(queries), -1)
    order = np.argsort(gallery.ids)
    positions = np.searchsorted(gallery.ids, queries.ids, sorter=order).clip(max=len(order) - 1)
    rows: np.ndarray = np.where(gallery.ids[order[positions]] == queries.ids, order[positions], -1)
    return rows
