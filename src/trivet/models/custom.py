"""Networks from outside Trivet: a class of yours, or of an installed package, named in the settings."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from trivet.config.base import added_settings, derived_settings
from trivet.config.plugins import python_object
from trivet.models.config import ModelConfig, NetworkEntry
from trivet.models.embedder import Embedder

SUPPLIED = ("input_shape", "embedding_dim")


@cache  # one class for one reference, so that equal settings are equal
def _settings(reference: str, network: type[nn.Module]) -> type[ModelConfig]:
    return derived_settings(network, ModelConfig, exclude=SUPPLIED, types={"name": str}, name=reference)


def entry(reference: str) -> NetworkEntry:
    """The network that a reference names: the parameters of its class are settings, too.

    Raises:
        ValueError: if it cannot be imported, or is no class derived from `torch.nn.Module`.
    """
    return NetworkEntry(_settings(reference, python_object(reference, kind="models", base=nn.Module)), build_custom)


def build_custom(config: ModelConfig, input_shape: tuple[int, ...]) -> Embedder:
    """The network, which is made with `input_shape` and `embedding_dim` and maps `(B, *input_shape)` to `(B, d)`.

    Raises:
        ValueError: if it cannot be made, or maps to something else.
    """
    network = python_object(config.name, kind="models", base=nn.Module)
    try:
        made: nn.Module = network(
            input_shape=input_shape, embedding_dim=config.embedding_dim, **added_settings(config, ModelConfig)
        )
        with torch.no_grad():
            got = made.eval()(torch.zeros(2, *input_shape))
    except Exception as error:  # a user's code raises anything
        raise ValueError(
            f"{config.name} must be a network for inputs of shape {input_shape}, made with input_shape and "
            f"embedding_dim: {type(error).__name__}: {' '.join(str(error).split())}; fix its code."
        ) from error
    if not isinstance(got, torch.Tensor) or got.shape != (2, config.embedding_dim):
        shape = tuple(got.shape) if isinstance(got, torch.Tensor) else type(got).__name__
        raise ValueError(
            f"{config.name} must map inputs (B, {', '.join(map(str, input_shape))}) to embeddings (B, "
            f"{config.embedding_dim}): two gave {shape}; end it with a layer of embedding_dim outputs."
        )
    return Embedder(made, input_shape=input_shape, normalize=config.normalize)
