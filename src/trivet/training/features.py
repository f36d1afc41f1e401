"""Features of a frozen encoder in place of inputs, so that only what learns is computed again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import nn

from trivet.datasets import Dataset, Splits
from trivet.datasets.features import FeatureInputs, item_keys, loaded_inputs, without_features
from trivet.models import Embedder, TextEmbedder
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import reporter
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.feature_cache import FeatureCache
from trivet.training.precision import device_of


def uses_features(config: RunConfig) -> bool:
    """True if the encoder of a run stays as it is, and takes each input as it is, so that features may stand for it."""
    return getattr(config.model, "freeze", "none") == "all" and not config.data.changes_images


def with_features(config: RunConfig, splits: Splits, network: Embedder) -> Splits:
    """The splits with features in place of inputs where `uses_features` allows it; else as they were loaded.

    Features are what the encoder gives, before it is brought to length 1, in float32; `FeatureCache` keeps them.

    Args:
        network: with the encoder, on the CPU.
    """
    if not (uses_features(config) and network.on_backbone):
        return without_features(splits)
    encoder, datasets = encoder_fingerprint(network), {"train": splits.train, **splits.evaluation}
    if any(
        not (isinstance(items.inputs, FeatureInputs) and items.inputs.encoder == encoder) for items in datasets.values()
    ):
        cache, backbone, device = FeatureCache(encoder), network.backbone, device_of(config.training.accelerator)
        assert backbone is not None
        backbone.normalize = False
        backbone.to(device)
        try:
            datasets = {name: _with_features(items, name, backbone, cache, encoder) for name, items in datasets.items()}
        finally:
            backbone.cpu()
    train = datasets.pop("train")
    return replace(splits, train=train, evaluation=datasets)


def _with_features(items: Dataset, name: str, backbone: Embedder, cache: FeatureCache, encoder: str) -> Dataset:
    inputs = loaded_inputs(items.inputs)
    rows = cache.rows(
        item_keys(inputs), lambda index: embed(backbone, inputs.subset(index)), reporter(f"features of {name}")
    )
    return replace(items, inputs=FeatureInputs(inputs, cache.features, rows, encoder))


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
