"""The proxy-NCA loss: embeddings against one learned proxy per class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trivet.arguments import check_at_least
from trivet.geometry import check_dense
from trivet.losses.sums import log_sum_exp
from trivet.mining.batch import Batch, check_numbered
from trivet.rows import Reduction, RowLoss, Rows, RowTerms


def proxy_nca_rows(rows: Rows, *, scale: float) -> RowTerms:
    """scale D(a, p) + log sum_n exp(-scale D(a, n)) for each chosen positive p, n the other proxies.

    A term may be negative, so all count as active.
    """
    values = scale * rows.to_positive + log_sum_exp(rows.to_negative, -scale)[:, None]
    return RowTerms(values, rows.positive_chosen, active=rows.positive_chosen.long(), every=rows.every)


class ProxyNCALoss(RowLoss):
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
        block_size: see `RowLoss`.
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

    reductions = ("mean", "sum")
    term = "proxy"
    parameters_per = "class"

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        scale: float = 9.0,
        proxy_learning_rate: float = 1e-2,
        reduction: Reduction = "mean",
        trim: float = 0.0,
        block_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            distance="squared_euclidean",
            positives="all",
            negatives="all",
            margin=0.0,
            normalize=True,
            reduction=reduction,
            trim=trim,
            block_size=block_size,
            generator=generator,
        )
        if num_classes < 2:
            raise ValueError(
                f"num_classes must be at least 2: got {num_classes}; with a single proxy there are no negatives."
            )
        if embedding_dim < 1:
            raise ValueError(f"embedding_dim must be at least 1, the length of an embedding: got {embedding_dim}.")
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a finite number above 0: got {scale}.")
        self.num_classes, self.embedding_dim, self.scale = num_classes, embedding_dim, scale
        self.proxy_learning_rate = check_at_least(0, proxy_learning_rate, name="proxy_learning_rate")
        self.proxies = nn.Parameter(torch.randn(num_classes, embedding_dim, generator=generator))

    def formula_parameters(self) -> list[nn.Parameter]:
        """None: the proxies are the references."""
        return []

    def check(self, batch: Batch) -> None:
        """Raise ValueError unless every label has a proxy."""
        check_numbered(batch.labels, self.num_classes, name="labels", option="num_classes", owned="a proxy")

    def formula(self, rows: Rows) -> RowTerms:
        """One term for each item."""
        return proxy_nca_rows(rows, scale=self.scale)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        references: Tensor | None = None,
        reference_labels: Tensor | None = None,
        ids: Tensor | None = None,
        reference_ids: Tensor | None = None,
        with_batch: bool = False,
        indices: Sequence[Tensor] | None = None,
        gather: bool | dist.ProcessGroup = False,
    ) -> Tensor:
        """The loss of a batch against the proxies; `ids` change nothing, as no two items are compared.

        Raises:
            ValueError: as `RowLoss.forward`, and if references or indices are given.
        """
        if with_batch or any(given is not None for given in (references, reference_labels, reference_ids, indices)):
            raise ValueError(
                "references and indices must be left out: ProxyNCALoss compares each item with its proxies; "
                "use another loss to compare given rows."
            )
        if gather:
            raise ValueError(
                "gather must be left out: ProxyNCALoss does not compare items with each other, so no process needs "
                "the rows of another; average the losses over the processes, as DistributedDataParallel does."
            )
        if isinstance(embeddings, Tensor):
            check_dense(embeddings, name="embeddings")
        if isinstance(embeddings, Tensor) and embeddings.ndim == 2 and embeddings.shape[1] != self.embedding_dim:
            raise ValueError(
                f"embeddings must have the dimension of the proxies, {self.embedding_dim}: got {embeddings.shape[1]}; "
                "set embedding_dim to the length of an embedding."
            )
        classes = torch.arange(self.num_classes, device=self.proxies.device)
        return super().forward(embeddings, labels, references=self.proxies, reference_labels=classes)

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """One group with the proxies at their own learning rate, without weight decay."""
        return [{"params": [self.proxies], "lr": self.proxy_learning_rate, "weight_decay": 0.0}]
