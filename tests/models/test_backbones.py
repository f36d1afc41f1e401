"""Backbones: their features, what of them is trained, and what cannot work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from trivet.models import BackboneConfig, Embedder, ModelConfig, build, load_model, save
from trivet.models.backbones import GeneralizedMean, num_features, read_backbone, stages

SHAPE = (3, 32, 32)
IMAGES = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
LITE = REAL.parent / "models" / "tf_efficientnet_lite0.safetensors"
RESNETS = ["timm:resnet10t", "torchvision:resnet18"]


def made(name: str = "timm:resnet10t", shape: tuple[int, ...] = SHAPE, **settings: Any) -> Embedder:
    return build(ModelConfig.parse({"name": name, **settings}, source="model"), shape, seed=0)


def backbone(model: Embedder) -> nn.Module:
    assert isinstance(model.body, nn.Sequential)
    return model.body[0]


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("timm:resnet10t", 512),
        ("torchvision:resnet18", 512),
        ("torchvision:squeezenet1_1", 512),
        ("torchvision:mobilenet_v3_small", 1024),
    ],
)
def test_without_a_head_an_embedding_is_as_long_as_the_features(name: str, features: int) -> None:
    config = ModelConfig.parse({"name": name, "head": "none", "normalize": False}, source="model")
    model = build(config, SHAPE, seed=0).eval()
    assert config.embedding_dim == num_features(name) == features
    assert model.headless
    assert torch.equal(model(IMAGES), backbone(model)((IMAGES - model.mean.view(3, 1, 1)) / model.std.view(3, 1, 1)))
    assert ModelConfig.parse(config.model_dump(mode="json"), source="model") == config


def test_googlenet_takes_colours_as_its_weights_were_trained_and_has_no_further_classifiers() -> None:
    model = made("torchvision:googlenet", head="none")
    assert model(IMAGES).shape == (4, 1024)
    assert (model.mean.tolist(), model.std.tolist()) == ([0.5] * 3, [0.5] * 3)
    assert not any("aux" in name or "fc" in name for name, _ in model.named_parameters())
    grey = made("torchvision:resnet18", (1, 32, 32))
    assert grey(IMAGES[:, :1]).shape == (4, 64)


@pytest.mark.parametrize("name", RESNETS)
def test_each_pooling_is_that_of_the_feature_maps(name: str) -> None:
    own, mean, largest, general = (
        made(name, head="none", normalize=False, pooling=kind).eval()(IMAGES) for kind in (None, "avg", "max", "gem")
    )
    torch.testing.assert_close(own, mean)
    assert bool((largest >= mean).all())
    assert not torch.allclose(general, mean)
    maps = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    layer = GeneralizedMean().double()
    expected = [[sum(x**3 for row in one for x in row) / 20 for one in item] for item in maps.tolist()]
    torch.testing.assert_close(layer(maps)[:, :, 0, 0], torch.tensor(expected, dtype=torch.float64) ** (1 / 3))
    assert torch.autograd.gradcheck(layer, maps.requires_grad_())


def test_the_stages_of_a_network_in_its_order() -> None:
    def counts(name: str) -> list[int]:
        return [sum(len(list(part.parameters())) for part in parts) for parts in stages(backbone(made(name)))]

    assert counts("torchvision:resnet18") == [3, 12, 15, 15, 15]  # convolution and batch norm, then four stages
    assert len(counts("torchvision:mobilenet_v3_small")) == 1 + 12 + 1  # the last is its hidden classifier layer


@pytest.mark.parametrize("name", RESNETS)
@pytest.mark.parametrize(("freeze", "trained"), [("none", 5), ("stem", 4), (2, 2), (4, 0), ("all", 0)])
def test_frozen_stages_do_not_learn_and_keep_their_statistics(name: str, freeze: str | int, trained: int) -> None:
    model = made(name, freeze=freeze).train().eval().train()
    known = stages(backbone(model))
    learning = [any(values.requires_grad for part in parts for values in part.parameters()) for parts in known]
    assert learning == [False] * (5 - trained) + [True] * trained
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model(IMAGES).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1.0).step()
    names = {
        f"body.0.{place}.{key}"
        for parts, learns in zip(known, learning, strict=True)
        if not learns
        for part in parts
        for place, one in backbone(model).named_modules()
        if one is part
        for key in part.state_dict()
    }
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert not changed & names
    assert "body.1.weight" in changed or model.num_parameters > 0


def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_scale() -> None:
    model = made(batch_norm="frozen").eval().train()
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    assert norms
    assert model.training
    assert not any(part.training for part in norms)
    in_training = model(IMAGES)
    means = [part.running_mean for part in norms if part.running_mean is not None]
    assert all(not mean.any() for mean in means)
    assert torch.equal(in_training, model.eval()(IMAGES))
    assert all(part.weight.requires_grad for part in norms)
    part = model.train().backbone
    assert part is not None
    assert part.training
    part.eval().train()
    assert not any(one.training for one in norms)


def test_statistics_are_frozen_where_weights_are_pretrained(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    assert not BackboneConfig(name=RESNETS[0]).freezes_batch_norm
    assert BackboneConfig(name=RESNETS[0], weights=file).freezes_batch_norm
    assert BackboneConfig(name=RESNETS[0], pretrained=True).freezes_batch_norm
    assert not BackboneConfig(name=RESNETS[0], pretrained=True, batch_norm="train").freezes_batch_norm


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "torchvision:resnte50"}, r"torchvision has no model 'resnte50'; did you mean resnet50.*list_models"),
        (
            {"head": "none", "embedding_dim": 9},
            r"number of features, 512, with head = .none.: got 9; set embedding_dim = 512",
        ),
        ({"pretrained": True, "weights": "w.pth"}, "one start: set pretrained = true or weights = FILE"),
        ({"freeze": 7}, "timm:resnet10t has 4 after its first layer, got 7"),
        ({"freeze": "some"}, "freeze: it must be .* or a number of stages from 1 on: got 'some'"),
        ({"freeze": 0}, "from 1 on: got 0"),
        ({"head": "big"}, "head = 'big' is not known; Allowed: linear, mlp, none, residual"),
        ({"name": "torchvision:densenet121", "pooling": "max"}, "pools its features itself .*: remove model.pooling"),
        (
            {"name": "torchvision:squeezenet1_1", "shape": (3, 8, 8)},
            r"cannot take images of shape \(3, 8, 8\).*image_size = 224",
        ),
        (
            {"weights": "nowhere.safetensors"},
            "must be a file of weights: got nowhere.safetensors, which does not exist",
        ),
        ({"name": "conv4", "weights": "w.pth"}, "unknown setting 'weights'"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**settings)


def test_a_stored_backbone_needs_its_weights_file_no_more(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    state = backbone(made()).state_dict()
    save_file({key: value.contiguous() * 1.05 for key, value in state.items() if value.is_floating_point()}, file)
    config = ModelConfig.parse({"name": RESNETS[0], "weights": str(file), "pooling": "gem"}, source="model")
    model = build(config, SHAPE, seed=0)
    save(model, config, SHAPE, tmp_path / "model")
    file.unlink()
    again = load_model(tmp_path / "model")
    assert torch.equal(again(IMAGES), model.eval()(IMAGES))
    assert not any(part.training for part in again.train().modules() if isinstance(part, nn.BatchNorm2d))


@pytest.mark.skipif(not LITE.is_file(), reason="needs the weights beside $TRIVET_DATA")
def test_published_weights_are_taken_whole_with_the_colours_they_were_trained_on() -> None:
    model = made("timm:tf_efficientnet_lite0", weights=str(LITE), head="none")
    state = backbone(model).state_dict()
    published = load_file(LITE)
    assert all(torch.equal(published[key], values) for key, values in state.items() if "batches" not in key)
    assert (model.mean.tolist(), model.std.tolist()) == ([0.5] * 3, [0.5] * 3)  # not ImageNet's
    assert published.keys() - state.keys() == {"classifier.bias", "classifier.weight"}
    assert model.notes == ()


def test_a_backbone_on_disk_gives_its_features(tmp_path: Path) -> None:
    network = backbone(made(head="none", normalize=False)).eval()
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has no config\.json"):
        read_backbone(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="must name the architecture"):
        read_backbone(tmp_path)
    mean, std = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    preparation = {"input_size": [3, 32, 32], "mean": mean, "std": std}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet10t", "pretrained_cfg": preparation}))
    prepared = (IMAGES - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    with torch.no_grad():
        assert torch.allclose(read_backbone(tmp_path)(IMAGES), network(prepared), atol=1e-5)
    with pytest.raises(ValueError, match="called like none of timm; name it with --network"):
        read_backbone(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").rename(tmp_path / "resnet10t.safetensors")
    named = read_backbone(tmp_path / "resnet10t.safetensors")
    assert named.input_shape == (3, 176, 176)
    assert not named.training
