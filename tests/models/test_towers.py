"""Two networks, of which each embeds the items of its side."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.small_texts import WIDTH, text_network

from trivet.models import ModelConfig, SidedBatch, TextEmbedder, Towers, TowersConfig, build, load_model, save

VALUES = {"name": "towers", "embedding_dim": 4, "left": {"name": "linear"}, "right": {"name": "mlp", "width": 5}}


def settings(**values: object) -> TowersConfig:
    config = ModelConfig.parse({**VALUES, **values}, source="x")
    assert isinstance(config, TowersConfig)
    return config


def towers(shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((3,), (7,)), **values: object) -> Towers:
    model = build(settings(**values), shapes, seed=0)
    assert isinstance(model, Towers)
    return model.eval()


def batch(right: list[bool], widths: tuple[int, int] = (3, 7)) -> SidedBatch:
    draw, of_right = torch.Generator().manual_seed(0), torch.tensor(right)
    sizes = int((~of_right).sum()), int(of_right.sum())
    left, others = (torch.randn(size, width, generator=draw) for size, width in zip(sizes, widths, strict=True))
    return SidedBatch(of_right, (left, others))


@pytest.mark.parametrize(
    "right", [[True, False, False, True, False], [False, False], [True, True, True]], ids=["both", "left", "right"]
)
def test_each_item_is_embedded_by_the_network_of_its_side(right: list[bool]) -> None:
    model, inputs = towers(), batch(right)
    sides = zip(model.networks, inputs.sides, strict=True)
    rows = [iter(network(side)) if len(side) else iter(()) for network, side in sides]
    expected = torch.stack([next(rows[of_right]) for of_right in right])
    torch.testing.assert_close(model(inputs), expected, rtol=0, atol=0)
    torch.testing.assert_close(model.left(inputs.sides[0]).norm(dim=1), torch.ones(right.count(False)))


def test_a_part_of_a_batch_without_a_side_gives_all_weights_a_gradient() -> None:
    """Of several processes each adds up the gradients of all."""
    model = towers()
    model(batch([False, False])).sum().backward()
    assert all(weight.grad is not None and not weight.grad.any() for weight in model.right.parameters())
    assert any(weight.grad is not None and bool(weight.grad.any()) for weight in model.left.parameters())


def test_equal_settings_begin_alike_and_other_ones_have_no_space_in_common(tmp_path: Path) -> None:
    text = {"name": f"text:{text_network(tmp_path / 'network')}", "embedding_dim": 4, "head": "mlp"}
    alike = towers(left=text, right=text)
    mine, its = alike.left.state_dict(), alike.right.state_dict()
    assert all(torch.equal(mine[name], its[name]) for name in mine)
    assert mine["body.0.network.embeddings.word_embeddings.weight"].data_ptr() != next(iter(its.values())).data_ptr()
    backbone = alike.backbone
    assert backbone is not None
    assert isinstance(alike.left, TextEmbedder)
    tokens = alike.left.tokens(["lost card", "top up"])
    assert backbone(SidedBatch(torch.tensor([False, True]), (tokens[:1], tokens[1:]))).shape == (2, WIDTH)
    with torch.no_grad():
        alike.right.state_dict()["body.0.network.embeddings.word_embeddings.weight"].add_(1)
    assert alike.backbone is None
    assert towers(left=text).backbone is None


def test_a_model_of_two_sides_is_stored_and_each_side_embeds(tmp_path: Path) -> None:
    text = {"name": f"text:{text_network(tmp_path / 'network')}", "embedding_dim": 4, "head": "linear"}
    config, shapes = settings(right=text), ((3,), (16,))
    model = build(config, shapes, seed=1).eval()
    save(model, config, shapes, tmp_path / "model")
    again, side = load_model(tmp_path / "model"), load_model(tmp_path / "model" / "right")
    assert isinstance(again, Towers)
    texts, vectors = ["lost card", "top up again"], torch.randn(2, 3)
    assert (again.right.embed(texts) == side.embed(texts)).all()
    assert (again.left.embed(vectors) == model.networks[0].embed(vectors)).all()
    with pytest.raises(ValueError, match=r"a network for each side: embed with model\.left or model\.right"):
        again.embed(texts)
    (tmp_path / "model" / "left" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"must hold model\.json and model\.safetensors: .*left has no model\.safet"):
        load_model(tmp_path / "model")


def test_settings_of_sides_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r'x: left is the network of a side: set model\.name = "towers", with'):
        ModelConfig.parse({"name": "mlp", "left": {"name": "linear"}}, source="x")
    with pytest.raises(ValueError, match=r"unknown setting 'middle'"):
        settings(middle={"name": "linear"})
    with pytest.raises(ValueError, match="the network of the left side must be a single one: got towers"):
        settings(left=VALUES)
    with pytest.raises(ValueError, match=r"x: the setting 'right\.name' is missing; add it, one of .*mlp"):
        ModelConfig.parse({"name": "towers", "left": {"name": "linear"}}, source="x")
    with pytest.raises(ValueError, match="must have embeddings of one length: got 4 on the left and 6 on the right"):
        settings().with_networks(settings().left, settings(embedding_dim=6).right)
    with pytest.raises(ValueError, match=r'"towers" needs items of two sides, data\.name = "pairs": got others'):
        build(settings(), (3, 8, 8), seed=0)
