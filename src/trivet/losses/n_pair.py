"""The multi-class N-pair loss."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import log_sum_exp, stable_softplus
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arguments import ABOVE_ZERO, AT_LEAST_ZERO


@loss_options
class NPairLoss(EmbeddingLoss):
    """Compare a positive with all negatives of the anchor at once.

    Mean over the chosen pairs (a, p), x the embeddings, n the chosen set of negatives, of

        log(1 + sum_n exp((x_a . x_n - x_a . x_p) / temperature)),

    plus l2_weight times the mean of |x|^2 over the batch, and over the references that are no item of it. References
    that come after the batch, as a memory's or with `gather`, do not count.

    Args:
        temperature: of the difference of dot products, > 0; 1 in the paper. With normalize=True and 0.1 it is InfoNCE
            against all other classes.
        l2_weight: >= 0; the paper keeps the norms small by such a penalty, of embeddings and references as given.
        negatives: "all" or another selector of a set.
        normalize: divide embeddings by their norm first; the paper does not.
        reduction: "mean" over the pairs or "sum"; the penalty is not divided.
        trim_positives_only: `trim` leaves out the pairs of the smallest x_a . x_p.
        others: see `EmbeddingLoss`.

    Source:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NIPS 2016, eq. 7. The paper's
        batch has one pair of each class, and the negatives are the others' positives: pass the anchors as embeddings
        and the positives as references for exactly that. Within one batch, every item of another class is a negative.

    Example:
        >>> anchors, positives = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([0, 1])  # log(1 + exp(0 - 1)) and log(1 + exp(0 - 2))
        >>> NPairLoss()(anchors, labels, references=positives, reference_labels=labels)
        tensor(0.2201)
    """

    reductions = ("mean", "sum")
    term = "set"
    needs_set = True

    temperature: float = field(default=1.0, metadata=ABOVE_ZERO)
    l2_weight: float = field(default=0.0, metadata=AT_LEAST_ZERO)
    positives: PositiveName | PositiveSelector = "random"
    negatives: NegativeName | NegativeSelector = "all"
    normalize: bool = False
    reduction: Reduction = "mean"
    margin: float = field(default=0.0, init=False)
    distance: Distance = field(default="squared_euclidean", init=False)
    disjoint: Disjoint = field(default=False, init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        self.norm_weight = self.l2_weight

    def formula(self, block: BlockView) -> LossTerms:
        """log(1 + sum_n exp((x_a . x_n - x_a . x_p) / temperature)) for each chosen positive; distances are squared.

        x_a . x = (|x|^2 - D(a, x)) / 2 + |x_a|^2 / 2, where the last part is the same for all and falls out. Terms have
        a pull, -x_a . x_p / temperature, where positives are trimmed.
        """
        if block.paired:
            raise ValueError(
                "indices must be pairs, 4 tensors (anchors, positives, anchors, negatives): got 3, triplets; "
                "pass (a, p, a, n), which compares each positive with all negatives of its anchor."
            )
        scale = 2 * self.temperature
        to_positive = (block.positive_norms - block.to_positive) / scale  # (B, S)
        to_negative = block.reference_norms - block.to_negative  # (B, M), -inf where not chosen
        values = stable_softplus(log_sum_exp(to_negative, 1 / scale)[:, None] - to_positive)
        pull = None
        if self.trim_positives_only:
            pull = -to_positive.detach() - block.anchor_norms.detach()[:, None] / scale
        chosen, opposed = block.positive_chosen, block.opposed
        if opposed is True:
            return LossTerms(values, chosen, pull=pull, all_chosen=block.all_chosen)
        return LossTerms(values, chosen & opposed, pull=pull)
