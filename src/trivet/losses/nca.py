"""The NCA triplet loss: the logistic loss on a difference of similarities."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.losses.engine import BlockView, LossSum, LossTerms, loss_options
from trivet.losses.set_sums import softplus_sum, stable_softplus
from trivet.losses.triplet_terms import CosineTripletLoss, chosen_triplets, flat_terms, triplet_total
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class NCATripletLoss(CosineTripletLoss):
    """Make the anchor more similar to the positive than to the negative, softly ("first-order" triplet loss).

    Mean over the chosen triplets (a, p, n) of, with S the cosine similarity,

        log(1 + exp((S_an - S_ap) / temperature)) = -log(exp(S_ap / T) / (exp(S_ap / T) + exp(S_an / T))).

    It is log 2 where both are as similar, and never 0. Its slope depends on S_an - S_ap alone, so an easy positive is
    pulled as much as a far one, and beside a hard negative the two drag each other (`SecondOrderTripletLoss`).

    Args:
        temperature: T, > 0; 1 as in the paper, and its later work takes 0.1.
        positives, negatives: a selector, or the name of one; "easy" and "hard" is EPHN.
        margin: width of the bands of "semihard" and "violating", in 1 - S; the loss has none.
        others: see `EmbeddingLoss`.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eq. 1; after Goldberger et al.,
        "Neighbourhood Components Analysis", NIPS 2004.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> NCATripletLoss()(embeddings, torch.tensor([0, 0, 1]))  # log(1 + exp(0 - 1))
        tensor(0.3133)
    """

    temperature: float = field(default=1.0, metadata=ABOVE_ZERO)

    def formula(self, block: BlockView) -> LossTerms:
        """log(1 + exp((S_an - S_ap) / T)) for each chosen triplet; S = 1 - D, so S_an - S_ap = D_ap - D_an."""
        to_positive, to_negative, chosen = chosen_triplets(block)
        values = stable_softplus((to_positive - to_negative) / self.temperature)
        return flat_terms(block, values, to_positive, chosen)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the terms over a set of negatives, without a term for each triplet."""
        to_positive = block.at_positives(block.to_positive, -torch.inf)
        total = softplus_sum(to_positive / self.temperature, block.to_negative / self.temperature)
        return triplet_total(block, total)
