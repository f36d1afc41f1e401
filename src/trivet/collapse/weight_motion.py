"""Distance of the weights of a network from those with which its training began."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trivet.distances.device import precise

NOTHING = 0.01  # scale of what a matrix makes of random inputs over theirs, below which it began as good as 0
SAMPLED = 1000  # entries of a layer that are kept


class WeightMotion(NamedTuple):
    """||W - W_0|| / ||W_0|| of all matrices and filters that are trained, and of the layer that moved farthest."""

    total: float
    layer: str
    farthest: float


class FirstWeights:
    """Weights of a network as they are now: a random sample of each layer. A copy of it knows no network.

    Attributes:
        pretrained: whether a part of the network says where it was loaded from, as models of transformers do.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network: nn.Module | None = network
        self.pretrained = any(getattr(module, "name_or_path", None) for module in network.modules())
        self._samples = {name: _sample(value) for name, value in _layers(network)}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_network": None}

    def motion(self) -> WeightMotion | None:
        """Distance of the network from there; None without layers, and where a weight is no finite number."""
        began = moved = 0.0
        farthest = ("", 0.0)
        for name, value in _layers(self._network or nn.Module()):
            before, after = self._samples.get(name), _sample(value)
            squares = None if before is None else _squares(before, after, value[0].numel())
            if squares is None:
                continue
            share = value.numel() / len(after)  # entries that one of the sample stands for
            began, moved = began + share * squares[0], moved + share * squares[1]
            farthest = max(farthest, (name, math.sqrt(squares[1] / squares[0])), key=lambda layer: layer[1])
        if not began or not math.isfinite(moved):
            return None
        return WeightMotion(math.sqrt(moved / began), *farthest)


def displacement(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """||W - W_0|| / ||W_0||, all matrices and filters together; 0 if there are none.

    Left out are parameters of one dimension, those that have another shape now, and those that began as good as 0, such
    as the change of a residual layer: there, any step is large.

    Args:
        pairs: each parameter as it began, and as it is.
    """
    began = moved = 0.0
    for before, after in pairs:
        if before.ndim < 2 or before.shape != after.shape or not before.numel():
            continue
        first, last = (precise(values.detach()).double() for values in (before, after))
        squares = _squares(first, last, before[0].numel())
        if squares is not None:
            began, moved = began + squares[0], moved + squares[1]
    return math.sqrt(moved / began) if began else 0.0


def _squares(first: Tensor, last: Tensor, inputs: int) -> tuple[float, float] | None:
    """Squared norms of a layer, or of a sample, as it began, and of its change; None if it began as good as 0."""
    size = float(first.square().sum())
    if first.shape != last.shape or math.sqrt(size / first.numel() * inputs) < NOTHING:
        return None
    return size, float((last - first).square().sum())


def _layers(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in network.named_parameters():
        known = not (is_lazy(value) or value.is_meta)
        if known and value.requires_grad and value.ndim > 1 and value.numel():
            yield name, value


def _sample(value: Tensor) -> Tensor:
    """The same random entries of a layer of that size each time, on the CPU."""
    entries = value.detach().flatten()
    if len(entries) > SAMPLED:
        chosen = torch.randint(len(entries), (SAMPLED,), generator=torch.Generator().manual_seed(0))
        entries = entries[chosen.to(entries.device)]
    return entries.cpu().double().clone()
