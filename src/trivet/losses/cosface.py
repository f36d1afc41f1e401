"""The CosFace loss: a softmax over learned centres of the classes, with a margin of similarity for the own class."""

from __future__ import annotations

from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import CentresLoss


@loss_options
class CosFaceLoss(CentresLoss):
    """The softmax cross-entropy of similarities to learned centres, with a margin for the own class.

    Mean over the items x of class y, S_z the cosine similarity to the centre of class z, of

        -log(e^(scale (S_y - margin)) / (e^(scale (S_y - margin)) + sum_{z != y} e^(scale S_z))).

    With several sub-centres of each class S_z is the similarity to the nearest, as in `ArcFaceLoss`; margin=0 is the
    normalised softmax.

    Args:
        margin: m of the paper, a similarity, >= 0.
        others: see `CentresLoss`.

    Source:
        Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018, eq. 4.

    Example:
        >>> import torch
        >>> loss = CosFaceLoss(2, 2, margin=0.5, scale=2.0)
        >>> loss.proxies.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # log(1 + e^(2 (0 - (1 - 0.5))))
        tensor(0.3133, grad_fn=<DivBackward0>)
    """

    margin: float = 0.35

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each item: the softmax with S - margin for the similarity S of the own class."""
        return self.softmax_terms(block, 1 - block.to_positive - self.margin)
