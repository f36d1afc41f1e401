"""Relations: who belongs with whom, by a rule that stands wherever labels do; and the rule of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.mining.adjacency import Adjacency, ClassAdjacency, MatrixAdjacency, UnlabelledAdjacency, true_entries
from trivet.runtime.lazy import lazy

COMPARED = 2**22  # pairs of items that a search for positives compares at once
FIRST_BLOCK, GROWTH = 2**10, 15  # items that it compares first, and how much larger a block is than all before it
NEIGHBOURING = 16  # items whose neighbours are compared with all of them at once

Rows = Tensor | npt.NDArray[Any] | slice | Sequence[int]


class Relation(ABC):
    """N items, and a rule by which any two of them belong together, or do not, or neither.

    It stands wherever labels do. The rule knows items by numbers, `items`; `relation[rows]` are some of the items under
    the same rule, such as those of a batch. It must be symmetric. A rule of one's own sets `items` and gives
    `positive`, and `ignored` if some pairs are to count neither as positives nor as negatives.

    Attributes:
        items: `(N,)` int64.
        signature: a checksum of the rule, by which processes that share a batch know whether they have the same.
        advice: what a batch needs, for a warning.
        contents: `(K,)` int64, a number of the content of each of K items, the same for copies, which then hang
            together; None where no items are copies.

    Example:
        >>> import trivet
        >>> class Near(trivet.Relation):
        ...     def __init__(self, years):
        ...         self.years, self.items = torch.tensor(years), torch.arange(len(years))
        ...
        ...     def positive(self, anchors, others):
        ...         return (self.years[anchors][:, None] - self.years[others]).abs() <= 1
        ...
        ...     def ignored(self, anchors, others):
        ...         return (self.years[anchors][:, None] - self.years[others]).abs() == 2
        >>> near = Near([2001, 2002, 2003, 2009])
        >>> trivet.ContrastiveLoss(margin=1.0, reduction="sum")(torch.tensor([[0.0], [1.0], [2.0], [2.5]]), near)
        tensor(5.5000)
    """

    items: Tensor
    signature: int = 0
    contents: Tensor | None = None
    advice: str = "draw items that belong together into each batch"

    @abstractmethod
    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Return which of the items `others (M,)` belong to each of `anchors (B,)`, `(B, M)` bool."""

    def ignored(self, anchors: Tensor, others: Tensor) -> Tensor | None:
        """Return which are neither positives nor negatives, `(B, M)` bool; None if none."""
        return None

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Grades `(B, M)` float64 of how much each belongs to each; by default 1 for positives, else 0."""
        return self.positive(anchors, others).double()

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return which are positives, and which are no negatives: positives or ignored, `(B, M)` bool each."""
        positive, ignored = self.positive(anchors, others), self.ignored(anchors, others)
        return positive, positive if ignored is None else positive | ignored

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        """The comparison of the items of a batch with its references."""
        return MatrixAdjacency(self.compared, items, others)

    def _positive_pairs(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs of positives among items `(B,)` and `(M,)`: positions `(P,)` in both, ascending, by anchor."""
        return true_entries(self.positive(anchors, others))

    def _most_compared(self, anchors: Tensor, others: Tensor) -> int:
        """With how many items of `others (M,)` such a search compares each of `anchors (B,)` at most."""
        return len(others)

    def find_positives(self, rows: Tensor, among: Tensor, count: int) -> list[Tensor]:
        """Positions of positives of the items at `rows (B,)`: of each `count` at least, or all if there are fewer.

        Args:
            among: `(M,)` positions of the items that are compared, in blocks of which the first ones may be enough.
        """
        pairs = [(rows[:0], among[:0]), *self._search(rows, among, count)]
        anchors, positives = (torch.cat(ends) for ends in zip(*pairs, strict=True))
        counts = torch.bincount(anchors, minlength=len(rows))
        return list(torch.split(positives[anchors.argsort(stable=True)], counts.tolist()))

    def search(self, among: Tensor) -> RelationSearch:
        """A search for what belongs to items, and what is no negative of them, among those at `among (M,)`."""
        return RelationSearch(self, among)

    def with_positives(self) -> Tensor:
        """Positions `(A,)` of the items that have a positive among the others, ascending."""
        has_positive = torch.zeros(len(self), dtype=torch.bool, device=self.items.device)
        # In random order, as items that belong together may be at the end of all.
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(0)).to(has_positive.device)
        for anchors, _ in self._search(order, order, 1):
            has_positive[order[anchors]] = True
        return has_positive.nonzero()[:, 0]

    def _search(self, rows: Tensor, among: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of positives: positions `(P,)` in `rows (B,)`, and those of items in `among`.

        That is compared in blocks that grow, each for the anchors with fewer than `count` positives so far.
        """
        counted, start = torch.zeros(len(rows), dtype=torch.int64, device=rows.device), 0
        while start < len(among) and len(lacking := (counted < count).nonzero()[:, 0]):
            block = among[start : start + max(FIRST_BLOCK, min(GROWTH * start, COMPARED // len(lacking)))]
            for anchors in torch.split(lacking, max(1, COMPARED // len(block))):
                of_anchors, columns = self._positive_pairs(self.items[rows[anchors]], self.items[block])
                ends = anchors[of_anchors], block[columns]
                is_other = rows[ends[0]] != ends[1]  # an item is none of its own positives
                counted += torch.bincount(ends[0][is_other], minlength=len(rows))
                yield ends[0][is_other], ends[1][is_other]
            start += len(block)

    @property
    def partition(self) -> Tensor:
        """Numbers `(N,)` in 0 .. C - 1, equal for items that the rule does not tell apart: a class, or a set of tags.

        By default these are items of one number.
        """
        numbers: Tensor = torch.unique(self.items, return_inverse=True)[1]
        return numbers

    def numbers(self, items: Tensor) -> Tensor:
        """The numbers `(K,)` of the classes or tags of some items, for what is learned of each.

        Raises:
            ValueError: of a relation that has none.
        """
        raise self._without_numbers()

    def alone(self, numbers: Tensor) -> Relation:
        """Items of which each has one of these classes or tags `(K,)`, such as proxies.

        Raises:
            ValueError: as `numbers`.
        """
        raise self._without_numbers()

    def _without_numbers(self) -> ValueError:
        return ValueError(
            f"labels must be classes or tags, as something is learned for each: got {type(self).__name__}; "
            "use another loss."
        )

    def joined(self, other: Relation) -> tuple[Relation, Tensor]:
        """A relation that knows the items of both, those of this one by their numbers, and the numbers of the others.

        Raises:
            ValueError: if their rules differ.
        """
        mine, theirs = self.__dict__, other.__dict__
        if type(self) is not type(other) or any(mine[name] is not theirs.get(name) for name in mine if name != "items"):
            raise ValueError(
                f"labels of both sides must follow one rule: got {type(self).__name__} and "
                f"{type(other).__name__} made separately; make one of all items, and take the rows of each with "
                "relation[rows]."
            )
        return self, other.items

    def __array__(self, *_: object, **__: object) -> npt.NDArray[Any]:
        raise ValueError(
            f"labels must be one class for each item here: got {type(self).__name__}; pass integers (N,), as only "
            "losses, mining, memories, RelationBatches, retrieval, trivet.collapse.diagnose and the monitor take "
            "relations."
        )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: Rows) -> Self:
        if not isinstance(rows, slice):
            rows = torch.as_tensor(rows, device=self.items.device)
        return self.with_items(self.items[rows])

    def to(self, device: torch.device | str) -> Self:
        """The same with its numbers on another device."""
        return self.with_items(self.items.to(device))

    def with_items(self, items: Tensor) -> Self:
        """The same rule for other items, by their numbers."""
        other = copy(self)
        other.items = items
        return other


class RelationSearch:
    """Search among some items of a relation for what belongs to others, and what is no negative of them.

    Args:
        relation: of N items.
        among: `(M,)` positions of those that are compared.
    """

    def __init__(self, relation: Relation, among: Tensor) -> None:
        self.relation, self.among = relation, among

    def positives(self, rows: Tensor) -> Iterator[Tensor]:
        """Positions of all positives of each item at `rows (B,)`, one item after another."""
        items = self.relation.items
        others = items[self.among]
        most = self.relation._most_compared(items[rows], others)
        for some in torch.split(rows, max(1, COMPARED // max(1, most))):
            anchors, columns = self.relation._positive_pairs(items[some], others)
            is_other = some[anchors] != self.among[columns]  # an item is none of its own positives
            counts = torch.bincount(anchors[is_other], minlength=len(some))
            yield from torch.split(self.among[columns[is_other]], counts.tolist())

    def neutral(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return which items at `columns (B, n)` are no negatives of those at `rows (B,)`, `(B, n)` bool."""
        neutral, items = torch.empty(columns.shape, dtype=torch.bool), self.relation.items
        for some in torch.split(torch.arange(len(rows)), NEIGHBOURING):
            others, positions = torch.unique(columns[some], return_inverse=True)
            neutral[some] = self.relation.compared(items[rows[some]], items[others])[1].gather(1, positions)
        return neutral

    def most_neutral(self, rows: Tensor) -> Tensor:
        """At most how many items are no negatives of each at `rows (B,)`, `(B,)` int64."""
        return torch.full(rows.shape, len(self.among))


class Classes(Relation):
    """Items of one class belong together, all others do not. Integer labels mean this.

    Args:
        labels: `(N,)` integer.
    """

    advice = "draw at least two of each class, for instance with PKBatches"

    def __init__(self, labels: Tensor) -> None:
        self.items = labels

    def __array__(self, *_: object, **__: object) -> npt.NDArray[Any]:
        return self.items.cpu().numpy()

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return anchors[:, None] == others

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        return ClassAdjacency(items, others)

    def search(self, among: Tensor) -> RelationSearch:
        return _ClassSearch(self, among)

    def with_positives(self) -> Tensor:
        numbers, counts = torch.unique(self.items, return_inverse=True, return_counts=True)[1:]
        has_positive: Tensor = counts[numbers] > 1
        return has_positive.nonzero()[:, 0]

    def numbers(self, items: Tensor) -> Tensor:
        return items

    def alone(self, numbers: Tensor) -> Relation:
        return Classes(numbers)


class _ClassSearch(RelationSearch):
    def positives(self, rows: Tensor) -> Iterator[Tensor]:
        starts, ends = self._ranges(rows)
        members = self.among[self._sorted.indices].numpy()  # masked in a tenth of the time
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            of_class = members[start:end]
            yield torch.from_numpy(of_class[of_class != row])

    def neutral(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.relation.items[columns] == self.relation.items[rows][:, None]

    def most_neutral(self, rows: Tensor) -> Tensor:
        starts, ends = self._ranges(rows)
        return ends - starts

    @lazy
    def _sorted(self) -> torch.return_types.sort:
        """The labels of the items, and the order that sorts them."""
        return self.relation.items[self.among].sort(stable=True)

    def _ranges(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the class of each row among the sorted labels."""
        labels, wanted = self._sorted.values, self.relation.items[rows]
        return torch.searchsorted(labels, wanted), torch.searchsorted(labels, wanted, right=True)


class Unlabelled(Classes):
    """Items of which nothing is known, as where indices alone say what is compared: each is a class of its own.

    Args:
        count: N.
        first: the number of the first.
    """

    def __init__(self, count: int, first: int = 0) -> None:
        super().__init__(first + torch.arange(count))

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        return UnlabelledAdjacency(items, others)


class ComparedRelation(Relation):
    """A relation that finds positives and what is no negative at once."""

    @abstractmethod
    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return which are positives, and which are no negatives, `(B, M)` bool each."""

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return self.compared(anchors, others)[0]

    def ignored(self, anchors: Tensor, others: Tensor) -> Tensor | None:
        positive, neutral = self.compared(anchors, others)
        return neutral & ~positive


class TwoSided(ComparedRelation):
    """A relation of two sides, whose numbers are those of the left one first.

    Attributes:
        first_of_right: the first number of the right side; 0 if there are no sides.
    """

    first_of_right: int

    @property
    def left(self) -> Self:
        """The items of the left side."""
        return self.with_items(self.items[self.items < self.first_of_right])

    @property
    def right(self) -> Self:
        """The items of the right side."""
        return self.with_items(self.items[self.items >= self.first_of_right])


def signature_of(*arrays: npt.NDArray[Any]) -> int:
    """A checksum of arrays."""
    checksum = 0
    for array in arrays:
        checksum = crc32(np.ascontiguousarray(array).data, crc32(repr(array.shape).encode(), checksum))
    return checksum
