"""The triplet loss."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import band_sum, hinge_sum, softplus_sum, stable_softplus
from trivet.losses.triplet_terms import triplet_total
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.runtime.arguments import AT_LEAST_ZERO, check_name

Variant = Literal["an", "pn"]


@loss_options
class TripletLoss(EmbeddingLoss):
    """Make each chosen negative farther from the anchor than the chosen positive, by a margin.

    Mean over the chosen triplets (a, p, n), where y_a = y_p, a != p and y_n != y_a, of

        max(0, D(a, p) - D(a, n) + margin), or softly log(1 + exp(D(a, p) - D(a, n) + soft_margin)).

    Args:
        margin: in the unit of D; between unit vectors D lies in [0, 2] (Euclidean, cosine) or [0, 4] (squared).
        distance: "squared_euclidean" (the papers' D), "euclidean" or "cosine".
        reduction: "mean" over the triplets, zeros kept; "mean-active" over those above zero; "max", the hardest triplet
            of the batch alone (Xu et al.), the mean of those that tie; "sum"; or "objective", the paper's sum over all
            triplets, p = a included, / N^3 (for positives="all", negatives="all"). `last` is about all chosen triplets
            in any case.
        variant: "pn" puts D(p, n) in place of D(a, n).
        soft: the soft margin (Hermans et al.): no term is ever 0, so only "mean", "max" and "sum" remain, and `margin`
            is left to the bands of "semihard" and "violating".
        soft_margin: in the unit of D, added where `soft`; 0 in Hermans et al.
        others: see `EmbeddingLoss`.

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
    soft_margin: float = field(default=0.0, metadata=AT_LEAST_ZERO)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        check_name(self.variant, get_args(Variant), name="variant")
        if not self.soft:
            self._check_reach(margin=self.margin)
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
        self.nearest_is_hardest, self.third_side = anchored and not self.strategy.negatives.selects_band, not anchored
        self.sums_sets = anchored and self.reduction != "objective"
        if anchored and not self.soft:
            self.negative_weight = "within-reach"

    @property
    def sums_bands(self) -> bool:
        """Return whether every hinge of a band is open, so that the sum is one of distances."""
        width = getattr(self.strategy.negatives, "margin", None)
        return not self.soft and (width is None or width <= self.margin)

    def formula(self, block: BlockView) -> LossTerms:
        """A term for each chosen triplet; against a set of negatives for each positive and negative, `(B, S * M)`.

        The objective counts the anchor as one more of its positives, at distance 0.
        """
        to_positive, with_self = block.to_positive, self.reduction == "objective"
        if not (block.paired or self.soft):
            reach = self._reach(block)
            block.settle(pad(reach, (0, 1), value=self.margin) if with_self else reach)
        to_negative = block.positive_to_negative if self.third_side else block.to_negative
        if block.paired:
            values = self._values(to_positive - to_negative)
            return LossTerms(values, block.positive_chosen, pull=to_positive, all_chosen=block.all_chosen)
        if not self.third_side:
            to_negative = to_negative[:, None]  # (B, 1, M)
        chosen = block.triplet_chosen
        if with_self:
            to_positive = pad(to_positive, (0, 1))
            chosen = torch.cat([chosen, block.negative_chosen[:, None]], dim=1)
            if self.third_side:  # of the anchor as its own positive
                to_negative = torch.cat([to_negative, block.to_negative[:, None]], dim=1)
        values = self._values(to_positive[:, :, None] - to_negative)  # (B, S, M)
        return LossTerms(
            values.flatten(1),
            chosen.flatten(1),
            pull=to_positive[:, :, None].expand_as(values).flatten(1),
        )

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum over a set of negatives, without a term for each triplet."""
        if self.soft:
            thresholds = block.at_positives(block.to_positive + self.soft_margin, -torch.inf)  # (B, S)
            return triplet_total(block, softplus_sum(thresholds, block.to_negative))
        if (bands := block.bands) is not None:
            total = band_sum(self._reach(block), block.to_negative, bands)
            return LossSum(total, bands.counts.sum(dim=1).long(), active=None, anchors=len(block.labels))
        return triplet_total(block, *hinge_sum(block.settle(self._reach(block)), block.to_negative))

    def _reach(self, block: BlockView) -> Tensor:
        return block.at_positives(block.to_positive + self.margin, -torch.inf)

    def _values(self, differences: Tensor) -> Tensor:
        margin = self.soft_margin if self.soft else self.margin
        shifted = differences + margin if margin else differences
        return stable_softplus(shifted) if self.soft else shifted.relu()
