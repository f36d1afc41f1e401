"""What a formula sees of the distance matrix, a block of its rows, and what it gives back: terms, or their sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from trivet.geometry import from_squared
from trivet.lazy import lazy
from trivet.mining.block import Block, Choice, Gradients
from trivet.mining.draws import Draws
from trivet.mining.given import Given
from trivet.mining.selection import Selectors
from trivet.mining.trimming import Cut

MOST_AGAIN = 2**18  # differences that are taken again, so that one list holds all


class Rows:
    """What a formula sees: B anchors, their chosen positives and negatives, and differentiable distances to them.

    Attributes:
        labels: `(B,)` labels of the anchors.
        ids: `(B,)` the items of the anchors, or None.
        reference_labels: `(M,)` labels of the references.
        paired: whether negative slot s belongs to positive slot s; otherwise negatives are a set per anchor.
        positive_chosen: `(B, S)` bool, which positive slots are filled.
    """

    def __init__(self, block: Block, strategy: Selectors | Given, draws: Draws | None) -> None:
        with torch.no_grad():
            self.selection = selection = strategy.select(block, draws)
        self.labels, self.ids = block.labels, block.ids
        self.reference_labels = block.reference_labels
        self.paired = isinstance(selection.negatives, Choice)
        self.positive_chosen = selection.positives.chosen
        self._block = block
        self._zeros_settled = False

    @property
    def candidates(self) -> tuple[Tensor, Tensor]:
        """Which slots of the anchor's class hold a positive, `(B, L)` bool, and how many negatives there are, `(B, 1)`.

        Chosen or not.
        """
        return self._block.positive, self._block.negatives

    @lazy
    def to_positive(self) -> Tensor:
        """Distances `(B, S)` from each anchor to its positives; where none is chosen the value means nothing."""
        if self._pairs is not None:
            return self._pairs[0]
        return self._block.listed(self.selection.positives.index)

    @lazy
    def to_negative(self) -> Tensor:
        """Distances `(B, S)` to the negative of each positive slot if paired; where none is chosen they mean nothing.

        Otherwise `(B, M)` to all references, infinite for those that are not chosen negatives.
        """
        block, negatives = self._block, self.selection.negatives
        if isinstance(negatives, Choice):
            if self._pairs is not None:
                return self._pairs[1]
            if block.size and negatives.index.shape[1] * block.dimension > max(block.size, 4096):
                rounded = block.to_set(None).gather(1, negatives.index)
                exact = from_squared(block.squared_to(negatives.index), block.distance)
                return (rounded - rounded.detach() + exact).where(negatives.chosen, 0)
            return block.listed(negatives.index)
        # A root multiplies what rounding makes of a distance of 0.
        if block.distance == "euclidean" and not self._zeros_settled:
            block.settle_negatives(torch.zeros_like(block.labels[:, None], dtype=block.references.dtype))
        return block.to_set(negatives.penalty)

    def settle(self, limits: Tensor) -> None:
        """Make `to_negative` exact where rounding might decide on which side of the distances `limits (B, S)` it lies.

        For a formula with a hinge or a case at a limit, of a set of negatives; before `to_negative` is read.
        """
        if not self.paired:
            limits = limits.detach()
            if self._block.distance == "euclidean":
                limits = pad(limits.clamp_min(0).square(), (0, 1))  # with 0, for `to_negative`
                self._zeros_settled = True
            self._block.settle_negatives(2 * limits if self._block.distance == "cosine" else limits)

    def settle_nearest(self) -> None:
        """Make `to_negative` exact for the nearest of a set; before it is read."""
        if not isinstance(self.selection.negatives, Choice):
            self._block.settle_nearest(self.selection.negatives.penalty)

    @lazy
    def _pairs(self) -> tuple[Tensor, Tensor] | None:
        """Distances to positives and to negatives, `(B, S)` each, from one list, where both are short."""
        positives, negatives = self.selection.positives, self.selection.negatives
        if not isinstance(negatives, Choice):
            return None
        numbers = 2 * positives.index.shape[1] * self._block.dimension
        again = positives.index is self._block.own_columns  # these differences are known, or will be
        if numbers > 4096 or (again and numbers * len(self.labels) > MOST_AGAIN):
            return None
        columns = torch.cat([positives.index, negatives.index], dim=1)
        to_positive, to_negative = self._block.listed(columns).tensor_split(2, dim=1)
        return to_positive, to_negative

    @lazy
    def negative_chosen(self) -> Tensor:
        """Which slots `(B, S)` have a negative if paired, else which references `(B, M)` are chosen negatives."""
        negatives = self.selection.negatives
        return negatives.chosen if isinstance(negatives, Choice) else negatives.chosen(self._block)

    @property
    def negative_count(self) -> Tensor:
        """How many negatives each anchor has, `(B,)`."""
        negatives = self.selection.negatives
        return negatives.chosen.sum(dim=1) if isinstance(negatives, Choice) else negatives.count[:, 0]

    @lazy
    def negative_total(self) -> Tensor:
        """The sum `(B,)` of the distances to the chosen set of negatives, 0 without one; not for paired negatives."""
        return finite_sums(self.to_negative)

    @property
    def anchor_norms(self) -> Tensor:
        """Squared Euclidean norms `(B,)` of the anchors, differentiable."""
        return self._block.anchors.square().sum(dim=1)

    @lazy
    def reference_norms(self) -> Tensor:
        """Squared Euclidean norms `(M,)` of the references, differentiable."""
        return self._block.reference_squares

    @property
    def positive_norms(self) -> Tensor:
        """Squared Euclidean norms `(B, S)` of the positives, differentiable; where none is chosen they mean nothing."""
        index = self.selection.positives.index
        return (
            self.reference_norms[index] if len(self.reference_norms) else self._block.references.new_zeros(index.shape)
        )

    def add_gradients(self, total: Tensor, parameters: Sequence[Tensor], sums: Gradients) -> None:
        """Add the gradient of `total`, which was computed from these rows, to `sums`."""
        self._block.add_gradients(total, parameters, sums)

    @property
    def positive_to_negative(self) -> Tensor:
        """Distances from each chosen positive to its negative: `(B, S)` if paired, else `(B, S, M)`."""
        block, positives, negatives = self._block, self.selection.positives, self.selection.negatives
        shape = positives.index.shape
        if block.size == 0:
            return block.references.new_zeros(shape if self.paired else (*shape, 0))
        if isinstance(negatives, Choice):
            return block.between(positives.index, negatives.index)
        return block.between_all(positives.index)


def finite_sums(distances: Tensor) -> Tensor:
    """The sum `(B,)` of the finite entries of each row `(B, M)`."""
    if distances.shape[1] == 0:
        return distances.sum(dim=1)
    total: Tensor = _FiniteSum.apply(distances)
    return total


class _FiniteSum(torch.autograd.Function):
    """In float arithmetic: a mask takes ten times as long on a CPU."""

    @staticmethod
    def forward(ctx: Any, distances: Tensor) -> Tensor:
        ctx.save_for_backward(distances)
        return distances.nan_to_num(posinf=0.0).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (distances,) = ctx.saved_tensors
        return torch.lt(distances, torch.inf, out=torch.empty_like(distances)) * grad[:, None]


@dataclass(frozen=True)
class RowTerms:
    """The terms of a loss, one by one.

    Attributes:
        values: `(B, T)` the terms; where `chosen` is False the value means nothing.
        chosen: `(B, T)` bool.
        parts: how many parts a term is the sum of.
        active: `(B, T)` how many parts of a term are not zero; None where a term is one part.
        pull: `(B, T)` what the positive brings to a term, by which positives are trimmed; infinitely low for a term
            without one. None if the terms have no such part.
        push: `(B, T)` what remains of a term without its positive; None if the whole term goes.
    """

    values: Tensor
    chosen: Tensor
    parts: int = 1
    active: Tensor | None = None
    pull: Tensor | None = None
    push: Tensor | None = None

    def trim(self, cut: Cut, *, positives_only: bool) -> RowTerms:
        """Without the terms, or positives, that do not survive the cut."""
        if not positives_only:
            return replace(self, chosen=self.chosen & cut.keep(self.values.detach(), self.chosen))
        assert self.pull is not None
        pulled = self.chosen & (self.pull.detach() > -torch.inf)
        gone = pulled & ~cut.keep(self.pull.detach(), pulled)
        if self.push is None:
            return replace(self, chosen=self.chosen & ~gone)
        active = None if self.active is None else torch.where(gone, (self.push.detach() > 0).long(), self.active)
        return replace(self, values=torch.where(gone, self.push, self.values), active=active)

    @property
    def largest(self) -> Tensor:
        """The largest chosen term, a scalar without a graph; infinitely low if none is chosen."""
        values = self.values.detach().where(self.chosen, -torch.inf)
        return values.amax() if values.numel() else values.new_full((), -torch.inf)

    def hardest(self, *, here: Tensor) -> RowTerms:
        """Only the terms equal to the largest; none at all unless `here`, a bool scalar, is True."""
        return replace(self, chosen=self.chosen & (self.values.detach() >= self.largest) & here)

    @lazy
    def total(self) -> Tensor:
        """The sum of the chosen terms, differentiable."""
        return self.values.masked_fill(~self.chosen, 0).sum()

    @lazy
    def count(self) -> Tensor:
        """How many are chosen."""
        return self.chosen.sum()

    @lazy
    def count_active(self) -> Tensor:
        """How many parts of the chosen terms are not zero."""
        if self.active is None:
            return ((self.values.detach() > 0) & self.chosen).sum()
        return self.active.where(self.chosen, 0).sum()

    @property
    def used(self) -> Tensor:
        """The anchors `(B,)` that have a term."""
        return self.chosen.any(dim=1)

    def detach(self) -> RowTerms:
        """What a record needs of them."""
        return replace(self, values=self.values.detach(), pull=None, push=None)


@dataclass(frozen=True)
class RowSum:
    """The terms of a block added up.

    Attributes:
        total: their sum, differentiable.
        counts: `(B,)` how many each anchor has.
        active: how many of their parts are not zero: the sum of these tensors.
        parts: how many parts a term is the sum of.
    """

    total: Tensor
    counts: Tensor
    active: Tensor | tuple[Tensor, ...]
    parts: int = 1

    @lazy
    def count(self) -> Tensor:
        """How many there are."""
        return self.counts.sum()

    @lazy
    def count_active(self) -> Tensor:
        """How many of their parts are not zero."""
        parts = (self.active,) if isinstance(self.active, Tensor) else self.active
        first, *rest = (part.sum(dtype=torch.float64).long() for part in parts)
        return sum(rest, first)

    @property
    def used(self) -> Tensor:
        """The anchors `(B,)` that have a term."""
        return self.counts > 0

    def detach(self) -> RowSum:
        """What a record needs of it."""
        return replace(self, total=self.total.detach())
