"""The proxy-NCA loss: embeddings against one learned proxy per class."""

from __future__ import annotations

from dataclasses import field

from trivet.distances import Distance
from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import ProxyLoss
from trivet.losses.set_sums import log_sum_exp
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class ProxyNCALoss(ProxyLoss):
    """Pull each item to the proxy of its class and push it from all others; no positives or negatives are mined.

    Mean over the items x of class y, with one learned proxy p_z for each class z, of

        -log(exp(-scale D(x, p_y)) / sum_{z != y} exp(-scale D(x, p_z))),

    D the squared Euclidean distance of unit rows, in [0, 4]. As in the paper the sum leaves out the own class, so the
    value falls below 0. Widely used code includes it; its value is log(1 + exp(this)) of each item.

    Args:
        scale: > 0; 1 is the paper's equation, 9 that of Teh et al., "ProxyNCA++", ECCV 2020 (temperature 1/9).
        proxy_learning_rate: of the proxies. The paper names none. It should be above that of the network (Teh et al.),
            as a proxy moves only with the items of a batch.
        others: see `ProxyLoss`.

    Source:
        Movshovitz-Attias, Toshev, Leung, Ioffe, Singh, "No Fuss Distance Metric Learning using Proxies", ICCV 2017,
        eq. 4, with one proxy per class ("static assignment").

    Example:
        >>> import torch
        >>> loss = ProxyNCALoss(2, 2, scale=1.0)
        >>> loss.proxies.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # 0 - 2
        tensor(-2., grad_fn=<DivBackward0>)
    """

    scale: float = field(default=9.0, metadata=ABOVE_ZERO)
    distance: Distance = field(default="squared_euclidean", init=False)

    def formula(self, block: BlockView) -> LossTerms:
        """scale D(x, p_y) + log sum_z exp(-scale D(x, p_z)); it may be negative, so all terms count as active.

        An item with all tags has no proxy z, and no term.
        """
        values = self.scale * block.to_positive + log_sum_exp(block.to_negative, -self.scale)[:, None]
        chosen, opposed = block.positive_chosen, block.opposed
        every = block.all_chosen and opposed is True
        chosen = chosen if opposed is True else chosen & opposed
        return LossTerms(values, chosen, active=chosen, all_chosen=every)
