"""Labels of a block of anchors and of all references: which are positives, which negatives, and which neither."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.mining.batch import Batch
from trivet.mining.label_groups import without
from trivet.runtime.lazy import lazy


class BlockLabels:
    """B anchors against M references, by their labels and ids. Nothing is computed before it is read.

    The other references of the anchor's class are few, and listed: `same_class (B, S)` are their columns. All
    references of other classes are negatives.

    Args:
        span: which anchors of the batch these are.
    """

    def __init__(self, batch: Batch, span: tuple[int, int]) -> None:
        self._batch, self._span = batch, span
        self._is_full = span == (0, batch.labels.shape[0])
        self.labels = self._slice(batch.labels)
        self.ids = None if batch.ids is None else self._slice(batch.ids)
        (self.size, self.dimension), self.reference_labels = batch.references.shape, batch.reference_labels
        self._only_class = batch.items is None and batch.taken is None  # whether all but the class are negatives

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
    def _class_columns(self) -> Tensor:
        """Columns `(B, L)` of the references of the anchor's class, ascending; M where a class has fewer."""
        batch, (starts, counts) = self._batch, self._batch.class_ranges
        if not self._is_full:
            starts, counts = (each[slice(*self._span)] for each in (starts, counts))
        return batch.classes.positions(starts, counts, batch.largest_class, even=batch.even_classes)

    @lazy
    def same_class(self) -> Tensor:
        """Columns `(B, S)` of the class, ascending, M for none; without the anchor where it is known which it is."""
        if not self._batch.compared_with_itself or self._class_columns.shape[1] == 0:
            return self._class_columns
        return without(self._class_columns, self.anchor_index)

    @lazy
    def same_class_columns(self) -> Tensor:
        """`same_class`, with the last column for the empty slots."""
        return self.same_class if self._batch.even_classes else self.same_class.clamp_max(max(0, self.size - 1))

    @lazy
    def slots_filled(self) -> bool:
        """Return whether it is known that every slot of `same_class` holds another item of the class."""
        batch = self._batch
        return batch.even_classes and self._only_class and (batch.compared_with_itself or batch.ids is None)

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
    def excluded(self) -> Tensor:
        """Columns `(B, E)` that are no negatives, ascending, then M: the class, rows of the same item, taken ones."""
        sources = [self._class_columns]
        if self._batch.items is not None and self.ids is not None:
            items = self._batch.items
            same = items.positions(*items.ranges(self.ids), items.largest)
            sources.append(same.where(self._other_label(same), self.size))
        if self._batch.taken is not None:
            taken = self._batch.taken.nonzero().flatten().expand(len(self.labels), -1)
            known = self._other_label(taken)
            if self._batch.items is not None and self._batch.reference_ids is not None and self.ids is not None:
                known &= self._batch.reference_ids[taken] != self.ids[:, None]
            sources.append(taken.where(known, self.size))
        return sources[0] if len(sources) == 1 else torch.cat(sources, dim=1).sort(dim=1).values

    def _other_label(self, columns: Tensor) -> Tensor:
        return self._batch.reference_labels[columns.clamp_max(self.size - 1)] != self.labels[:, None]

    @lazy
    def negatives(self) -> Tensor:
        """Return how many negatives each anchor has, `(B, 1)`."""
        count = self.negative_count
        return torch.full_like(self.labels, count)[:, None] if isinstance(count, int) else count

    @lazy
    def negative_count(self) -> Tensor | int:
        """The same as one number where it is known that all anchors have as many."""
        if self._only_class and self._batch.even_classes:
            return self.size - self._batch.largest_class
        return self.size - self._is_excluded.sum(dim=1, keepdim=True)

    @lazy
    def _is_excluded(self) -> Tensor:
        """Return which slots of `excluded (B, E)` are filled."""
        return self.excluded < self.size

    @lazy
    def _hidden(self) -> tuple[Tensor, Tensor | None]:
        """The columns `(B, E)` that are no negatives, and the rows `(B, 1)` without one; None if there is no such row.

        A slot that is not filled repeats the first; in a row without exclusions that is column 0.
        """
        if self._only_class and self._batch.even_classes and self._batch.largest_class:
            return self.excluded, None
        index = self.excluded.where(self._is_excluded, self.excluded[:, :1])
        if self._batch.compared_with_itself:
            return index, None
        empty = ~self._is_excluded[:, :1]
        return index.masked_fill(empty, 0), empty

    def _hide(self, values: Tensor, by: float) -> Tensor:
        """The `values (B, M)` with `by` for all that are no negatives; in place where no gradient is wanted."""
        index, empty = self._hidden
        if index.shape[1] == 0:
            return values
        if empty is None:
            return values.scatter(1, index, by) if values.requires_grad else values.scatter_(1, index, by)
        hidden = values[:, :1].where(empty, by)
        # A number that is written again several times must have its gradient once.
        hidden = torch.cat([hidden, hidden.detach().expand(-1, index.shape[1] - 1)], dim=1)
        return values.scatter(1, index, hidden) if values.requires_grad else values.scatter_(1, index, hidden)
