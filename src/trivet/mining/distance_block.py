"""A block of anchors against all references: what a selector sees and chooses from it, and the gradients of its
distances."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trivet.distances import (
    Distance,
    ProductGradients,
    device,
    distances_between,
    from_squared,
    row_sums,
    squared_distances,
)
from trivet.mining.batch import Batch
from trivet.mining.exact_topk import Rounded, nearest_few
from trivet.mining.gradients import Gradients
from trivet.mining.label_groups import without
from trivet.mining.selected_set import SelectedItems, nothing
from trivet.runtime.lazy import lazy

DIFFERENCES_AT_ONCE = 2**19  # numbers that stay in a processor's cache
MAX_EXACT = 2**19  # numbers whose differences take a CPU less time than the two dozen steps that avoid most of them
MAX_STORED_DIFFERENCES = 2**12  # numbers of an anchor's differences that are stored for the gradient
PRODUCTS_PER_DIFFERENCE = 32  # products of rows, in float64, in the time in which two rows are subtracted


class DistanceBlock:
    """B anchors against M references. Nothing is computed before it is read.

    The other references of the anchor's class are few, and listed: `same_class (B, S)` are their columns. All
    references of other classes are negatives, and only their distances form a matrix.

    What selectors read carries no gradient. What a formula reads (`distances_to`, `matrix`, `anchors`, `references`) is
    differentiable in one of two ways. Of a batch with a graph, by ordinary autograd. Of a detached batch, with
    `leaves=True`, each is a leaf of its own, and `add_gradients` carries the gradients of the leaves on to the rows:
    the matrix products of the gradient then add to one buffer for all blocks.

    Args:
        span: which anchors of the batch these are.
        distance: the loss's distance, in which `margin` is given.
        margin: the loss's margin, 0 if it has none.
        with_matrix: whether a formula will want `matrix`, so that selectors read the same one.
    """

    def __init__(
        self,
        batch: Batch,
        span: tuple[int, int],
        *,
        distance: Distance,
        margin: float,
        leaves: bool = False,
        with_matrix: bool = False,
    ) -> None:
        self.distance, self.margin = distance, margin
        self._batch, self._span, self._leaves = batch, span, leaves
        self._is_full = span == (0, batch.labels.shape[0])
        self.labels, self._rows = self._slice(batch.labels), self._slice(batch.embeddings)
        self.ids = None if batch.ids is None else self._slice(batch.ids)
        (self.size, self.dimension), self.reference_labels = batch.references.shape, batch.reference_labels
        self._graph = batch.graph and not leaves  # selectors read without a graph what formulas share
        self._with_matrix, self._exact = with_matrix, batch.exact
        self._only_class = batch.items is None and batch.taken is None  # whether all but the class are negatives
        self._leaves_of_columns: list[_FormulaLeaf] = []

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

    @property
    def rounds(self) -> bool:
        """Return whether rounding may have changed `to_negatives`, in a way that can be looked at."""
        return self._rounded is not None

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
        if self._rounded is not None:
            self._rounded.settle(limits)

    def settle_between(self, low: Tensor, high: Tensor) -> None:
        """Make `to_negatives` exact where it may lie between the squared limits `(B, 1)`."""
        if self._rounded is not None:
            self._rounded.settle_between(low, high)

    def nearest_negatives(self, number: int, *, farthest: bool = False) -> Tensor:
        """Columns `(B, number)` of the nearest, or farthest, negatives by exact distance; the lowest of tied ones.

        There must be a reference; an anchor with fewer negatives gets columns that mean nothing.
        """
        if self._rounded is not None:
            return self._rounded.nearest(number, farthest=farthest)
        distances = self.to_negatives
        if farthest:  # nearest first in -D; what is no negative, at -inf, must come last instead
            distances = torch.threshold(distances.neg(), torch.finfo(distances.dtype).min, torch.inf)
        return nearest_few(distances, number)

    @lazy
    def to_nearest(self) -> Tensor:
        """Squared distance `(B, 1)` to the nearest negative, by differences; infinite without one.

        There must be a reference.
        """
        self.settle_nearest(None)
        return self.to_negatives.amin(dim=1, keepdim=True)

    def settle_nearest(self, penalty: Tensor | None) -> None:
        """Make `to_negatives` exact where rounding might decide which negative of a set is the nearest."""
        if self._rounded is not None:
            self._rounded.settle_smallest(penalty)

    def nearest_beyond(self, low: Tensor, number: int) -> SelectedItems:
        """The `number` nearest negatives strictly beyond each squared distance of `low (B, S)`, `(B, S number)`."""
        self.settle_negatives(low)
        squared, chosen_columns = self.to_negatives, []
        for slot in range(low.shape[1]):
            # The difference keeps the order and is 0 only for equal numbers; what is not beyond becomes infinite.
            ahead = torch.threshold_(squared - low[:, slot : slot + 1], 0, torch.inf)
            if self._rounded is not None:
                chosen_columns.append(self._rounded.nearest_of(ahead, number))
            else:
                chosen_columns.append(nearest_few(ahead, number))
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

    # What follows is differentiable.

    @lazy
    def anchors(self) -> Tensor:
        """The anchors `(B, d)`."""
        return self._rows.detach().requires_grad_() if self._leaves else self._rows

    @lazy
    def references(self) -> Tensor:
        """The references `(M, d)`."""
        return self._batch.references.detach().requires_grad_() if self._leaves else self._batch.references

    @lazy
    def reference_squares(self) -> Tensor:
        """Squared norms `(M,)` of the references."""
        squares = self._batch.reference_squares
        return squares.detach().requires_grad_() if self._leaves else squares

    @lazy
    def matrix(self) -> Tensor:
        """Distances `(B, M)` to the negatives in the loss's distance; infinite for all that are none."""
        if self._leaves:
            return from_squared(self.to_negatives, self.distance)
        with torch.set_grad_enabled(self._graph):
            return from_squared(self._squared if self._with_matrix else self._product(), self.distance)

    def to_set(self, penalty: Tensor | None) -> Tensor:
        """`matrix` with a penalty `(B, M)` of 0 or infinity added, whose gradient is 0 where that is infinite."""
        if not self._leaves:
            return self.matrix if penalty is None else self.matrix + penalty
        if penalty is None:
            matrix = self.matrix
        elif self.distance == "euclidean":
            matrix = self.matrix + penalty
        else:  # in one pass
            matrix = torch.add(penalty, self.to_negatives, alpha=0.5 if self.distance == "cosine" else 1)
        self._dense = matrix.detach().requires_grad_()
        return self._dense

    def distances_to(self, columns: Tensor) -> Tensor:
        """Distances `(B, S)` to any columns in the loss's distance."""
        target = self._same_class_distances if columns is self.same_class_columns else self._squared_to(columns)
        distances = from_squared(target.squared, self.distance)
        if self._leaves:
            distances = distances.detach().requires_grad_()
            self._leaves_of_columns.append(_FormulaLeaf(target, distances))
        return distances

    def between(self, columns: Tensor, others: Tensor) -> Tensor:
        """Distances `(B, S)` between two references of each slot, in the loss's distance."""
        return distances_between(self.references[columns], self.references[others], distance=self.distance)

    def between_all(self, columns: Tensor) -> Tensor:
        """Distances `(B, S, M)` between the references of each slot and all references, in the loss's distance."""
        rows = self.references[columns].flatten(0, 1)
        squared = squared_distances(rows, self.references)
        if self._batch.exact:
            with torch.no_grad():
                exact = _squared_differences(rows, self.references, None)
            squared = _with_values(squared, exact)
        return from_squared(squared, self.distance).reshape(*columns.shape, self.size)

    def add_gradients(self, total: Tensor, parameters: Sequence[Tensor], sums: Gradients) -> None:
        """Add the gradient of `total` with respect to rows and parameters to `sums`; for a block of leaves."""
        if not total.requires_grad:
            return
        names = ("anchors", "references", "reference_squares", "_dense")
        rows = [self.__dict__[name] for name in names if name in self.__dict__]
        leaves = [*rows, *(listed.distances for listed in self._leaves_of_columns), *parameters]
        # Autograd compares nothing: a dict by identity brings each gradient back to its leaf.
        grads = dict(zip(map(id, leaves), torch.autograd.grad(total, leaves, allow_unused=True), strict=True))

        def grad_of(name: str) -> Tensor | None:
            return grads[id(self.__dict__[name])] if name in self.__dict__ else None

        if (of_anchors := grad_of("anchors")) is not None:
            self._slice(sums.anchors).add_(of_anchors)
        if (of_references := grad_of("references")) is not None and sums.learned:
            sums.references.add_(of_references[: sums.learned])
        if (of_squares := grad_of("reference_squares")) is not None:
            of_squares = of_squares[: sums.learned]
            sums.squares = of_squares if sums.squares is None else sums.squares.add_(of_squares)
        of_matrix = grad_of("_dense")
        # From here on gradients are those of squared distances, but for the factor 1 / 2 of other distances.
        scale = 1.0 if self.distance == "squared_euclidean" else 0.5
        wide = None
        for listed in self._leaves_of_columns:
            grad, source = grads[id(listed.distances)], listed.columns_distances
            if grad is None or self.size == 0:
                continue
            grad = self._per_squared(grad, listed.distances)
            if self._by_products(source.columns):
                if wide is None:
                    wide = torch.zeros((grad.shape[0], self.size), dtype=torch.float64, device=grad.device)
                wide.scatter_add_(1, source.columns, grad.double())
            else:
                self._add_differences(source, grad if scale == 0.5 else 2 * grad, sums)
        if wide is not None:
            if sums.precise is None:
                sums.precise = ProductGradients(self._batch.precise_products, learned=sums.learned, scale=scale)
            sums.precise.add(wide, *self._span)
        if of_matrix is not None and self.size:
            if sums.products is None:
                sums.products = ProductGradients(self._batch.products, learned=sums.learned, scale=scale)
            of_matrix = self._per_squared(of_matrix, self._dense)
            # A sum hands its gradient down as a view of one number.
            sums.products.add(self._hide(of_matrix.contiguous(), 0.0), *self._span)
        for parameter, parameter_sum in zip(parameters, sums.parameters, strict=True):
            if (of_parameter := grads[id(parameter)]) is not None:
                parameter_sum.add_(of_parameter)

    @lazy
    def _same_class_distances(self) -> _ColumnDistances:
        with torch.set_grad_enabled(self._graph):
            return self._squared_to(self.same_class_columns)

    @lazy
    def _squared(self) -> Tensor:
        with torch.set_grad_enabled(self._graph and self._with_matrix):
            return self._product()

    @lazy
    def _rounded(self) -> Rounded | None:
        """`to_negatives` with what rounding may have done to it; None where it is exact, or cannot be looked at."""
        if self._exact or self.size == 0 or torch.compiler.is_compiling():
            return None
        if "_squared" not in self.__dict__ and self.labels.shape[0] * self.size * self.dimension <= MAX_EXACT:
            self._exact = True  # from now on: nobody has asked for them yet
            return None
        # Of the rows, not of this block: a block that is part of itself would outlive the next ones.
        exact = partial(_squared_of_pairs, self._rows, self._batch.references)
        return Rounded(self.to_negatives, *self._batch.products.bounds(*self._span), exact)

    def _product(self) -> Tensor:
        """Squared distances `(B, M)` to the negatives, infinite for all that are none."""
        if self.size == 0:
            return self._rows @ self._batch.references.T
        if not self._exact:
            squared = self._batch.products.squared_distances(*self._span)
        elif torch.is_grad_enabled():
            squared = _with_values(self._batch.products.squared_distances(*self._span), self._by_differences(None))
        else:
            squared = self._by_differences(None)
        return self._hide(squared, torch.inf)

    def _by_differences(self, columns: Tensor | None) -> Tensor:
        """Squared distances to some columns `(B, S)`, or to all `(B, M)`, by differences; without a graph."""
        with torch.set_grad_enabled(False):
            return _squared_differences(self._rows, self._batch.references, columns)

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

    def _squared_to(self, columns: Tensor) -> _ColumnDistances:
        anchors, references = self._rows, self._batch.references
        if self.size == 0:
            return _ColumnDistances(columns, None, anchors.new_zeros(columns.shape))
        if columns.shape[1] * self.dimension <= max(self.size, MAX_STORED_DIFFERENCES):
            # No matrix product here: it loses the digits that separate near-duplicates.
            differences = _differences(anchors, references, columns)
            return _ColumnDistances(columns, differences, row_sums(differences.square()))
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return _ColumnDistances(columns, None, self._by_differences(columns))
        # Too many differences to keep: the gradient is that of a product.
        squared = self._batch.precise_products.squared_distances(*self._span).gather(1, columns).to(anchors.dtype)
        if torch.compiler.is_compiling():
            return _ColumnDistances(columns, None, squared)
        return _ColumnDistances(columns, None, _with_values(squared, self._by_differences(columns)))

    def _by_products(self, columns: Tensor) -> bool:
        """Return whether a product with all references takes less time than the differences to these columns `(B,
        S)`."""
        slots = columns.shape[1]
        return (
            slots * self.dimension > max(self.size, MAX_STORED_DIFFERENCES)
            and slots * PRODUCTS_PER_DIFFERENCE > self.size
        )

    def _add_differences(self, source: _ColumnDistances, grad: Tensor, sums: Gradients) -> None:
        """Add the gradient of half the squared distances of a list, `(B, S)`; differences not kept are taken again."""
        anchors = self._slice(sums.anchors)
        if source.differences is not None:
            self._add_pulls(source.columns, grad[:, :, None] * source.differences, anchors, sums)
            return
        numbers = device.numbers_at_once(grad, cached=DIFFERENCES_AT_ONCE)
        step = max(1, numbers // max(1, grad.shape[1] * self.dimension))
        for start in range(0, grad.shape[0], step):
            some = slice(start, start + step)
            columns = source.columns[some]
            pulls = _differences(self._rows[some], self._batch.references, columns).mul_(grad[some, :, None])
            self._add_pulls(columns, pulls, anchors[some], sums)

    def _add_pulls(self, columns: Tensor, pulls: Tensor, anchors: Tensor, sums: Gradients) -> None:
        """Add `pulls (B, S, d)` to the references in these columns `(B, S)`, and take them from the sums of the anchors
        `(B, d)`."""
        anchors.sub_(pulls.sum(dim=1))
        if learned := sums.learned:
            columns, pulls = columns.flatten(), pulls.flatten(0, 1)
            if learned < self.size:
                pulls = pulls * (columns < learned)[:, None]
                columns = columns.clamp_max(learned - 1)
            sums.references.index_add_(0, columns, pulls)

    def _per_squared(self, grad: Tensor, distances: Tensor) -> Tensor:
        """The gradient of squared distances given that of distances; without the factor 1 / 2 of other distances."""
        if self.distance != "euclidean":
            return grad
        distances = torch.threshold(distances.detach(), 0, torch.inf)  # at distance 0 the gradient is 0
        return torch.div(grad, distances, out=distances)


class _ColumnDistances(NamedTuple):
    """Squared distances `(B, S)` to some columns, and the differences `(B, S, d)` y - x they come from, if they do."""

    columns: Tensor
    differences: Tensor | None
    squared: Tensor


class _FormulaLeaf(NamedTuple):
    """A list, and the leaf that a formula reads: its distances `(B, S)`."""

    columns_distances: _ColumnDistances
    distances: Tensor


def _squared_differences(anchors: Tensor, references: Tensor, columns: Tensor | None) -> Tensor:
    """Squared distances from anchors `(B, d)` to some references `(B, S)`, or to all `(B, M)`, some anchors at once."""
    dimension, slots = anchors.shape[1], references.shape[0] if columns is None else columns.shape[1]
    numbers = device.numbers_at_once(anchors, cached=DIFFERENCES_AT_ONCE)
    step, size = max(1, numbers // max(1, slots * dimension)), anchors.shape[0]
    if size > step:
        starts = range(0, size, step)
        chunks = ((anchors[i : i + step], None if columns is None else columns[i : i + step]) for i in starts)
        return torch.cat([_squared_differences(rows, references, some) for rows, some in chunks])
    others = references if columns is None else _gathered(references, columns)
    return row_sums(_squares(others, anchors[:, None]))


def _squares(a: Tensor, b: Tensor) -> Tensor:
    """(a - b)^2 of each entry, in one pass."""
    squares: Tensor = torch.ops.aten.mse_loss(a, b, 0)
    return squares


def _gathered(references: Tensor, columns: Tensor) -> Tensor:
    """The references `(B, S, d)` in these columns `(B, S)`."""
    return torch.embedding(references, columns)  # many times faster than an index in brackets


def _differences(anchors: Tensor, references: Tensor, columns: Tensor) -> Tensor:
    """y - x `(B, S, d)` for the anchors x `(B, d)` and the references y in these columns `(B, S)`."""
    return _gathered(references, columns).sub_(anchors[:, None])


def _with_values(differentiable: Tensor, exact: Tensor) -> Tensor:
    """The exact values, with the gradient of the differentiable ones."""
    return differentiable - differentiable.detach() + exact


@torch.no_grad()
def _squared_of_pairs(anchors: Tensor, references: Tensor, rows: Tensor, others: Tensor) -> Tensor:
    """Squared distances `(K,)` of these rows of the anchors to these references, by differences."""
    step = max(1, device.numbers_at_once(anchors, cached=DIFFERENCES_AT_ONCE) // anchors.shape[1])
    if len(rows) > step:
        chunks = (slice(start, start + step) for start in range(0, len(rows), step))
        return torch.cat([_squared_of_pairs(anchors, references, rows[chunk], others[chunk]) for chunk in chunks])
    return row_sums(_squares(references.index_select(0, others), anchors.index_select(0, rows)))
