"""Joined backbones give the features of each, and are stored with their own colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from trivet.models import JoinedConfig, ModelConfig, build, load_model, save

SHAPE = (3, 32, 32)
IMAGES = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
NAMES = ("timm:test_resnet", "timm:test_vit")


@pytest.fixture
def members(tmp_path: Path) -> list[dict[str, Any]]:
    found = []
    for position, name in enumerate(NAMES):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(position)
            state = timm.create_model(name.removeprefix("timm:"), num_classes=0).state_dict()
        file = tmp_path / f"{position}.safetensors"
        save_file(state, file)
        found.append({"name": name, "weights": str(file)})
    return found


def settings(members: list[dict[str, Any]], **values: Any) -> JoinedConfig:
    config = ModelConfig.parse({"name": "joined", "members": members, **values}, source="test")
    assert isinstance(config, JoinedConfig)
    return config


def test_cosines_are_the_mean_of_those_of_the_networks_and_a_stored_one_gives_the_same(
    members: list[dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(members)
    model = build(config, SHAPE, seed=0)
    assert (model.num_parameters, model.headless) == (0, True)
    cosines = torch.zeros(4, 4)
    for member in members:
        alone = build(ModelConfig.parse({**member, "head": "none"}, source="test"), SHAPE, seed=0).eval()
        rows = alone(IMAGES)
        cosines += rows @ rows.T / len(members)
    model.train()  # all stay in evaluation mode
    found = model(IMAGES)
    assert found.shape == (4, config.embedding_dim)
    torch.testing.assert_close(found @ found.T, cosines)
    save(model, config, SHAPE, tmp_path / "model")
    for member in members:
        Path(member["weights"]).unlink()
    pictures = [np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 200, np.uint8)]
    assert (load_model(tmp_path / "model").embed(pictures) == model.embed(pictures)).all()


def test_a_head_alone_learns(members: list[dict[str, Any]]) -> None:
    model = build(settings(members, head="residual", embedding_dim=16), SHAPE, seed=0)
    model(IMAGES).square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.requires_grad] == ["body.1.change.weight"]
    assert model.unfitted is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "text:some"}, "a member must be a backbone of images, .* got 'text:some'"),
        ({"head": "linear", "embedding_dim": 8}, "remove its head"),
        ({"freeze": "stem"}, "remove its freeze"),
    ],
)
def test_what_cannot_be_joined_is_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings([{"name": NAMES[0]}, {"name": NAMES[1], **change}])
    with pytest.raises(ValueError, match="members"):
        settings([{"name": NAMES[0]}])
