"""The second-order triplet loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trivet.losses.engine import BlockView, LossSum, LossTerms, loss_options
from trivet.losses.set_sums import softplus_sum, stable_softplus
from trivet.losses.triplet_terms import CosineTripletLoss, chosen_triplets, flat_terms, triplet_total


class _MinusHalfSquares(torch.autograd.Function):
    """-(1 - D)^2 / 2 of each distance D; infinite, with gradient 0, where D is."""

    @staticmethod
    def forward(ctx: Any, distances: Tensor) -> Tensor:
        ctx.save_for_backward(distances)
        return (1 - distances).square_().div_(-2).nan_to_num_(neginf=torch.inf)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (distances,) = ctx.saved_tensors
        slopes: Tensor = (1 - distances).nan_to_num(neginf=0.0)
        return grad * slopes


@loss_options
class SecondOrderTripletLoss(CosineTripletLoss):
    """Pull a positive the less the nearer it is, and push a negative the less the nearer to orthogonal it is.

    Mean over the chosen triplets (a, p, n) of, with S the cosine similarity,

        log(1 + exp(S_an^2 / 2 - S_ap + S_ap^2 / 2)) = log(1 + exp(((1 - S_ap)^2 + S_an^2 - 1) / 2)).

    The slopes are -s (1 - S_ap) and s S_an, s in (0, 1), where those of `NCATripletLoss` are -s and s: easy positives
    and hard negatives no longer drag each other towards the anchor. The least value is log(1 + exp(-1/2)) = 0.4741, at
    S_ap = 1, S_an = 0; a negative beyond orthogonal is pulled back to it.

    Args:
        positives, negatives: a selector, or the name of one; "easy" and "hard" is EPHN.
        margin: width of the bands of "semihard" and "violating", in 1 - S; the loss has none.
        others: see `EmbeddingLoss`.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eq. 16.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> SecondOrderTripletLoss()(embeddings, torch.tensor([0, 0, 1]))
        tensor(0.4741)
    """

    def formula(self, block: BlockView) -> LossTerms:
        """log(1 + exp(S_an^2 / 2 - S_ap + S_ap^2 / 2)) for each chosen triplet.

        With S = 1 - D the exponent is (D_ap^2 + S_an^2 - 1) / 2.
        """
        to_positive, to_negative, chosen = chosen_triplets(block)
        values = stable_softplus((to_positive.square() + (1 - to_negative).square() - 1) / 2)
        return flat_terms(block, values, to_positive, chosen)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the terms over a set of negatives, without a term for each triplet."""
        to_positive = block.at_positives((block.to_positive.square() - 1) / 2, -torch.inf)
        half_squares: Tensor = _MinusHalfSquares.apply(block.to_negative)
        return triplet_total(block, softplus_sum(to_positive, half_squares))
