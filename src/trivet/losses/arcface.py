"""The ArcFace loss: a softmax over learned centres of the classes, with a margin of angle for the own class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import CentresLoss


@loss_options
class ArcFaceLoss(CentresLoss):
    """The softmax cross-entropy of the angles between an item and learned centres, with a margin for its own class.

    Mean over the items x of class y, theta_z the angle to the centre of class z, of

        -log(e^(scale cos(theta_y + margin)) / (e^(scale cos(theta_y + margin)) + sum_{z != y} e^(scale cos(theta_z)))).

    With several sub-centres of each class theta_z is the angle to the nearest, so that modes of a class, or wrong
    labels, have centres of their own.

    Args:
        margin: m of the paper, an angle in radians, in [0, pi / 2].
        sub_centers: K of Deng et al. 2020, where 3 is recommended; 1 is ArcFace.
        others: see `CentresLoss`.

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

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        if not 0 <= self.margin <= math.pi / 2:
            raise ValueError(f"margin must lie in [0, pi / 2], an angle in radians: got {self.margin}.")

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each item: the softmax with cos(theta + margin) for S = cos(theta) of the own class.

        Beyond theta = pi - margin, where that would rise again, S - margin sin(margin), as in the authors' code.
        """
        distance, margin = block.to_positive, self.margin  # 1 - S
        cosine = 1 - distance
        tiny = torch.finfo(distance.dtype).tiny
        sine = (distance * (2 - distance)).clamp_min(tiny).sqrt()  # without a slope at 0 and pi
        turned = cosine * math.cos(margin) - sine * math.sin(margin)
        target: Tensor = turned.where(cosine > -math.cos(margin), cosine - margin * math.sin(margin))
        return self.softmax_terms(block, target)
