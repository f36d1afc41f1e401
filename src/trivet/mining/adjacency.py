"""Adjacency of a batch: which references belong to an anchor, which do not, and which are neither."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from trivet.distances import device
from trivet.mining.label_groups import LabelGroups, Numbers, without
from trivet.runtime.lazy import lazy

MAX_STORED = 2**21  # entries of the matrices of a whole batch, which are computed once then
Compare = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Adjacency(ABC):
    """N anchors compared with M references by their numbers; nothing is computed before it is read.

    Attributes:
        most: the most references that belong to an anchor, itself included, or a bound of that.
        without_positives, without_negatives: whether it is known that no anchor, of any process, has one.
    """

    most: int

    @property
    @abstractmethod
    def without_positives(self) -> bool: ...

    @property
    @abstractmethod
    def without_negatives(self) -> bool: ...

    @abstractmethod
    def block(self, span: tuple[int, int] | None, itself: Tensor | None) -> BlockAdjacency:
        """The anchors in `span`, None for all.

        Args:
            itself: the reference `(B,)` that each anchor is, if it is known to be one and no other.
        """

    @abstractmethod
    def agree(self, anchors: Tensor, references: Tensor, *, positive: bool) -> Tensor:
        """Return which pairs `(T,)` of positions are positives, or else negatives."""


class BlockAdjacency(ABC):
    """B anchors compared with M references; nothing is computed before it is read.

    Attributes:
        positives: columns `(B, S)` of the references that belong to the anchor, ascending, M for none.
        all_filled: whether it is known that every slot holds one.
    """

    positives: Tensor
    all_filled: bool

    @abstractmethod
    def exclusion(self, further: Sequence[Tensor]) -> Exclusion:
        """The references that are no negatives: positives, ignored ones, and those in `further (B, E)`, M for none."""


class Exclusion(ABC):
    """The references that are no negatives of B anchors.

    Attributes:
        negatives: how many others each anchor has, `(B, 1)`, or one number if it is known that all have as many.
    """

    negatives: Tensor | int

    @abstractmethod
    def negative_at(self, rank: Tensor) -> Tensor:
        """The column `(B, S)` of the negative that has so many before it; where there is none it means nothing."""

    @abstractmethod
    def hide(self, values: Tensor, by: float) -> Tensor:
        """The `values (B, M)` with `by` for all that are no negatives; in place where no gradient is wanted."""


class ClassAdjacency(Adjacency):
    """Positives have the anchor's number: they are few, and listed; all others are negatives."""

    def __init__(self, labels: Tensor, reference_labels: Tensor) -> None:
        self.labels, self.reference_labels = labels, reference_labels
        self._groups = LabelGroups(reference_labels)

    @lazy
    def ranges(self) -> tuple[Numbers, Numbers]:
        """The range of each anchor's class among the `columns`."""
        return self._groups.ranges(self.labels)

    @lazy
    def _sizes(self) -> tuple[int, int]:
        """Return how many references the smallest and the largest class of an anchor have, or may have."""
        references = self.reference_labels.shape[0]
        if torch.compiler.is_compiling() or self.labels.shape[0] == 0 or references == 0:
            return -1, references
        least, largest = device.read_extremes(self.ranges[1])
        return int(least), int(largest)

    @lazy
    def most(self) -> int:
        return self._sizes[1]

    @lazy
    def even(self) -> bool:
        """Return whether all anchors have equally many references of their class."""
        return self._sizes[0] == self._sizes[1]

    @property
    def without_positives(self) -> bool:
        return self.most < 2 and self._groups.largest < 2

    @property
    def without_negatives(self) -> bool:
        return self._sizes[0] == self.reference_labels.shape[0]

    def columns(self, span: tuple[int, int] | None) -> Tensor:
        """Columns `(B, L)` of the references of the anchor's class, ascending; M where a class has fewer."""
        starts, counts = self.ranges
        if span is not None:
            starts, counts = starts[slice(*span)], counts[slice(*span)]
        return self._groups.positions(starts, counts, self.most, even=self.even)

    def block(self, span: tuple[int, int] | None, itself: Tensor | None) -> BlockAdjacency:
        return _ClassBlock(self, span, itself)

    def agree(self, anchors: Tensor, references: Tensor, *, positive: bool) -> Tensor:
        same = self.labels[anchors] == self.reference_labels[references]
        return same if positive else ~same


class UnlabelledAdjacency(ClassAdjacency):
    """Labels that say nothing, so that no pair contradicts them."""

    def agree(self, anchors: Tensor, references: Tensor, *, positive: bool) -> Tensor:
        return torch.ones(anchors.shape[0], dtype=torch.bool, device=anchors.device)


class _ClassBlock(BlockAdjacency):
    def __init__(self, adjacency: ClassAdjacency, span: tuple[int, int] | None, itself: Tensor | None) -> None:
        self._adjacency, self._span, self._itself = adjacency, span, itself
        self.all_filled = adjacency.even

    @lazy
    def _columns(self) -> Tensor:
        return self._adjacency.columns(self._span)

    @lazy
    def positives(self) -> Tensor:
        if self._itself is None or self._columns.shape[1] == 0:
            return self._columns
        return without(self._columns, self._itself)

    def exclusion(self, further: Sequence[Tensor]) -> Exclusion:
        size, sources = self._adjacency.reference_labels.shape[0], [self._columns]
        if further:
            labels = self._adjacency.labels
            labels = (labels if self._span is None else labels[slice(*self._span)])[:, None]
            for columns in further:  # those of the class are listed
                other = self._adjacency.reference_labels[columns.clamp_max(size - 1)] != labels
                sources.append(columns.where(other, size))
        columns = sources[0] if len(sources) == 1 else torch.cat(sources, dim=1).sort(dim=1).values
        return _Listed(columns, size, filled=self.all_filled and not further, never_empty=self._itself is not None)


class _Listed(Exclusion):
    """Few columns, as a list.

    Args:
        filled: whether it is known that every slot holds one.
        never_empty: whether it is known that every row does.
    """

    def __init__(self, columns: Tensor, size: int, *, filled: bool, never_empty: bool) -> None:
        self._columns, self._size, self._filled, self._never_empty = columns, size, filled, never_empty

    @lazy
    def negatives(self) -> Tensor | int:
        if self._filled:
            return self._size - self._columns.shape[1]
        return self._size - self._in_use.sum(dim=1, keepdim=True)

    def negative_at(self, rank: Tensor) -> Tensor:
        # An excluded column stands before it if no more than `rank` negatives stand before that column.
        before = self._columns - torch.arange(self._columns.shape[1], device=rank.device)
        if not self._filled:
            before = before.where(self._in_use, self._size)
        return rank + torch.searchsorted(before, rank, right=True)

    @lazy
    def _in_use(self) -> Tensor:
        return self._columns < self._size

    @lazy
    def _hidden(self) -> tuple[Tensor, Tensor | None]:
        """The columns `(B, E)`, and the rows `(B, 1)` without one; None if there is no such row.

        A slot that is not filled repeats the first; in a row without exclusions that is column 0.
        """
        if self._filled and self._columns.shape[1]:
            return self._columns, None
        index = self._columns.where(self._in_use, self._columns[:, :1])
        if self._never_empty:
            return index, None
        empty = ~self._in_use[:, :1]
        return index.masked_fill(empty, 0), empty

    def hide(self, values: Tensor, by: float) -> Tensor:
        index, empty = self._hidden
        if index.shape[1] == 0:
            return values
        if empty is None:
            return values.scatter(1, index, by) if values.requires_grad else values.scatter_(1, index, by)
        hidden = values[:, :1].where(empty, by)
        # A number that is written again several times must have its gradient once.
        hidden = torch.cat([hidden, hidden.detach().expand(-1, index.shape[1] - 1)], dim=1)
        return values.scatter(1, index, hidden) if values.requires_grad else values.scatter_(1, index, hidden)


class MatrixAdjacency(Adjacency):
    """Any relation, by matrices: of the whole batch where they are small, otherwise block by block.

    Args:
        compare: gives the positives among labels `(B,)` and `(M,)`, `(B, M)` bool, and all that is no negative.
    """

    def __init__(self, compare: Compare, labels: Tensor, reference_labels: Tensor) -> None:
        self._compare, self._labels, self._reference_labels = compare, labels, reference_labels
        self._is_stored = labels.shape[0] * reference_labels.shape[0] <= MAX_STORED

    def matrices(self, span: tuple[int, int] | None) -> tuple[Tensor, Tensor]:
        """Positives `(B, M)` of the anchors in `span`, and what is no negative; not to be written to."""
        if self._is_stored:
            positive, neutral = self._all
            return self._all if span is None else (positive[slice(*span)], neutral[slice(*span)])
        labels = self._labels if span is None else self._labels[slice(*span)]
        return self._compare(labels, self._reference_labels)

    @lazy
    def _all(self) -> tuple[Tensor, Tensor]:
        return self._compare(self._labels, self._reference_labels)

    @lazy
    def most(self) -> int:
        references = self._reference_labels.shape[0]
        if not self._is_stored or self._labels.shape[0] == 0 or references == 0:
            return references
        return int(count_true(self._all[0]).amax())

    @property
    def _compares_itself(self) -> bool:
        return self._is_stored and self._labels.shape[0] == self._reference_labels.shape[0]

    @property
    def without_positives(self) -> bool:
        return self._compares_itself and _is_diagonal(self._all[0])

    @property
    def without_negatives(self) -> bool:
        return self._compares_itself and _is_diagonal(~self._all[1])

    def block(self, span: tuple[int, int] | None, itself: Tensor | None) -> BlockAdjacency:
        return _MatrixBlock(*self.matrices(span), itself)

    def agree(self, anchors: Tensor, references: Tensor, *, positive: bool) -> Tensor:
        pairs = torch.empty(anchors.shape[0], dtype=torch.bool, device=anchors.device)
        step = max(1, MAX_STORED // max(1, self._reference_labels.shape[0]))
        for start in range(0, self._labels.shape[0], step):
            here = (anchors >= start) & (anchors < start + step)
            of_anchors, neutral = self.matrices((start, start + step))
            pairs[here] = (of_anchors if positive else ~neutral)[anchors[here] - start, references[here]]
        return pairs


class _MatrixBlock(BlockAdjacency):
    def __init__(self, positive: Tensor, neutral: Tensor, itself: Tensor | None) -> None:
        if itself is not None:
            positive = positive.scatter(1, itself[:, None], False)
            neutral = neutral.scatter(1, itself[:, None], True)
        self.positives, self.all_filled = columns_of(positive)
        self._neutral = neutral

    def exclusion(self, further: Sequence[Tensor]) -> Exclusion:
        neutral = self._neutral
        if further:
            size = neutral.shape[1]
            neutral = torch.nn.functional.pad(neutral, (0, 1))  # one column more takes the empty slots
            for columns in further:
                neutral.scatter_(1, columns, True)
            neutral = neutral[:, :size]
        return _Masked(neutral)


class _Masked(Exclusion):
    """Any number of columns, as a mask."""

    def __init__(self, mask: Tensor) -> None:
        self._mask = mask

    @lazy
    def negatives(self) -> Tensor:
        return self._mask.shape[1] - count_true(self._mask)[:, None]

    def negative_at(self, rank: Tensor) -> Tensor:
        entries, counts = _true_positions(~self._mask), self.negatives
        if entries.shape[0] == 0:
            return torch.zeros_like(rank)
        index = (counts.cumsum(dim=0) - counts + rank).clamp_max_(entries.shape[0] - 1)
        return entries[index] % self._mask.shape[1]

    @lazy
    def _unmasked_bits(self) -> Tensor:
        """All bits of a number of four bytes where the mask is False, none where it is True."""
        return self._mask.to(torch.int32).sub_(1)

    def hide(self, values: Tensor, by: float) -> Tensor:
        if values.requires_grad:
            return values.masked_fill(self._mask, by)
        if not values.is_cpu or values.dtype != torch.float32:
            return values.masked_fill_(self._mask, by)
        # A tenth of the time of masked_fill_: bits that differ from those of `by` stay where the mask is False.
        bits, filling = values.view(torch.int32), torch.tensor(by).view(torch.int32)
        bits.bitwise_xor_(filling).bitwise_and_(self._unmasked_bits).bitwise_xor_(filling)
        return values


def count_true(mask: Tensor) -> Tensor:
    """Return how many entries of each row of `mask (B, M)` are True, `(B,)`."""
    if mask.is_cpu:  # numpy takes a tenth of the time
        return torch.from_numpy(np.count_nonzero(mask.numpy(), axis=1))
    return mask.sum(dim=1)


def true_entries(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each entry of `mask (B, M)` that is True, row by row."""
    positions = _true_positions(mask)
    return positions // mask.shape[1], positions % mask.shape[1]


def _true_positions(mask: Tensor) -> Tensor:
    """Positions of all that is True in `mask (B, M)`, row by row; numpy skips the others fastest."""
    if mask.is_cpu:
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero()[:, 0]


def _is_diagonal(mask: Tensor) -> bool:
    """Return whether no entry beside the diagonal of `mask (N, N)` is True."""
    return bool(count_true(mask).sum() == mask.diagonal().sum())


def columns_of(mask: Tensor) -> tuple[Tensor, bool]:
    """The columns `(B, S)` where `mask (B, M)` is True, ascending, M for none, and whether every slot holds one."""
    size = mask.shape[1]
    if mask.numel() == 0:
        return torch.zeros((mask.shape[0], 0), dtype=torch.int64, device=mask.device), True
    if mask.is_cpu:
        entries = np.flatnonzero(mask.numpy())  # many times faster than `nonzero` of a matrix
        firsts = np.arange(len(mask)) * size
        counts = np.diff(entries.searchsorted(firsts), append=len(entries))
        slots = np.arange(counts.max())
        listed = np.full((len(mask), len(slots)), size)
        listed[slots < counts[:, None]] = entries - np.repeat(firsts, counts)
        return torch.from_numpy(listed), bool(counts.min() == counts.max())
    counted = count_true(mask)
    least, most = (int(value) for value in device.read_extremes(counted))
    columns = torch.arange(size, device=mask.device).where(mask, size).sort(dim=1).values[:, :most]
    return columns, least == most
