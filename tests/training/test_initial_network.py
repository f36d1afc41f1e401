"""A network on a pretrained backbone begins as good as that at the width of its embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trivet.datasets import DigitsConfig, load
from trivet.distances import unit_rows
from trivet.models import ModelConfig, build
from trivet.models.heads import Whitening
from trivet.training import RunConfig
from trivet.training.components import fit_last_layer, new_network
from trivet.training.embed_dataset import embed

NAME = "timm:resnet10t"


@pytest.mark.parametrize("head", ["linear", "residual"])
def test_a_narrow_head_on_a_pretrained_backbone_keeps_the_similarities_of_its_features(
    head: str, tmp_path: Path
) -> None:
    splits = load(DigitsConfig(), None)
    items = splits.train.subset(np.arange(100))
    weights = build(ModelConfig(name=NAME), (1, 8, 8), seed=1).backbone
    assert weights is not None
    state = {key.removeprefix("body."): values.contiguous() for key, values in weights.state_dict().items()}
    save_file({key: values for key, values in state.items() if key not in ("mean", "std")}, tmp_path / "w.safetensors")

    def features_and_embeddings(**model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        values = {
            "data": {"name": "digits"},
            "loss": {"name": "triplet"},
            "model": {"name": NAME, "head": head, **model},
        }
        config = RunConfig.parse(values, source="test")
        network = new_network(config, items.inputs.shape)
        fit_last_layer(network, items, splits.level, seed=config.seed)
        assert network.training
        assert network.backbone is not None
        return torch.from_numpy(embed(network.backbone, items.inputs)), torch.from_numpy(embed(network, items.inputs))

    features, embeddings = features_and_embeddings(weights=str(tmp_path / "w.safetensors"), embedding_dim=24)
    _, _, directions = torch.linalg.svd(features.double())
    expected = unit_rows(features.double() @ directions[:24].T)
    torch.testing.assert_close((embeddings @ embeddings.T).double(), expected @ expected.T, atol=1e-4, rtol=0)
    if head == "linear":  # without weights it begins at random, as ever
        features, embeddings = features_and_embeddings(embedding_dim=24)
        assert (embeddings @ embeddings.T - features @ features.T).abs().max() > 1e-3


def test_whitening_is_fitted_to_the_trained_level_and_as_wide_as_the_features() -> None:
    splits = load(DigitsConfig(), None)
    items = splits.train.subset(np.arange(60))
    values = {"data": {"name": "digits"}, "loss": {"name": "triplet"}, "model": {"name": NAME, "head": "whitening"}}
    config = RunConfig.parse(values, source="test")
    network = new_network(config, items.inputs.shape)
    fit_last_layer(network, items, splits.level, seed=0)
    assert isinstance(network.unfitted, Whitening)
    assert network.backbone is not None
    features = torch.from_numpy(embed(network.backbone, items.inputs))
    expected = Whitening(config.model.embedding_dim, features.shape[1], unit=True)
    expected.fit_base(features, torch.from_numpy(items.labels[splits.level]))
    torch.testing.assert_close(torch.from_numpy(embed(network, items.inputs)), unit_rows(expected(features)))
