"""The ArcFace loss: a softmax over learned centres of the classes, with a margin of angle for the own class."""

from __future__ import annotations

import math
from dataclasses import field

import torch
from torch import Tensor

from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import ProxyLoss, margin_softmax
from trivet.mining import PositiveName, PositiveSelector
from trivet.runtime.arguments import check_above_zero, check_count


def arcface_terms(block: BlockView, *, margin: float, scale: float, sub_centers: int) -> LossTerms:
    """One term per item: `margin_softmax` with cos(theta + margin) for the similarity S = cos(theta) of the own class.

    Beyond theta = pi - margin, where that would rise again, S - margin sin(margin), as in the authors' code.
    """
    distance = block.to_positive  # 1 - S
    cosine = 1 - distance
    sine = (distance * (2 - distance)).clamp_min(torch.finfo(distance.dtype).tiny).sqrt()  # without a slope at 0 and pi
    turned = cosine * math.cos(margin) - sine * math.sin(margin)
    target: Tensor = turned.where(cosine > -math.cos(margin), cosine - margin * math.sin(margin))
    return margin_softmax(block, target, scale=scale, sub_centers=sub_centers)


@loss_options
class ArcFaceLoss(ProxyLoss):
    """The softmax cross-entropy of the angles between an item and learned centres, with a margin for its own class.

    Mean over the items x of class y, theta_z the angle to the centre of class z, of

        -log(e^(scale cos(theta_y + margin)) / (e^(scale cos(theta_y + margin)) + sum_{z != y} e^(scale cos(theta_z)))).

    With several sub-centres of each class theta_z is the angle to the nearest, so that modes of a class, or wrong
    labels, have centres of their own.

    Args:
        num_classes: at least 2; labels must lie in [0, num_classes).
        embedding_dim: d.
        margin: m of the paper, an angle in radians, in [0, pi / 2].
        scale: s of the paper, > 0.
        sub_centers: K of Deng et al. 2020, where 3 is recommended; 1 is ArcFace.
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
        Deng, Guo, Xue, Zafeiriou, "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR 2019, eq. 3;
        sub-centres of Deng, Guo, Liu, Gong, Zafeiriou, "Sub-center ArcFace", ECCV 2020.

    Example:
        >>> loss = ArcFaceLoss(2, 2, margin=0.5, scale=1.0)
        >>> loss.proxies.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # log(1 + e^(0 - cos 0.5))
        tensor(0.3477, grad_fn=<DivBackward0>)
    """

    margin: float = 0.5
    scale: float = 64.0
    sub_centers: int = 1
    positives: PositiveName | PositiveSelector = field(default="easy", init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        if not 0 <= self.margin <= math.pi / 2:
            raise ValueError(f"margin must lie in [0, pi / 2], an angle in radians: got {self.margin}.")
        check_above_zero(self.scale, name="scale")
        self.proxies_per_class = check_count(self.sub_centers, name="sub_centers")
        super().__post_init__(generator)

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each item."""
        return arcface_terms(block, margin=self.margin, scale=self.scale, sub_centers=self.sub_centers)
