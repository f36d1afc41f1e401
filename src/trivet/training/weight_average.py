"""A moving average of the weights of a network, which is often better than the network itself.

Not torch.optim.swa_utils.AveragedModel: that takes the weights of the first update as they are, and averages the counts
of batch norm as well, which are no numbers to be averaged.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn


def decay_at(step: int, decay: float) -> float:
    """The decay of a step: min(decay, (1 + step) / (10 + step)), so that the first weights are soon forgotten.

    Source:
        The argument num_updates of TensorFlow's ExponentialMovingAverage.
    """
    return min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move the average to the weights of a network: decay * average + (1 - decay) * weight.

    The statistics of batch norm are averaged in the same way, as they belong to weights of the same age; what counts is
    copied.

    Args:
        average: a copy of the network, changed in place.
        decay: from 0 to 1.

    Source:
        Tarvainen, Valpola, "Mean teachers are better role models", NeurIPS 2017, eq. 1.
    """
    averaged, trained = (chain[Tensor](network.parameters(), network.buffers()) for network in (average, model))
    for mine, its in zip(averaged, trained, strict=True):
        if mine.is_floating_point():
            mine.lerp_(its, 1 - decay)
        else:
            mine.copy_(its)
