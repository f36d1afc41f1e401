"""Agreement of nearest neighbours: how much of what a query finds in one embedding it finds in another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trivet.runtime.arrays import Booleans, Floats, Integers

ENTRIES = 2**24  # of a block of comparisons


@dataclass(frozen=True, eq=False)
class NeighbourAgreement:
    """Neighbours of Q queries in two embeddings of the same items.

    Attributes:
        overlap: `(Q,)` the share of the k nearest that both have, in [0, 1]; NaN without a neighbour in either.
        same_first: `(Q,)` whether the nearest is the same.
    """

    overlap: Floats
    same_first: Booleans

    @property
    def counted(self) -> Booleans:
        """`(Q,)` whether a query has neighbours."""
        return ~np.isnan(self.overlap)


def neighbour_agreement(first: Integers, other: Integers) -> NeighbourAgreement:
    """Compare the k nearest rows of the same queries in two embeddings.

    Args:
        first, other: `(Q, k)` row numbers of the same items, nearest first, different in each row; -1 where there are
            fewer.

    Raises:
        ValueError: if their shapes differ.

    Example:
        >>> neighbour_agreement(np.array([[1, 2]]), np.array([[3, 1]])).overlap
        array([0.5])
    """
    if first.shape != other.shape or first.ndim != 2:
        raise ValueError(
            f"neighbours must be (Q, k) of the same queries: got {first.shape} and {other.shape}; search both for the "
            "same queries and k."
        )
    common = np.empty(len(first), np.int64)
    step = max(1, ENTRIES // max(1, first.shape[1] ** 2))
    for start in range(0, len(first), step):
        block = slice(start, start + step)
        equal = first[block, :, None] == other[block, None, :]
        common[block] = (equal & (first[block, :, None] >= 0)).sum(axis=(1, 2))
    most = np.maximum((first >= 0).sum(axis=1), (other >= 0).sum(axis=1))
    overlap = np.divide(common, most, out=np.full(len(first), np.nan), where=most > 0)
    return NeighbourAgreement(overlap, (first[:, 0] == other[:, 0]) & (first[:, 0] >= 0))
