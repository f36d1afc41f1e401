"""Penalties that a loss may add to its terms, by the weights it declares."""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from trivet.mining.batch import Batch
from trivet.mining.gather import sum_over_processes


def parameter_penalty(
    parameters: Tensor,
    batch: Batch,
    per: Literal["class", "sample"] | None,
    weight: float,
) -> Tensor:
    """The weight times the sum of the parameters `(C,)` of the classes or samples of the batch, or of one for all."""
    if per is not None:
        anchors = batch.with_all_anchors()
        numbers = anchors.labels if per == "class" else anchors.ids
        assert numbers is not None
        parameters = parameters * torch.zeros_like(parameters).index_fill_(0, numbers, 1)
    return weight * parameters.sum()


def norm_penalty(
    embeddings: Tensor, references: Tensor | None, batch: Batch, weight: float, gather: bool | dist.ProcessGroup
) -> Tensor:
    """The weight times the mean squared norm of the rows `(N, d)`, `(M, d)` as given, each item of the batch once.

    Args:
        references: those of the batch; None where they are none of its own, as with several processes.
    """
    squares = embeddings.square().sum(dtype=torch.float64)  # finite where the mean is
    count = torch.full_like(squares, len(embeddings))
    if gather:
        group = None if isinstance(gather, bool) else gather
        squares, count = (sum_over_processes(value, group=group) for value in (squares, count))
    if references is not None:
        ids, items = batch.reference_ids, batch.ids
        others = torch.ones(len(references), dtype=torch.bool, device=references.device)
        if ids is not None and items is not None:
            others = ~torch.isin(ids, items)
        squares = squares + (references.square().sum(dim=1, dtype=torch.float64) * others).sum()
        count = count + others.sum()
    return (weight * squares / count.clamp_min(1)).to(embeddings.dtype)
