"""Batch norm over a batch that is spread over several processes, as one process with the whole batch has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from trivet.mining.gather import gather_rows


class SharedBatchNorm(TorchFunctionMode):
    """In this context batch norm in training mode, of any module, is over the rows of all processes.

    torch's SyncBatchNorm does the same, on GPUs only, and takes the place of modules, which loses the activation of
    those of timm.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is functional.batch_norm:
            return _batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def normalises_batches(network: nn.Module) -> bool:
    """True if batch norm of a network in training mode depends on the batch."""
    return any(module.training for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As torch.nn.functional.batch_norm."""
    if not training:
        return functional.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.is_cuda:
        from torch.nn.modules._functions import SyncBatchNorm  # what torch.nn.SyncBatchNorm calls

        group = dist.group.WORLD
        arguments = (weight, bias, running_mean, running_var, eps, momentum, group, dist.get_world_size())
        normalised: Tensor = SyncBatchNorm.apply(input.contiguous(), *arguments)
        return normalised
    channels = (1, -1, *[1] * (input.ndim - 2))
    others = [axis for axis in range(input.ndim) if axis != 1]
    values = input if input.dtype == torch.float64 else input.float()
    local_mean = values.mean(others)
    local_spread = (values - local_mean.reshape(channels)).square().sum(others)
    local_count = local_mean.new_tensor([input.numel() / input.shape[1]])
    # The sums of the processes are put together as those of parts of one sample (Chan, Golub, LeVeque 1979).
    sent = torch.cat([local_mean, local_spread, local_count])
    each = gather_rows(sent[None], [1] * dist.get_world_size())  # (W, 2 C + 1)
    means, spreads = each[:, :-1].chunk(2, dim=1)
    counts = each[:, -1:]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    spread = (spreads + counts * (means - mean).square()).sum(0)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_((spread / (count - 1)).to(running_var), momentum)
    scale = torch.rsqrt(spread / count + eps)
    scale = scale if weight is None else scale * weight
    shifted = (values - mean.reshape(channels)) * scale.reshape(channels)
    return (shifted if bias is None else shifted + bias.reshape(channels)).to(input.dtype)
