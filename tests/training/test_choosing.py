"""The step that is kept is the best on classes held out, or the start; also after a kill, bit for bit."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from trivet.reports.run import choice_line, fell_back, result_lines
from trivet.tables import read_vectors
from trivet.tasks.embed import embed_data
from trivet.tasks.head import head_settings
from trivet.tasks.train import resume, train
from trivet.training import RunConfig
from trivet.training.choosing import Choosing, load_splits, lower_end
from trivet.training.job import Job
from trivet.training.parts import Parts
from trivet.training.run_folder import RunFolder

SIGNAL, NOISE = 3, 13  # dimensions that tell classes apart, and that do not
SMALL = ["evaluation.map_points=20", "evaluation.nmi_plus=1", "training.steps=8", "evaluation.every=4"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classes that lie apart in three dimensions, of which a head can learn that the other thirteen mean nothing."""
    random = np.random.default_rng(0)
    label = np.repeat(np.arange(32), 6)
    means = random.standard_normal((32, SIGNAL))[label]
    vectors = np.concatenate(
        [means + 0.3 * random.standard_normal(means.shape), random.standard_normal((192, NOISE))], 1
    )
    path = tmp_path_factory.mktemp("data") / "named.npz"
    np.savez(path, embeddings=vectors.astype(np.float32), kind=np.array([f"k{i:02d}" for i in label]))
    return path


def settings(file: Path, *changes: str) -> RunConfig:
    return head_settings({"name": "vectors", "path": str(file)}, [*SMALL, *changes])[0]


@pytest.fixture(scope="module")
def helped(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "helped"
    train(settings(file, "training.learning_rate=0.02", "training.checkpoint_every=3"), path)
    return path


@pytest.fixture(scope="module")
def harmed(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "harmed"
    train(settings(file, "training.learning_rate=30.0", "guard.action=warn"), path)
    return path


def record_of(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "record.json").read_text())
    return record


def test_a_head_begins_as_the_vectors_and_the_best_step_is_kept(helped: Path) -> None:
    record = record_of(helped)
    choice = record["choosing"]
    assert [look["step"] for look in choice["looks"]] == [0, 4, 8]
    values = [look["value"] for look in choice["looks"]]
    assert values[0] == pytest.approx(record["evaluation"]["validation"][1]["levels"]["kind"]["map@r"])  # untrained
    assert max(values) > values[0] + 0.05
    assert choice["step"] == choice["looks"][int(np.argmax(values))]["step"]
    assert list(record["evaluation"]) == ["unseen", "validation"]  # the main split is one that chose nothing
    by_name = {row["name"]: row["levels"]["kind"] for row in record["evaluation"]["unseen"]}
    assert by_name["untrained network"] == by_name["raw inputs"]
    assert by_name["trained"]["map@r"] > by_name["raw inputs"]["map@r"]
    kept = record["evaluation"]["validation"][0]["levels"]["kind"]["map@r"]
    assert kept == pytest.approx(max(values))  # the model that is saved, not that of the last step
    assert (helped / "report.html").read_text().count("the step was chosen by them") == 1
    whole = RunFolder.open(helped).record()
    assert whole is not None
    line = choice_line(whole)
    assert line is not None
    assert line.startswith(f"The model is that of step {choice['step']}, the best on classes held out (validation, 4")


def test_where_no_step_is_better_the_model_is_the_raw_vectors_and_it_is_said(harmed: Path, file: Path) -> None:
    record = RunFolder.open(harmed).record()
    assert record is not None
    assert record["choosing"] is not None
    assert record["choosing"]["step"] == 0
    assert fell_back(record)
    (tone, line), *others = result_lines(record)
    assert tone == "warn"
    assert line.startswith("Training did not help on classes held out; the model is the raw vectors: ")
    assert not any("no clear difference" in other for _, other in others)
    assert line in (harmed / "report.html").read_text().replace("&nbsp;", "\u00a0")
    weights = load_file(harmed / "model" / "model.safetensors")
    assert not weights["body.1.change.weight"].any()
    output = harmed.parent / "again.parquet"
    embed_data(harmed, str(file), output)
    embedded, given = read_vectors(output), np.load(file)
    unit = given["embeddings"] / np.linalg.norm(given["embeddings"], axis=1, keepdims=True)
    np.testing.assert_allclose(embedded.embeddings, unit, atol=1e-6)
    assert embedded.labels["kind"].tolist() == given["kind"].tolist()
    np.savez(harmed.parent / "short.npz", embeddings=given["embeddings"][:, :5])
    with pytest.raises(ValueError, match="must have the length that the run was trained on, 16: got 5"):
        embed_data(harmed, str(harmed.parent / "short.npz"), output)


def test_a_run_that_is_killed_keeps_the_same_step_bit_for_bit(helped: Path, file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(helped, cut)
    (cut / "checkpoints" / "step-00000008.safetensors").unlink()
    shutil.rmtree(cut / "model")
    (cut / "record.json").unlink()
    resume(cut)
    assert record_of(cut)["choosing"] == record_of(helped)["choosing"]
    for name in ("model/model.safetensors", "checkpoints/step-00000008.safetensors"):
        first, again = (load_file(run / name) for run in (helped, cut))
        assert first.keys() == again.keys()
        assert all(np.array_equal(first[key], again[key]) for key in first)
    assert record_of(cut)["evaluation"] == record_of(helped)["evaluation"]


def test_the_best_step_survives_later_worse_ones(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([0.5, 0.5, 0.7, 0.6, 0.7, 0.8, 0.5])

    def seen(self: Choosing, model: object) -> tuple[np.ndarray, np.ndarray]:
        value = next(found)
        recall = 0.4 if value == 0.8 else 0.5  # the last one has the most of the measure and loses recall@1
        spread = np.linspace(-0.01, 0.01, 4)
        return np.stack([value + spread, np.full(4, recall)], axis=1), np.arange(4)

    monkeypatch.setattr(Choosing, "_seen", seen)
    config = settings(file, "training.steps=8", "evaluation.every=2", "evaluation.k=[1]")
    job = Job(RunFolder(tmp_path), Parts(config, load_splits(config, None)), lambda *_: None)
    assert job.fit() == "finished"
    assert [look["step"] for look in job.parts.choosing.looks] == [0, 2, 4, 6, 8]
    assert job.parts.choosing.step == 2
    # What goes on from a checkpoint has the weights of that step, not of its own.
    later = Job(
        job.run, Parts(config, load_splits(config, None)), lambda *_: None, checkpoint=job.run.checkpoints()[-1]
    )
    best, weights = job.parts.choosing.weights, later.parts.choosing.weights
    assert best.keys() == weights.keys()
    assert all(torch.equal(best[name], weights[name]) for name in best)
    last = later.parts.model.state_dict()
    assert not torch.equal(last["body.1.change.weight"], weights["body.1.change.weight"])


def test_a_repair_begins_the_choice_anew_at_the_network_it_returned_to(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([0.5, 0.5, 0.9, 0.6, 0.7])
    spread = np.linspace(-0.01, 0.01, 4)
    seen = lambda self, model: (np.stack([next(found) + spread, np.full(4, 0.5)], axis=1), np.arange(4))  # noqa: E731
    monkeypatch.setattr(Choosing, "_seen", seen)
    config = settings(file)
    parts = Parts(config, load_splits(config, None))
    choosing, weight = parts.choosing, parts.model.body[1].change.weight  # type: ignore[index, union-attr]
    choosing.begin(parts.model)
    choosing.look(0, parts.model)
    choosing.look(6, parts.model)
    weight.data.fill_(2.0)
    choosing.go_back(4, parts.model)
    assert (choosing.step, [look["step"] for look in choosing.looks]) == (4, [4])
    assert choosing.looks[0]["gain"] == pytest.approx(0.1)  # still on the network before its first step
    weight.data.fill_(3.0)
    choosing.look(8, parts.model)
    assert choosing.step == 8
    weight.data.fill_(4.0)
    choosing.put_back(parts.model)
    assert (weight == 3.0).all()


def test_the_lower_end_is_that_of_students_t() -> None:
    gains, classes = np.array([0.1, 0.3, 0.0, 0.0, 0.2, 0.2]), np.array([5, 5, 2, 2, 9, 9])
    means = np.array([0.2, 0.0, 0.2])
    assert lower_end(gains, classes) == pytest.approx(means.mean() - 2.919986 * means.std(ddof=1) / math.sqrt(3))
    assert lower_end(gains[:2], classes[:2]) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["data.split=in-class", "data.holdout=0.5"], None),
        (["choosing.keep=best", "data.folds=1"], "folds"),
        (["choosing.keep=first"], "choosing.keep = 'first' is not known"),
    ],
)
def test_settings_of_a_choice(file: Path, changes: list[str], sentence: str | None) -> None:
    if sentence is None:
        assert settings(file, *changes).data.folds == 4
        return
    with pytest.raises(ValueError, match=sentence):
        settings(file, *changes)


def test_there_must_be_something_to_choose_by(file: Path, tmp_path: Path) -> None:
    config = settings(file)
    data = config.data.model_copy(update={"folds": None})
    with pytest.raises(ValueError, match=r'keep = "best" needs items to choose by .*only unseen; set data.folds = 4'):
        train(config.model_copy(update={"data": data}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
