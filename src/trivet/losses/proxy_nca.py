"""The proxy-NCA loss: embeddings against one learned proxy per class."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.distances import Distance
from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import ProxyLoss
from trivet.losses.set_sums import log_sum_exp
from trivet.runtime.arguments import check_above_zero


def proxy_nca_terms(block: BlockView, *, scale: float) -> LossTerms:
    """scale D(a, p) + log sum_n exp(-scale D(a, n)) for each chosen positive p, n the other proxies.

    A term may be negative, so all count as active.
    """
    values = scale * block.to_positive + log_sum_exp(block.to_negative, -scale)[:, None]
    return LossTerms(values, block.positive_chosen, active=block.positive_chosen, all_chosen=block.all_chosen)


@loss_options
class ProxyNCALoss(ProxyLoss):
    """Pull each item to the proxy of its class and push it from all others; no positives or negatives are mined.

    Mean over the items x of class y, with one learned proxy p_z for each class z, of

        -log(exp(-scale D(x, p_y)) / sum_{z != y} exp(-scale D(x, p_z))),

    D the squared Euclidean distance of unit rows, in [0, 4]. As in the paper the sum leaves out the own class, so the
    value falls below 0. Widely used code includes it; its value is log(1 + exp(this)) of each item.

    Args:
        num_classes: at least 2; labels must lie in [0, num_classes).
        embedding_dim: d.
        scale: > 0; 1 is the paper's equation, 9 that of Teh et al., "ProxyNCA++", ECCV 2020 (temperature 1/9).
        proxy_learning_rate: of the proxies, which have no weight decay; of the group that `optimizer_groups` returns.
            The paper names none. It should be above that of the network (Teh et al.), as a proxy moves only with the
            items of a batch.
        reduction: "mean" over the items or "sum".
        trim: share of the items, those with the largest loss, left out.
        block_size: see `EmbeddingLoss`.
        generator: source of the initial proxies, normal numbers; None takes torch's global generator.

    Attributes:
        proxies: the parameter `(num_classes, embedding_dim)`; it is normalised where it is used.

    Shape:
        embeddings `(N, embedding_dim)` float, normalised here; labels `(N,)` integer; returns a scalar,
        exactly 0 with a graph for an empty batch.

    Raises:
        ValueError: if shapes disagree, a row is not finite, a label has no proxy, or an option is out of range.

    Source:
        Movshovitz-Attias, Toshev, Leung, Ioffe, Singh, "No Fuss Distance Metric Learning using Proxies", ICCV 2017,
        eq. 4, with one proxy per class ("static assignment").

    Example:
        >>> loss = ProxyNCALoss(2, 2, scale=1.0)
        >>> loss.proxies.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # 0 - 2
        tensor(-2., grad_fn=<DivBackward0>)
    """

    scale: float = 9.0
    distance: Distance = field(default="squared_euclidean", init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        check_above_zero(self.scale, name="scale")

    def formula(self, block: BlockView) -> LossTerms:
        """One term for each item."""
        return proxy_nca_terms(block, scale=self.scale)
