"""The chosen triplets of a block, for the losses that are one formula on each."""

# No postponed annotations: signatures of losses in other files hold these types.
from dataclasses import field

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector


@loss_options
class CosineTripletLoss(EmbeddingLoss):
    """A loss on triplets that is a formula of the two cosine similarities.

    Args:
        positives, negatives: a selector, or the name of one; "easy" and "hard" is EPHN.
        margin: width of the bands of "semihard" and "violating", in 1 - S; the loss has none.
        reduction: "mean" over the triplets or "sum".
        others: see `EmbeddingLoss`.
    """

    reductions = ("mean", "sum")
    sums_sets = True

    positives: PositiveName | PositiveSelector = "easy"
    negatives: NegativeName | NegativeSelector = "hard"
    margin: float = 0.2
    reduction: Reduction = "mean"
    distance: Distance = field(default="cosine", init=False)
    normalize: bool = field(default=True, init=False)


def chosen_triplets(block: BlockView) -> tuple[Tensor, Tensor, Tensor]:
    """D(a, p), D(a, n) and which triplets are chosen; the three broadcast together.

    `(B, S)` each if every positive has its negative; against a set of negatives `(B, S, 1)`, `(B, 1, M)` and
    `(B, S, M)`. Where nothing is chosen the distances are finite and mean nothing.
    """
    if block.paired:
        return block.to_positive, block.to_negative, block.positive_chosen
    to_negative = block.to_negative.where(block.negative_chosen, 0)
    return block.to_positive[:, :, None], to_negative[:, None], block.triplet_chosen


def flat_terms(
    block: BlockView, values: Tensor, to_positive: Tensor, chosen: Tensor, *, all_active: bool = False
) -> LossTerms:
    """Terms of the shape `chosen_triplets` gives; `all_active` for values that may be 0 or less and still count."""
    return LossTerms(
        values.flatten(1),
        chosen.flatten(1),
        active=chosen.flatten(1) if all_active else None,
        pull=to_positive.expand_as(values).flatten(1),
        all_chosen=block.all_chosen and block.paired,
    )


def pair_terms(
    block: BlockView, pull: Tensor, push: Tensor, *, alone: Tensor | None = None, all_active: bool = False
) -> LossTerms:
    """Terms of pairs: of each positive and its negative the sum, against a set each by itself, and `alone (B, 1)`."""
    if block.paired:
        chosen, all_chosen = block.positive_chosen, block.all_chosen
        active = 2 * chosen.long() if all_active else (pull > 0).long() + (push > 0).long()
        return LossTerms(pull + push, chosen, components=2, active=active, pull=pull, push=push, all_chosen=all_chosen)
    values, chosen_pairs = [pull, push], [block.positive_chosen, block.negative_chosen]
    if alone is not None:
        values.append(alone)
        chosen_pairs.append(torch.ones_like(alone, dtype=torch.bool))
    no_pull = [torch.full_like(value, -torch.inf) for value in values[1:]]
    chosen, pulls = torch.cat(chosen_pairs, dim=1), torch.cat([pull, *no_pull], dim=1)
    return LossTerms(torch.cat(values, dim=1), chosen, active=chosen.long() if all_active else None, pull=pulls)


def triplet_total(block: BlockView, total: Tensor, active: Tensor | None = None) -> LossSum:
    """The `total` of the chosen triplets of a block with a set of negatives, and how many of them are not zero."""
    return LossSum(total, block.positive_count * block.negative_count, active=active, anchors=len(block.labels))
