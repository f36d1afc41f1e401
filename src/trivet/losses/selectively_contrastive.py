"""The selectively contrastive triplet loss."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from trivet.distances.exact_order import AT_ONCE
from trivet.losses.engine import BlockView, LossSum, LossTerms, loss_options
from trivet.losses.set_sums import stable_softplus
from trivet.losses.triplet_terms import CosineTripletLoss, chosen_triplets, flat_terms, triplet_total
from trivet.runtime.arguments import ABOVE_ZERO, AT_LEAST_ZERO

MOST_FACTORS = 64  # of at most 2 each, whose product is finite in float32


class _SelectiveSum(torch.autograd.Function):
    """A pass for each positive. One logarithm for all: log(1 + q), 1 + q the product of 1 + exp((D_ap - D_an) / T)."""

    @staticmethod
    def forward(ctx: Any, to_positive: Tensor, to_negative: Tensor, hard_weight: float, temperature: float) -> Tensor:
        slots, size = to_positive.shape[1], to_negative.shape[1]
        slopes, slope = torch.zeros_like(to_positive), torch.empty_like(to_negative)  # (B, S) and (B, M)
        least = math.log(torch.finfo(to_negative.dtype).tiny) + 1
        rows, sums = max(1, AT_ONCE // max(1, size)), [to_positive.new_zeros(())]
        for first in range(0, len(to_negative), rows):
            some = slice(first, first + rows)
            distances, slope_of_positive = to_negative[some], slope[some]
            similarities = (1 - distances).nan_to_num_(neginf=0.0)
            product, easy_slope = torch.zeros_like(distances), torch.zeros_like(distances)
            easy, power, hard = torch.empty_like(distances), torch.empty_like(distances), torch.zeros_like(distances)
            for slot in range(slots):
                if slot and slot % MOST_FACTORS == 0:
                    sums.append(product.log1p_().sum())
                    product.zero_()
                limits = to_positive[some, slot : slot + 1]
                hard += torch.lt(distances, limits, out=easy)
                torch.sub(limits, distances, out=power).div_(temperature).clamp_(least, 0).exp_()
                power = torch.threshold_(power, 4 * torch.finfo(power.dtype).tiny, 0)
                power.mul_(easy.neg_().add_(1))
                torch.add(power, 1, out=easy)
                torch.addcmul(power, product, easy, out=product)  # q + v + q v, which keeps the digits of small v
                slopes[some, slot] = power.div_(easy).sum(dim=1)
                easy_slope += power
            sums += [product.log1p_().sum(), similarities.mul_(hard).sum() * hard_weight]
            torch.add(easy_slope / temperature, hard, alpha=hard_weight, out=slope_of_positive)
        ctx.save_for_backward(to_positive, to_negative, slopes / temperature, slope)
        ctx.options = hard_weight, temperature
        return torch.stack(sums).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_positive, to_negative, slopes, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            hard_weight, temperature = ctx.options
            hard = to_negative[:, None] < to_positive[:, :, None]  # (B, S, M)
            easy = torch.sigmoid((to_positive[:, :, None] - to_negative[:, None]) / temperature).masked_fill(hard, 0)
            slopes = easy.sum(dim=2) / temperature
            slope = easy.sum(dim=1) / temperature + hard_weight * hard.sum(dim=1)
        return slopes * grad, slope * -grad, None, None


@loss_options
class SelectivelyContrastiveLoss(CosineTripletLoss):
    """Only push the negative where it is the harder one; elsewhere the triplet loss of NCA.

    Mean over the chosen triplets (a, p, n) of, with S the cosine similarity,

        hard_weight * S_an                               if S_an > S_ap,
        log(1 + exp((S_an - S_ap) / temperature))        otherwise.

    A hard triplet does not pull its positive at all, so that batches of hard negatives do not collapse.

    Args:
        hard_weight: lambda of the paper, >= 0.
        temperature: of the difference of similarities, > 0.
        positives, negatives: a selector, or the name of one; "easy" and "hard" is EPHN.
        margin: width of the bands of "semihard" and "violating", in 1 - S; the loss has none.
        others: see `EmbeddingLoss`.

    Source:
        Xuan, Stylianou, Liu, Pless, "Hard Negative Examples are Hard, but Useful", ECCV 2020; lambda 1 and temperature
        0.1 are theirs. Their code also takes a negative of S_an > 0.8 for hard and leaves out positives of
        S_ap > 0.9999; the paper's formula, which is this one, does not.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = SelectivelyContrastiveLoss(reduction="sum")
        >>> loss(embeddings, torch.tensor([0, 0, 1]))  # 0.6 and 0.8, for the anchors 0 and 1
        tensor(1.4000)
    """

    hard_weight: float = field(default=1.0, metadata=AT_LEAST_ZERO)
    temperature: float = field(default=0.1, metadata=ABOVE_ZERO)

    def formula(self, block: BlockView) -> LossTerms:
        """A term for each chosen triplet, S = 1 - D; one may be negative, so all count as active."""
        if not block.paired:
            block.settle(block.at_positives(block.to_positive, -torch.inf))
        to_positive, to_negative, chosen = chosen_triplets(block)
        logistic = stable_softplus((to_positive - to_negative) / self.temperature)
        values = (self.hard_weight * (1 - to_negative)).where(to_negative < to_positive, logistic)
        return flat_terms(block, values, to_positive, chosen, all_active=True)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the terms over a set of negatives, without a term for each triplet."""
        to_positive = block.settle(block.at_positives(block.to_positive, -torch.inf))  # there another case begins
        total: Tensor = _SelectiveSum.apply(to_positive, block.to_negative, self.hard_weight, self.temperature)
        return triplet_total(block, total)
