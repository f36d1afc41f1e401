"""The multi-similarity loss."""

from __future__ import annotations

import math
from dataclasses import field

import torch

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import log_sum_exp, stable_softplus
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class MultiSimilarityLoss(EmbeddingLoss):
    """Weigh each pair by how it compares with the other pairs of the anchor.

    Mean over the N anchors of, with S the cosine similarity,

        log(1 + sum_p exp(-a (S_ap - t))) / a + log(1 + sum_n exp(b (S_an - t))) / b.

    Each item counts once for an anchor, however many chosen tuples it is in. An anchor without any positive or without
    any negative in the batch counts 0.

    Args:
        positive_scale: a, > 0: how much the least similar positives count.
        negative_scale: b, > 0: how much the most similar negatives count.
        threshold: lambda of the papers, t above, a similarity. The default, 0.5, is that of the authors' code; Levi et
            al. print 1. At 1 the weight of a negative is at most exp(b (S_an - 1)): with b = 50, less than a tenth
            below a similarity of 0.95, and a network trained from random weights retrieves far worse.
        relevance_margin: whether the threshold of a negative of relevance r, by the grades of `Grades`, is
            t + r (1 - t), so that more relevant ones may be more similar; t must not exceed 1.
        positives: "multi-similarity" (mined), "easy" (Levi et al.), "all" or another.
        negatives: "multi-similarity" (mined), "all" or another.
        skip_if_any_empty: leave out an anchor with no chosen positive or no chosen negative, as widely used code does.
        reduction: "anchors" divides by N; "mean" by the anchors kept; "sum".
        trim_positives_only: `trim` leaves out the positive part of the anchors where it is largest.
        others: see `EmbeddingLoss`.

    Source:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting", CVPR 2019, eq. 15. The scales are those of
        Levi et al., ICCV 2021, section 5. `relevance_margin` is ours, after the margins of Falcon et al.,
        "Relevance-based Margin for Contrastively-trained Video Retrieval Models", ICMR 2022.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> loss = MultiSimilarityLoss(positives="all", negatives="all")
        >>> loss(embeddings, torch.tensor([0, 0, 1]))
        tensor(0.1044)
    """

    reductions = ("anchors", "mean", "sum")
    term = "set"
    not_settings = EmbeddingLoss.not_settings | {"relevance_margin"}  # classes have no grades

    positive_scale: float = field(default=2.0, metadata=ABOVE_ZERO)
    negative_scale: float = field(default=50.0, metadata=ABOVE_ZERO)
    threshold: float = 0.5
    relevance_margin: bool = False
    positives: PositiveName | PositiveSelector = "multi-similarity"
    negatives: NegativeName | NegativeSelector = "multi-similarity"
    skip_if_any_empty: bool = False
    reduction: Reduction = "anchors"
    margin: float = field(default=0.0, init=False)
    distance: Distance = field(default="cosine", init=False)
    normalize: bool = field(default=True, init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite, a similarity: got {self.threshold}.")
        if self.relevance_margin and self.threshold > 1:
            raise ValueError(
                f"threshold must not exceed 1 with relevance_margin, as it rises to 1: got {self.threshold}; lower it."
            )

    def formula(self, block: BlockView) -> LossTerms:
        """One term per anchor that has a candidate positive and negative:

        log(1 + sum_p exp(-a (S_ap - t))) / a + log(1 + sum_n exp(b (S_an - t))) / b, an empty sum being 0.
        """
        block, a, b = block.once(), self.positive_scale, self.negative_scale
        to_positive, to_negative = block.at_positives(block.to_positive, -torch.inf), block.to_negative
        if block.paired:
            to_negative = to_negative.where(block.negative_chosen, torch.inf)
        if self.relevance_margin:
            to_negative = to_negative + (1 - self.threshold) * block.relevance_to_negative
        # S = 1 - D; the constant of the exponents comes after the sum.
        shift = 1 - self.threshold
        pull = stable_softplus(log_sum_exp(to_positive, a) - a * shift) / a
        push = stable_softplus(log_sum_exp(to_negative, -b) + b * shift) / b
        used, every = block.matched
        if self.skip_if_any_empty:
            used, every = used & block.positive_chosen.any(dim=1, keepdim=True) & block.opposed, False
        return LossTerms((pull + push)[:, None], used, pull=pull[:, None], push=push[:, None], all_chosen=every)
