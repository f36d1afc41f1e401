"""The approximate NDCG loss."""

from __future__ import annotations

from dataclasses import field

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms, Reduction, loss_options
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.batch import Batch
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class ApproxNDCGLoss(EmbeddingLoss):
    """Rank the items that belong to the anchor before all others, the more relevant ones first.

    Mean over the anchors a that have a relevant positive of 1 - DCG / IDCG, with

        DCG = sum_p g_p / log2(1 + rank_p),  rank_p = 1 + sum_{j != p} 1 / (1 + exp((S_ap - S_aj) / temperature)),

    where p goes through the chosen positives, j through these and the chosen negatives, S is the cosine similarity and
    g_p how relevant p is: the grade of a relation such as `Grades` or `Tags`, 1 of a class. IDCG is the DCG of the best
    order. The value lies in [0, 1); at a low temperature it is 1 - nDCG, whose gradient vanishes.

    Args:
        temperature: > 0; a similarity that is higher by much more than that is one rank above. 0.1 as in
            TensorFlow Ranking.
        reduction: "mean" over the anchors with a relevant positive, "anchors" divides by N, or "sum".
        others: see `EmbeddingLoss`.

    Source:
        Qin, Liu, Li, "A general approximation framework for direct optimization of information retrieval measures",
        Information Retrieval 13, 2010, section 4; there the gains are 2^g - 1, here g.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
        >>> loss = ApproxNDCGLoss(temperature=0.01)
        >>> loss(embeddings, torch.tensor([0, 0, 1]))  # rank 2 of the first, 1 + 1 / 2 of the second
        tensor(0.3063)
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
        """One term per anchor with a chosen positive of relevance above 0: 1 - DCG / IDCG.

        S_ap - S_aj = D_aj - D_ap.
        """
        block = block.once()
        to_negative = block.to_negative.where(block.negative_chosen, torch.inf) if block.paired else block.to_negative
        to_positive, gains = (
            block.at_positives(block.to_positive, 0),
            block.at_positives(block.relevance_to_positive, 0),
        )
        above = self._above(to_positive, block.at_positives(block.to_positive, torch.inf))
        ranks = 0.5 + above + self._above(to_positive, to_negative)  # p is half above itself
        total = (gains / torch.log2(1 + ranks)).sum(dim=1)
        order = torch.arange(2, gains.shape[1] + 2, dtype=gains.dtype, device=gains.device)
        ideal = (gains.sort(dim=1, descending=True).values / order.log2()).sum(dim=1)
        used = ideal > 0
        return LossTerms((1 - total / ideal.where(used, 1))[:, None], used[:, None])

    def _above(self, distances: Tensor, others: Tensor) -> Tensor:
        """The number, smoothed, of `others (B, M)` that are nearer than each of `distances (B, S)`, `(B, S)`."""
        return torch.sigmoid((distances[:, :, None] - others[:, None]) / self.temperature).sum(dim=2)

    def numbers(self, batch: Batch) -> int:
        """Return about how many numbers the formula stores for each anchor: those of each positive with all others."""
        slots = batch.adjacency.most if self.strategy.positives.pairwise else 1
        return 2 * slots * (slots + len(batch.references))
