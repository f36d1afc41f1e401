"""Distances of a block of anchors as formulas read them, and the gradients of these distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trivet.distances import ProductGradients, Products, device, distances_between, from_squared
from trivet.distances.exact_order import RoundedDistances
from trivet.mining.batch import Batch
from trivet.mining.distance_block import (
    DIFFERENCES_AT_ONCE,
    MAX_STORED_DIFFERENCES,
    ColumnDistances,
    DistanceBlock,
    differences_to,
    squared_differences,
    squared_of_pairs,
    with_values,
)
from trivet.mining.index_tuples import IndexTuples
from trivet.mining.strategy import Strategy
from trivet.runtime.lazy import lazy

PRODUCTS_PER_DIFFERENCE = 32  # products of rows, in float64, in the time in which two rows are subtracted


@dataclass
class Gradients:
    """Sums over the blocks of a batch.

    Attributes:
        references: `(L, d)` of those that need a gradient, the first ones; the tensor of the anchors where they
            are these.
        products, precise: what comes by matrix products, and in float64; made when they are needed.
    """

    anchors: Tensor  # (N, d)
    references: Tensor
    parameters: list[Tensor]  # one for each parameter of the formula
    products: ProductGradients | None = None
    precise: ProductGradients | None = None
    squares: Tensor | None = None  # of the squared norms of the references `(L,)`; likewise

    @property
    def learned(self) -> int:
        """Return how many references need a gradient, the first ones."""
        return self.references.shape[0]

    def finish(self, references: Tensor) -> None:
        """Add the rest to the sums of anchors and references."""
        if self.squares is not None:
            self.references.addcmul_(references[: self.learned], self.squares[:, None], value=2)
        for product in (self.products, self.precise):
            if product is not None:
                product.add_to(self.anchors, self.references)


class _FormulaLeaf(NamedTuple):
    """A list, and the leaf that a formula reads: its distances `(B, S)`."""

    columns_distances: ColumnDistances
    distances: Tensor


class FormulaBlock(DistanceBlock):
    """A block whose distances are differentiable.

    `distances_to`, `matrix`, `anchors` and `references` are differentiable in one of two ways. In a batch with a graph,
    by ordinary autograd. In a detached batch, with `leaves=True`, each is a leaf of its own, and `add_gradients`
    carries the gradients of the leaves on to the rows: the matrix products of the gradient then add to one buffer for
    all blocks.
    """

    def __init__(
        self, batch: Batch, span: tuple[int, int], strategy: Strategy | IndexTuples, *, leaves: bool = False
    ) -> None:
        super().__init__(
            batch,
            span,
            distance=strategy.distance,
            margin=strategy.margin,
            with_matrix=strategy.selects_set,
            graph=batch.graph and not leaves,
        )
        self._leaves = leaves
        self._leaves_of_columns: list[_FormulaLeaf] = []

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
        products = Products(rows, self.references)
        squared = products.squared_distances(0, len(rows))
        with torch.no_grad():
            if self._batch.exact:
                exact = squared_differences(rows, self.references, None)
            elif self.distance == "euclidean" and not torch.compiler.is_compiling():
                # A root multiplies what rounding makes of a distance of 0.
                pairs = partial(squared_of_pairs, rows, self.references)
                rounded = RoundedDistances(squared.detach().clone(), pairs, *products.bounds(0, len(rows)))
                rounded.settle(rows.new_zeros(len(rows), 1))
                exact = rounded.values
            else:
                exact = None
        squared = squared if exact is None else with_values(squared, exact)
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

    def _by_products(self, columns: Tensor) -> bool:
        """Return whether a product with all references takes less time than the differences to these columns."""
        slots = columns.shape[1]
        return (
            slots * self.dimension > max(self.size, MAX_STORED_DIFFERENCES)
            and slots * PRODUCTS_PER_DIFFERENCE > self.size
        )

    def _add_differences(self, source: ColumnDistances, grad: Tensor, sums: Gradients) -> None:
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
            pulls = differences_to(self._rows[some], self._batch.references, columns).mul_(grad[some, :, None])
            self._add_pulls(columns, pulls, anchors[some], sums)

    def _add_pulls(self, columns: Tensor, pulls: Tensor, anchors: Tensor, sums: Gradients) -> None:
        """Add `pulls (B, S, d)` to the references in these columns, and take them from the sums of the anchors."""
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
