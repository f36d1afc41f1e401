"""Pairs that a table judges, with grades; and their form in a file of embeddings, from which they are read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from trivet.io.tag_cells import JOINED
from trivet.mining.pairs import Pairs
from trivet.mining.relations import signature_of
from trivet.runtime.arrays import Booleans, Floats, Integers

SIDES = ("left", "right")
LARGEST = 0.5  # of the left side: a group that has more of it cannot be held out
LEAST = 2  # contents of the left side, or groups, that are trained on, and that are evaluated


class DividedPairs(NamedTuple):
    """Numbers of contents on both sides of a hold-out; see `JudgedPairs.without`.

    Attributes:
        trained: those that are trained on.
        queries: left contents that are held out.
        answers: right contents that belong to these.
        others: right contents in no pair, which can be retrieved.
        shared: those of `answers` that are trained on, too, or equal what is.
        unused: how many pairs are in neither part, as their right content equals a held-out one.
    """

    trained: Integers
    queries: Integers
    answers: Integers
    others: Integers
    shared: Integers
    unused: int

    @property
    def evaluated(self) -> Integers:
        """All that is evaluated, in order."""
        return np.sort(np.concatenate([self.queries, self.answers, self.others]))


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
            self.contents = torch.arange(count)
            self.contents[equal[:, 1]] = torch.from_numpy(equal[:, 0])
        self.signature ^= signature_of(numbers, grades)

    def paired_left(self, present: Integers) -> Integers:
        """The left contents, of those present, that belong to a right one which is present."""
        return np.unique(self._among(self.pairs, present)[:, 0])

    def without(self, queries: Integers, present: Integers) -> DividedPairs:
        """Divide contents so that nothing of some left ones is trained on: neither these nor equal right ones.

        What belongs to them is not trained on either, unless it belongs to others as well. A right content in no pair
        is trained on where it is a negative of what is trained on, else it can be retrieved.

        Args:
            queries: numbers of left contents, which are held out.
            present: `(N,)` numbers of all contents to divide.
        """
        pairs, negatives = self._among(self.pairs, present), self._among(self.negatives, present)
        holdout = self._mask(queries)
        gone = holdout | self._copies(holdout)
        evaluated = holdout[pairs[:, 0]]
        answers = self._mask(pairs[evaluated, 1])
        rest = pairs[~gone[pairs].any(axis=1)]
        trained = self._mask(rest)
        shared = answers & (trained | self._copies(trained))
        trained |= self._mask(negatives[trained[negatives[:, 0]], 1]) & ~answers & ~gone
        others = self._mask(present) & ~self._mask(pairs) & ~trained & ~self._copies(trained)
        others[: self.first_of_right] = False
        return DividedPairs(
            np.flatnonzero(trained),
            np.unique(pairs[evaluated, 0]),
            np.flatnonzero(answers),
            np.flatnonzero(others),
            np.flatnonzero(shared),
            unused=len(pairs) - len(rest) - int(evaluated.sum()),
        )

    def _mask(self, numbers: Integers) -> Booleans:
        """Mask `(left + right,)` of some contents."""
        mask = np.zeros(len(self.groups), bool)
        mask[numbers] = True
        return mask

    def _among(self, listed: Integers, present: Integers) -> Integers:
        """The listed pairs `(P, 2)` whose ends are both present."""
        return listed[self._mask(present)[listed].all(axis=1)]

    def _copies(self, mask: Booleans) -> Booleans:
        """Mask of the contents that equal one of some on the other side."""
        if self._equal is None:
            return np.zeros_like(mask)
        copies: Booleans = self._equal @ mask.astype(np.int64) > 0
        return copies

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


def hang_together(groups: Integers) -> bool:
    """True if left contents cannot be divided by their groups `(L,)`: they have too few, or one has most of them."""
    sizes = np.unique(groups, return_counts=True)[1]
    return len(sizes) < 2 * LEAST or bool(sizes.max() > LARGEST * sizes.sum())


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


def paired_cells(pairs: Pairs) -> list[str]:
    """The cells of the rows of pairs, see `pair_cells`."""
    left, count = pairs.first_of_right, pairs.incidence.shape[0]
    ends = np.sort(pairs.incidence.tocsc().indices.reshape(-1, 2), axis=1).astype(np.int64)
    none = np.empty((0, 2), np.int64)
    relation = JudgedPairs(left, count - left, ends - np.array([0, left]), np.ones(len(ends)), relevant=1.0, equal=none)
    return [*pair_cells(relation, pairs.items.numpy())]


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
