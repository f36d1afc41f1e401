"""The triplet loss."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction
from trivet.losses.set_sums import hinge_sum, softplus_sum
from trivet.losses.triplet_terms import stable_softplus
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.batch import Batch
from trivet.mining.index_tuples import Disjoint
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


def triplet_sum(block: BlockView, *, margin: float) -> LossSum:
    """The sum of `triplet_terms` over a set of negatives, without a term for each triplet."""
    thresholds = block.at_positives(block.to_positive + margin, -torch.inf)  # (B, S)
    block.settle(thresholds)
    total, active = hinge_sum(thresholds, block.to_negative)
    return LossSum(
        total=total, counts=block.positive_count * block.negative_count, active=active, anchors=len(block.labels)
    )


def soft_triplet_sum(block: BlockView, *, margin: float) -> LossSum:
    """The sum of the soft `triplet_terms` over a set of negatives, without a term for each triplet."""
    total = softplus_sum(block.at_positives(block.to_positive + margin, -torch.inf), block.to_negative)
    return LossSum(
        total=total, counts=block.positive_count * block.negative_count, active=None, anchors=len(block.labels)
    )


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

    def __init__(
        self,
        *,
        margin: float = 0.2,
        distance: Distance = "squared_euclidean",
        positives: PositiveName | PositiveSelector = "random",
        negatives: NegativeName | NegativeSelector = "semihard",
        normalize: bool = False,
        reduction: Reduction = "mean",
        variant: Variant = "an",
        soft: bool = False,
        soft_margin: float = 0.0,
        trim: float = 0.0,
        trim_positives_only: bool = False,
        disjoint: Disjoint = False,
        block_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            distance=distance,
            positives=positives,
            negatives=negatives,
            margin=margin,
            normalize=normalize,
            reduction=reduction,
            trim=trim,
            trim_positives_only=trim_positives_only,
            disjoint=disjoint,
            block_size=block_size,
            generator=generator,
        )
        if not soft:
            self._check_reach(margin, name="margin")
        elif reduction not in ("mean", "max", "sum"):
            raise ValueError(
                "reduction must be 'mean', 'max' or 'sum' with soft = True, where every term is above 0: "
                f"got {reduction!r}; use one of these, or soft = False."
            )
        if reduction == "objective" and not (self.strategy.positives.pairwise and self.strategy.negatives.selects_set):
            raise ValueError(
                "reduction = 'objective' is the sum over all triplets: got another strategy; "
                "use positives='all' and negatives='all', or the reduction 'mean'."
            )
        self.soft_margin = check_at_least(0, soft_margin, name="soft_margin")
        if soft_margin and not soft:
            raise ValueError(
                f"soft_margin needs soft = True: got {soft_margin} without; the hinge has its own, `margin`."
            )
        check_name(variant, get_args(Variant), name="variant")
        self.variant: Variant = variant
        self.soft = soft
        self.margin_at_a_point = not soft
        self.counts_negatives = not soft and variant == "an"
        if variant == "an" and soft_margin == 0 and (distance == "cosine" if soft else distance == "squared_euclidean"):
            self.motion = "first-order" if soft else "vanilla"

    def objective_size(self, anchors: int, references: int) -> int:
        """N M^2."""
        return anchors * references**2

    def numbers(self, batch: Batch) -> int:
        """More where every triplet is held, or the distances from positives to negatives are needed."""
        slots = batch.largest_class if self.strategy.positives.pairwise else 1
        numbers = super().numbers(batch)
        if self.variant == "pn":
            numbers += 2 * slots * batch.dimension
        if self.strategy.negatives.selects_set and not self._summed():
            numbers += slots * len(batch.references)
        return numbers

    @property
    def ranks_terms(self) -> bool:
        """Also for the largest of the terms that do not fall with D(a, n)."""
        return super().ranks_terms or (self.reduction == "max" and self.variant == "pn")

    def reach(self, block: BlockView) -> Tensor:
        """The margin beyond each positive."""
        return block.at_positives(block.to_positive + self.margin, -torch.inf)

    def formula(self, block: BlockView) -> LossTerms | LossSum:
        """The hinge of the chosen triplets."""
        margin = self.soft_margin if self.soft else self.margin
        if not block.paired and self._summed():
            return (soft_triplet_sum if self.soft else triplet_sum)(block, margin=margin)
        with_self = self.reduction == "objective"
        if self.reduction == "max":
            block.settle_nearest()
        return triplet_terms(block, margin=margin, variant=self.variant, with_self=with_self, soft=self.soft)

    def _summed(self) -> bool:
        """Return whether only sums over the triplets are needed."""
        return self.trim == 0 and self.variant == "an" and self.reduction not in ("max", "objective")
