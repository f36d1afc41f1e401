"""Matryoshka: any loss at several prefixes of the embedding, so that each prefix is an embedding of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn

from trivet.losses.engine import EmbeddingLoss, StepStats
from trivet.runtime.arguments import explain_arguments


class MatryoshkaLoss(nn.Module):
    """The weighted sum of a loss of the first d numbers of each embedding, over several d.

    Each prefix is taken as an embedding: where the loss normalises, it has length 1. To know what each is worth,
    evaluate `embeddings[:, :d]`, with distance="cosine" where the loss normalises. It is called as a `EmbeddingLoss`
    is, also by a memory of past batches.

    Args:
        loss: for all prefixes; or one for each, in their order, as losses on proxies need: make each with
            embedding_dim the length of its prefix.
        prefixes: the lengths d, ascending, at least one; the last is usually the length of the embedding.
        weights: of the prefixes, >= 0; None for 1 each, as in the paper.

    Attributes:
        last: what the last call did at the longest prefix; None before the first.

    Source:
        Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022, eq. 1.

    Example:
        >>> import torch
        >>> from trivet import NPairLoss
        >>> loss = MatryoshkaLoss(NPairLoss(normalize=True), prefixes=(1, 2))
        >>> labels = torch.tensor([0, 0, 1])
        >>> loss(torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), labels)  # log 2 + log(1 + e^(0.7071 - 1))
        tensor(1.2505)
    """

    @explain_arguments
    def __init__(
        self,
        loss: EmbeddingLoss | Sequence[EmbeddingLoss],
        prefixes: Sequence[int],
        *,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.prefixes = tuple(prefixes)
        if not self.prefixes or self.prefixes[0] < 1 or list(self.prefixes) != sorted(set(self.prefixes)):
            raise ValueError(f"prefixes must be lengths of at least 1, ascending: got {self.prefixes}.")
        self.losses = nn.ModuleList([loss] if isinstance(loss, EmbeddingLoss) else loss)
        if len(self.losses) not in (1, len(self.prefixes)):
            raise ValueError(
                f"loss must be one for all prefixes or one for each: got {len(self.losses)} for {len(self.prefixes)}."
            )
        self.weights = (1.0,) * len(self.prefixes) if weights is None else tuple(weights)
        if len(self.weights) != len(self.prefixes) or not all(0 <= weight < math.inf for weight in self.weights):
            raise ValueError(
                f"weights must be a finite number of at least 0 for each of {len(self.prefixes)} prefixes: got "
                f"{self.weights}."
            )

    @property
    def longest(self) -> EmbeddingLoss:
        """The loss of the longest prefix, called last of all."""
        return cast(EmbeddingLoss, self.losses[-1])

    @property
    def last(self) -> StepStats | None:
        """Return what the last call did at the longest prefix."""
        return self.longest.last

    def extra_repr(self) -> str:
        """The options."""
        return f"prefixes={self.prefixes}, weights={self.weights}"

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Those of the losses."""
        return [group for loss in self.losses for group in cast(EmbeddingLoss, loss).optimizer_groups()]

    @explain_arguments
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        references: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """The weighted sum; arguments as of `EmbeddingLoss.forward`."""
        longest = self.prefixes[-1]
        if isinstance(embeddings, Tensor) and embeddings.ndim == 2 and embeddings.shape[1] < longest:
            raise ValueError(
                f"embeddings must be as long as the longest prefix, {longest}: got {embeddings.shape[1]}; choose "
                "shorter prefixes."
            )
        values = []
        for number, (prefix, weight) in enumerate(zip(self.prefixes, self.weights, strict=True)):
            rows, loss = _first(embeddings, prefix), self.losses[number % len(self.losses)]
            compared = rows if references is embeddings else _first(references, prefix)
            values.append(weight * loss(rows, labels, references=compared, **others))
        total: Tensor = sum(values[1:], values[0])
        return total


def of_batch(loss: EmbeddingLoss | MatryoshkaLoss) -> EmbeddingLoss:
    """The loss of the longest prefix; one without prefixes as it is."""
    return loss.longest if isinstance(loss, MatryoshkaLoss) else loss


def _first(rows: Any, prefix: int) -> Any:
    """The first numbers of each row; what is no matrix is left to the loss to refuse."""
    return rows[:, :prefix] if isinstance(rows, Tensor) and rows.ndim == 2 else rows
