"""The margin loss with a learnable boundary beta."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from trivet.geometry import Distance
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.batch import Batch
from trivet.mining.names import check_at_least
from trivet.rows import Reduction, RowLoss, Rows, RowTerms


def margin_rows(rows: Rows, beta: Tensor, *, margin: float, with_self: bool = False) -> RowTerms:
    """max(0, D(a, p) - beta_a + margin) and max(0, beta_a - D(a, n) + margin) for the chosen pairs of the block.

    `beta` is `(B, 1)`. Where each positive has its negative a term is the sum of both; against a set of negatives
    each pair is a term. `with_self` adds the pair of the anchor with itself.
    """
    pull = relu(rows.to_positive - beta + margin)  # (B, S)
    push = relu(beta - rows.to_negative + margin)  # (B, S) or (B, M)
    if rows.paired:
        return RowTerms(pull + push, rows.positive_chosen, parts=2, active=(pull > 0).long() + (push > 0).long())
    values, chosen = [pull, push], [rows.positive_chosen, rows.negative_chosen]
    if with_self:
        values.append(relu(margin - beta))
        chosen.append(torch.ones_like(beta, dtype=torch.bool))
    return RowTerms(torch.cat(values, dim=1), torch.cat(chosen, dim=1))


class MarginLoss(RowLoss):
    """Keep positives within beta - margin of the anchor and negatives beyond beta + margin.

    Over the chosen pairs, with beta learned (one number, or one per class of the anchor):

        max(0, D(a, p) - beta + margin) + max(0, beta - D(a, n) + margin).

    Args:
        margin: alpha of the papers, in the unit of D.
        beta: initial boundary, in the unit of D.
        num_classes: None for one global beta; else one per class, and labels must lie in [0, num_classes).
        learn_beta: whether beta is a parameter; otherwise it stays as given.
        beta_learning_rate: of the group that `optimizer_groups` returns (no weight decay).
        beta_penalty: nu, weight of the penalty nu * sum(beta).
        distance: "euclidean" (Wu et al.), "squared_euclidean" or "cosine".
        positives, negatives: a selector, or the name of one.
        normalize: divide embeddings by their norm first.
        reduction: "mean-active" divides by the number of terms above zero, pulls and pushes counted apart; "mean" by
            the number of (a, p, n) tuples, or of pairs against a set of negatives; "anchors" by N; "sum"; "objective"
            by N^2 with the pairs i = j included (for positives="all", negatives="all").
        trim: share of the tuples (or pairs), those with the largest loss, left out.
        block_size, generator: see `RowLoss`.

    Shape:
        embeddings `(N, d)` float; labels `(N,)` integer; returns a scalar, 0 with a graph when nothing can be chosen.

    Raises:
        ValueError: if shapes disagree, a row is not finite, a label has no beta, or an option is out of range.

    Source:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, section 4; Levi et al., ICCV 2021,
        section 3, and appendix B for positives="easy", negatives="all", reduction="anchors".

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> loss = MarginLoss(positives="all", negatives="all", reduction="sum")
        >>> loss(embeddings, torch.tensor([0, 0, 1]))
        tensor(0.8284, grad_fn=<AddBackward0>)
    """

    reductions = ("mean-active", "mean", "anchors", "sum", "objective")
    beta: Tensor

    def __init__(
        self,
        *,
        margin: float = 0.2,
        beta: float = 1.2,
        num_classes: int | None = None,
        learn_beta: bool = True,
        beta_learning_rate: float = 5e-4,
        beta_penalty: float = 0.0,
        distance: Distance = "euclidean",
        positives: PositiveName | PositiveSelector = "random",
        negatives: NegativeName | NegativeSelector = "distance-weighted",
        normalize: bool = True,
        reduction: Reduction = "mean-active",
        trim: float = 0.0,
        block_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            distance=distance,
            positives=positives,
            negatives=negatives,
            margin=margin,
            normalize=normalize,
            reduction=reduction,
            trim=trim,
            block_size=block_size,
            generator=generator,
        )
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"num_classes must be at least 1: got {num_classes}; None uses one beta for all classes.")
        if reduction == "objective" and not (self.strategy.positives.pairwise and self.strategy.negatives.listed):
            raise ValueError(
                "reduction = 'objective' is the sum over all pairs: got another strategy; "
                "use positives='all' and negatives='all', or the reduction 'anchors'."
            )
        self.num_classes = num_classes
        self.check_reach(check_at_least(0, beta, name="beta"), name="beta")
        self.check_reach(margin, name="margin")
        self.beta_learning_rate = check_at_least(0, beta_learning_rate, name="beta_learning_rate")
        self.beta_penalty = check_at_least(0, beta_penalty, name="beta_penalty")
        start = torch.full(() if num_classes is None else (num_classes,), float(beta))
        if learn_beta:
            self.beta = nn.Parameter(start)
        else:
            self.register_buffer("beta", start)

    def check(self, batch: Batch) -> None:
        """Raise ValueError unless every anchor's label has a beta."""
        if self.num_classes is None or len(batch.labels) == 0:
            return
        low, high = torch.stack([batch.labels.min(), batch.labels.max()]).tolist()
        if low < 0 or high >= self.num_classes:
            raise ValueError(
                f"labels must lie in [0, {self.num_classes}) to have a beta each: got {low} to {high}; "
                "number the classes from 0, or set num_classes to their count."
            )

    def formula(self, rows: Rows) -> RowTerms:
        """Pulls and pushes of the block."""
        beta = self.beta.expand(len(rows.labels)) if self.num_classes is None else self.beta[rows.labels]
        with_self = self.reduction == "objective"
        return margin_rows(rows, beta[:, None], margin=self.margin, with_self=with_self)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        references: Tensor | None = None,
        reference_labels: Tensor | None = None,
        ids: Tensor | None = None,
        reference_ids: Tensor | None = None,
    ) -> Tensor:
        """As `RowLoss.forward`, plus the penalty on beta."""
        value = super().forward(
            embeddings,
            labels,
            references=references,
            reference_labels=reference_labels,
            ids=ids,
            reference_ids=reference_ids,
        )
        return value + self.beta_penalty * self.beta.sum() if self.beta_penalty else value

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """One group with beta at its own learning rate, without weight decay; empty if beta is fixed."""
        if not isinstance(self.beta, nn.Parameter):
            return []
        return [{"params": [self.beta], "lr": self.beta_learning_rate, "weight_decay": 0.0}]
