"""Pretrained encoders: what is on this machine, what it becomes, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub as hub
import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError
from safetensors.torch import save_file
from tests.small_texts import WORDS, text_network
from torch import nn

from trivet.commands.encoders.command import encoders
from trivet.models import ModelConfig, TextEmbedder, TextNetworkConfig, build, load_model, save
from trivet.models import encoder_weights as weights
from trivet.models.encoder_download import download, published
from trivet.models.encoder_weights import at_hand
from trivet.models.encoders import CATALOGUE, Encoder, encoder_named
from trivet.models.sentence_folder import write_sentence_folder

VIT = Encoder("tiny-vit", "images", "timm:test_vit.r160_in1k", licence="apache-2.0", pixels=160, patch=16)
CONVOLUTIONS = Encoder("tiny-convnext", "images", "timm:test_convnext.r160_in1k", licence="cc-by-nc-4.0", pixels=160)
TEXTS = Encoder("tiny-texts", "texts", "text:somebody/tiny", prefix="is ", revision="b" * 40)
TINY = (VIT, CONVOLUTIONS, TEXTS)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and three tiny networks in place of the catalogue's."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(weights, "CATALOGUE", TINY)
    monkeypatch.setattr("trivet.models.encoders.CATALOGUE", TINY)
    return tmp_path / "hub"


def snapshot(cache: Path, encoder: Encoder, revision: str = "a" * 40) -> Path:
    """Where a revision of an encoder lies in the cache, as the hub's client writes it."""
    folder = cache / f"models--{encoder.repository.replace('/', '--')}" / "snapshots" / revision
    folder.mkdir(parents=True)
    return folder


def save_timm(encoder: Encoder, file: Path) -> nn.Module:
    network: nn.Module = timm.create_model(encoder.network.removeprefix("timm:"))
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, file)
    return network


def names(kind: str, **options: object) -> list[str]:
    return [found.encoder.name for found in at_hand(kind, **options)]  # type: ignore[arg-type]  # for short


def test_the_catalogue_agrees_with_timm() -> None:
    for entry in CATALOGUE:
        assert not entry.revision or len(entry.revision) == 40
        if entry.kind == "images":
            cfg = timm.get_pretrained_cfg(entry.network.removeprefix("timm:"), allow_unregistered=False)
            assert cfg is not None
            assert (cfg.license, cfg.hf_hub_id, cfg.input_size[-1]) == (entry.licence, entry.repository, entry.pixels)
            with torch.device("meta"):
                network = timm.create_model(entry.network.removeprefix("timm:"))
            assert network.num_features == entry.width
            size = sum(value.numel() * 4 for value in network.state_dict().values())
            assert abs(size / 1e6 - entry.megabytes) < 1


def test_images_are_cut_into_whole_squares() -> None:
    dino = encoder_named("dinov2-vits14", "images")
    assert [dino.image_size(pixels) for pixels in (3, 96, 224, 900)] == [14, 98, 224, 518]
    assert encoder_named("resnet50", "images").image_size(96) == 96


def test_weights_of_the_cache_begin_a_network_without_the_hub(hub_cache: Path) -> None:
    assert names("images") == []
    network = save_timm(VIT, snapshot(hub_cache, VIT) / "model.safetensors")
    (found,) = at_hand("images")
    assert found.encoder == VIT
    config = ModelConfig.parse({**found.model, "head": "none"}, source="model")
    model = build(config, (3, 160, 160), seed=0).eval()
    images = torch.rand(2, 3, 160, 160)
    with torch.no_grad():
        features = network.eval().forward_head(network.forward_features((images - 0.5) / 0.5), pre_logits=True)  # type: ignore[operator]  # of timm
        torch.testing.assert_close(model(images), nn.functional.normalize(features))
    fixed = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    save_file(dict(fixed.state_dict()), hub_cache / "fixed.safetensors")
    small = ModelConfig.parse(
        {"name": "timm:vit_tiny_patch16_224", "weights": hub_cache / "fixed.safetensors"}, source="x"
    )
    with torch.no_grad():  # of another size: the vectors of its positions are interpolated
        assert build(small, (3, 64, 48), seed=0)(images[:, :, :64, :48]).shape == (2, small.embedding_dim)


def test_a_licence_that_forbids_commercial_use_is_left_out_unless_the_weights_are_given(hub_cache: Path) -> None:
    file = snapshot(hub_cache, CONVOLUTIONS) / "model.safetensors"
    save_timm(CONVOLUTIONS, file)
    assert names("images") == []
    assert names("images", weights={"tiny-convnext": file}) == ["tiny-convnext"]


def test_texts_of_the_cache_get_their_prefix_and_their_pinned_revision(hub_cache: Path) -> None:
    half = snapshot(hub_cache, TEXTS, "c" * 40)
    (half / "config.json").write_text("{}")
    assert names("texts") == []
    text_network(snapshot(hub_cache, TEXTS, "b" * 40))
    text_network(snapshot(hub_cache, TEXTS, "d" * 40), prompt="the ")
    (found,) = at_hand("texts")
    assert found.model["name"] == f"text:{hub_cache / 'models--somebody--tiny' / 'snapshots' / ('b' * 40)}"
    config = ModelConfig.parse(found.model, source="model")
    assert isinstance(config, TextNetworkConfig)
    assert config.prefix == "is "


def test_files_and_folders_of_weights(hub_cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    save_timm(VIT, file)
    (found,) = at_hand("images", {"tiny-vit": file})
    assert found.model == {"name": VIT.network, "weights": str(file)}
    assert at_hand("images", {"timm:test_vit": file}) == [found]  # timm's own choice of weights
    folder = tmp_path / "saved"
    folder.mkdir()
    save_timm(VIT, folder / "model.safetensors")
    described = {"architecture": "test_vit", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "input_size": [3, 160, 160]}}
    (folder / "config.json").write_text(json.dumps(described))
    (own,) = at_hand("images", {"tiny-vit": folder})
    assert own.model == {"name": VIT.network, "weights": str(folder)}
    model = build(ModelConfig.parse(own.model, source="model"), (3, 160, 160), seed=0)
    assert torch.equal(model.mean, torch.tensor([0.1, 0.2, 0.3]))
    assert at_hand("images", {"torchvision:resnet18": file})[0].model["name"] == "torchvision:resnet18"
    for name, path, message in (
        ("tiny-vit", tmp_path / "gone", "gone does not exist"),
        ("tiny-convnext", folder, "must be those of timm:test_convnext.r160_in1k: .*saved holds timm:test_vit; give"),
        ("tiny-texts", folder, "must take what the data are, images: tiny-texts embeds texts; leave it out"),
        ("tyni-vit", file, "must be one of tiny-vit, tiny-convnext, timm:NAME, .*: got 'tyni-vit'"),
        ("timm:resnet10", file, "timm has no model 'resnet10'; did you mean"),
        ("timm:test_vit.none", file, r"Invalid pretrained tag \(none\) for test_vit; timm has test_vit\.r160_in1k"),
        ("timm:botnet50ts_256", file, "timm has no weights of .*; give a folder that timm saved"),
    ):
        with pytest.raises(ValueError, match=message):
            at_hand("images", {name: path})
    with pytest.raises(
        ValueError, match=r"must be its whole folder, with its tokenizer: .*mine\.safetensors is a file"
    ):
        at_hand("texts", {"tiny-texts": file})
    convolutions = ModelConfig.parse({"name": CONVOLUTIONS.network, "weights": str(folder)}, source="model")
    with pytest.raises(ValueError, match=r"model\.weights must be of timm:test_convnext.*saved holds timm:test_vit"):
        build(convolutions, (3, 160, 160), seed=0)


def publish(
    cache: Path, monkeypatch: pytest.MonkeyPatch, encoder: Encoder, files: dict[str, bytes], **said: Any
) -> None:
    """A hub that has one encoder, whose downloads land in the cache; `said`: what differs from its files."""
    entries = [
        SimpleNamespace(rfilename=name, size=len(data), lfs=SimpleNamespace(sha256=sha256(data).hexdigest()))
        for name, data in files.items()
    ]
    details = {"sha": "e" * 40, "gated": False, "siblings": entries, "card_data": SimpleNamespace(license="mit")}

    def fetched(repository: str, *, revision: str, allow_patterns: list[str]) -> str:
        assert repository == encoder.repository
        folder = snapshot(cache, encoder, revision)
        for name in allow_patterns:
            (folder / name).write_bytes(b"damaged" if said.get("damaged") else files[name])
        return str(folder)

    monkeypatch.setattr(hub, "model_info", lambda name, **_: SimpleNamespace(**(details | said)))
    monkeypatch.setattr(hub, "snapshot_download", fetched)


def test_a_download_is_of_safetensors_and_by_hash(
    hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_timm(VIT, tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    monkeypatch.setattr("trivet.commands.encoders.run.CATALOGUE", TINY)
    files = {"model.safetensors": data, "pytorch_model.bin": b"a pickle"}
    publish(hub_cache, monkeypatch, VIT, files, damaged=True)
    with pytest.raises(ValueError, match="must have the hash that the hub states"):
        encoders(["tiny-vit"])
    assert at_hand("images") == []
    shutil.rmtree(hub_cache)
    publish(hub_cache, monkeypatch, VIT, files)
    capsys.readouterr()
    encoders(["tiny-vit"])
    announced = f"tiny-vit: {len(data) / 1e6:,.0f} MB of timm/test_vit.r160_in1k, licence apache-2.0\n"
    assert announced in capsys.readouterr().err
    (ready,) = at_hand("images")
    assert [path.name for path in Path(ready.model["weights"]).parent.iterdir()] == ["model.safetensors"]
    encoders()
    table = re.sub("\n +.*", "", capsys.readouterr().out)
    assert re.search(r"tiny-vit +here .*\ntiny-convnext +- .*cc-by-nc-4.0 \(not commercial\)", table)


def test_texts_come_with_their_tokenizer(hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_network(tmp_path / "made")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()} | {"onnx/model.onnx": b""}
    publish(hub_cache, monkeypatch, TEXTS, files)
    entry = published(TEXTS)
    assert "onnx/model.onnx" not in entry.files
    assert download(entry) == Path(at_hand("texts")[0].model["name"].removeprefix("text:"))


@pytest.mark.parametrize(
    ("encoder", "hub_has", "message"),
    [
        (CONVOLUTIONS, {}, r"forbids commercial use: accept it with --accept-licence tiny-convnext, or use"),
        (VIT, {"siblings": []}, r"must be safetensors, .*: timm/test_vit.r160_in1k has no model\.safetensors; use"),
        (VIT, {"gated": "auto"}, "tiny-vit are gated: log in with hf auth login, accept the terms on the page of timm"),
        (
            replace(VIT, network="python:a.py:net"),
            {},
            "must be on the Hugging Face hub to be downloaded: python:a.py:n",
        ),
    ],
    ids=["licence", "no safetensors", "gated", "own"],
)
def test_what_is_not_downloaded(
    encoder: Encoder, hub_has: dict[str, Any], message: str, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(repository: str) -> None:
        raise GatedRepoError(repository, response=SimpleNamespace(headers={}, request=None))  # type: ignore[arg-type]  # enough

    publish(hub_cache, monkeypatch, encoder, {"model.safetensors": b""}, **hub_has)
    monkeypatch.setattr(hub, "auth_check", refuse)
    with pytest.raises(ValueError, match=message):
        published(encoder)
    if encoder is CONVOLUTIONS:
        assert published(encoder, ["tiny-convnext"]).licence == "cc-by-nc-4.0"


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("unreachable")

    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    with pytest.raises(ValueError, match=r"test_vit.* which cannot be read \(ConnectError: unreachable\); try again"):
        published(VIT)
    assert pauses == []


def test_static_networks_are_read_trained_saved_and_exported(tmp_path: Path) -> None:
    """Of sentence-transformers: the mean of the vectors of the tokens, and no token around them."""
    text_network(tmp_path / "words")
    folder = tmp_path / "static"
    inner = folder / "0_StaticEmbedding"
    inner.mkdir(parents=True)
    shutil.copy(tmp_path / "words" / "tokenizer.json", inner)
    vectors = torch.randn(len(WORDS), 4, generator=torch.Generator().manual_seed(0))
    save_file({"embedding.weight": vectors}, inner / "model.safetensors")
    kind = "sentence_transformers.models.StaticEmbedding"
    (folder / "modules.json").write_text(json.dumps([{"type": kind, "path": "0_StaticEmbedding"}]))
    prompts = {"prompts": {"own": "my "}, "default_prompt_name": "own"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    config = ModelConfig.parse({"name": f"text:{folder}", "normalize": False}, source="model")
    model = build(config, (), seed=0)
    assert isinstance(model, TextEmbedder)
    texts = ["card lost", "top", "where is my limit"]
    expected = [vectors[[WORDS.index(word) for word in f"my {text}".split()]].mean(0).tolist() for text in texts]
    assert model.embed(texts) == pytest.approx(np.array(expected), abs=1e-6)
    assert model.num_parameters == vectors.numel()
    save(model, config, model.input_shape, tmp_path / "saved")
    assert load_model(tmp_path / "saved").embed(texts) == pytest.approx(np.array(expected), abs=1e-6)
    write_sentence_folder(model, tmp_path / "exported")
    again = ModelConfig.parse({"name": f"text:{tmp_path / 'exported'}", "normalize": False}, source="model")
    assert build(again, (), seed=0).embed(texts) == pytest.approx(np.array(expected), abs=1e-6)
    save_file({"other": vectors}, inner / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors holds no matrix embedding\.weight"):
        build(config, (), seed=0)
