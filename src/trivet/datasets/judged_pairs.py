"""Pairs that a table judges, with grades; and their form in a file of embeddings, from which they are read again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from trivet.io.tag_cells import JOINED
from trivet.mining.pairs import Pairs
from trivet.mining.relations import signature_of
from trivet.runtime.arrays import Floats, Integers

SIDES = ("left", "right")


class JudgedPairs(Pairs):
    """Pairs of a table, with their grades of relevance and the negatives that it lists.

    Args:
        left, right: how many contents each side has.
        judged: `(P, 2)` positions of both.
        grades: `(P,)` how much each belongs together.
        relevant: the least grade of those that do.
        equal: `(E, 2)` positions of contents that are the same on both sides: they are no negatives of each other.

    Attributes:
        pairs: `(P', 2)` the numbers of those that belong together.
        negatives: `(P - P', 2)` those of the others.
        groups: `(left + right,)` the number of the group of each content; a group is connected by pairs.
    """

    def __init__(
        self, left: int, right: int, judged: Integers, grades: Floats, *, relevant: float, equal: Integers
    ) -> None:
        positive, shift = grades >= relevant, np.array([0, left])
        super().__init__(left, right, judged[positive], aligned=False)
        numbers, equal = judged + shift, equal + shift
        self.pairs, self.negatives = numbers[positive], numbers[~positive]
        count = left + right
        self.groups: Integers = csgraph.connected_components(
            _symmetric(np.concatenate([self.pairs, equal]), count), directed=False
        )[1].astype(np.int64)
        self._positive, self._equal = _symmetric(self.pairs, count, grades[positive]), None
        self._grades = self._positive if len(np.unique(grades[positive])) > 1 else None
        if len(equal):
            self._equal, self._groups = _symmetric(equal, count), None
        self.signature ^= signature_of(numbers, grades)

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        positive, neutral = super().compared(anchors, others)
        return positive, neutral if self._equal is None else neutral | (_rows(self._equal, anchors, others) > 0)

    def listed(self, number: int) -> list[str]:
        """List what `pair_cells` writes of a content: the partners that do not have fewer, and its copies."""
        row, counts = self._positive[[number]], np.diff(self._positive.indptr)
        mine, is_left = counts[number], number < self.first_of_right
        shorter = (counts[row.indices] > mine) | ((counts[row.indices] == mine) & is_left)
        partners = zip(row.indices[shorter].tolist(), row.data[shorter].tolist(), strict=True)
        tokens = [f"{self.position(other)}{'' if grade == 1 else f':{grade:g}'}" for other, grade in partners]
        copies = [] if self._equal is None or not is_left else self._equal[[number]].indices.tolist()
        return [*tokens, *(f"={self.position(other)}" for other in copies)]

    def position(self, number: int) -> int:
        """The position of a content on its side."""
        return number if number < self.first_of_right else number - self.first_of_right

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """The grades `(B, M)` float64 of the pairs that belong together, 0 of others; 1 where all are alike."""
        return super().relevance(anchors, others) if self._grades is None else _rows(self._grades, anchors, others)


def pair_cells(relation: JudgedPairs, items: Integers) -> tuple[str, ...]:
    """Cells of items in a file of embeddings, from which `pairs_of_cells` makes the relation of those there.

    "left;3;57;58:2;=7": the side of a content, its number there, the numbers of what belongs to it on the other side,
    each with its grade unless that is 1, and after an "=" that of the same content. A pair stands with the content that
    has fewer, as cells have to be short.
    """
    return tuple(
        JOINED.join([SIDES[int(item >= relation.first_of_right)], f"{relation.position(item)}", *relation.listed(item)])
        for item in items.tolist()
    )


def sides_of_cells(cells: npt.NDArray[np.str_]) -> Integers:
    """The side `(N,)` of each cell of `pair_cells`, 0 or 1."""
    return np.array([cell.partition(JOINED)[0] == SIDES[1] for cell in cells], np.int64)


def pairs_of_cells(cells: Sequence[str]) -> JudgedPairs:
    """The relation of items by their different cells, see `pair_cells`, in the order of their letters: left first.

    Raises:
        ValueError: if a cell is none of these.
    """
    sides = [cell.split(JOINED) for cell in cells]
    left = sum(side == SIDES[0] for side, *_ in sides)
    judged, equal = list[tuple[int, int]](), list[tuple[int, int]]()
    grades = list[float]()
    try:
        if any(side != SIDES[1] for side, *_ in sides[left:]):
            raise ValueError
        numbers = [int(number) for _, number, *_ in sides]
        first, second = ({number: row for row, number in enumerate(side)} for side in (numbers[:left], numbers[left:]))
        for item, (_, _, *tokens) in enumerate(sides):
            others = second if item < left else first
            for token in tokens:
                number, _, grade = token.removeprefix("=").partition(":")
                if (other := others.get(int(number))) is None:  # which is not among these items
                    continue
                (equal if token.startswith("=") else judged).append(
                    (item, other) if item < left else (other, item - left)
                )
                if not token.startswith("="):
                    grades.append(float(grade or 1))
    except ValueError:
        raise ValueError(
            'the cells of pairs must be sides and numbers, such as "left;0;12" and "right;12": got others; write the '
            "file again with trivet embed, or trivet evaluate RUN."
        ) from None
    pairs, copies = (np.array(both, np.int64).reshape(-1, 2) for both in (judged, equal))
    return JudgedPairs(left, len(cells) - left, pairs, np.array(grades), relevant=0.0, equal=copies)


def _symmetric(pairs: Integers, count: int, values: Floats | None = None) -> sparse.csr_array:
    """The matrix `(count, count)` with values, or 1, at pairs of numbers and at their mirror images."""
    values = np.ones(len(pairs)) if values is None else values
    half = sparse.csr_array((values, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return half + half.T


def _rows(matrix: sparse.csr_array, anchors: Tensor, others: Tensor) -> Tensor:
    return torch.from_numpy(matrix[anchors.cpu().numpy()][:, others.cpu().numpy()].toarray()).to(anchors.device)
