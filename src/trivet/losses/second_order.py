"""The second-order triplet loss."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import softplus_sum
from trivet.losses.triplet_terms import chosen_triplets, flat_terms, stable_softplus, triplet_total
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector


def second_order_terms(block: BlockView) -> LossTerms:
    """log(1 + exp(S_an^2 / 2 - S_ap + S_ap^2 / 2)) for each chosen triplet.

    With S = 1 - D the exponent is (D_ap^2 + S_an^2 - 1) / 2.
    """
    to_positive, to_negative, chosen = chosen_triplets(block)
    values = stable_softplus((to_positive.square() + (1 - to_negative).square() - 1) / 2)
    return flat_terms(block, values, to_positive, chosen)


def second_order_sum(block: BlockView) -> LossSum:
    """The sum of `second_order_terms` over a set of negatives, without a term for each triplet."""
    to_positive = block.at_positives((block.to_positive.square() - 1) / 2, -torch.inf)
    half_squares: Tensor = _MinusHalfSquares.apply(block.to_negative)
    total = softplus_sum(to_positive, half_squares)
    return triplet_total(block, total)


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
class SecondOrderTripletLoss(EmbeddingLoss):
    """Pull a positive the less the nearer it is, and push a negative the less the nearer to orthogonal it is.

    Mean over the chosen triplets (a, p, n) of, with S the cosine similarity,

        log(1 + exp(S_an^2 / 2 - S_ap + S_ap^2 / 2)) = log(1 + exp(((1 - S_ap)^2 + S_an^2 - 1) / 2)).

    The slopes are -s (1 - S_ap) and s S_an, s in (0, 1), where those of `NCATripletLoss` are -s and s: easy positives
    and hard negatives no longer drag each other towards the anchor. The least value is log(1 + exp(-1/2)) = 0.4741, at
    S_ap = 1, S_an = 0; a negative beyond orthogonal is pulled back to it.

    Args:
        positives, negatives: a selector, or the name of one; "easy" and "hard" is EPHN.
        margin: width of the bands of "semihard" and "violating", in 1 - S; the loss has none.
        reduction: "mean" over the triplets or "sum".
        trim: share of the triplets, those with the largest loss, left out.
        trim_positives_only: `trim` leaves out the triplets with the farthest positives.
        disjoint: each item in at most one triplet, see `trivet.mine`.
        block_size, generator: see `EmbeddingLoss`.

    Shape:
        embeddings `(N, d)` float, normalised here; labels `(N,)` integer; returns a scalar,
        exactly 0 with a graph when no triplet can be chosen. With negatives="all" and `trim` each triplet is held.

    Raises:
        ValueError: if shapes disagree, a row is not finite, or an option is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eq. 16.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> SecondOrderTripletLoss()(embeddings, torch.tensor([0, 0, 1]))
        tensor(0.4741)
    """

    reductions = ("mean", "sum")
    motion = "second-order"
    sums_sets = True

    positives: PositiveName | PositiveSelector = "easy"
    negatives: NegativeName | NegativeSelector = "hard"
    margin: float = 0.2
    reduction: Reduction = "mean"
    distance: Distance = field(default="cosine", init=False)
    normalize: bool = field(default=True, init=False)

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each chosen triplet."""
        return second_order_terms(block)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the terms over sets of negatives."""
        return second_order_sum(block)
