"""The supervised contrastive loss."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import log_sum_exp, stable_softplus
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class SupConLoss(EmbeddingLoss):
    """The softmax over all other items of the batch: each positive against the other positives and the negatives.

    Mean over the anchors a that have a positive of, with S the cosine similarity, P the chosen positives and A these
    and the chosen negatives,

        -1 / |P| sum_{p in P} log(exp(S_ap / temperature) / sum_{j in A} exp(S_aj / temperature)).

    Each item counts once for an anchor, however many chosen tuples it is in. The loss of k positives is at least log k,
    where they are alike. `NPairLoss(normalize=True)` has no other positive in the sum; with one positive for each
    anchor the two are equal, also known as InfoNCE, NT-Xent or in-batch softmax. Of two sets whose rows belong
    together, the loss of the first against the second is one direction; the mean with that of the second against the
    first is both.

    Args:
        temperature: > 0; 0.1 in the paper.
        reduction: "mean" over the anchors with a positive, "anchors" divides by N, or "sum".
        others: see `EmbeddingLoss`.

    Source:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, eq. 2, L_out; there a sum over the anchors, here
        a mean. Their code multiplies by temperature / 0.07, which is left out here.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> loss = SupConLoss(temperature=1.0)
        >>> loss(embeddings, torch.tensor([0, 0, 1]))  # log(e + 1) - 1, of two anchors
        tensor(0.3133)
        >>> first, second, label = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.arange(2)
        >>> there = loss(first, label, references=second, reference_labels=label)
        >>> back = loss(second, label, references=first, reference_labels=label)
        >>> (there + back) / 2
        tensor(0.7532)
    """

    reductions = ("mean", "anchors", "sum")
    term = "set"

    temperature: float = field(default=0.1, metadata=ABOVE_ZERO)
    positives: PositiveName | PositiveSelector = "all"
    negatives: NegativeName | NegativeSelector = "all"
    reduction: Reduction = "mean"
    margin: float = field(default=0.0, init=False)
    distance: Distance = field(default="cosine", init=False)
    normalize: bool = field(default=True, init=False)
    trim_positives_only: bool = field(default=False, init=False)
    disjoint: Disjoint = field(default=False, init=False)

    def formula(self, block: BlockView) -> LossTerms:
        """One term per anchor with a chosen positive: log sum_j exp(S_aj / T) - mean_p S_ap / T.

        j goes through the chosen positives and negatives; S = 1 - D, and the constant falls out.
        """
        block, scale = block.once(), 1 / self.temperature
        pairs = block.positive_count
        any_positive = block.positive_chosen.any(dim=1)
        to_negative = block.to_negative.where(block.negative_chosen, torch.inf) if block.paired else block.to_negative
        pull = block.at_positives(block.to_positive * scale, 0).sum(dim=1)
        pull = pull / (max(1, pairs) if isinstance(pairs, int) else pairs.clamp_min(1))
        positive = log_sum_exp(block.at_positives(block.to_positive, torch.inf), -scale)
        positive = positive if block.all_chosen and pairs else positive.where(any_positive, 0)
        negative = log_sum_exp(to_negative, -scale)
        values = pull + positive + stable_softplus(negative - positive)  # log(e^p + e^n) = p + log(1 + e^(n - p))
        return LossTerms(values[:, None], any_positive[:, None])
