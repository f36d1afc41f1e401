"""One of each loss of the registry, made with the least that it needs: for batches of 4 classes in 3 dimensions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from trivet import EmbeddingLoss
from trivet.losses import LOSSES

NEEDED = {"margin": 1.0, "num_classes": 4, "embedding_dim": 3}


def needed(name: str) -> dict[str, Any]:
    """The arguments without a default."""
    arguments = inspect.signature(LOSSES[name]).parameters.items()
    return {key: NEEDED[key] for key, argument in arguments if argument.default is argument.empty}


def make(name: str, **options: Any) -> EmbeddingLoss:
    """The loss of this name; with classes to know where it can know them."""
    if "num_classes" in inspect.signature(LOSSES[name]).parameters:
        options = {"num_classes": 4, **options}
    if "embedding_dim" in needed(name):
        options = {"generator": torch.Generator().manual_seed(0), **options}
    return LOSSES[name](**needed(name) | options)


EVERY_LOSS: dict[str, Callable[..., EmbeddingLoss]] = {name: partial(make, name) for name in LOSSES}
PROXIES = [name for name, loss in LOSSES.items() if loss.term == "proxy"]
