"""The proxy-anchor loss: each learned proxy of a class against all items of the batch at once."""

from __future__ import annotations

from dataclasses import field

import torch

from trivet.losses.engine import BlockView, LossTerms, loss_options
from trivet.losses.proxies import ProxyLoss
from trivet.losses.set_sums import log_sum_exp, stable_softplus
from trivet.runtime.arguments import ABOVE_ZERO


@loss_options
class ProxyAnchorLoss(ProxyLoss):
    """Pull the items of a class to its proxy and push all others from it, the hardest items of the batch most.

    With one learned proxy p for each class, P all proxies and P+ those of the classes in the batch, X_p the items of
    the class of p, and S the cosine similarity:

        1 / |P+| sum_{p in P+} log(1 + sum_{x in X_p} exp(-scale (S_xp - margin)))
        + 1 / |P| sum_{p in P} log(1 + sum_{x not in X_p} exp(scale (S_xp + margin))).

    Args:
        scale: alpha of the paper, > 0.
        margin: delta of the paper, a similarity, >= 0.
        proxy_learning_rate: of the proxies, in the paper a hundred times that of the network.
        reduction: "mean" as above or "sum", |P| times that.
        block_size: proxies per block; None chooses one by memory.
        others: see `ProxyLoss`.

    Source:
        Kim, Kim, Cho, Kwak, "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020, eq. 4.

    Example:
        >>> loss = ProxyAnchorLoss(2, 2, scale=1.0, margin=0.0)
        >>> loss.proxies.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # log(1 + e^-1) + log(1 + e^0) / 2
        tensor(0.6598, grad_fn=<DivBackward0>)
    """

    gathers = True
    references_as_anchors = True

    scale: float = field(default=32.0, metadata=ABOVE_ZERO)
    margin: float = 0.1

    def formula(self, block: BlockView) -> LossTerms:
        """One term per proxy; the rows are those of proxies, against the items of the batch.

        With the first part times |P| / |P+| its mean over all proxies is that over P+; S = 1 - D.
        """
        scale, margin, count = self.scale, self.margin, self.num_classes
        present = block.reference_labels.new_zeros(count).index_fill_(0, block.reference_numbers, 1).sum()
        to_positive = block.at_positives(block.to_positive, -torch.inf)
        pull = stable_softplus(log_sum_exp(to_positive, scale) - scale * (1 - margin))
        push = stable_softplus(log_sum_exp(block.to_negative, -scale) + scale * (1 + margin))
        values = pull * (count / present.clamp_min(1).to(pull)) + push
        used = block.positive_chosen.any(dim=1) | (block.negative_count > 0)
        return LossTerms(values[:, None], used[:, None])
