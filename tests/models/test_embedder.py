from __future__ import annotations

import logging
import socket
import time
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import constants
from torch import nn

from trivet.models import ModelConfig, build

SMALL = ["conv2", "conv3", "conv4", "mlp", "linear", "timm:resnet10t"]


def conv(inputs: int, outputs: int) -> int:
    """Parameters of a 3x3 convolution with bias and of the batch normalization after it."""
    return 9 * inputs * outputs + outputs + 2 * outputs


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


@pytest.mark.parametrize(
    ("name", "shape", "dim", "width", "parameters"),
    [
        ("conv2", (1, 28, 28), 2, None, 1_199_042),  # the count the paper's network has
        ("conv2", (1, 8, 8), 8, None, conv(1, 32) + conv(32, 64) + dense(256, 128) + dense(128, 8)),
        ("conv3", (1, 28, 28), 128, None, conv(1, 16) + conv(16, 32) + conv(32, 64) + dense(4 * 4 * 64, 128)),
        ("conv4", (1, 28, 28), 64, None, conv(1, 32) + conv(32, 32) + conv(32, 64) + conv(64, 64) + dense(256, 64)),
        ("conv4", (3, 32, 32), 64, 48, conv(3, 48) + conv(48, 48) + conv(48, 96) + conv(96, 96) + dense(384, 64)),
        ("mlp", (3, 5, 4), 7, None, dense(60, 256) + dense(256, 256) + dense(256, 7)),
        ("mlp", (3, 5, 4), 7, 10, dense(60, 10) + dense(10, 10) + dense(10, 7)),
        ("linear", (3, 5, 4), 7, None, dense(60, 7)),
    ],
)
def test_the_number_of_parameters(
    name: str, shape: tuple[int, int, int], dim: int, width: int | None, parameters: int
) -> None:
    model = build(ModelConfig(name=name, embedding_dim=dim, width=width), shape, seed=0)
    assert model.num_parameters == parameters
    next(model.parameters()).requires_grad_(False)
    assert model.num_parameters < parameters


def test_conv2_has_the_order_of_layers_of_the_paper() -> None:
    model = build(ModelConfig(name="conv2", embedding_dim=2), (1, 28, 28), seed=0)
    kinds = [type(layer) for layer in model.body.children()]
    block = [nn.Conv2d, nn.ReLU, nn.BatchNorm2d]
    assert kinds == [*block, *block, nn.MaxPool2d, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]


@pytest.mark.parametrize("name", SMALL)
def test_embeddings_are_rows_of_length_one_unless_told(name: str) -> None:
    images = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    unit = build(ModelConfig(name=name, embedding_dim=6), (3, 32, 32), seed=1)
    free = build(ModelConfig(name=name, embedding_dim=6, normalize=False), (3, 32, 32), seed=1)
    assert all(module.training for module in unit.modules())
    a, b = unit.eval()(images), free.eval()(images)
    assert a.shape == (5, 6)
    assert torch.allclose(a.norm(dim=1), torch.ones(5))
    assert not torch.allclose(b.norm(dim=1), torch.ones(5), atol=1e-3)
    assert torch.allclose(a, b / b.norm(dim=1, keepdim=True), atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_weights_follow_from_the_seed_and_leave_the_global_generator_alone(name: str) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    config = ModelConfig(name=name, embedding_dim=4)
    a = build(config, (1, 16, 16), seed=5).state_dict()
    assert torch.equal(torch.rand(3), expected)
    b = build(config, (1, 16, 16), seed=5).state_dict()
    c = build(config, (1, 16, 16), seed=6).state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert any(not torch.equal(a[key], c[key]) for key in a)


def test_a_backbone_gets_the_images_as_it_was_trained() -> None:
    model = build(ModelConfig(name="timm:resnet10t", embedding_dim=4), (3, 32, 32), seed=0)
    assert model.mean.tolist() == pytest.approx(timm.create_model("resnet10t").pretrained_cfg["mean"])
    received: list[torch.Tensor] = []
    model.body.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
    images = torch.rand(2, 3, 32, 32)
    model(images)
    expected = [(images[1, c, 3, 4].item() - model.mean[c].item()) / model.std[c].item() for c in range(3)]
    assert received[0][1, :, 3, 4].tolist() == pytest.approx(expected, rel=1e-5)
    grey = build(ModelConfig(name="timm:resnet10t", embedding_dim=4), (1, 32, 32), seed=0)
    assert (grey.mean.tolist(), grey.std.tolist()) == ([0], [1])


@pytest.mark.parametrize("name", ["conv2", "timm:resnet10t"])
def test_the_order_of_colours_in_memory_changes_no_bit(name: str) -> None:
    model = build(ModelConfig(name=name), input_shape=(3, 32, 32), seed=0).eval()
    images = torch.randint(0, 256, (4, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    with torch.no_grad():
        assert torch.equal(model(images), model(images.contiguous(memory_format=torch.channels_last)))


def test_images_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="at least 6 x 6 pixels: got 5 x 9"):
        build(ModelConfig(name="conv2"), (1, 5, 9), seed=0)
    build(ModelConfig(name="conv2"), (1, 6, 6), seed=0)(torch.rand(2, 1, 6, 6))
    with pytest.raises(ValueError, match=r"mixer_s32.* cannot take images of shape \(3, 64, 64\).*image_size = 224"):
        build(ModelConfig(name="timm:mixer_s32_224"), (3, 64, 64), seed=0)
    with pytest.raises(ValueError, match=r"takes inputs of shape \('B', 1, 8, 8\): got \(2, 1, 9, 8\)"):
        build(ModelConfig(name="conv3"), (1, 8, 8), seed=0)(torch.rand(2, 1, 9, 8))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where downloads of resnet10t would lie; there is no network."""

    def unreachable(*args: object, **options: object) -> None:
        raise OSError("unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path / "models--timm--resnet10t.c3_in1k" / "snapshots"


def test_a_missing_network_is_met_at_once(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(ValueError, match=r"timm:resnet10t could not be loaded \(ConnectError: unreachable\); set"):
        build(ModelConfig(name="timm:resnet10t", pretrained=True), (3, 32, 32), seed=0)
    assert pauses == []
    assert not hub_cache.exists()


def test_weights_that_cannot_be_had(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_cache.mkdir(parents=True)  # weights that were downloaded are looked for without a network
    logger = logging.getLogger("huggingface_hub.file_download")

    def fail(name: str, **options: object) -> None:
        assert options["pretrained"] is True
        assert not logger.isEnabledFor(logging.WARNING)
        raise OSError("no route to host\nand more lines")

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(ValueError, match=r"timm:resnet10t .*OSError: no route to host\); set model.pretrained = false"):
        build(ModelConfig(name="timm:resnet10t", pretrained=True), (3, 32, 32), seed=0)
    assert logger.isEnabledFor(logging.WARNING)


def test_the_backbone_is_the_network_without_its_new_last_layer() -> None:
    images = torch.rand(2, 3, 32, 32)
    model = build(ModelConfig(name="timm:resnet10t", embedding_dim=5), (3, 32, 32), seed=0).eval()
    backbone = model.backbone
    assert backbone is not None
    body = model.body
    assert isinstance(body, nn.Sequential)
    features = body[0]((images - model.mean[:, None, None]) / model.std[:, None, None])
    torch.testing.assert_close(backbone(images), nn.functional.normalize(features))
    torch.testing.assert_close(model(images), nn.functional.normalize(body[1](features)))
    assert features.shape[1] > 5
    assert build(ModelConfig(name="conv3"), (1, 8, 8), seed=0).backbone is None
