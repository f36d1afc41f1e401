"""Both directions of a loss between two sides."""

from __future__ import annotations

from torch import Tensor, nn

from trivet.losses.engine import EmbeddingLoss
from trivet.mining.batch import Labels
from trivet.runtime.arguments import explain_arguments


class SymmetricLoss(nn.Module):
    """The mean of a loss of one side against the other, and back: of queries and documents, or images and texts.

    With `SupConLoss` or `NPairLoss(normalize=True)` it is the in-batch softmax in both directions.

    Args:
        loss: any loss of this library that compares a batch with references.

    Shape:
        embeddings `(N, d)`, references `(M, d)` float, with labels of each, such as `Pairs.left` and `Pairs.right`.
        Other arguments, of the first direction, are as of the loss: ids with `ids` and `reference_ids`. Returns a
        scalar.

    Raises:
        ValueError: as the loss.

    Source:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021, section 2.3.

    Example:
        >>> import torch, trivet
        >>> pairs = trivet.Pairs(["how much", "where"], ["ten", "here"])
        >>> loss = trivet.SymmetricLoss(trivet.SupConLoss(temperature=1.0))
        >>> documents = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> loss(torch.eye(2), pairs.left, references=documents, reference_labels=pairs.right)
        tensor(0.7532)
    """

    @explain_arguments
    def __init__(self, loss: EmbeddingLoss) -> None:
        super().__init__()
        self.loss = loss

    @explain_arguments
    def forward(
        self,
        embeddings: Tensor,
        labels: Labels,
        *,
        references: Tensor,
        reference_labels: Labels,
        ids: Tensor | None = None,
        reference_ids: Tensor | None = None,
    ) -> Tensor:
        there = self.loss(
            embeddings, labels, references=references, reference_labels=reference_labels, ids=ids,
            reference_ids=reference_ids,
        )  # fmt: skip
        back = self.loss(
            references, reference_labels, references=embeddings, reference_labels=labels, ids=reference_ids,
            reference_ids=ids,
        )  # fmt: skip
        value: Tensor = (there + back) / 2
        return value
