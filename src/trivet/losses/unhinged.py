"""The unhinged triplet and margin losses: no hinge, so that wrong labels change the risk by a factor and a constant."""

from __future__ import annotations

from dataclasses import field, replace

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.losses.triplet_terms import chosen_triplets, flat_terms, pair_terms
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector

DIAMETER = 2.0  # d_max, of the unit sphere


@loss_options
class UnhingedTripletLoss(EmbeddingLoss):
    """The triplet loss without its hinge: every triplet counts, solved or not.

    Mean over the chosen triplets (a, p, n) of, with D the Euclidean distance of unit rows and d_max = 2,

        d_max + D(a, p) - D(a, n) + margin.

    With balanced classes and one negative drawn uniformly for each positive, symmetric label noise scales the expected
    loss and adds a constant. It is for theory and for noisy labels: nothing stops at the margin.

    Args:
        margin: alpha of the paper, in the unit of D, a constant here; also the margin of the bands of "semihard" and
            "violating".
        positives, negatives: a selector, or the name of one; "all" and "random" is the paper's 1-1 sampling.
        reduction: "mean" over the triplets or "sum".
        others: see `EmbeddingLoss`.

    Source:
        Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018, eq. 12.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> UnhingedTripletLoss(margin=0.2)(embeddings, torch.tensor([0, 0, 1]))  # 2 + 0 - 2 + 0.2
        tensor(0.2000)
    """

    reductions = ("mean", "sum")
    sums_sets = True
    negative_weight = "always"

    margin: float = 0.2
    positives: PositiveName | PositiveSelector = "all"
    negatives: NegativeName | NegativeSelector = "all"
    reduction: Reduction = "mean"
    distance: Distance = field(default="euclidean", init=False)
    normalize: bool = field(default=True, init=False)

    def formula(self, block: BlockView) -> LossTerms:
        """A term for each chosen triplet; never below the margin, and all count as active."""
        to_positive, to_negative, chosen = chosen_triplets(block)
        values = DIAMETER + to_positive - to_negative + self.margin
        return flat_terms(block, values, to_positive, chosen, all_active=True)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum over a set of negatives without a term for each triplet.

        A term is D(a, p) + (d_max - D(a, n)) + margin: each part is summed once, times the number of its partners.
        """
        positives, negatives = block.positive_count, block.negative_count
        pull = block.at_positives(block.to_positive, 0).sum(dim=1)  # (B,)
        push = DIAMETER * negatives - block.negative_total
        result = LossSum((pull * negatives + push * positives).sum(), positives * negatives, None, len(block.labels))
        return replace(result, total=result.total + self.margin * _number(result.count, pull))


@loss_options
class UnhingedMarginLoss(EmbeddingLoss):
    """The margin loss without its hinge.

    Over the chosen pairs, with D the Euclidean distance of unit rows, d_max = 2, and t = 1 for a positive pair, -1 for
    a negative one,

        d_max + (D - beta) t + margin.

    The two values of a pair, as a positive and as a negative one, always add up to 2 (d_max + margin).

    Args:
        margin: alpha of the paper, in the unit of D, a constant here; also the margin of the bands of "semihard" and
            "violating".
        beta: the boundary, in [0, 2], fixed; it shifts positives against negatives and has no gradient.
        reduction: "mean" over the (a, p, n) tuples, or over the pairs against a set of negatives; or "sum".
        trim_positives_only: `trim` leaves out the farthest positive pairs, their negatives stay.
        others: see `EmbeddingLoss`.

    Source:
        Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018, eq. 31.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> loss = UnhingedMarginLoss(reduction="sum")  # 2 (2 - 1.4 + 0.2) + 4 (2 + 1.4 - 2 + 0.2)
        >>> round(loss(embeddings, torch.tensor([0, 0, 1])).item(), 4)
        8.0
    """

    reductions = ("mean", "sum")
    term = "pair"
    sums_sets = True
    negative_weight = "always"

    margin: float = 0.2
    beta: float = 1.4
    positives: PositiveName | PositiveSelector = "all"
    negatives: NegativeName | NegativeSelector = "all"
    reduction: Reduction = "mean"
    distance: Distance = field(default="euclidean", init=False)
    normalize: bool = field(default=True, init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        self._check_reach(beta=self.beta)

    def formula(self, block: BlockView) -> LossTerms:
        """d_max + D(a, p) - beta + margin and d_max + beta - D(a, n) + margin for the chosen pairs of the block.

        Where each positive has its negative a term is the sum of both; against a set of negatives each pair is a term.
        """
        pull = DIAMETER + block.to_positive - self.beta + self.margin  # (B, S)
        push = DIAMETER + self.beta - block.to_negative + self.margin  # (B, S) or (B, M)
        return pair_terms(block, pull, push, all_active=True)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the pairs of the block."""
        anchors, counts = len(block.labels), (block.positive_count, block.negative_count)
        pull = block.at_positives(block.to_positive, 0).sum()
        push = -block.negative_total.sum()
        positives, negatives = (_number(anchors * c if isinstance(c, int) else c.sum(), pull) for c in counts)
        constant = (DIAMETER - self.beta + self.margin) * positives + (DIAMETER + self.beta + self.margin) * negatives
        return LossSum(total=pull + push + constant, counts=counts[0] + counts[1], active=None, anchors=anchors)


def _number(count: Tensor | int, like: Tensor) -> Tensor | int:
    """A count that keeps its digits when it is multiplied."""
    return count if isinstance(count, int) else count.to(like.dtype)
