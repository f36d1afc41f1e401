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
    max(0, margin - D(a, n)). With `relevance_margin`, r being how relevant the two are to each other, these are
    max(0, D(a, p) - positive_margin - margin (1 - r)) and max(0, margin (1 - r) - D(a, n)): of half as relevant items
    positives need not come as near, and negatives may be nearer.

    Args:
        margin: in the unit of D.
        positive_margin: in the unit of D; positives within it are not pulled, so that a class need not be a point.
        relevance_margin: whether the margin depends on the grades of a relation, of `Grades` or `Tags`.
        distance: "squared_euclidean", "euclidean" or "cosine".
        positives, negatives: a selector, or the name of one; with both "all", every ordered pair counts.
        reduction: "objective" divides by N^2, all ordered pairs (N M against references); "mean" by the chosen
            pairs, zeros kept; "mean-active" by those above zero; "sum".
        others: see `EmbeddingLoss`.

    Source:
        Hadsell, Chopra, LeCun, CVPR 2006; in this form Levi et al., ICCV 2021, section 3. `positive_margin` is
        `pos_margin` of pytorch-metric-learning. `relevance_margin`: Falcon et al., "Relevance-based Margin for
        Contrastively-trained Video Retrieval Models", ICMR 2022, scale the margin of negatives by 1 - r; that of
        positives is ours.

    Example:
        >>> embeddings = torch.tensor([[0.0], [1.0], [1.5]])
        >>> ContrastiveLoss(margin=1.0, reduction="sum")(embeddings, torch.tensor([0, 0, 1]))
        tensor(3.5000)
        >>> from trivet import Grades
        >>> grades = Grades([[1.0, 0.5], [0.5, 1.0]], positive=1.0)[[0, 0, 1]]  # half as relevant: pushed to half of 4
        >>> ContrastiveLoss(margin=4.0, relevance_margin=True, reduction="sum")(embeddings, grades)
        tensor(5.5000)
    """

    reductions = ("objective", "mean", "mean-active", "sum")
    term = "pair"
    not_settings = EmbeddingLoss.not_settings | {
        "normalize",
        "relevance_margin",
    }  # that of the model; classes have no grades
    sums_sets = True
    negative_weight = "within-reach"

    positive_margin: float = 0.0
    relevance_margin: bool = False
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
        push = (self._settled_reach(block) - block.to_negative).relu()
        return LossTerms(
            torch.cat([self._pull(block), push], dim=1),
            torch.cat([block.positive_chosen, block.negative_chosen], dim=1),
            pull=torch.cat([block.to_positive, torch.full_like(push, -torch.inf)], dim=1),
        )

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the hinges over a set of negatives."""
        pull, reach = block.at_positives(self._pull(block), 0), self._settled_reach(block)
        if self.relevance_margin:
            hinges = (reach - block.to_negative).relu()
            push, active = hinges.sum(), (hinges.detach() > 0).sum(dim=1)
        else:
            push, active = hinge_sum(reach, block.to_negative)
        counts = block.positive_count + block.negative_count
        return LossSum(pull.sum() + push, counts, active=(pull.detach() > 0, active), anchors=len(block.labels))

    def _settled_reach(self, block: BlockView) -> Tensor:
        """The distance to which negatives are pushed, `(B, 1)` or of each; `to_negative` is exact there."""
        if self.relevance_margin:
            reach = self.margin * (1 - block.relevance_to_negative)
            return reach if block.paired else block.settle_each(reach)
        reach = block.to_positive.new_full((len(block.labels), 1), self.margin)
        return reach if block.paired else block.settle(reach)

    def _pull(self, block: BlockView) -> Tensor:
        if self.relevance_margin:
            within = self.positive_margin + self.margin * (1 - block.relevance_to_positive)
            return (block.to_positive - within).relu()
        return (block.to_positive - self.positive_margin).relu() if self.positive_margin else block.to_positive
