"""Losses against learned proxies of the classes, which belong to the loss."""

# No postponed annotations: signatures of losses in other files hold these types.
from dataclasses import field
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trivet.distances import Distance, check_dense
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms, Reduction, loss_options
from trivet.losses.set_sums import log_sum_exp, stable_softplus
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.batch import Labels
from trivet.mining.index_tuples import Disjoint
from trivet.mining.relations import Relation
from trivet.runtime.arguments import ABOVE_ZERO, AT_LEAST_ZERO, check_count, explain_arguments


@loss_options
class ProxyLoss(EmbeddingLoss):
    """A loss that compares each item with one or more proxies of each class, and no two items.

    Args:
        num_classes: at least 2; labels must lie in [0, num_classes).
        embedding_dim: d.
        proxies_per_class: how many; those of a class stand side by side.
        proxy_learning_rate: of the proxies, which have no weight decay; of the group that `optimizer_groups` returns.
        reduction: "mean" over the items or "sum".
        generator: source of the initial proxies, normal numbers; None takes torch's global generator.
        others: see `EmbeddingLoss`.

    Attributes:
        gathers: whether a term is about several items, so that processes that share a batch need the rows of all.
        proxies: the parameter `(num_classes * proxies_per_class, embedding_dim)`; it is normalised where it is used.
    """

    reductions = ("mean", "sum")
    term = "proxy"
    parameter = "proxy"
    parameters_per = "class"
    gathers: ClassVar[bool] = False
    classes: Tensor = field(init=False)

    num_classes: int = field(kw_only=False)
    embedding_dim: int = field(kw_only=False)
    proxies_per_class: int = field(default=1, init=False)
    proxy_learning_rate: float = field(default=1e-2, metadata=AT_LEAST_ZERO)
    reduction: Reduction = "mean"
    margin: float = field(default=0.0, init=False)
    distance: Distance = field(default="cosine", init=False)
    positives: PositiveName | PositiveSelector = field(default="all", init=False)
    negatives: NegativeName | NegativeSelector = field(default="all", init=False)
    normalize: bool = field(default=True, init=False)
    trim_positives_only: bool = field(default=False, init=False)
    disjoint: Disjoint = field(default=False, init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        super().__post_init__(generator)
        if self.num_classes < 2:
            raise ValueError(
                f"num_classes must be at least 2: got {self.num_classes}; with a single proxy there are no negatives."
            )
        if self.embedding_dim < 1:
            raise ValueError(f"embedding_dim must be at least 1, the length of an embedding: got {self.embedding_dim}.")
        count = self.num_classes * self.proxies_per_class
        self.proxies = nn.Parameter(torch.randn(count, self.embedding_dim, generator=generator))
        classes = torch.arange(self.num_classes).repeat_interleave(self.proxies_per_class)
        self.register_buffer("classes", classes, persistent=False)  # of the proxies

    @explain_arguments
    def forward(
        self,
        embeddings: Tensor,
        labels: Labels | None,
        *,
        ids: Tensor | None = None,
        gather: bool | dist.ProcessGroup = False,
        **compared: Any,
    ) -> Tensor:
        """The loss of a batch against the proxies; `ids` change nothing, as no two items are compared.

        Raises:
            ValueError: as `EmbeddingLoss.forward`, and if references or indices are given.
        """
        name = type(self).__name__
        if any(argument is not None and argument is not False for argument in compared.values()):
            raise ValueError(
                f"references and indices must be left out: {name} compares each item with its proxies; "
                "use another loss to compare given rows."
            )
        if gather and not self.gathers:
            raise ValueError(
                f"gather must be left out: {name} does not compare items with each other, so no process needs the rows "
                "of another; average the losses over the processes, as DistributedDataParallel does."
            )
        if isinstance(embeddings, Tensor):
            check_dense(embeddings, name="embeddings")
        if isinstance(embeddings, Tensor) and embeddings.ndim == 2 and embeddings.shape[1] != self.embedding_dim:
            raise ValueError(
                f"embeddings must have the dimension of the proxies, {self.embedding_dim}: got {embeddings.shape[1]}; "
                "set embedding_dim to the length of an embedding."
            )
        of_proxies = labels.alone(self.classes) if isinstance(labels, Relation) else self.classes
        return super().forward(embeddings, labels, references=self.proxies, reference_labels=of_proxies, gather=gather)

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """One group with the proxies at their own learning rate, without weight decay."""
        return [{"params": [self.proxies], "lr": self.proxy_learning_rate, "weight_decay": 0.0}]


@loss_options
class CentresLoss(ProxyLoss):
    """A softmax over learned centres of the classes; with several of a class the nearest one counts.

    Args:
        scale: s of the paper, > 0.
        sub_centers: centres of each class, side by side in `proxies`.
        others: see `ProxyLoss`.
    """

    scale: float = field(default=64.0, metadata=ABOVE_ZERO)
    sub_centers: int = 1
    positives: PositiveName | PositiveSelector = field(default="easy", init=False)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        self.proxies_per_class = check_count(self.sub_centers, name="sub_centers")
        super().__post_init__(generator)

    def softmax_terms(self, block: BlockView, target: Tensor) -> LossTerms:
        """log(1 + sum_z exp(scale (S_z - target))) of each item, S_z the similarity to the nearest centre of another.

        Args:
            target: `(B, 1)`, what stands for the similarity to the nearest centre of the own class.
        """
        to_others, centers = block.to_negative, self.sub_centers
        if centers > 1:
            to_others = to_others.reshape(len(to_others), to_others.shape[1] // centers, -1).amin(dim=2)  # (B, C)
        values = stable_softplus(log_sum_exp(to_others, -self.scale)[:, None] + self.scale * (1 - target))
        return LossTerms(values, block.positive_chosen, all_chosen=block.all_chosen)
