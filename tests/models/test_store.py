from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

from trivet.models import Embedder, ModelConfig, build, load_model, save

CONFIG = ModelConfig(name="conv3", embedding_dim=5, width=4)
SHAPE = (1, 12, 12)


def stored(folder: Path) -> Embedder:
    model = build(CONFIG, SHAPE, seed=3)
    model(torch.rand(8, *SHAPE))  # moves the running statistics
    save(model, CONFIG, SHAPE, folder)
    return model


def test_a_stored_model_embeds_the_same(tmp_path: Path) -> None:
    model = stored(tmp_path / "new" / "model").eval()
    loaded = load_model(tmp_path / "new" / "model")
    images = torch.rand(4, *SHAPE)
    assert not loaded.training
    assert torch.equal(loaded(images), model(images))
    assert sorted(path.name for path in (tmp_path / "new" / "model").iterdir()) == ["model.json", "model.safetensors"]


def test_a_pretrained_model_is_loaded_without_fetching_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(name="timm:resnet10t", embedding_dim=3)
    model = build(config, (3, 32, 32), seed=0)
    save(model, config.model_copy(update={"pretrained": True}), (3, 32, 32), tmp_path)
    create = timm.create_model

    def offline(name: str, *, pretrained: bool = False, num_classes: int, in_chans: int) -> object:
        assert not pretrained
        return create(name, num_classes=num_classes, in_chans=in_chans)

    monkeypatch.setattr(timm, "create_model", offline)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(load_model(tmp_path)(images), model.eval()(images))


def test_an_interrupted_save_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        save(build(CONFIG, SHAPE, seed=4), CONFIG, SHAPE, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.json", None, "has no model.json"),
        ("model.safetensors", None, "has no model.safetensors"),
        ("model.json", b"{", "must describe a Trivet model"),
        ("model.json", b"\xff", "must describe a Trivet model"),
        ("model.json", b"[]", "must describe a Trivet model"),
        ("model.json", b'{"model": {}}', "must describe a Trivet model: input_shape must be there"),
        ("model.json", b'{"model": {}, "input_shape": [1, "x", 2]}', "must be a whole number"),
        ("model.json", b'{"model": {}, "input_shape": [1, 0, 2]}', "not sizes"),
        (
            "model.json",
            b'{"model": {"name": "conv9"}, "input_shape": [1, 12, 12], "resize": null}',
            "model.json: name = 'conv9'",
        ),
        (
            "model.json",
            b'{"model": {}, "input_shape": [1, 20, 20], "resize": 12}',
            "resize is 12, no shorter side of an image",
        ),
        ("model.safetensors", b"", "must hold the weights"),
        ("model.safetensors", b"broken" * 100, "must hold the weights"),
    ],
)
def test_missing_and_broken_files_are_named(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    stored(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)


def test_weights_of_another_model_and_truncated_weights(tmp_path: Path) -> None:
    stored(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-10])
    with pytest.raises(ValueError, match="must hold the weights"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    description = json.loads((tmp_path / "model.json").read_text())
    description["model"]["embedding_dim"] = 6
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"is \[5.*\] where \[6.*\] belongs"):
        load_model(tmp_path)
    assert "body.10.weight" in load_file(tmp_path / "model.safetensors")
