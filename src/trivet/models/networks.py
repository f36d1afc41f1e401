"""The table of the networks, and how one of them is built."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from trivet.models import backbones, custom
from trivet.models.config import NAMES, NETWORKS, TEXT, TIMM, TORCHVISION, WIDTHS, ModelConfig, NetworkEntry
from trivet.models.embedder import Embedder, image_shape
from trivet.models.heads import HeadName, make_head
from trivet.models.joined import JoinedConfig, build_joined
from trivet.models.text_network import build_text
from trivet.models.text_settings import TextNetworkConfig
from trivet.models.towers import TOWERS, TowersConfig, build_towers


def build(config: ModelConfig, input_shape: tuple[Any, ...], seed: int) -> Embedder:
    """A new network for inputs of a shape, (C, H, W) for images, on the CPU, in training mode.

    Of a network of texts the settings alone decide what it takes; of two sides there is a shape for each.

    Its weights follow from `seed` alone (and the published ones, if pretrained); the global generator is not touched.

    Raises:
        ValueError: if the inputs do not fit the network, or pretrained weights cannot be had.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return NETWORKS.entry(config.name).build(config, input_shape)


def _build_small(config: ModelConfig, input_shape: tuple[int, ...]) -> Embedder:
    return Embedder(nn.Sequential(*_layers(config, input_shape)), input_shape=input_shape, normalize=config.normalize)


def _layers(config: ModelConfig, input_shape: tuple[int, ...]) -> list[nn.Module]:
    d, w = config.embedding_dim, config.width or WIDTHS.get(config.name, 0)
    if config.name == "mlp":
        inputs = math.prod(input_shape)
        return [nn.Flatten(), nn.Linear(inputs, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, d)]
    if config.name == "linear":
        return [nn.Flatten(), nn.Linear(math.prod(input_shape), d)]
    heads: dict[str, HeadName] = {"residual": "residual", "whitening": "whitening"}
    if config.name in heads:
        head = make_head(heads[config.name], math.prod(input_shape), d, as_features=True, unit=config.normalize)
        return [nn.Flatten(), head]
    channels, height, width = image_shape(config.name, input_shape)
    if config.name == "conv2":
        if min(height, width) < 6:
            raise ValueError(
                f"conv2 needs images of at least 6 x 6 pixels: got {height} x {width}; "
                "raise data.image_size, or use mlp."
            )
        # The network of the MNIST experiment of Levi et al. (2021); no padding.
        features = 2 * w * ((height - 4) // 2) * ((width - 4) // 2)
        return [
            *(nn.Conv2d(channels, w, 3), nn.ReLU(), nn.BatchNorm2d(w)),
            *(nn.Conv2d(w, 2 * w, 3), nn.ReLU(), nn.BatchNorm2d(2 * w)),
            nn.MaxPool2d(2),
            nn.Flatten(),
            *(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, d)),
        ]
    layers: list[nn.Module] = []
    for out in (w, 2 * w, 4 * w) if config.name == "conv3" else (w, w, 2 * w, 2 * w):
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        channels, height, width = out, (height + 1) // 2, (width + 1) // 2
    return [*layers, nn.Flatten(), nn.Linear(channels * height * width, d)]


NETWORKS.update(
    {
        **dict.fromkeys(NAMES, NetworkEntry(ModelConfig, _build_small)),
        **dict.fromkeys((TIMM, TORCHVISION), NetworkEntry(backbones.BackboneConfig, backbones.build_backbone)),
        "joined": NetworkEntry(JoinedConfig, build_joined),
        TEXT: NetworkEntry(TextNetworkConfig, build_text),
        TOWERS: NetworkEntry(TowersConfig, build_towers),
    }
)
NETWORKS.outside = custom.entry
