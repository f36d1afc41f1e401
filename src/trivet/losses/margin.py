"""The margin loss with a learnable boundary beta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from trivet.distances import Distance
from trivet.losses.engine import BlockView, EmbeddingLoss, LossSum, LossTerms, Reduction
from trivet.losses.set_sums import hinge_sum
from trivet.losses.triplet_terms import pair_terms
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arguments import check_at_least, check_count, check_name, explain_arguments


class MarginLoss(EmbeddingLoss):
    """Keep positives within beta - margin of the anchor and negatives beyond beta + margin.

    Over the chosen pairs, with beta learned (one number, or one per class or per sample of the anchor):

        max(0, D(a, p) - beta + margin) + max(0, beta - D(a, n) + margin).

    Args:
        margin: alpha of the papers, in the unit of D.
        beta: initial boundary, in the unit of D.
        num_classes: None for one global beta; else one per class, and labels must lie in [0, num_classes).
        beta_per: "class" for one beta per class, if num_classes is given; "set" for one in all.
        num_samples: one beta per sample instead: then `ids` must be given, in [0, num_samples).
        learn_beta: whether beta is a parameter; otherwise it stays as given.
        beta_learning_rate: of beta, which has no weight decay; of the group that `optimizer_groups` returns.
        beta_penalty: nu, weight of the penalty nu * sum(beta) over the classes (or samples) of the batch, each once; of
            one global beta, nu * beta. Wu et al. add nu * beta of the anchor to each tuple, and divide with the loss.
        distance: "euclidean" (Wu et al.), "squared_euclidean" or "cosine".
        reduction: "mean-active" divides by the number of terms above zero, pulls and pushes counted apart; "mean" by
            the number of (a, p, n) tuples, or of pairs against a set of negatives; "anchors" by N; "sum"; "objective"
            by N^2 with the pairs i = j included (for positives="all", negatives="all").
        trim_positives_only: `trim` leaves out the positive pairs with the largest loss, their negatives stay.
        others: see `EmbeddingLoss`.

    Source:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, section 4; Levi et al., ICCV 2021,
        section 3, and appendix B for positives="easy", negatives="all", reduction="anchors".

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> loss = MarginLoss(positives="all", negatives="all", reduction="sum")
        >>> loss(embeddings, torch.tensor([0, 0, 1])).detach()
        tensor(0.8284)
    """

    reductions = ("mean-active", "mean", "anchors", "sum", "objective")
    term = "pair"
    sums_sets = True
    negative_weight = "within-reach"
    parameter = "beta"
    beta: Tensor

    @explain_arguments
    def __init__(
        self,
        *,
        margin: float = 0.2,
        beta: float = 1.2,
        num_classes: int | None = None,
        beta_per: Literal["class", "set"] = "class",
        num_samples: int | None = None,
        learn_beta: bool = True,
        beta_learning_rate: float = 5e-4,
        beta_penalty: float = 0.0,
        distance: Distance = "euclidean",
        positives: PositiveName | PositiveSelector = "random",
        negatives: NegativeName | NegativeSelector = "distance-weighted",
        normalize: bool = True,
        reduction: Reduction = "mean-active",
        trim: float = 0.0,
        trim_positives_only: bool = False,
        disjoint: Disjoint = False,
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
            trim_positives_only=trim_positives_only,
            disjoint=disjoint,
            block_size=block_size,
            generator=generator,
        )
        check_name(beta_per, ("class", "set"), name="beta_per")
        if num_classes is not None and num_samples is not None:
            raise ValueError(
                "beta is per class or per sample: got num_classes and num_samples both; set one of them to None."
            )
        for name, number in (("num_classes", num_classes), ("num_samples", num_samples)):
            if number is not None:
                check_count(number, name=name)
        self._check_objective("pairs", "anchors")
        self.num_classes = None if beta_per == "set" else num_classes
        self.beta_per, self.num_samples = beta_per, num_samples
        number = num_samples if self.num_classes is None else self.num_classes
        if number is not None:
            self.parameters_per = "class" if num_samples is None else "sample"
        self._check_reach(beta=beta, margin=margin)
        self.beta_learning_rate = check_at_least(0, beta_learning_rate, name="beta_learning_rate")
        self.beta_penalty = self.parameter_weight = check_at_least(0, beta_penalty, name="beta_penalty")
        self.learn_beta = learn_beta
        self._start = float(beta)
        start = torch.full(() if number is None else (number,), self._start)
        if learn_beta:
            self.beta = nn.Parameter(start)
        else:
            self.register_buffer("beta", start)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MarginLoss:
        """Convert, such as `.double()`; a beta that has not changed becomes the one given, not its float32 rounding."""
        unchanged = not self.beta.is_meta and bool((self.beta == self._start).all())
        super()._apply(fn, recurse)
        if unchanged and not self.beta.is_meta:
            with torch.no_grad():
                self.beta.fill_(self._start)
        return self

    def formula(self, block: BlockView) -> LossTerms:
        """Pulls and pushes of the chosen pairs; the objective counts the pair of each anchor with itself too."""
        beta, margin = self.beta_of(block), self.margin
        if not block.paired:
            block.settle(beta.to(block.to_positive.dtype) + margin)
        pull = relu(block.to_positive - beta + margin)  # (B, S)
        push = relu(beta - block.to_negative + margin)  # (B, S) or (B, M)
        return pair_terms(block, pull, push, alone=relu(margin - beta) if self.reduction == "objective" else None)

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of pulls and pushes over a set of negatives."""
        beta, margin = self.beta_of(block), self.margin
        block.settle(beta.to(block.to_positive.dtype) + margin)
        pull = block.at_positives(relu(block.to_positive - beta + margin), 0)
        push, active = hinge_sum(beta + margin, block.to_negative)
        count = block.positive_count + block.negative_count
        total = pull.sum() + push
        numbers: tuple[Tensor, ...] = (pull.detach() > 0, active)
        if self.reduction == "objective":
            alone = relu(margin - beta)
            total, numbers, count = total + alone.sum(), (*numbers, alone.detach() > 0), count + 1
        return LossSum(total=total, counts=count, active=numbers, anchors=len(block.labels))

    def beta_of(self, block: BlockView) -> Tensor:
        """The boundary of each anchor, `(B, 1)`."""
        if self.parameters_per is None:
            return self.beta.expand(len(block.labels))[:, None]
        numbers = block.labels if self.parameters_per == "class" else block.ids
        assert numbers is not None
        return self.beta[numbers][:, None]

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """One group with beta at its own learning rate, without weight decay; empty if beta is fixed."""
        group = {"params": [self.beta], "lr": self.beta_learning_rate, "weight_decay": 0.0}
        return [group] if self.learn_beta else []
