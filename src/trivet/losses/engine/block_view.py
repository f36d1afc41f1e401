"""Input and output of a formula: a block of rows of the distance matrix in, terms or their sum out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from trivet.distances import device
from trivet.losses.engine.formula_block import FormulaBlock, Gradients
from trivet.mining.counter_rng import CounterRng
from trivet.mining.index_tuples import IndexTuples
from trivet.mining.relations import Unlabelled
from trivet.mining.selected_set import Bands, SelectedItems
from trivet.mining.strategy import Strategy
from trivet.mining.trimming import Cut
from trivet.runtime.lazy import lazy

MAX_REPEATED = 2**18  # differences that are taken again, so that one list holds all


class BlockView:
    """Input of a formula: B anchors, their chosen positives and negatives, and differentiable distances to them.

    Attributes:
        labels: `(B,)` labels of the anchors.
        ids: `(B,)` the items of the anchors, or None.
        reference_labels: `(M,)` labels of the references.
        paired: whether negative slot s belongs to positive slot s; otherwise negatives are a set per anchor.
        positive_chosen: `(B, S)` bool, which positive slots are filled.
        all_chosen: whether it is known that all are, with their negatives if paired, so that nothing need be masked.
        reach: the distances a formula settled; None before, and for a formula without any.
    """

    def __init__(
        self,
        block: FormulaBlock,
        strategy: Strategy | IndexTuples,
        rng: CounterRng | None,
        *,
        cut: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        with torch.set_grad_enabled(False):
            self.selection = selection = strategy.select(block, rng)
        self.labels, self.ids = block.labels, block.ids
        self.reference_labels = block.reference_labels
        self.paired = isinstance(selection.negatives, SelectedItems)
        self.positive_chosen, self.all_chosen = selection.positives.chosen, selection.positives.all_chosen
        self.reach: Tensor | None = None
        self._block = block
        self._cut = cut  # between which of its values a hinge at the reach must be exact too, for trimming

    @property
    def reference_numbers(self) -> Tensor:
        """The numbers `(K,)` of the classes or tags of the references; one may come several times."""
        return self._block.reference_numbers

    @property
    def candidates(self) -> tuple[Tensor, Tensor | int]:
        """Slots of the class that hold a positive, `(B, L)` bool, and how many negatives there are, `(B, 1)` or all."""
        return self._block.positive, self._block.negative_count

    @property
    def matched(self) -> tuple[Tensor, bool]:
        """Anchors with a positive and a negative to choose from, `(B, 1)` bool, and whether that is known of all."""
        block = self._block
        if block.slots_filled and block.all_opposed and block.same_class.shape[1]:
            return block.all_true(1), True
        return block.positive.any(dim=1, keepdim=True) & (block.negatives > 0), False

    @lazy
    def to_positive(self) -> Tensor:
        """Distances `(B, S)` from each anchor to its positives; where none is chosen the value means nothing."""
        if self._pairs is not None:
            return self._pairs[0]
        return self._block.distances_to(self.selection.positives.index)

    @lazy
    def to_negative(self) -> Tensor:
        """Distances `(B, S)` to the negative of each positive slot if paired; where none is chosen they mean nothing.

        Otherwise `(B, M)` to all references, infinite for those that are not chosen negatives.
        """
        block, negatives = self._block, self.selection.negatives
        if isinstance(negatives, SelectedItems):
            if self._pairs is not None:
                return self._pairs[1]
            return block.distances_to(negatives.index)
        # A root multiplies what rounding makes of a distance of 0.
        if block.distance == "euclidean" and self.reach is None and self.rounds:
            block.settle_negatives(torch.zeros_like(block.labels[:, None], dtype=block.references.dtype))
        return block.to_set(negatives.penalty)

    @lazy
    def relevance_to_positive(self) -> Tensor:
        """Relevance `(B, S)` of the positives to the anchors; where none is chosen it means nothing."""
        return self._relevance_to(self.selection.positives)

    @lazy
    def relevance_to_negative(self) -> Tensor:
        """Relevance `(B, S)` of the negatives to the anchors if paired, else `(B, M)` of all references.

        0 for what the relation has no grade of.
        """
        negatives = self.selection.negatives
        return self._relevance_to(negatives) if isinstance(negatives, SelectedItems) else self._relevance

    def _relevance_to(self, items: SelectedItems) -> Tensor:
        if self._relevance.shape[1] == 0:
            return self._relevance.new_zeros(items.index.shape)
        return self._relevance.gather(1, items.index)

    @lazy
    def _relevance(self) -> Tensor:
        """Relevance `(B, M)` of all references to the anchors.

        Raises:
            ValueError: if it does not lie in [0, 1], or nothing is known of it.
        """
        relation = self._block.relation
        if isinstance(relation, Unlabelled):
            raise ValueError(
                "labels must be given to a loss that reads how relevant items are: got indices alone; pass labels too."
            )
        grades = relation.relevance(self.labels, self.reference_labels).nan_to_num(nan=0.0)
        if torch.compiler.is_compiling():
            torch._assert_async(((grades >= 0) & (grades <= 1)).all(), "relevance must lie in [0, 1] for this loss.")
        elif grades.numel():
            low, high = device.read_extremes(grades.flatten())
            if low < 0 or high > 1:
                raise ValueError(
                    f"relevance must lie in [0, 1] for this loss: got {low:g} to {high:g}; divide by the largest."
                )
        return grades.to(self._block.references.dtype)

    @property
    def rounds(self) -> bool:
        """Return whether rounding may have changed `to_negative`, of a set of negatives."""
        return not self.paired and self._block.rounded.exact is not None

    def settle(self, reach: Tensor) -> Tensor:
        """Make `to_negative` exact where rounding might decide on which side of the distances `reach (B, S)` it lies.

        For a formula with a hinge or a case there, of a set of negatives; before `to_negative` is read. Infinitely low
        where a slot is empty. Returned as it is.
        """
        if self._settle_between(reach):
            limits = self._squared(reach)
            if self._block.distance == "euclidean":
                limits = pad(limits, (0, 1))  # with 0, for `to_negative`
            self._block.rounded.settle(limits)
        return reach

    def settle_each(self, reach: Tensor) -> Tensor:
        """Make `to_negative` exact at a distance for each negative, `(B, M)`; see `settle`."""
        if self._settle_between(reach):
            limits = self._squared(reach)
            self._block.rounded.settle_between(limits, limits)
            if self._block.distance == "euclidean":
                self._block.rounded.settle(torch.zeros_like(limits[:, :1]))
        return reach

    def _settle_between(self, reach: Tensor) -> bool:
        """Settle what lies between the ends of the cut, and return whether rounding matters."""
        self.reach = reach
        if self.rounds and self._cut is not None:
            low, high = (self._squared(reach - value) for value in reversed(self._cut))
            self._block.rounded.settle_between(low, high)
        return self.rounds

    def _squared(self, limits: Tensor) -> Tensor:
        if self._block.distance == "euclidean":
            return limits.detach().clamp_min(0).square()
        return 2 * limits.detach() if self._block.distance == "cosine" else limits.detach()

    def settle_nearest(self) -> None:
        """Make `to_negative` exact for the nearest of a set; before it is read."""
        if not isinstance(self.selection.negatives, SelectedItems):
            self._block.rounded.settle_smallest(self.selection.negatives.penalty)

    @lazy
    def _pairs(self) -> tuple[Tensor, Tensor] | None:
        """Distances to positives and to negatives, `(B, S)` each, from one list, where both are short."""
        positives, negatives = self.selection.positives, self.selection.negatives
        if not isinstance(negatives, SelectedItems):
            return None
        rows, slots = positives.index.shape
        numbers = 2 * slots * self._block.dimension
        again = positives.index is self._block.same_class_columns  # these differences are known, or will be
        if numbers > 4096 or (again and numbers * rows > MAX_REPEATED):
            return None
        columns = torch.cat([positives.index, negatives.index], dim=1)
        to_positive, to_negative = self._block.distances_to(columns).view(rows, 2, slots).unbind(dim=1)
        return to_positive, to_negative

    @lazy
    def negative_chosen(self) -> Tensor:
        """Slots `(B, S)` that have a negative if paired, else references `(B, M)` that are chosen negatives."""
        negatives = self.selection.negatives
        return negatives.chosen if isinstance(negatives, SelectedItems) else negatives.chosen(self._block.to_negatives)

    @property
    def bands(self) -> Bands | None:
        """The bands of the positives, where each has a set of negatives of its own; otherwise None."""
        negatives = self.selection.negatives
        return None if isinstance(negatives, SelectedItems) else negatives.bands

    @property
    def triplet_chosen(self) -> Tensor:
        """Chosen triplets of a positive and a negative of a set, `(B, S, M)` bool; not for paired negatives."""
        negatives = self.selection.negatives
        assert not isinstance(negatives, SelectedItems)
        return self.positive_chosen[:, :, None] & negatives.of_positives(self._block.to_negatives)

    @property
    def positive_count(self) -> Tensor | int:
        """Positives of each anchor, `(B,)`, or one number if it is known that all have as many."""
        return self.positive_chosen.shape[1] if self.all_chosen else self.positive_chosen.sum(dim=1)

    @property
    def negative_count(self) -> Tensor | int:
        """Negatives of each anchor, `(B,)`, or one number if it is known that all have as many."""
        negatives = self.selection.negatives
        if isinstance(negatives, SelectedItems):
            return self.positive_count
        return negatives.count if isinstance(negatives.count, int) else negatives.count[:, 0]

    @property
    def opposed(self) -> Tensor | bool:
        """Anchors with a chosen negative, `(B, 1)`, or True if it is known that all have one."""
        count = self.negative_count
        if isinstance(count, int):
            return count > 0 or torch.zeros_like(self.labels[:, None], dtype=torch.bool)
        return (count > 0)[:, None]

    def once(self) -> BlockView:
        """These rows with each chosen item of an anchor in one slot: for a loss of the set of what was chosen.

        One positive comes in several slots where it has several negatives, and one negative where several positives do.
        """
        selection = self.selection
        positives, negatives = selection.positives, selection.negatives
        if not isinstance(negatives, SelectedItems) or positives.index.shape[1] < 2:
            return self
        _ = self.to_positive, self.to_negative  # the same for both
        rows = copy(self)
        rows.all_chosen = False
        rows.positive_chosen, rows.negative_chosen = (_first_of_each(each) for each in (positives, negatives))
        return rows

    def at_positives(self, values: Tensor, otherwise: float) -> Tensor:
        """The `values (B, S)` where a positive is chosen, elsewhere that number."""
        return values if self.all_chosen else values.masked_fill(~self.positive_chosen, otherwise)

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
        norms, index = self.reference_norms, self.selection.positives.index
        return norms[index] if len(norms) else norms.new_zeros(index.shape)

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
        if isinstance(negatives, SelectedItems):
            return block.between(positives.index, negatives.index)
        return block.between_all(positives.index)


def _first_of_each(choice: SelectedItems) -> Tensor:
    """Chosen slots `(B, S)` that hold an item that no earlier one of the anchor holds."""
    index, order = choice.index.masked_fill(~choice.chosen, -1).sort(dim=1, stable=True)
    first = index[:, 1:] != index[:, :-1]
    return choice.chosen.scatter(1, order[:, 1:], first) & choice.chosen


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
class LossTerms:
    """The terms of a loss, one by one.

    Attributes:
        active: `(B, T)` how many parts of a term are not zero, or whether its one part counts as such; None
            where that is what is above 0.
        pull: `(B, T)` what the positive brings to a term, by which positives are trimmed; infinitely low for a
            term without one. None if the terms have no such part.
    """

    values: Tensor  # (B, T) the terms; where `chosen` is False the value means nothing
    chosen: Tensor  # (B, T) bool
    components: int = 1  # how many parts a term is the sum of
    active: Tensor | None = None
    pull: Tensor | None = None
    push: Tensor | None = None  # (B, T) what remains of a term without its positive; None if the whole term goes
    all_chosen: bool = False  # whether it is known that all are chosen, so that nothing need be masked

    def trim(self, cut: Cut, *, positives_only: bool) -> LossTerms:
        """Without the terms, or positives, that do not survive the cut."""
        if not positives_only:
            return replace(self, chosen=self.chosen & cut.retained(self.values.detach(), self.chosen), all_chosen=False)
        assert self.pull is not None
        pulled = self.chosen & (self.pull.detach() > -torch.inf)
        gone = pulled & ~cut.retained(self.pull.detach(), pulled)
        if self.push is None:
            return replace(self, chosen=self.chosen & ~gone, all_chosen=False)
        active = None if self.active is None else torch.where(gone, (self.push.detach() > 0).long(), self.active)
        return replace(self, values=torch.where(gone, self.push, self.values), active=active)

    @property
    def largest(self) -> Tensor:
        """The largest chosen term, a scalar without a graph; infinitely low if none is chosen."""
        values = self.values.detach().where(self.chosen, -torch.inf)
        return values.amax() if values.numel() else values.new_full((), -torch.inf)

    def hardest(self, *, here: Tensor) -> LossTerms:
        """Only the terms equal to the largest; none at all unless `here`, a bool scalar, is True."""
        return replace(self, chosen=self.chosen & (self.values.detach() >= self.largest) & here, all_chosen=False)

    @lazy
    def total(self) -> Tensor:
        """The sum of the chosen terms, differentiable."""
        return (self.values if self.all_chosen else self.values.masked_fill(~self.chosen, 0)).sum()

    @lazy
    def count(self) -> Tensor | int:
        """The number of chosen ones."""
        return self.values.numel() if self.all_chosen else self.chosen.sum()

    @lazy
    def count_active(self) -> Tensor:
        """Return how many parts of the chosen terms are not zero."""
        if self.active is None:
            active = self.values.detach() > 0
            return (active if self.all_chosen else active & self.chosen).sum()
        return (self.active if self.all_chosen else self.active.where(self.chosen, 0)).sum()

    @property
    def used(self) -> Tensor:
        """The anchors `(B,)` that have a term."""
        return self.chosen.any(dim=1)

    def detach(self) -> LossTerms:
        """The same without a graph, with what a record needs."""
        return LossTerms(self.values.detach(), self.chosen, self.components, self.active, all_chosen=self.all_chosen)


@dataclass(frozen=True)
class LossSum:
    """The terms of a block added up.

    Attributes:
        active: how many of their parts are not zero: the sum of these tensors; None if none is zero.
    """

    total: Tensor  # their sum, differentiable
    counts: Tensor | int  # (B,) how many each anchor has, or one number if all have as many
    active: Tensor | tuple[Tensor, ...] | None
    anchors: int  # B
    components: ClassVar[int] = 1  # how many parts a term is the sum of

    @lazy
    def count(self) -> Tensor | int:
        """The number of terms."""
        return self.anchors * self.counts if isinstance(self.counts, int) else self.counts.sum()

    @lazy
    def count_active(self) -> Tensor | int:
        """The number of their parts that are not zero."""
        if self.active is None:
            return self.count
        counts = (self.active,) if isinstance(self.active, Tensor) else self.active
        first, *rest = (count.sum(dtype=torch.float64).long() for count in counts)
        return sum(rest, first)

    @property
    def used(self) -> Tensor:
        """The anchors `(B,)` that have a term."""
        if isinstance(self.counts, int):
            return torch.full((self.anchors,), self.counts > 0, device=self.total.device)
        return self.counts > 0

    def detach(self) -> LossSum:
        """The same without a graph."""
        return LossSum(self.total.detach(), self.counts, self.active, self.anchors)
