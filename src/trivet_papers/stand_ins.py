"""Data and networks of a size that two cores train in seconds, which stand for those of the papers.

Each is a part of the settings of a run: its data and its network, measured at the end only. Some are trained on what a
pretrained network makes of the items, computed once: all but the last stage of an image network, and a text encoder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.datasets import DataConfig, Dataset, Splits, load
from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import in_memory
from trivet.models import in_unit_range
from trivet_papers.experiment import Settings

AT_THE_END: Settings = {"every": 1_000_000, "sample": 100, "k": [1, 2, 4, 8], "distance": "cosine"}

OMNIGLOT: Settings = {
    "data": {"name": "omniglot", "image_size": 28, "level": "character"},
    "model": {"name": "conv4", "embedding_dim": 128},
    "evaluation": AT_THE_END,
}
CIFAR: Settings = {
    "data": {"name": "cifar10"},
    "model": {"name": "conv4", "embedding_dim": 64, "width": 48},
    "evaluation": AT_THE_END,
}
# The last of seven stages and the last convolution of EfficientNet-Lite0 on photographs of birds.
CUB: Settings = {
    "data": {
        "name": "python:trivet_papers.stand_ins:last_stage_maps",
        "weights": "{models}/tf_efficientnet_lite0.safetensors",
        "image_size": 96,
    },
    "model": {
        "name": "python:trivet_papers.stand_ins:LastStage",
        "weights": "{models}/tf_efficientnet_lite0.safetensors",
        "embedding_dim": 1280,
    },
    "evaluation": AT_THE_END,
}
# The same on CIFAR-10: 500 images of each class are trained on, 200 others tested; 128 dimensions of a random map.
CIFAR_STAGE: Settings = {
    "data": CUB["data"] | {"image_size": 64, "source": "cifar10", "train_items": 500, "test_items": 200},
    "model": CUB["model"] | {"embedding_dim": 128},
    "evaluation": AT_THE_END,
}
# Sentences as a sentence encoder gives them, and a residual head on them; see studies/encoded_texts.py.
CLINC: Settings = {
    "data": {
        "name": "vectors",
        "path": "{models}/clinc150_minilm.npz",
        "levels": ["domain", "intent"],
        "level": "intent",
    },
    "model": {"name": "residual", "embedding_dim": 384},
    "evaluation": AT_THE_END,
}
BANKING: Settings = {
    "data": {"name": "vectors", "path": "{models}/banking77_minilm.npz", "levels": ["intent"]},
    "model": {"name": "residual", "embedding_dim": 384},
    "evaluation": AT_THE_END,
}
STAGE = 6  # of timm's blocks of EfficientNet-Lite0, the last
QUARTERS = 4  # of a full turn
HALF = 0.5  # mean and deviation of the colours that it was trained on


def some_alphabets(
    data_root: Path,
    progress: Progress | None,
    image_size: int = 28,
    alphabets: int = 10,
    drawings: int = 10,
) -> Splits:
    """Omniglot with the first training alphabets only, and the first drawings of each of their characters.

    Args:
        image_size: side of the square images, in pixels.
        alphabets: how many are trained on.
        drawings: how many of each character.
    """
    splits = _drawings(data_root, progress, image_size)
    train, alphabet = splits.train, splits.train.labels["alphabet"]
    mask = np.isin(alphabet, np.unique(alphabet)[:alphabets]) & (_drawers(train) < drawings)
    return replace(splits, train=train.subset(np.flatnonzero(mask)))


def turned_characters(data_root: Path, progress: Progress | None, image_size: int = 28, alphabets: int = 10) -> Splits:
    """Omniglot, every drawing turned by quarters, as many as the number of its drawer: alphabet > character > view.

    So a character has four views, of five drawings each. It is trained on characters.

    Args:
        image_size: side of the square images, in pixels.
        alphabets: how many, the first, are measured.
    """
    splits = _drawings(data_root, progress, image_size)

    def turned(items: Dataset) -> Dataset:
        quarters = _drawers(items) % QUARTERS
        images = items.inputs.batch(np.arange(len(items))).numpy()
        for quarter in range(1, QUARTERS):
            rows = quarters == quarter
            images[rows] = np.rot90(images[rows], quarter, axes=(2, 3))
        views = QUARTERS * items.labels["character"] + quarters
        names = tuple(f"{name}, {90 * quarter}" for name in items.names["character"] for quarter in range(QUARTERS))
        inputs = in_memory(images)
        return replace(
            items, inputs=inputs, labels={**items.labels, "view": views}, names={**items.names, "view": names}
        )

    unseen = splits.evaluation["unseen"]
    alphabet = unseen.labels["alphabet"]
    few = unseen.subset(np.flatnonzero(np.isin(alphabet, np.unique(alphabet)[:alphabets])))
    return Splits(train=turned(splits.train), evaluation={"unseen": turned(few)}, level="character")


def _drawings(data_root: Path, progress: Progress | None, image_size: int) -> Splits:
    config = DataConfig.parse({"name": "omniglot", "image_size": image_size}, source="omniglot")
    return load(config, data_root, progress)


def _drawers(items: Dataset) -> np.ndarray:
    """The drawer of each item `(N,)`, from 0: its place among the drawings of the character."""
    character = items.labels["character"]
    rank = np.empty(len(items), np.int64)
    order = np.argsort(character, kind="stable")
    rank[order] = np.concatenate([np.arange(count) for count in np.bincount(character) if count])
    return rank


def last_stage_maps(
    weights: str,
    data_root: Path,
    progress: Progress | None,
    image_size: int = 96,
    source: str = "cub",
    train_items: int | None = None,
    test_items: int | None = None,
) -> Splits:
    """Images of a data set as the last stage of a pretrained EfficientNet-Lite0 gets them: maps `(192, h, w)`.

    Args:
        weights: its file, safetensors.
        image_size: side of the square images, in pixels.
        source: the data set.
        train_items, test_items: how many of each class, the first; None for all.
    """
    config = DataConfig.parse({"name": source, "image_size": image_size, "channels": 3}, source=source)
    splits = load(config, data_root, progress)
    network = _efficientnet(weights).eval()
    datasets = {"": _first(splits.train, splits.level, train_items)}
    datasets |= {name: _first(items, splits.level, test_items) for name, items in splits.evaluation.items()}
    made = {}
    for name, items in datasets.items():
        chunks = []
        for start in range(0, len(items), 64):
            images = in_unit_range(items.inputs.batch(np.arange(start, min(start + 64, len(items)))))
            with torch.no_grad():
                maps = network.bn1(network.conv_stem((images - HALF) / HALF))
                for stage in list(network.blocks)[:STAGE]:
                    maps = stage(maps)
            chunks.append(maps.numpy())
        made[name] = replace(items, inputs=in_memory(np.concatenate(chunks), white=1))
    return Splits(train=made.pop(""), evaluation=made, level=splits.level)


def _first(items: Dataset, level: str, count: int | None) -> Dataset:
    """The first items of each class."""
    classes = items.labels[level]
    rows = [np.flatnonzero(classes == label)[:count] for label in np.unique(classes)]
    return items.subset(np.sort(np.concatenate(rows)))


class LastStage(nn.Module):
    """The last stage of a pretrained EfficientNet-Lite0, its last convolution, and the mean of the map: 1280 features.

    Batch norm keeps its statistics. Before the first step embeddings are the features of the whole pretrained network;
    of fewer dimensions, a random projection of them, which is learned too.
    """

    def __init__(self, input_shape: tuple[int, ...], embedding_dim: int, weights: str) -> None:
        super().__init__()
        network = _efficientnet(weights)
        self.layers = nn.Sequential(network.blocks[STAGE], network.conv_head, network.bn2)
        if embedding_dim > network.num_features:
            raise ValueError(f"embedding_dim must be at most {network.num_features}: got {embedding_dim}")
        full_width = embedding_dim == network.num_features
        self.last = nn.Identity() if full_width else nn.Linear(network.num_features, embedding_dim, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        features: Tensor = self.last(self.layers(maps).mean((2, 3)))
        return features

    def train(self, mode: bool = True) -> LastStage:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


def _efficientnet(weights: str) -> Any:
    import timm  # here: it takes seconds to load
    from safetensors.torch import load_file

    network = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    known = load_file(weights)
    network.load_state_dict({name: known[name] for name in network.state_dict()})
    return network
