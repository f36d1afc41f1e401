"""Pairs: two sides whose rows belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from trivet.distances import device
from trivet.mining.adjacency import Adjacency, ClassAdjacency
from trivet.mining.carried import CarriedRelation
from trivet.mining.relations import TwoSided


class Pairs(CarriedRelation, TwoSided):
    """Two sides whose rows belong together: queries and documents, images and texts.

    Row i of the left side belongs to row i of the right one, and any listed pairs belong together besides. All other
    rows of the other side are negatives; rows of one side are not compared. Rows of equal content are one item: what
    belongs to one of them belongs to all.

    Args:
        left, right: the contents of each side, `(L,)` and `(R,)` values that sort, such as texts, paths or numbers; or
            how many rows there are, if none comes twice.
        listed: further pairs `(P, 2)` of row numbers, left and right.
        aligned: whether row i belongs to row i; then both sides have as many.

    Attributes:
        left, right: the two sides, each a relation `(L,)` and `(R,)`; the pairs themselves are both, one after another.

    Raises:
        ValueError: if aligned sides differ in length, a side is rows of numbers, or a listed row does not exist.

    Example:
        >>> pairs = Pairs(["a", "b", "a"], ["x", "y", "z"])
        >>> pairs.left.positive(pairs.left.items, pairs.right.items)
        tensor([[ True, False,  True],
                [False,  True, False],
                [ True, False,  True]])
    """

    advice = "draw both rows of a pair into each batch"

    def __init__(
        self,
        left: int | Sequence[Any],
        right: int | Sequence[Any],
        listed: Sequence[tuple[int, int]] | Tensor | npt.NDArray[Any] = (),
        *,
        aligned: bool = True,
    ) -> None:
        sides = [_numbered(side) for side in (left, right)]
        sizes = [len(side) for side in sides]
        if aligned and sizes[0] != sizes[1]:
            raise ValueError(
                f"left and right must have as many rows, as row i belongs to row i: got {sizes[0]} and {sizes[1]}; "
                "pass aligned=False and the pairs as listed."
            )
        further = np.asarray(listed, dtype=np.int64).reshape(-1, 2)
        if len(further) and ((further < 0) | (further >= sizes)).any():
            raise ValueError(
                f"listed must hold rows of left in [0, {sizes[0]}) and of right in [0, {sizes[1]}): got "
                f"{further.min(axis=0).tolist()} to {further.max(axis=0).tolist()}."
            )
        contents = [int(side.max()) + 1 if len(side) else 0 for side in sides]
        rows = np.concatenate([np.repeat(np.arange(sizes[0] if aligned else 0)[:, None], 2, axis=1), further])
        ends = np.stack([sides[0][rows[:, 0]], sides[1][rows[:, 1]] + contents[0]], axis=1)
        ends = np.unique(ends, axis=0)
        offsets = np.repeat(np.arange(len(ends)), 2)
        carried = np.ones(ends.size, dtype=np.uint8)
        self.carry(sparse.csr_array((carried, (ends.ravel(), offsets)), shape=(sum(contents), len(ends))))
        self.first_of_right, self._groups = contents[0], _groups(ends, sum(contents), contents[0])
        self.items = torch.from_numpy(np.concatenate([sides[0], sides[1] + contents[0]]))

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        if self._groups is None or not len(items) or not len(others):
            return super().compare(items, others)
        (least, most), (other_least, other_most) = device.read_extremes(items), device.read_extremes(others)
        if not (most < self.first_of_right <= other_least or other_most < self.first_of_right <= least):
            return super().compare(items, others)
        groups = self._groups.to(items.device)
        return ClassAdjacency(groups[items], groups[others])  # one side against the other

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        within = (anchors < self.first_of_right)[:, None] == (others < self.first_of_right)
        positive = self.shared(anchors, others) > 0
        if not within.any():
            return positive, positive
        return positive & ~within, positive | within

    def positive_by_shared(self, anchors: Tensor, others: Tensor, shared: Tensor) -> Tensor:
        return (anchors < self.first_of_right) != (others < self.first_of_right)

    def with_positives(self) -> Tensor:
        carried, of_left = self.rows(self.items), (self.items < self.first_of_right).cpu().numpy()
        left, right = (carried[side].sum(axis=0) > 0 for side in (of_left, ~of_left))  # pairs with an end there
        has_positive = np.where(of_left, carried @ right, carried @ left)
        return torch.from_numpy(has_positive).to(self.items.device).nonzero()[:, 0]


def _groups(ends: npt.NDArray[np.int64], count: int, first_of_right: int) -> Tensor | None:
    """The group `(K,)` of each content, where all of a group belong to all of it on the other side; else None."""
    graph = sparse.csr_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(count, count))
    number, groups = csgraph.connected_components(graph, directed=False)
    left, right = (np.bincount(side, minlength=number) for side in np.split(groups, [first_of_right]))
    return torch.from_numpy(groups.astype(np.int64)) if (left * right).sum() == len(ends) else None


def _numbered(side: int | Sequence[Any]) -> npt.NDArray[np.int64]:
    """The number of the content of each row."""
    if isinstance(side, int):
        return np.arange(side)
    try:
        contents = np.asarray(side)
    except ValueError:  # lists of several lengths
        contents = np.empty((len(side), 0))
    if contents.ndim != 1:
        raise ValueError(
            "a side of Pairs must be how many rows it has, or one content for each row, such as texts: got rows of "
            f"numbers, {tuple(contents.shape)}; pass how many these are."
        )
    return np.unique(contents, return_inverse=True)[1].astype(np.int64)
