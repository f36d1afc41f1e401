"""The circle loss."""

from __future__ import annotations

from dataclasses import field

import torch
from torch.nn.functional import relu

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import log_sum_exp, stable_softplus
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class CircleLoss(EmbeddingLoss):
    """Compare all similarities of an anchor to positives with all to negatives, each weighed by how far off it is.

    Mean over the anchors with a chosen positive and a chosen negative of, with S the cosine similarity,

        log(1 + sum_n exp(scale a_n (S_n - margin)) sum_p exp(-scale a_p (S_p - 1 + margin))),
        a_p = max(0, 1 + margin - S_p), a_n = max(0, S_n + margin).

    Each item counts once for an anchor, however many chosen tuples it is in. As in the paper the weights a are
    constants where the gradient is taken, which therefore is not the derivative of the value, nor has it a second one
    that is right. A pair is content where S_n^2 + (1 - S_p)^2 = 2 margin^2.

    Args:
        margin: m of the paper, a similarity, >= 0.
        scale: gamma of the paper, > 0. The paper has 0.4 and 80 for retrieval, 0.25 and 128 for persons, 0.25 and 256
            for faces.
        reduction: "mean" over the anchors kept, "anchors" divides by N, or "sum".
        others: see `EmbeddingLoss`.

    Source:
        Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity Optimization", CVPR 2020, eq. 6 with the
        weights of eq. 5 and the four settings reduced to one of section 3.3.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> CircleLoss(margin=0.5, scale=1.0)(embeddings, torch.tensor([0, 0, 1]))  # log(1 + e^-0.25 e^-0.25)
        tensor(0.4741)
    """

    reductions = ("mean", "anchors", "sum")
    term = "set"

    margin: float = 0.4
    scale: float = field(default=80.0, metadata=ABOVE_ZERO)
    positives: PositiveName | PositiveSelector = "all"
    negatives: NegativeName | NegativeSelector = "all"
    reduction: Reduction = "mean"
    distance: Distance = field(default="cosine", init=False)
    normalize: bool = field(default=True, init=False)
    trim_positives_only: bool = field(default=False, init=False)
    disjoint: Disjoint = field(default=False, init=False)

    def formula(self, block: BlockView) -> LossTerms:
        """One term per anchor with a chosen positive and negative: log(1 + sum_p e^x_p sum_n e^x_n), with S = 1 - D,

        x_p = -scale [1 + margin - S_p] (S_p - 1 + margin), x_n = scale [S_n + margin]_+ (S_n - margin), [] constants.
        """
        block, margin, scale = block.once(), self.margin, self.scale
        near, chosen = block.to_positive, block.positive_chosen
        far = block.to_negative.where(block.negative_chosen, 0)  # an infinite one times a weight of 0 is no number
        pull = scale * (near.detach() + margin) * (near - margin)
        push = scale * relu(1 + margin - far.detach()) * (1 - margin - far)
        pulls, pushes = (
            log_sum_exp(values.where(mask, -torch.inf))
            for values, mask in ((pull, chosen), (push, block.negative_chosen))
        )
        used = chosen.any(dim=1) & (block.negative_count > 0)
        return LossTerms(stable_softplus(pulls + pushes)[:, None], used[:, None])
