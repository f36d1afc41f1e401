"""Label levels of a retrieval: which gallery rows are right for a query, by classes or by another relation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.metrics.points import spans
from trivet.mining.adjacency import true_entries
from trivet.mining.relations import Relation
from trivet.runtime.arrays import Integers

COMPARED = 2**22  # pairs of items that a relation is asked about at once
GIANT = 0.5  # of all items: a group that has more of them is no unit of a sample


@dataclass(frozen=True)
class RelatedRows:
    """Gallery rows of the positives of B queries, P in all, and I pairs that are neither right nor wrong.

    Pairs of a query, by its position in the block, and a gallery row, query by query.
    """

    sizes: Tensor  # (B,) positives of each query, with those that it may not retrieve
    rows: Tensor  # (P,)
    columns: Tensor  # (P,)
    ignored_rows: Tensor  # (I,)
    ignored_columns: Tensor  # (I,)
    gains: Tensor | None = None  # (P,) float64, the relevance of each; None where all are equal


class LevelClasses:
    """Classes of Q queries and M gallery rows at one label level, 0 .. C - 1, and the gallery rows of each class.

    Args:
        queries, gallery: the numbers of the classes.
        labels: `(Q,)` the number of the class of each query among those of queries, and their labels.

    Attributes:
        largest: the most gallery rows that are right for a query, or neither right nor wrong.
        most_ignored: the most that are neither by the labels, the query itself apart.
    """

    most_ignored = 0

    def __init__(
        self, queries: Tensor, gallery: Tensor, labels: tuple[Integers, npt.NDArray[Any]] | None = None
    ) -> None:
        self.queries, self.gallery = queries, gallery
        self.labels = labels if labels is not None else unique_labels(queries.numpy())
        classes = 1 + max(int(numbers.max()) if len(numbers) else -1 for numbers in (queries, gallery))
        self.counts = torch.bincount(gallery, minlength=classes)
        self.largest = int(self.counts.max())
        self.sizes = self.counts[queries]  # (Q,) gallery rows that are right for a query, or neither right nor wrong
        self._order = torch.argsort(gallery, stable=True)
        self._ends = self.counts.cumsum(0)

    def related(self, block: Tensor, self_rows: Tensor | None, *, graded: bool = False) -> RelatedRows:
        """The rows that some queries `(B,)` are related to.

        Args:
            self_rows: `(B,)` the rows that are the queries themselves, -1 for none; of no positive it is ignored.
            graded: whether the gains are needed.
        """
        classes = self.queries[block]
        sizes = self.sizes[block]
        rows = torch.arange(len(block)).repeat_interleave(sizes)
        starts = (self._ends - self.counts)[classes]
        columns = self._order[
            (starts - (sizes.cumsum(0) - sizes)).repeat_interleave(sizes) + torch.arange(int(sizes.sum()))
        ]
        if self_rows is None:
            return RelatedRows(sizes, rows, columns, sizes.new_zeros(0), sizes.new_zeros(0))
        itself = ((self_rows >= 0) & (self.gallery[self_rows] != classes)).nonzero()[:, 0]
        return RelatedRows(sizes, rows, columns, itself, self_rows[itself])

    def alike(self, block: Tensor, least: int) -> Iterator[Tensor]:
        """Positions in a block of queries that have the same positives, more than `least`."""
        classes = self.queries[block]
        for number in torch.unique(classes[self.sizes[block] > least]).tolist():
            yield (classes == number).nonzero()[:, 0]

    def table(self, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return which gallery rows `(m,)` are right for queries `(n,)`, which neither, and the gains: `(n, m)`."""
        return self.queries[queries][:, None] == self.gallery[rows], None, None


class LevelRelation(LevelClasses):
    """A relation of Q queries and M gallery rows; its classes are the groups of items that it connects.

    Items of a group belong together, directly or through others, or are copies. Where one group has more than half of
    all items, as with tags, all are one class.

    Args:
        relation: knows all items by their numbers.
        queries, gallery: the numbers `(Q,)` and `(M,)`.
        self_rows: `(Q,)` the gallery row that is the query itself, -1 where there is none.
    """

    def __init__(self, relation: Relation, queries: Tensor, gallery: Tensor, self_rows: Tensor | None) -> None:
        self._relation, self._queries, self._gallery = relation.to("cpu"), queries.cpu(), gallery.cpu()
        sizes, groups = torch.zeros(len(queries), dtype=torch.int64), torch.arange(len(gallery) + len(queries))
        if self._relation.contents is not None:
            contents = self._relation.contents[torch.cat([self._gallery, self._queries])]
            groups = torch.unique(contents, return_inverse=True)[1]
        if self_rows is not None:
            known = (self_rows >= 0).nonzero()[:, 0]
            groups = _connected(groups, len(gallery) + known, self_rows[known])
        for start, stop, positive, ignored in self._compared(torch.arange(len(queries))):
            each = ignored.sum(dim=1)
            sizes[start:stop] = positive.sum(dim=1) + each
            self.most_ignored = max(self.most_ignored, int(each.max()))
            rows, columns = true_entries(positive)
            groups = _connected(groups, len(gallery) + start + rows, columns)
        if int(torch.bincount(groups).max()) > GIANT * len(groups):
            groups = torch.zeros_like(groups)
        super().__init__(groups[len(gallery) :], groups[: len(gallery)])
        self.sizes, self.largest = sizes, int(sizes.max())

    def _compared(self, block: Tensor) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Span by span of a block: which gallery rows are positives, and which are ignored."""
        for start, stop in spans(len(block), max(1, COMPARED // max(1, len(self._gallery)))):
            positive, neutral = self._relation.compared(self._queries[block[start:stop]], self._gallery)
            yield start, stop, positive, neutral & ~positive

    def related(self, block: Tensor, self_rows: Tensor | None, *, graded: bool = False) -> RelatedRows:
        pairs: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
        for start, stop, positive, ignored in self._compared(block):
            if self_rows is not None:
                known = (self_rows[start:stop] >= 0).nonzero()[:, 0]
                ignored[known, self_rows[start + known]] = True
                ignored &= ~positive
            rows, columns = true_entries(positive)
            ignored_rows, ignored_columns = true_entries(ignored)
            gains = self._gains(block[start:stop], self._gallery)[rows, columns] if graded else torch.zeros(0)
            pairs.append((rows + start, columns, ignored_rows + start, ignored_columns, gains))
        rows, columns, ignored_rows, ignored_columns, gains = (
            torch.cat(tensors) for tensors in zip(*pairs, strict=True)
        )
        if graded and not (gains.isfinite() & (gains > 0)).all():
            wrong = gains[~(gains.isfinite() & (gains > 0))][0].item()
            raise ValueError(
                f"the relevance of a positive must be finite and above 0, as it is the gain of ndcg: got {wrong:g}; "
                "add a number to all grades, or leave ndcg out."
            )
        sizes = torch.bincount(rows, minlength=len(block))
        return RelatedRows(sizes, rows, columns, ignored_rows, ignored_columns, gains if graded else None)

    def alike(self, block: Tensor, least: int) -> Iterator[Tensor]:
        return iter(())

    def table(self, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        positive, neutral = self._relation.compared(self._queries[queries], self._gallery[rows])
        return positive, neutral & ~positive, self._gains(queries, self._gallery[rows])

    def _gains(self, queries: Tensor, items: Tensor) -> Tensor:
        return self._relation.relevance(self._queries[queries], items).double()


def unique_labels(labels: npt.NDArray[Any]) -> tuple[Integers, npt.NDArray[Any]]:
    """The number of the class of each, 0 .. C - 1, and the label of each class."""
    names, classes = np.unique(labels, return_inverse=True)
    return classes.astype(np.int64), names


def occurring_labels(relation: Relation) -> npt.NDArray[Any]:
    """The labels of some items `(C,)`: the tags that occur, or the distinct numbers of the items."""
    from trivet.mining.tags import Tags  # here: `import trivet.metrics` does without scipy

    if isinstance(relation, Tags):
        occurring = np.unique(relation.numbers(relation.items).cpu().numpy())
        return np.asarray(relation.names[occurring])
    return np.unique(relation.items.cpu().numpy())


def num_relation_classes(relation: Relation, groups: int) -> int:
    """The number of tags that occur, or of the groups that another relation connects."""
    from trivet.mining.tags import Tags  # as above

    return len(occurring_labels(relation)) if isinstance(relation, Tags) else groups


def _connected(groups: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Groups `(U,)` of items, 0 .. G - 1, once items `left (E,)` and `right (E,)` are joined pair by pair."""
    from scipy import sparse  # here: `import trivet.metrics` does without

    ends = groups[left], groups[right]
    unequal = ends[0] != ends[1]
    if not unequal.any():
        return groups
    count = int(groups.max()) + 1
    edges = np.unique(ends[0][unequal].numpy() * count + ends[1][unequal].numpy())
    graph = sparse.coo_array((np.ones(len(edges), np.int8), np.divmod(edges, count)), shape=(count, count))
    joined = sparse.csgraph.connected_components(graph, directed=False)[1]
    return torch.from_numpy(joined.astype(np.int64))[groups]
