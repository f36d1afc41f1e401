"""What a sweep varies is checked before the first trial, and its settings can be read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.small_sweep import settings

from trivet.commands.sweep.search_space import Range, Sweep
from trivet.config.base import put
from trivet.runtime.safe_read import parse_toml
from trivet.training.config import RunConfig
from trivet.training.ladder_config import LadderSettings


def changed(folder: Path, path: str, value: Any) -> dict[str, Any]:
    values = settings(folder)
    if path.startswith("vary."):
        values["sweep"]["vary"][path.removeprefix("vary.")] = value
    else:
        put(values, path, value)
    return values


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("vary.loss.margin", [0.1, -1.0], "with loss.margin = -1.0: loss: margin must be"),
        ("vary.loss.margin", {"low": 0.1, "high": -1}, "low must be below high"),
        ("vary.loss.margin", {"low": 0.1, "high": 1, "stpe": 1}, "unknown setting 'stpe'; did you mean 'step'?"),
        ("vary.loss.margin", 0.3, "loss.margin must be a list of values or a range"),
        ("vary.loss.margin", [0.3, 0.3], "must have two or more different values"),
        ("vary.training.learning_rate", {"low": 0.0, "high": 1.0, "log": True}, "low must be above 0 for log"),
        ("vary.model.embedding_dim", {"low": 2.0, "high": 4.0}, "with model.embedding_dim = 2.763932: "),
        ("vary.batch.num_classes", {"low": 2, "high": 4, "step": 0.5}, "step must be whole"),
        ("vary.loss.name", ["triplet", "tripelt"], "did you mean 'triplet'?"),
        ("vary.loss", [{"name": "triplet"}, {"name": "n-pair"}], "both loss and loss.margin"),
        ("vary.data.path", ["a.npz", "b.npz"], "of the data only augment"),
        ("vary.data.folds", [2, 3], "of the data only augment"),
        ("vary.evaluation.sample", [50, 100], "of the evaluation only distance"),
        ("vary.seed", [0, 1], "seeds says how many"),
        ("sweep.sampler", "grid", "needs a list, or a range with a step: training.learning_rate"),
        ("sweep.folds", 4, "folds must be at most data.folds: got 4 of 3"),
        ("sweep.measure", "nmi", "sweep.measure = 'nmi' is not known"),
        ("sweep.storage", "mysql://me:secret@host/x", "storage: the storage of a sweep must be"),
        ("sweep", {"trials": 3}, "the setting 'vary' is missing"),
        ("sweep", 3, "a sweep needs a section [sweep]"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_tried_is_one_sentence(path: str, value: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^file\.toml") as error:
        Sweep.parse(changed(tmp_path, path, value), source="file.toml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_each_value_of_a_range_in_steps_is_checked(tmp_path: Path) -> None:
    assert Range(low=2, high=7, step=2).values_to_check() == [2, 4, 6]
    assert Range(low=0.1, high=0.5, step=0.2).values_to_check() == [0.1, 0.3, 0.5]
    values = changed(tmp_path, "vary.evaluation.distance", ["cosine", "euclidean"])
    values["sweep"]["vary"]["model.normalize"] = [True, False]
    values["loss"] = {"name": "margin"}  # refuses embeddings of any length, or not: whatever it says, it is said now
    del values["sweep"]["vary"]["loss.margin"]
    sweep = Sweep.parse(values, source="x")
    assert sweep.run({"model.normalize": False}).model.normalize is False


def test_the_settings_are_read_back_without_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = settings(tmp_path, storage="postgresql://me:se%2Fcret@host:5/db?password=secret&sslmode=require", seeds=2)
    values["sweep"]["vary"]["loss"] = {"margin": [0.1, 0.2], "positives": ["easy", {"name": "easy", "k": 2}]}
    del values["sweep"]["vary"]["loss.margin"]
    monkeypatch.chdir(tmp_path)
    values["data"]["path"] = "x.npz"
    sweep = Sweep.parse(values, source="x")
    text = sweep.to_toml()
    assert "cret" not in text
    again = Sweep.parse(parse_toml(text), source="x")
    assert again.config.storage == "postgresql://me@host:5/db?sslmode=require"
    assert again.config.vary == sweep.config.vary
    assert again.base["data"]["path"] == str(tmp_path / "x.npz")
    assert again.run({"loss.positives": {"name": "easy", "k": 2}}, seed=4, fold=2).data.fold == 2


def test_the_best_is_trained_on_all_classes_unless_a_step_is_chosen(tmp_path: Path) -> None:
    values = settings(tmp_path)
    best = Sweep.parse(values, source="x").best({"loss.margin": 0.4, "training.learning_rate": 0.01})
    assert (best.data.folds, best.loss.margin, best.training.learning_rate) == (None, 0.4, 0.01)
    values["choosing"] = {"keep": "best", "measure": "recall@1"}
    sweep = Sweep.parse(values, source="x")
    assert sweep.best({}).data.folds == 3
    assert sweep.measure == "recall@1"
    assert RunConfig.parse(parse_toml(sweep.best({}).to_toml()), source="x") == sweep.best({})


def test_files_of_a_sweep_a_ladder_and_a_run_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x: the section \[sweep\] is for trivet sweep"):
        RunConfig.parse(settings(tmp_path), source="x")
    ladder = {"data": {"name": "digits"}, "ladder": {}}
    for kind in (RunConfig, Sweep):
        with pytest.raises(ValueError, match=r"x: the section \[ladder\] is for trivet train .* give config.toml"):
            kind.parse(ladder, source="x")
    with pytest.raises(ValueError, match=r"x: the section \[training\] is of a single run"):
        LadderSettings.parse({**ladder, "training": {"steps": 3}}, source="x")


def test_steps_that_vary_take_the_place_of_epochs(tmp_path: Path) -> None:
    values = changed(tmp_path, "vary.training.epochs", [1, 2])
    assert Sweep.parse(values, source="x").run({"training.epochs": 2}).training.steps is None
