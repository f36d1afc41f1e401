"""Features of a frozen encoder in place of inputs, so that only what learns is computed again and again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import nn

from trivet.datasets import Inputs, Splits
from trivet.datasets.features import FeatureInputs, Rows, item_keys, loaded_inputs
from trivet.datasets.sides import sides_of, with_sides
from trivet.distances import unit_rows
from trivet.models import Embedder, ModelConfig, TextEmbedder
from trivet.models.joined import Joined
from trivet.runtime.arrays import Integers
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import reporter
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.feature_cache import FeatureCache
from trivet.training.precision import device_of

TIMED = 64  # items by which the time of all features is estimated


def uses_features(config: RunConfig) -> bool:
    """True if the encoder of a run stays as it is, and takes each input as it is, so that features may stand for it."""
    return any(_stays(config, network) for network in config.model.networks)


def _stays(config: RunConfig, model: ModelConfig, inputs: Inputs | None = None) -> bool:
    """True if the encoder of a network stays as it is, and takes each input as it is.

    Args:
        inputs: of the network, where they are known: texts are taken as they are whatever is done to images.
    """
    changed = config.data.changes_images and (inputs is None or len(inputs.shape) == 3)
    return getattr(model, "freeze", "none") == "all" and not changed


def with_features(config: RunConfig, splits: Splits, network: Embedder) -> Splits:
    """The splits with features in place of inputs where `uses_features` allows it; else as they were loaded.

    Features are what the encoder gives, before it is brought to length 1, in float32; `FeatureCache` keeps them.

    Args:
        network: with the encoder, on the CPU.
    """
    datasets = {"train": splits.train, **splits.evaluation}
    sides = [
        _side_features(config, model, network_of_side, dict(zip(datasets, inputs, strict=True)))
        for model, network_of_side, *inputs in zip(
            config.model.networks,
            network.networks,
            *(sides_of(items.inputs) for items in datasets.values()),
            strict=True,
        )
    ]
    datasets = {
        name: replace(items, inputs=with_sides(items.inputs, [side[name] for side in sides]))
        for name, items in datasets.items()
    }
    train = datasets.pop("train")
    return replace(splits, train=train, evaluation=datasets)


def _side_features(
    config: RunConfig, model: ModelConfig, network: Embedder, datasets: dict[str, Inputs]
) -> dict[str, Inputs]:
    """Split -> the inputs that a network takes, with features in their place where these may stand for them."""
    inputs = {name: loaded_inputs(each) for name, each in datasets.items()}
    if not (_stays(config, model, inputs["train"]) and network.on_backbone):
        return inputs
    encoder = encoder_fingerprint(network)
    if all(isinstance(each, FeatureInputs) and each.encoder == encoder for each in datasets.values()):
        return datasets
    keys, device = {name: item_keys(each) for name, each in inputs.items()}, device_of(config.training.accelerator)
    members = [_features(member, inputs, keys, device) for member in _members(network)]
    return {name: FeatureInputs(inputs[name], *_joined([each[name] for each in members]), encoder) for name in datasets}


def feature_seconds(config: RunConfig, splits: Splits, network: Embedder) -> float:
    """The time that the features of the items take that are not kept yet, estimated by a few of these.

    Args:
        network: with the encoder, on the CPU.
    """
    datasets, seconds = [splits.train, *splits.evaluation.values()], 0.0
    for model, network_of_side, *inputs in zip(
        config.model.networks, network.networks, *(sides_of(items.inputs) for items in datasets), strict=True
    ):
        if _stays(config, model, inputs[0]) and network_of_side.on_backbone:
            seconds += _seconds(config, network_of_side, [loaded_inputs(each) for each in inputs])
    return seconds


def _seconds(config: RunConfig, network: Embedder, datasets: Sequence[Inputs]) -> float:
    """See `feature_seconds`, of a single network."""
    cache, backbone, seconds = FeatureCache(encoder_fingerprint(network)), network.backbone, 0.0
    assert backbone is not None
    backbone.to(device_of(config.training.accelerator))
    for inputs in datasets:
        missing = np.flatnonzero([key not in cache for key in item_keys(inputs)])
        few = np.random.default_rng(config.seed).permutation(missing)[:TIMED]
        if len(few):
            embed(backbone, inputs.subset(few[:1]))  # the first time takes longer
            began = time.perf_counter()
            embed(backbone, inputs.subset(few))
            seconds += (time.perf_counter() - began) * len(missing) / len(few)
    backbone.cpu()
    return seconds


def _members(network: Embedder) -> list[Embedder]:
    """The networks whose features are joined; a single one is that network."""
    encoder = cast("nn.Sequential", network.body)[0]
    if not isinstance(encoder, Joined):
        return [network]
    members = cast("list[Embedder]", [*encoder.members])
    for member in members:
        member.resize = network.resize
    return members


def _features(
    network: Embedder, inputs: Mapping[str, Inputs], keys: Mapping[str, Sequence[bytes]], device: torch.device
) -> dict[str, tuple[Rows, Integers]]:
    """The features of each split, of all and the rows that are its own."""
    cache, backbone = FeatureCache(encoder_fingerprint(network)), network.backbone
    assert backbone is not None
    backbone.normalize = False
    backbone.to(device)

    def of_split(name: str) -> Integers:
        of_items = inputs[name]
        return cache.rows(
            keys[name], lambda index: embed(backbone, of_items.subset(index)), reporter(f"features of {name}")
        )

    try:
        return {name: (cache.features, of_split(name)) for name in inputs}
    finally:
        backbone.cpu()


def _joined(members: Sequence[tuple[Rows, Integers]]) -> tuple[Rows, Integers]:
    """The features of one encoder, or those of several as `Joined` has them, and their rows."""
    if len(members) == 1:
        return members[0]
    return JoinedRows(members), np.arange(len(members[0][1]))


class JoinedRows:
    """Features `(N, F_1 + ... + F_n)` of N items: those of each encoder, of length 1, beside each other.

    Args:
        members: the features `(M, F_i)` of an encoder, and the rows `(N,)` that are those of the items.
    """

    def __init__(self, members: Sequence[tuple[Rows, Integers]]) -> None:
        self._members = members

    def __getitem__(self, index: Integers) -> np.ndarray:
        rows = [unit_rows(torch.from_numpy(features[rows[index]])) for features, rows in self._members]
        return torch.cat(rows, dim=1).numpy()


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
