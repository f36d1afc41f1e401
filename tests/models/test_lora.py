"""Low-rank changes equal their definition, learn as it does, and are merged when a network is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from timm.models.eva import Eva
from torch import nn
from torch.nn.functional import linear
from torchvision.models import VisionTransformer

from trivet.models import ModelConfig, build, load_model, save
from trivet.models.lora import add_lora

IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_value_and_gradient_equal_the_definition() -> None:
    """Of W + (alpha / r) B A, alpha / r = 2; the gradient of B and A by the rule of products, W has none."""
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(4, 3).double()
    network = nn.ModuleDict({"qkv": layer})
    weight = layer.weight.detach().clone()
    rows, outer = (torch.randn(5, d, generator=generator, dtype=torch.float64) for d in (4, 3))
    before = layer(rows)
    add_lora(network, 2)
    network.double()
    assert torch.equal(layer(rows), before)
    values = dict(network.named_parameters())
    a, b = (next(value for name, value in values.items() if name.endswith(end)) for end in (".a", ".b"))
    assert (a.shape, b.shape) == ((2, 4), (3, 2))
    with torch.no_grad():
        b.copy_(torch.randn(3, 2, generator=generator, dtype=torch.float64))
    changed = layer(rows)
    torch.testing.assert_close(changed, linear(rows, weight + 2 * b @ a, layer.bias))
    (changed * outer).sum().backward()
    torch.testing.assert_close(b.grad, 2 * outer.T @ rows @ a.T)
    torch.testing.assert_close(a.grad, 2 * b.T @ outer.T @ rows)
    assert {name for name, value in values.items() if value.grad is not None} == {
        f"qkv.parametrizations.weight.0.{end}" for end in "ab"
    }


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_attention_that_reads_weights_itself_is_changed_too(library: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if library == "torchvision":
            network: nn.Module = VisionTransformer(32, 16, 1, 2, 8, 16)
            network.heads = nn.Identity()
        else:
            network = Eva(img_size=32, patch_size=16, embed_dim=16, depth=1, num_heads=2, num_classes=0)
        add_lora(network, 1)
    (network(IMAGES) * torch.arange(IMAGES.shape[0])[:, None]).square().sum().backward()
    learned = {name: value for name, value in network.named_parameters() if value.requires_grad}
    assert any(name.rpartition(".parametrizations")[0].endswith(("qkv", "out_proj")) for name in learned)
    assert all(
        value.grad is not None and bool(value.grad.any()) for name, value in learned.items() if name[-2:] == ".b"
    )


def test_a_vision_transformer_learns_its_low_rank_changes_alone(tmp_path: Path) -> None:
    config = ModelConfig.parse({"name": "timm:test_vit", "lora": 2, "head": "none"}, source="test")
    model = build(config, (3, 32, 32), seed=0)
    plain = build(config.model_copy(update={"lora": 0}), (3, 32, 32), seed=0)
    torch.testing.assert_close(model.eval()(IMAGES), plain.eval()(IMAGES))
    learned = {key: value for key, value in model.named_parameters() if value.requires_grad}
    assert {key.rpartition(".")[2] for key in learned} == {"a", "b"}
    assert any("mlp" in key for key in learned)
    assert any("attn" in key for key in learned)
    (model(IMAGES) * torch.arange(1.0, config.embedding_dim + 1)).sum().backward()
    assert all(bool(value.grad.any()) for key, value in learned.items() if key.endswith(".b"))
    with torch.no_grad():
        for key, value in learned.items():
            if key.endswith(".b"):
                value.fill_(0.1)
    expected = model(IMAGES)
    assert (expected - plain(IMAGES)).abs().max() > 0.01
    save(model, config, (3, 32, 32), tmp_path)
    stored = load_model(tmp_path)
    assert stored.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(stored(IMAGES), expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(model(IMAGES), expected)  # the network in training goes on as it was


def test_a_convolutional_network_has_no_layers_for_them() -> None:
    config = ModelConfig.parse({"name": "timm:test_resnet", "lora": 2}, source="test")
    with pytest.raises(ValueError, match=r"layers of transformers: .* no attention .* model\.freeze"):
        build(config, (3, 32, 32), seed=0)
