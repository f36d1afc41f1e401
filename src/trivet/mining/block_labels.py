"""Labels of a block of anchors and of all references: which are positives, which negatives, and which neither."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.mining.adjacency import BlockAdjacency, Exclusion
from trivet.mining.batch import Batch
from trivet.mining.relations import Relation
from trivet.runtime.lazy import lazy


class BlockLabels:
    """B anchors against M references, by their labels and ids. Nothing is computed before it is read.

    The references that belong to the anchor are listed: `same_class (B, S)` are their columns.

    Args:
        span: which anchors of the batch these are.
    """

    def __init__(self, batch: Batch, span: tuple[int, int]) -> None:
        self._batch, self._span = batch, span
        self._is_full = span == (0, batch.labels.shape[0])
        self.labels = self._slice(batch.labels)
        self.ids = None if batch.ids is None else self._slice(batch.ids)
        (self.size, self.dimension), self.reference_labels = batch.references.shape, batch.reference_labels
        self._by_labels = batch.items is None and batch.taken is None  # alone

    def _slice(self, values: Tensor) -> Tensor:
        """Return what belongs to these anchors, of a tensor `(N, ...)` about all of the batch."""
        return values if self._is_full else values[slice(*self._span)]

    @lazy
    def anchor_index(self) -> Tensor:
        """Return where the anchors `(B,)` stand in the whole batch."""
        if self._batch.compared_with_itself and self.ids is not None:
            return self.ids
        start, stop = self._span
        return torch.arange(self._batch.first + start, self._batch.first + stop, device=self.labels.device)

    @lazy
    def _compared(self) -> BlockAdjacency:
        itself = self.anchor_index if self._batch.compared_with_itself else None
        return self._batch.adjacency.block(None if self._is_full else self._span, itself)

    @property
    def relation(self) -> Relation:
        """The relation of the batch."""
        return self._batch.relation

    @property
    def reference_numbers(self) -> Tensor:
        """The numbers `(K,)` of the classes or tags of the references."""
        return self.relation.numbers(self.reference_labels)

    @lazy
    def same_class(self) -> Tensor:
        """Columns `(B, S)` of what belongs to the anchor, ascending, M for none; without the anchor if it is known."""
        return self._compared.positives

    @lazy
    def same_class_columns(self) -> Tensor:
        """`same_class`, with the last column for the empty slots."""
        return self.same_class if self._compared.all_filled else self.same_class.clamp_max(max(0, self.size - 1))

    @lazy
    def slots_filled(self) -> bool:
        """Return whether it is known that every slot of `same_class` holds another item that belongs to the anchor."""
        batch = self._batch
        return self._compared.all_filled and self._by_labels and (batch.compared_with_itself or batch.ids is None)

    @lazy
    def all_opposed(self) -> bool:
        """Return whether it is known that every anchor has a negative."""
        return isinstance(self.negative_count, int) and self.negative_count > 0

    def all_true(self, slots: int) -> Tensor:
        """True in all `(B, slots)`, as a view of one number."""
        return self._true if slots == 1 else self._true.expand(-1, slots)

    @lazy
    def label_column(self) -> Tensor:
        """The labels `(B, 1)`; also where a number for each anchor is asked for, and only its shape is read."""
        return self.labels[:, None]

    @lazy
    def _true(self) -> Tensor:
        return torch.ones((1, 1), dtype=torch.bool, device=self.labels.device).expand(self.labels.shape[0], 1)

    @lazy
    def positive(self) -> Tensor:
        """Return which slots of `same_class (B, S)` hold another item of the class."""
        if self.slots_filled:
            return self.all_true(self.same_class.shape[1])
        filled = self.same_class < self.size
        if self._batch.compared_with_itself and self._batch.taken is None:
            return filled
        if self._batch.taken is not None and self.size:
            filled &= ~self._batch.taken[self.same_class_columns]
        if self.ids is None or self._batch.reference_ids is None or self.same_class.shape[1] == 0:
            return filled
        return filled & (self._batch.reference_ids[self.same_class_columns] != self.ids[:, None])

    @lazy
    def excluded(self) -> Exclusion:
        """The references that are no negatives: positives, ignored ones, rows of the same item, taken ones."""
        further = []
        if self._batch.items is not None and self.ids is not None:
            items = self._batch.items
            further.append(items.positions(*items.ranges(self.ids), items.largest))
        if self._batch.taken is not None:
            taken = self._batch.taken.nonzero().flatten().expand(len(self.labels), -1)
            if self._batch.items is not None and self._batch.reference_ids is not None and self.ids is not None:
                taken = taken.where(self._batch.reference_ids[taken] != self.ids[:, None], self.size)
            further.append(taken)
        return self._compared.exclusion(further)

    @lazy
    def negatives(self) -> Tensor:
        """Return how many negatives each anchor has, `(B, 1)`."""
        count = self.negative_count
        return torch.full_like(self.labels, count)[:, None] if isinstance(count, int) else count

    @lazy
    def negative_count(self) -> Tensor | int:
        """The same as one number where it is known that all anchors have as many."""
        return self.excluded.negatives

    def _hide(self, values: Tensor, by: float) -> Tensor:
        """The `values (B, M)` with `by` for all that are no negatives; in place where no gradient is wanted."""
        return self.excluded.hide(values, by)
