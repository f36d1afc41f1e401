"""The NCA triplet loss: the logistic loss on a difference of similarities."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import softplus_sum
from trivet.losses.triplet_terms import chosen_triplets, flat_terms, stable_softplus, triplet_total
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.runtime.arguments import check_above_zero


def nca_terms(block: BlockView, *, temperature: float) -> LossTerms:
    """log(1 + exp((S_an - S_ap) / temperature)) for each chosen triplet; S = 1 - D, so S_an - S_ap = D_ap - D_an."""
    to_positive, to_negative, chosen = chosen_triplets(block)
    values = stable_softplus((to_positive - to_negative) / temperature)
    return flat_terms(block, values, to_positive, chosen)


def nca_sum(block: BlockView, *, temperature: float) -> LossSum:
    """The sum of `nca_terms` over a set of negatives, without a term for each triplet."""
    to_positive = block.at_positives(block.to_positive, -torch.inf)
    total = softplus_sum(to_positive / temperature, block.to_negative / temperature)
    return triplet_total(block, total)


@loss_options
class NCATripletLoss(EmbeddingLoss):
    """Make the anchor more similar to the positive than to the negative, softly ("first-order" triplet loss).

    Mean over the chosen triplets (a, p, n) of, with S the cosine similarity,

        log(1 + exp((S_an - S_ap) / temperature)) = -log(exp(S_ap / T) / (exp(S_ap / T) + exp(S_an / T))).

    It is log 2 where both are as similar, and never 0. Its slope depends on S_an - S_ap alone, so an easy positive is
    pulled as much as a far one, and beside a hard negative the two drag each other (`SecondOrderTripletLoss`).

    Args:
        temperature: T, > 0; 1 as in the paper, and its later work takes 0.1.
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
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eq. 1; after Goldberger et al.,
        "Neighbourhood Components Analysis", NIPS 2004.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> NCATripletLoss()(embeddings, torch.tensor([0, 0, 1]))  # log(1 + exp(0 - 1))
        tensor(0.3133)
    """

    reductions = ("mean", "sum")
    sums_sets = True

    temperature: float = 1.0
    positives: PositiveName | PositiveSelector = "easy"
    negatives: NegativeName | NegativeSelector = "hard"
    margin: float = 0.2
    reduction: Reduction = "mean"
    distance: Distance = field(default="cosine", init=False)
    normalize: bool = field(default=True, init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        check_above_zero(self.temperature, name="temperature")
        self.motion = "first-order" if self.temperature == 1 else None

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each chosen triplet."""
        return nca_terms(block, temperature=self.temperature)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the terms over sets of negatives."""
        return nca_sum(block, temperature=self.temperature)
