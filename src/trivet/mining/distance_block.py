"""Distances of a block of anchors to all references, as selectors read them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trivet.distances import Distance, device, row_sums
from trivet.distances.exact_order import RoundedDistances
from trivet.mining.batch import Batch
from trivet.mining.block_labels import BlockLabels
from trivet.mining.selected_set import SelectedItems, nothing
from trivet.runtime.lazy import lazy

DIFFERENCES_AT_ONCE = 2**19  # numbers that stay in a processor's cache
MAX_EXACT = 2**19  # numbers whose differences take a CPU less time than the two dozen steps that avoid most of them
MAX_STORED_DIFFERENCES = 2**12  # numbers of an anchor's differences that are stored for the gradient


class DistanceBlock(BlockLabels):
    """Distances of B anchors to M references, without a gradient. Nothing is computed before it is read.

    Those to the references of the anchor's class are listed, and only those to negatives form a matrix.

    Args:
        span: which anchors of the batch these are.
        distance: the loss's distance, in which `margin` is given.
        margin: the loss's margin, 0 if it has none.
        with_matrix: whether a formula will want all distances to negatives, so that selectors read the same ones.
        graph: whether what is shared with a formula has the graph of the batch, which selectors do without.
    """

    def __init__(
        self,
        batch: Batch,
        span: tuple[int, int],
        *,
        distance: Distance,
        margin: float,
        with_matrix: bool = False,
        graph: bool = False,
    ) -> None:
        super().__init__(batch, span)
        self.distance, self.margin = distance, margin
        self._rows = self._slice(batch.embeddings)
        self._with_matrix, self._graph, self._exact = with_matrix, graph, batch.exact

    @lazy
    def to_same_class(self) -> Tensor:
        """Squared distances `(B, S)` to `same_class`, by differences; empty slots mean nothing."""
        return self._same_class_distances.squared.detach()

    @lazy
    def to_negatives(self) -> Tensor:
        """Squared distances `(B, M)` to the negatives, by products, so rounded; infinite for all that are none.

        Where ties matter, ask `nearest_negatives`, or `settle_negatives` before comparing with a limit.
        """
        return self._squared.detach()

    @lazy
    def exact_to_negatives(self) -> Tensor:
        """The same by differences, which takes many times as long."""
        return self._hide(self._by_differences(None), torch.inf)

    def squared_to(self, columns: Tensor) -> Tensor:
        """Squared distances `(B, S)` to any columns, by differences."""
        if columns is self.same_class_columns:
            return self.to_same_class
        with torch.no_grad():
            return self._squared_to(columns).squared

    def settle_negatives(self, limits: Tensor) -> None:
        """Make `to_negatives` exact where rounding might decide on which side of the squared `limits (B, S)` it lies.

        The exact distance is that by differences: equal rows are equally far, and blocks and processes agree.
        """
        self.rounded.settle(limits)

    def nearest_negatives(self, number: int, *, farthest: bool = False) -> Tensor:
        """Columns `(B, number)` of the nearest, or farthest, negatives by exact distance; the lowest of tied ones.

        There must be a reference; an anchor with fewer negatives gets columns that mean nothing.
        """
        return self.rounded.nearest(number, farthest=farthest)

    @lazy
    def to_nearest(self) -> Tensor:
        """Squared distance `(B, 1)` to the nearest negative, by differences; infinite without one.

        There must be a reference.
        """
        self.rounded.settle_smallest(None)
        return self.to_negatives.amin(dim=1, keepdim=True)

    def nearest_beyond(self, low: Tensor, number: int) -> SelectedItems:
        """The `number` nearest negatives strictly beyond each squared distance of `low (B, S)`, `(B, S number)`."""
        self.settle_negatives(low)
        squared, chosen_columns = self.to_negatives, []
        for slot in range(low.shape[1]):
            # The difference keeps the order and is 0 only for equal numbers; what is not beyond becomes infinite.
            ahead = torch.threshold_(squared - low[:, slot : slot + 1], 0, torch.inf)
            chosen_columns.append(self.rounded.nearest_of(ahead, number))
        if not chosen_columns:
            return nothing(low)
        index = torch.cat(chosen_columns, dim=1)
        reached = squared.gather(1, index)
        chosen = (reached > low.repeat_interleave(number, dim=1)) & reached.isfinite()
        if number > 1:  # a row with fewer repeats one
            columns = index.view(len(index), -1, number)
            repeated = torch.stack(
                [(columns[:, :, :rank] == columns[:, :, rank : rank + 1]).any(dim=2) for rank in range(number)], dim=2
            )
            chosen = chosen & ~repeated.flatten(1)
        return SelectedItems(index, chosen)

    @lazy
    def _same_class_distances(self) -> ColumnDistances:
        with torch.set_grad_enabled(self._graph):
            return self._squared_to(self.same_class_columns)

    @lazy
    def _squared(self) -> Tensor:
        with torch.set_grad_enabled(self._graph and self._with_matrix):
            return self._product()

    @lazy
    def rounded(self) -> RoundedDistances:
        """`to_negatives`, and where rounding may have changed it in a way that can be looked at, what is exact."""
        exact = self._exact or self.size == 0 or torch.compiler.is_compiling()
        if not exact and self.labels.shape[0] * self.size * self.dimension <= MAX_EXACT:
            exact = self._exact = "_squared" not in self.__dict__  # from now on: nobody has asked for them yet
        if exact:
            return RoundedDistances(self.to_negatives, None, self.label_column, 0.0)
        # Of the rows, not of this block: a block that is part of itself would outlive the next ones.
        pairs = partial(squared_of_pairs, self._rows, self._batch.references)
        return RoundedDistances(self.to_negatives, pairs, *self._batch.products.bounds(*self._span))

    def _product(self) -> Tensor:
        """Squared distances `(B, M)` to the negatives, infinite for all that are none."""
        if self.size == 0:
            return self._rows @ self._batch.references.T
        if not self._exact:
            squared = self._batch.products.squared_distances(*self._span)
        elif torch.is_grad_enabled():
            squared = with_values(self._batch.products.squared_distances(*self._span), self._by_differences(None))
        else:
            squared = self._by_differences(None)
        return self._hide(squared, torch.inf)

    def _by_differences(self, columns: Tensor | None) -> Tensor:
        """Squared distances to some columns `(B, S)`, or to all `(B, M)`, by differences; without a graph."""
        with torch.set_grad_enabled(False):
            return squared_differences(self._rows, self._batch.references, columns)

    def _squared_to(self, columns: Tensor) -> ColumnDistances:
        anchors, references = self._rows, self._batch.references
        if self.size == 0:
            return ColumnDistances(columns, None, anchors.new_zeros(columns.shape))
        if columns.shape[1] * self.dimension <= max(self.size, MAX_STORED_DIFFERENCES):
            # No matrix product here: it loses the digits that separate near-duplicates.
            differences = differences_to(anchors, references, columns)
            return ColumnDistances(columns, differences, row_sums(differences.square()))
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return ColumnDistances(columns, None, self._by_differences(columns))
        # Too many differences to keep: the gradient is that of a product.
        squared = self._batch.precise_products.squared_distances(*self._span).gather(1, columns).to(anchors.dtype)
        if torch.compiler.is_compiling():
            return ColumnDistances(columns, None, squared)
        return ColumnDistances(columns, None, with_values(squared, self._by_differences(columns)))


class ColumnDistances(NamedTuple):
    """Squared distances `(B, S)` to some columns, and the differences `(B, S, d)` y - x they come from, if they do."""

    columns: Tensor
    differences: Tensor | None
    squared: Tensor


def squared_differences(anchors: Tensor, references: Tensor, columns: Tensor | None) -> Tensor:
    """Squared distances from anchors `(B, d)` to some references `(B, S)`, or to all `(B, M)`, some anchors at once."""
    dimension, slots = anchors.shape[1], references.shape[0] if columns is None else columns.shape[1]
    numbers = device.numbers_at_once(anchors, cached=DIFFERENCES_AT_ONCE)
    step, size = max(1, numbers // max(1, slots * dimension)), anchors.shape[0]
    if size > step:
        starts = range(0, size, step)
        chunks = ((anchors[i : i + step], None if columns is None else columns[i : i + step]) for i in starts)
        return torch.cat([squared_differences(rows, references, some) for rows, some in chunks])
    others = references if columns is None else _gathered(references, columns)
    return row_sums(_squares(others, anchors[:, None]))


def _squares(a: Tensor, b: Tensor) -> Tensor:
    """(a - b)^2 of each entry, in one pass."""
    squares: Tensor = torch.ops.aten.mse_loss(a, b, 0)
    return squares


def _gathered(references: Tensor, columns: Tensor) -> Tensor:
    """The references `(B, S, d)` in these columns `(B, S)`."""
    return torch.embedding(references, columns)  # many times faster than an index in brackets


def differences_to(anchors: Tensor, references: Tensor, columns: Tensor) -> Tensor:
    """y - x `(B, S, d)` for the anchors x `(B, d)` and the references y in these columns `(B, S)`."""
    return _gathered(references, columns).sub_(anchors[:, None])


def with_values(differentiable: Tensor, exact: Tensor) -> Tensor:
    """The exact values, with the gradient of the differentiable ones."""
    return differentiable - differentiable.detach() + exact


@torch.no_grad()
def squared_of_pairs(anchors: Tensor, references: Tensor, rows: Tensor, others: Tensor) -> Tensor:
    """Squared distances `(K,)` of these rows of the anchors to these references, by differences."""
    step = max(1, device.numbers_at_once(anchors, cached=DIFFERENCES_AT_ONCE) // anchors.shape[1])
    if len(rows) > step:
        chunks = (slice(start, start + step) for start in range(0, len(rows), step))
        return torch.cat([squared_of_pairs(anchors, references, rows[chunk], others[chunk]) for chunk in chunks])
    return row_sums(_squares(references.index_select(0, others), anchors.index_select(0, rows)))
