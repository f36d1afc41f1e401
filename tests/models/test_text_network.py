"""A pretrained text network: computed as by transformers, pooled by definition, stored whole, refused in a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.small_texts import POSITIONS, WIDTH, WORDS, text_network, transformers

from trivet.models import ModelConfig, TextEmbedder, TextNetworkConfig, build, load_model, resolved_text, save
from trivet.models.text_network import pooled

LOW_RANK = ".parametrizations.weight.0."
TEXTS = ["card lost", "where is my card again", "up"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_network(tmp_path_factory.mktemp("plain"))


def settings(folder: Path, **values: Any) -> TextNetworkConfig:
    config = ModelConfig.parse({"name": f"text:{folder}", **values}, source="settings")
    assert isinstance(config, TextNetworkConfig)
    return config


def made(folder: Path, **values: Any) -> TextEmbedder:
    model = build(settings(folder, **values), (1,), seed=0)
    assert isinstance(model, TextEmbedder)
    return model


def embedded(model: TextEmbedder, texts: list[str]) -> np.ndarray:
    with torch.no_grad():
        return model.eval()(model.tokens(texts)).numpy()


def by_hand(folder: Path, text: str) -> np.ndarray:
    """The vectors of the tokens of one text `(L, d)`, alone, by transformers."""
    ids = [2, *[WORDS.index(word) if word in WORDS else 1 for word in text.split()], 3]
    network = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found: np.ndarray = network(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    return found


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_the_embedding_is_the_pooled_vector_of_each_text_alone(folder: Path, pooling: str) -> None:
    pool = {"mean": lambda rows: rows.mean(0), "cls": lambda rows: rows[0], "max": lambda rows: rows.max(0)}[pooling]
    expected = np.stack([pool(by_hand(folder, text)) for text in TEXTS])
    model = made(folder, pooling=pooling, normalize=False)
    assert embedded(model, TEXTS) == pytest.approx(expected, abs=1e-5)
    learning = model.eval()(model.tokens(TEXTS))  # with gradients all texts are one padded batch
    assert learning.detach().numpy() == pytest.approx(expected, abs=1e-5)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert embedded(made(folder, pooling=pooling), TEXTS) == pytest.approx(unit, abs=1e-5)


def test_pooling_by_definition_leaves_out_what_is_not_there() -> None:
    tokens = torch.tensor([[[1.0, -9.0], [3.0, -5.0], [99.0, 99.0]], [[7.0, 8.0], [9.0, 1.0], [2.0, 6.0]]])
    there = torch.tensor([[True, True, False], [True, True, True]])
    assert pooled(tokens, there, "mean").tolist() == [[2.0, -7.0], [6.0, 5.0]]
    assert pooled(tokens, there, "max").tolist() == [[3.0, -5.0], [9.0, 8.0]]
    assert pooled(tokens, there, "cls").tolist() == [[1.0, -9.0], [7.0, 8.0]]


def test_a_sentence_transformers_folder_says_pooling_length_case_and_prompt(tmp_path: Path) -> None:
    old = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": WIDTH}
    folder = text_network(tmp_path / "a", pooling=old, length=4, lower=True, prompt="pay ", normalize=True)
    config = resolved_text(settings(folder))
    assert (config.pooling, config.max_tokens, config.prefix, config.embedding_dim) == ("cls", 4, "pay ", WIDTH)
    model = made(folder)
    assert (model.tokenizer(["CARD"]).cut, model.tokenizer(["CARD", "card lost"]).cut) == (0, 1)
    assert model.tokens(["CARD lost again"]).tolist() == [[2, *map(WORDS.index, ["pay", "card"]), 3]]
    own = resolved_text(settings(folder, pooling="max", max_tokens=9, prefix=""))
    assert (own.pooling, own.max_tokens, own.prefix) == ("max", 9, "")


def test_the_dropout_is_that_of_the_network_and_draws_from_the_global_generator(folder: Path) -> None:
    model = made(folder).train()
    tokens, draws = model.tokens(TEXTS), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(model(tokens).detach())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    still = made(folder, dropout=False).train()
    assert torch.equal(still(tokens), still(tokens))


@pytest.mark.parametrize(
    ("values", "learned"),
    [
        ({"freeze": "embeddings"}, {"layer.0", "layer.1"}),
        ({"freeze": 1}, {"layer.1"}),
        ({"freeze": "all", "head": "residual"}, {"head"}),
        ({}, {"embeddings", "layer.0", "layer.1"}),
    ],
)
def test_what_is_frozen_gets_no_gradient_and_no_dropout(folder: Path, values: Any, learned: set[str]) -> None:
    model = made(folder, **values).train()
    model(model.tokens(TEXTS)).square().sum().backward()
    (model(model.tokens(TEXTS)) * torch.arange(1.0, WIDTH + 1)).sum().backward()
    parts = ("embeddings", "layer.0", "layer.1", "body.1")
    found = {
        "head" if part == "body.1" else part
        for part in parts
        for name, value in model.named_parameters()
        if part in name and value.grad is not None and bool(value.grad.any())
    }
    assert found == learned
    assert not any("pooler" in name for name, _ in model.named_parameters())  # it would never learn
    if values.get("freeze") == "all":
        assert torch.equal(model(model.tokens(TEXTS)), model(model.tokens(TEXTS)))


@pytest.mark.parametrize("values", [{}, {"head": "residual"}, {"head": "linear"}, {"lora": 2}])
def test_step_0_is_the_pretrained_network_whatever_is_trained(folder: Path, values: Any) -> None:
    assert embedded(made(folder, **values), TEXTS) == pytest.approx(embedded(made(folder), TEXTS), abs=1e-6)


def test_low_rank_changes_are_all_that_learns_and_are_merged_when_saved(folder: Path, tmp_path: Path) -> None:
    config = settings(folder, lora=2, head="residual")
    model = build(config, (1,), seed=0)
    assert isinstance(model, TextEmbedder)
    learned = {name for name, value in model.named_parameters() if value.requires_grad}
    layers = {name.split(".")[-5] for name in learned if LOW_RANK in name}
    assert layers == {"query", "key", "value", "dense"}
    assert {name for name in learned if LOW_RANK not in name} == {"body.1.change.weight"}
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(".b"):
                value.fill_(0.3)
    before = embedded(model, TEXTS)
    assert np.abs(before - embedded(made(folder), TEXTS)).max() > 0.01
    save(model, config, model.input_shape, tmp_path)
    stored = load_model(tmp_path)
    assert isinstance(stored, TextEmbedder)
    assert not any(LOW_RANK in name for name in stored.state_dict())
    assert embedded(stored, TEXTS) == pytest.approx(before, abs=1e-5)
    assert any(LOW_RANK in name for name in model.state_dict())  # the network in training stays as it was


def test_a_stored_network_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    source = text_network(tmp_path / "source", length=6, prompt="pay ", lower=True)
    config = settings(source, head="linear", embedding_dim=3, freeze="embeddings")
    model = build(config, (1,), seed=0)
    assert isinstance(model, TextEmbedder)
    expected = embedded(model, ["Card lost", *TEXTS])
    save(model, config, model.input_shape, tmp_path / "model")
    shutil.rmtree(source)
    names = ["model.json", "model.safetensors", "tokenizer.json", "transformer.json"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == names
    stored = load_model(tmp_path / "model")
    assert isinstance(stored, TextEmbedder)
    assert (embedded(stored, ["Card lost", *TEXTS]) == expected).all()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tokenizer.json", None, "must hold tokenizer.json"),
        ("tokenizer.json", "{}", "tokenizer.json must be a tokenizer"),
        ("transformer.json", "[]", "no table of settings"),
        ("transformer.json", '{"model_type": "nothing"}', "must be the configuration of a transformer"),
        ("transformer.json", {"num_hidden_layers": 10**6}, "num_hidden_layers is no number of a network"),
        ("transformer.json", {"hidden_size": 2**40}, "hidden_size is no number of a network"),
        ("transformer.json", {"intermediate_size": 10**7}, "where .* belongs"),
        ("transformer.json", {"chunk_size_feed_forward": {}}, "must be the configuration of a transformer"),
        ("transformer.json", {"auto_map": {"AutoModel": "x.Y"}}, ""),
    ],
)
def test_a_damaged_model_folder_is_one_sentence(
    folder: Path, tmp_path: Path, name: str, change: Any, message: str
) -> None:
    config = settings(folder)
    model = build(config, (1,), seed=0)
    save(model, config, model.input_shape, tmp_path)
    if isinstance(change, dict):
        change = json.dumps(json.loads((tmp_path / name).read_text()) | change)
    (tmp_path / name).unlink()
    if change is not None:
        (tmp_path / name).write_text(change)
    if not message:
        load_model(tmp_path)
        return
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"embedding_dim": 3}, "embedding_dim must be that of the network, 8"),
        ({"max_tokens": POSITIONS + 1}, "must take texts of model.max_tokens = 17 tokens: it cannot"),
        ({"max_tokens": 1}, "max_tokens must leave room"),
        ({"freeze": 3}, "at most the number of layers, 2: got 3"),
        ({"lora": 2, "freeze": 1}, "remove freeze"),
        ({"pretrained": True}, "always begins pretrained"),
        ({"width": 3}, "width is for networks from scratch"),
        ({"pooling": "last"}, "pooling"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(folder: Path, values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        made(folder, **values)
    assert str(error.value).count(". ") == 0


def test_a_folder_that_is_no_text_network_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    def broken(name: str, content: Any) -> Path:
        copy = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(folder, copy)
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).unlink(missing_ok=True)
        if content is not None:
            (copy / name).write_text(json.dumps(content))
        return copy

    shape = json.loads((folder / "config.json").read_text())
    modules = [{"type": f"x.{name}", "path": ""} for name in ("Transformer", "Pooling", "Dense")]
    for place, message in (
        (tmp_path / "gone", "must name a folder that exists"),
        (broken("config.json", None), "has no config.json"),
        (broken("config.json", shape | {"model_type": "mine"}), "configuration of the text network"),
        (broken("config.json", shape | {"num_hidden_layers": 3}), "layer.2.* are missing"),
        (broken("config.json", shape | {"hidden_size": 12}), "weights of the text network"),
        (broken("model.safetensors", None), "weights of the text network"),
        (broken("modules.json", modules), "it has|has Transformer, Pooling, Dense"),
        (broken("modules.json", {"a": 1}), "must list the modules"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            made(place)
        assert str(error.value).count(". ") == 0, error.value


def test_no_weights_are_unpickled(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    network = transformers.AutoModel.from_pretrained(folder)
    (tmp_path / "copy" / "model.safetensors").unlink()
    torch.save(network.state_dict(), tmp_path / "copy" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"with model\.safetensors"):
        made(tmp_path / "copy")


def test_what_is_no_token_is_refused(folder: Path) -> None:
    model = made(folder)
    for wrong in (torch.zeros(2, 3), torch.zeros(2, POSITIONS + 1, dtype=torch.long), torch.zeros(3, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"model.tokens\(texts\)"):
            model(wrong)
