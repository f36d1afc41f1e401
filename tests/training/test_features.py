"""A head on a frozen encoder trains on its features: the run is that on the inputs, and is read, resumed, evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.nightly import sampled
from tests.small_texts import text_network, texts_file

from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.datasets.features import FeatureInputs, loaded_inputs
from trivet.io.overwrite_guard import RUN_FOLDER, OutputFolder, check_outputs
from trivet.models import load_model
from trivet.reports.run_record import RunRecord
from trivet.training import features
from trivet.training.components import begun, load_splits
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed, raw_inputs


def photos(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    for number in range(36 if not folder.exists() else 0):
        file = folder / f"c{number % 6}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        noise = generator.integers(0, 99, (16, 16, 3)) + 30 * (number % 6)
        Image.fromarray(noise.astype(np.uint8)).save(file)
    return folder


def settings(folder: Path, kind: str, **sections: dict[str, Any]) -> RunConfig:
    data: dict[str, Any] = {"name": "folder", "root": str(photos(folder / "photos")), "augment": "none"}
    data |= {"image_size": 16, "split": "class-disjoint"}
    model: dict[str, Any] = {"name": "timm:resnet10t", "freeze": "all", "head": "residual", "normalize": False}
    model |= {"embedding_dim": 16}
    if kind == "joined":
        names = [model.pop("name"), "timm:test_vit"]
        data["image_size"] = 32
        model |= {"name": "joined", "members": [{"name": name} for name in names]}
    if kind == "texts":
        data = {"name": "texts", "path": str(texts_file(folder / "texts.csv"))}
        model |= {"name": f"text:{text_network(folder / 'network', length=9)}", "embedding_dim": 4}
    values: dict[str, Any] = {
        "data": data,
        "batch": {"num_classes": 3, "samples_per_class": 3},
        "model": model,
        "loss": {"name": "triplet", "positives": "random", "negatives": "hard", "margin": 1.0},
        "training": {"steps": 6, "learning_rate": 0.001, "log_every": 1},
        "evaluation": {"nmi_plus": 1, "map_points": 10, "sample": 100},
    }
    return RunConfig.parse({key: value | sections.get(key, {}) for key, value in values.items()}, source="settings")


def measured(record: RunRecord) -> dict[str, Any]:
    """What does not hang on the clock, the last digits left out."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(each) for key, each in value.items() if key not in ("seconds", "environment", "run")}
        if isinstance(value, list):
            return [rounded(each) for each in value]
        return round(value, 3) if isinstance(value, float) else value

    sections = ("evaluation", "history", "validation", "curves", "maps", "status", "warnings", "data")
    values = record.as_json()
    return {name: rounded(values[name]) for name in sections}


@pytest.mark.parametrize("kind", sampled(["texts", "images"], 2))
def test_a_run_on_features_is_that_on_the_inputs(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(tmp_path, kind)
    record = train(config, tmp_path / "run")
    again = evaluate_run(tmp_path / "run")
    assert measured(again) == measured(record)
    with monkeypatch.context() as patch:
        patch.setattr(features, "uses_features", lambda config: False)
        plain = train(config, tmp_path / "plain")
    assert measured(record) == measured(plain)
    weights, expected = (load_model(tmp_path / name).state_dict() for name in ("run", "plain"))
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["texts", "images", "joined"])
def test_features_stand_for_the_inputs_and_show_them(kind: str, tmp_path: Path) -> None:
    config = settings(tmp_path, kind)
    loaded = load_splits(config, None)
    network, splits = begun(config, loaded)
    some = np.array([5, 3])
    items, plain = splits.train.subset(some), loaded.train.subset(some)
    assert isinstance(items.inputs, FeatureInputs)
    assert items.inputs.shape == plain.inputs.shape
    assert items.inputs.batch(np.arange(2)).shape == (2, {"texts": 8, "images": 512, "joined": 576}[kind])
    assert loaded_inputs(items.inputs).batch(np.arange(2)).equal(plain.inputs.batch(np.arange(2)))
    assert str(items.show(1)) == str(plain.show(1)) or items.show(1) == plain.show(1)
    np.testing.assert_array_equal(raw_inputs(items.inputs), raw_inputs(plain.inputs))
    assert network.backbone is not None
    for each in (network, network.backbone):
        np.testing.assert_allclose(embed(each, items.inputs), embed(each, plain.inputs), atol=1e-5)
    assert begun(config, splits)[1].train.inputs is splits.train.inputs  # features of this encoder stay
    other = settings(
        tmp_path, kind, **({"model": {"freeze": "none"}} if kind == "texts" else {"data": {"jitter": 0.1}})
    )
    assert begun(other, splits)[1].train.inputs is loaded.train.inputs


def test_an_encoder_as_it_is_is_a_run_like_others(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        "texts",
        model={"head": "none", "embedding_dim": 0},
        training={"steps": 0, "schedule": "cosine", "warmup_steps": "all"},
        guard={"forecast": True, "action": "stop"},
    )
    record = train(config, tmp_path / "run")
    assert (record.status, record.step) == ("finished", 0)
    assert (tmp_path / "run" / "report.html").is_file()
    first, reference = (next(iter(row.levels.values()))["recall@1"] for row in record.evaluation["unseen"][:2])
    assert first == reference
    assert measured(resume(tmp_path / "run")) == measured(record)
    assert measured(evaluate_run(tmp_path / "run")) == measured(record)
    check_outputs([OutputFolder("--output", tmp_path / "run", RUN_FOLDER)], [])  # --force may replace it
    with pytest.raises(ValueError, match=r"leaves nothing to train: .* set training\.steps = 0"):
        settings(tmp_path, "texts", model={"head": "none", "embedding_dim": 0})


def test_the_time_of_features_is_that_of_the_items_that_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path, "texts")
    splits = load_splits(config, None)
    clock = [0.0]

    def half_a_second_each(network: torch.nn.Module, inputs: Any) -> Any:
        clock[0] += 0.5 * len(inputs)
        return embed(network, inputs)

    network, _ = begun(config, splits)
    monkeypatch.setattr(features, "FeatureCache", lambda _: set())
    monkeypatch.setattr(features, "embed", half_a_second_each)
    monkeypatch.setattr(features, "TIMED", 5)
    monkeypatch.setattr(features.time, "perf_counter", lambda: clock[0])
    items = len(splits.train) + sum(map(len, splits.evaluation.values()))
    assert features.feature_seconds(config, splits, network) == pytest.approx(0.5 * items)
    assert clock[0] < 0.5 * items  # by a few of them
    kept = set(features.item_keys(loaded_inputs(splits.train.inputs))[:4])
    monkeypatch.setattr(features, "FeatureCache", lambda _: kept)
    missing = sum(
        key not in kept
        for part in (splits.train, *splits.evaluation.values())
        for key in features.item_keys(loaded_inputs(part.inputs))
    )
    assert missing < items
    assert features.feature_seconds(config, splits, network) == pytest.approx(0.5 * missing)
