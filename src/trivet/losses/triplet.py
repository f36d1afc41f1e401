"""The triplet loss."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import hinge_sum, softplus_sum
from trivet.losses.triplet_terms import stable_softplus, triplet_total
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.batch import Batch
from trivet.runtime.arguments import check_at_least, check_name

Variant = Literal["an", "pn"]


def triplet_terms(
    block: BlockView,
    *,
    margin: float,
    variant: Variant = "an",
    with_self: bool = False,
    soft: bool = False,
) -> LossTerms:
    """Hinge over the chosen triplets of each anchor in the block: D(a, p) - D(a, n) + margin, if positive.

    Against a set of negatives there is a term for each (positive, negative), `(B, S * M)` of them.
    `variant="pn"` uses D(p, n) for D(a, n); `with_self` counts the anchor as one more of its positives, at distance 0;
    `soft` takes log(1 + exp(D(a, p) - D(a, n) + margin)) for the hinge.
    """

    def value(difference: Tensor) -> Tensor:
        shifted = difference + margin if margin else difference
        return stable_softplus(shifted) if soft else shifted.relu()

    to_positive, chosen = block.to_positive, block.positive_chosen  # (B, S)
    if not soft and not block.paired:
        block.settle(pad(to_positive, (0, 1)) + margin if with_self else to_positive + margin)
    to_negative = block.to_negative if variant == "an" else block.positive_to_negative
    if block.paired:
        return LossTerms(value(to_positive - to_negative), chosen, pull=to_positive, all_chosen=block.all_chosen)
    if variant == "an":
        to_negative = to_negative[:, None]  # (B, 1, M)
    if with_self:
        to_positive, chosen = pad(to_positive, (0, 1)), pad(chosen, (0, 1), value=True)
        if variant == "pn":  # of the anchor as its own positive
            to_negative = torch.cat([to_negative, block.to_negative[:, None]], dim=1)
    values = value(to_positive[:, :, None] - to_negative)  # (B, S, M)
    return LossTerms(
        values.flatten(1),
        (chosen[:, :, None] & block.negative_chosen[:, None]).flatten(1),
        pull=to_positive[:, :, None].expand_as(values).flatten(1),
    )


def triplet_sum(block: BlockView, *, margin: float, soft: bool = False) -> LossSum:
    """The sum of `triplet_terms` over a set of negatives, without a term for each triplet."""
    thresholds = block.at_positives(block.to_positive + margin, -torch.inf)  # (B, S)
    if soft:
        total, active = softplus_sum(thresholds, block.to_negative), None
    else:
        block.settle(thresholds)
        total, active = hinge_sum(thresholds, block.to_negative)
    return triplet_total(block, total, active)


@loss_options
class TripletLoss(EmbeddingLoss):
    """Make each chosen negative farther from the anchor than the chosen positive, by a margin.

    Mean over the chosen triplets (a, p, n), where y_a = y_p, a != p and y_n != y_a, of

        max(0, D(a, p) - D(a, n) + margin), or softly log(1 + exp(D(a, p) - D(a, n) + soft_margin)).

    Args:
        margin: in the unit of D; between unit vectors D lies in [0, 2] (Euclidean, cosine) or [0, 4] (squared).
        distance: "squared_euclidean" (the papers' D), "euclidean" or "cosine".
        positives, negatives: a selector, or the name of one.
        normalize: divide embeddings by their norm first.
        reduction: "mean" over the triplets, zeros kept; "mean-active" over those above zero; "max", the hardest triplet
            of the batch alone (Xu et al.), the mean of those that tie; "sum"; or "objective", the paper's sum over all
            triplets, p = a included, / N^3 (for positives="all", negatives="all"). `last` is about all chosen triplets
            in any case.
        variant: "pn" puts D(p, n) in place of D(a, n).
        soft: the soft margin (Hermans et al.): no term is ever 0, so only "mean", "max" and "sum" remain, and `margin`
            is left to the bands of "semihard" and "violating".
        soft_margin: in the unit of D, added where `soft`; 0 in Hermans et al.
        trim: share of the triplets, those with the largest loss, left out before any reduction. With negatives="all",
            each triplet of a block is held.
        trim_positives_only: `trim` leaves out the triplets with the farthest positives.
        disjoint: each item in at most one triplet, see `trivet.mine`.
        block_size, generator: see `EmbeddingLoss`.

    Shape:
        embeddings `(N, d)` float, used as given unless `normalize`; labels `(N,)` integer; returns a scalar,
        exactly 0 with a graph when no triplet can be chosen.

    Raises:
        ValueError: if shapes disagree, a row is not finite, or an option is out of range.

    Source:
        Schroff, Kalenichenko, Philbin, "FaceNet", CVPR 2015, section 3.1; there a sum, here a mean.
        With positives="easy": Levi et al., ICCV 2021, section 4.3. With `soft`: Hermans, Beyer, Leibe, "In Defense of
        the Triplet Loss for Person Re-Identification", 2017, section 2; there of Euclidean distances. With
        reduction="max": Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation
        Theorem", ICLR 2024, equation (4) and figure 3, right; there with hard positives and negatives, which find that
        triplet without going through all.

    Example:
        >>> embeddings = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
        >>> TripletLoss(margin=1.0, distance="euclidean", positives="all", negatives="all")(
        ...     embeddings, torch.tensor([7, 7, 1]))
        tensor(0.5000)
    """

    reductions = ("mean", "mean-active", "max", "sum", "objective")
    not_settings = EmbeddingLoss.not_settings | {"normalize"}  # that of the model
    objective_power = 2

    margin: float = 0.2
    distance: Distance = "squared_euclidean"
    positives: PositiveName | PositiveSelector = "random"
    negatives: NegativeName | NegativeSelector = "semihard"
    normalize: bool = False
    reduction: Reduction = "mean"
    variant: Variant = "an"
    soft: bool = False
    soft_margin: float = 0.0

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        check_name(self.variant, get_args(Variant), name="variant")
        check_at_least(0, self.soft_margin, name="soft_margin")
        if not self.soft:
            self._check_reach(self.margin, name="margin")
        elif self.reduction not in ("mean", "max", "sum"):
            raise ValueError(
                "reduction must be 'mean', 'max' or 'sum' with soft = True, where every term is above 0: "
                f"got {self.reduction!r}; use one of these, or soft = False."
            )
        self._check_objective("triplets", "mean")
        if self.soft_margin and not self.soft:
            raise ValueError(
                f"soft_margin needs soft = True: got {self.soft_margin} without; the hinge has its own, `margin`."
            )
        anchored = self.variant == "an"
        self.margin_at_a_point, self.nearest_is_hardest = not self.soft, anchored
        self.sums_sets = anchored and self.reduction != "objective"
        if anchored and not self.soft:
            self.negative_weight = "within-reach"
        unit_distance = "cosine" if self.soft else "squared_euclidean"
        if anchored and self.soft_margin == 0 and self.distance == unit_distance:
            self.motion = "first-order" if self.soft else "vanilla"

    def numbers(self, batch: Batch) -> int:
        """More where the distances from positives to negatives are needed."""
        slots = batch.largest_class if self.strategy.positives.pairwise else 1
        return super().numbers(batch) + (2 * slots * batch.dimension if self.variant == "pn" else 0)

    def reach(self, block: BlockView) -> Tensor:
        """The margin beyond each positive."""
        return block.at_positives(block.to_positive + self.margin, -torch.inf)

    def formula(self, block: BlockView) -> LossTerms:
        """The hinge of the chosen triplets."""
        margin, with_self = self.soft_margin if self.soft else self.margin, self.reduction == "objective"
        return triplet_terms(block, margin=margin, variant=self.variant, with_self=with_self, soft=self.soft)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the hinges over sets of negatives."""
        return triplet_sum(block, margin=self.soft_margin if self.soft else self.margin, soft=self.soft)
