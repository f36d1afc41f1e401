"""The CosFace loss: a softmax over learned centres of the classes, with a margin of similarity for the own class."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import ProxyLoss, margin_softmax
from trivet.mining import PositiveName, PositiveSelector
from trivet.runtime.arguments import check_above_zero, check_count


def cosface_terms(block: BlockView, *, margin: float, scale: float, sub_centers: int) -> LossTerms:
    """One term per item: `margin_softmax` with S - margin for the similarity S of the own class."""
    return margin_softmax(block, 1 - block.to_positive - margin, scale=scale, sub_centers=sub_centers)


@loss_options
class CosFaceLoss(ProxyLoss):
    """The softmax cross-entropy of similarities to learned centres, with a margin for the own class.

    Mean over the items x of class y, S_z the cosine similarity to the centre of class z, of

        -log(e^(scale (S_y - margin)) / (e^(scale (S_y - margin)) + sum_{z != y} e^(scale S_z))).

    With several sub-centres of each class S_z is the similarity to the nearest, as in `ArcFaceLoss`; margin=0 is the
    normalised softmax.

    Args:
        num_classes: at least 2; labels must lie in [0, num_classes).
        embedding_dim: d.
        margin: m of the paper, a similarity, >= 0.
        scale: s of the paper, > 0.
        sub_centers: centres of each class.
        proxy_learning_rate: of the centres, which have no weight decay; of the group that `optimizer_groups` returns.
        reduction: "mean" over the items or "sum".
        trim: share of the items, those with the largest loss, left out.
        block_size: see `EmbeddingLoss`.
        generator: source of the initial centres, normal numbers; None takes torch's global generator.

    Attributes:
        proxies: the centres, a parameter `(num_classes * sub_centers, embedding_dim)`, those of a class side by side;
            normalised where they are used.

    Shape:
        embeddings `(N, embedding_dim)` float, normalised here; labels `(N,)` integer; returns a scalar >= 0,
        exactly 0 with a graph for an empty batch.

    Raises:
        ValueError: if shapes disagree, a row is not finite, a label has no centre, or an option is out of range.

    Source:
        Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018, eq. 4.

    Example:
        >>> loss = CosFaceLoss(2, 2, margin=0.5, scale=2.0)
        >>> loss.proxies.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # log(1 + e^(2 (0 - (1 - 0.5))))
        tensor(0.3133, grad_fn=<DivBackward0>)
    """

    margin: float = 0.35
    scale: float = 64.0
    sub_centers: int = 1
    positives: PositiveName | PositiveSelector = field(default="easy", init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        check_above_zero(self.scale, name="scale")
        self.proxies_per_class = check_count(self.sub_centers, name="sub_centers")
        super().__post_init__(generator)

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each item."""
        return cosface_terms(block, margin=self.margin, scale=self.scale, sub_centers=self.sub_centers)
