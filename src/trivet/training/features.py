"""Features of a frozen encoder in place of inputs, so that only what learns is computed again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import nn

from trivet.datasets import Dataset, Splits
from trivet.datasets.features import FeatureInputs, loaded_inputs, without_features
from trivet.models import Embedder, TextEmbedder
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import reporter
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.precision import device_of


def uses_features(config: RunConfig) -> bool:
    """True if the encoder of a run stays as it is, and takes each input as it is, so that features may stand for it."""
    return getattr(config.model, "freeze", "none") == "all" and not config.data.changes_images


def with_features(config: RunConfig, splits: Splits, network: Embedder) -> Splits:
    """The splits with features in place of inputs where `uses_features` allows it; else as they were loaded.

    Features are what the encoder gives, before it is brought to length 1, in float32.

    Args:
        network: with the encoder, on the CPU.
    """
    if not (uses_features(config) and network.on_backbone):
        return without_features(splits)
    encoder = encoder_fingerprint(network)
    train = _with_features(splits.train, network, encoder, "train", config)
    evaluation = {
        name: _with_features(items, network, encoder, name, config) for name, items in splits.evaluation.items()
    }
    return replace(splits, train=train, evaluation=evaluation)


def _with_features(items: Dataset, network: Embedder, encoder: str, split: str, config: RunConfig) -> Dataset:
    if isinstance(items.inputs, FeatureInputs) and items.inputs.encoder == encoder:
        return items
    backbone = network.backbone
    assert backbone is not None
    backbone.normalize = False
    inputs, device = loaded_inputs(items.inputs), device_of(config.training.accelerator)
    try:
        features = embed(backbone.to(device), inputs, reporter(f"features of {split}"))
    finally:
        backbone.cpu()
    return replace(items, inputs=FeatureInputs(inputs, features, np.arange(len(items)), encoder))


def encoder_fingerprint(network: Embedder) -> str:
    """The fingerprint of the weights of an encoder, and of all that is done to an input before them."""
    encoder = cast("nn.Sequential", network.body)[0]
    values: list[object] = [network.input_shape, network.resize]
    if isinstance(network, TextEmbedder):
        values += [network.tokenizer.to_json(), network.tokenizer.prefix, network.encoder.pooling]
    else:
        values += [network.mean.numpy(), network.std.numpy()]
    for name, value in encoder.state_dict().items():
        values += [name, value.cpu().contiguous().view(-1).view(torch.uint8).numpy()]
    return fingerprint([repr(encoder), *values])
