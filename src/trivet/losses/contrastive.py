"""The contrastive loss."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import hinge_sum
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector


@loss_options
class ContrastiveLoss(EmbeddingLoss):
    """Pull positives together and push negatives at least a margin away.

    Sum over the chosen positive pairs of max(0, D(a, p) - positive_margin) and over the chosen negative pairs of
    max(0, margin - D(a, n)).

    Args:
        margin: in the unit of D.
        positive_margin: in the unit of D; positives within it are not pulled, so that a class need not be a point.
        distance: "squared_euclidean", "euclidean" or "cosine".
        positives, negatives: a selector, or the name of one; with both "all", every ordered pair counts.
        reduction: "objective" divides by N^2, all ordered pairs (N M against references); "mean" by the chosen
            pairs, zeros kept; "mean-active" by those above zero; "sum".
        others: see `EmbeddingLoss`.

    Source:
        Hadsell, Chopra, LeCun, CVPR 2006; in this form Levi et al., ICCV 2021, section 3. `positive_margin` is
        `pos_margin` of pytorch-metric-learning.

    Example:
        >>> embeddings = torch.tensor([[0.0], [1.0], [1.5]])
        >>> ContrastiveLoss(margin=1.0, reduction="sum")(embeddings, torch.tensor([0, 0, 1]))
        tensor(3.5000)
    """

    reductions = ("objective", "mean", "mean-active", "sum")
    term = "pair"
    not_settings = EmbeddingLoss.not_settings | {"normalize"}  # that of the model
    sums_sets = True
    negative_weight = "within-reach"

    positive_margin: float = 0.0
    distance: Distance = "squared_euclidean"
    positives: PositiveName | PositiveSelector = "all"
    negatives: NegativeName | NegativeSelector = "all"
    normalize: bool = False
    reduction: Reduction = "objective"

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        self._check_reach(margin=self.margin, positive_margin=self.positive_margin)

    def formula(self, block: BlockView) -> LossTerms:
        """The hinges D(a, p) - positive_margin for each chosen positive and margin - D(a, n) for each negative."""
        if not block.paired:
            block.settle(self._reach(block))
        push = (self.margin - block.to_negative).relu()
        return LossTerms(
            torch.cat([self._pull(block), push], dim=1),
            torch.cat([block.positive_chosen, block.negative_chosen], dim=1),
            pull=torch.cat([block.to_positive, torch.full_like(push, -torch.inf)], dim=1),
        )

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the hinges over a set of negatives."""
        pull = block.at_positives(self._pull(block), 0)
        push, active = hinge_sum(block.settle(self._reach(block)), block.to_negative)
        counts = block.positive_count + block.negative_count
        return LossSum(pull.sum() + push, counts, active=(pull.detach() > 0, active), anchors=len(block.labels))

    def _reach(self, block: BlockView) -> Tensor:
        return block.to_positive.new_full((len(block.labels), 1), self.margin)

    def _pull(self, block: BlockView) -> Tensor:
        return (block.to_positive - self.positive_margin).relu() if self.positive_margin else block.to_positive
