"""The stages of a network, in its order."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

# Parts of a network that are lists of its stages, by the names that timm and torchvision give them.
LISTS = {"features", "encoder", "layers", "blocks", "stages", "trunk_output"}


def stages(network: nn.Module) -> list[list[nn.Module]]:
    """The parts of a network that have weights, in its order: the first layer, then stage after stage.

    Its parts are its children; a list of stages, by its name, counts as each of these. What only scales and shifts,
    such as batch norm, belongs to the part before it.
    """
    groups: list[list[nn.Module]] = []
    for module in _unfolded(network):
        shapes = [values.ndim for values in module.parameters()]
        if shapes and max(shapes) <= 1 and groups:
            groups[-1].append(module)
        elif shapes:
            groups.append([module])
    return groups


def _unfolded(network: nn.Module) -> Iterator[nn.Module]:
    for name, module in network.named_children():
        if name in LISTS:
            yield from _unfolded(module)
        else:
            yield module
