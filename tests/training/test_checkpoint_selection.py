"""The step that is kept is the best on classes held out, or the start; also after a kill, bit for bit."""

from __future__ import annotations

import math
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.conftest import without_verdicts
from tests.training.runs import check_same_run, head_settings, killed, known_classes, record_of

from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.outcome import choice_line, result_lines, start
from trivet.commands.train.run import resume, train
from trivet.datasets import Dataset
from trivet.io.read_embeddings import read_vectors
from trivet.metrics import retrieve_levels
from trivet.models import Embedder
from trivet.reports.run_record import SelectionCheck
from trivet.training import RunConfig
from trivet.training.checkpoint_selection import CheckpointSelection, Scores, lower_end, make_selection, patience_end
from trivet.training.components import Components, begun, load_splits, run_fingerprint
from trivet.training.embed_dataset import embed
from trivet.training.run_folder import RunFolder, trained_model
from trivet.training.trainer import Trainer

SIGNAL, NOISE = 3, 13  # dimensions that tell classes apart, and that do not
SMALL = ["evaluation.map_points=20", "evaluation.nmi_plus=1", "training.steps=8", "evaluation.every=4"]
SMALL += ["training.warmup_steps=0", "choosing.measure=map@r"]


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
    return head_settings(file, *SMALL, *changes)


@pytest.fixture(scope="module")
def helped(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "helped"
    with without_verdicts():
        train(settings(file, "training.learning_rate=0.1", "training.checkpoint_every=3"), path)
    return path


@pytest.fixture(scope="module")
def harmed(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "harmed"
    early = ("choosing.patience=1", "evaluation.every=2", "training.checkpoint_every=3")
    train(settings(file, "training.learning_rate=30.0", "guard.action=warn", *early), path)
    return path


@pytest.fixture(scope="module")
def stopped(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ended by patience, as step 10 was not better than step 8."""
    path = tmp_path_factory.mktemp("runs") / "stopped"
    early = ("choosing.patience=1", "evaluation.every=2", "training.checkpoint_every=5", "training.steps=40")
    with without_verdicts():
        train(settings(file, "training.learning_rate=1.5", *early), path)
    return path


def see(monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    """Let each look, the first at the untrained network, find the next of these; 0.8 has lost recall@1."""
    found = iter(values)

    def seen(self: CheckpointSelection, model: object, *_: object) -> Scores:
        value = next(found)
        recall = 0.4 if value == 0.8 else 0.5
        spread = np.linspace(-0.01, 0.01, 4)
        return Scores(np.stack([value + spread, np.full(4, recall)], axis=1), np.arange(4), {"kind": recall})

    monkeypatch.setattr(CheckpointSelection, "scores", seen)


def map_at_r(vectors: Any, labels: Any, others: Any = (), other_labels: Any = ()) -> float:
    """MAP@R by cosine, each item retrieved from the rest and from others: by definition."""
    rows, names = [*vectors, *others], [*labels, *other_labels]
    rows = [row / np.linalg.norm(row) for row in rows]
    found = []
    for i, label in enumerate(labels):
        ranked = sorted((-(rows[i] @ row), names[j] != label) for j, row in enumerate(rows) if j != i)
        right = [not wrong for _, wrong in ranked[: sum(not wrong for _, wrong in ranked)]]
        found.append(sum(sum(right[: k + 1]) / (k + 1) for k in range(len(right)) if right[k]) / len(right))
    return float(np.mean(found))


def vectors_of(part: Dataset) -> Any:
    return part.inputs.batch(np.arange(len(part))).numpy().astype(np.float64)


def test_held_out_classes_are_looked_for_among_themselves(helped: Path, file: Path) -> None:
    held_out = load_splits(settings(file), None).evaluation["validation"]
    choice = record_of(helped)["choosing"]
    assert choice["known"] == 0
    expected = map_at_r(vectors_of(held_out), held_out.labels["kind"])
    assert choice["checks"][0]["value"] == pytest.approx(expected, abs=1e-6)
    # The model that is saved is the best one that was seen.
    best = embed(trained_model(RunFolder.open(helped)), held_out.inputs).astype(np.float64)
    seen = next(look["value"] for look in choice["checks"] if look["step"] == choice["step"])
    assert map_at_r(best, held_out.labels["kind"]) == pytest.approx(seen, abs=1e-6)


def test_items_that_are_alone_of_their_class_are_looked_for_among_the_training_items_too(tmp_path: Path) -> None:
    config = settings(known_classes(tmp_path, each=6), "data.folds=5", "data.folds_of=items", "data.levels=['kind']")
    splits = load_splits(config, None)
    held_out, train = splits.evaluation["validation"], splits.train
    assert len(set(held_out.labels["kind"].tolist())) == len(held_out)
    selection = make_selection(config.choosing, config.evaluation, splits, seed=0)
    network, splits = begun(config, splits)
    parts = [argument for part in (held_out, train) for argument in (vectors_of(part), part.labels["kind"])]
    assert selection.scores(network).values[:, 0].mean() == pytest.approx(map_at_r(*parts), abs=1e-6)


def test_a_head_begins_as_the_vectors_and_the_best_step_is_kept(helped: Path) -> None:
    record = record_of(helped)
    choice = record["choosing"]
    assert [look["step"] for look in choice["checks"]] == [0, 4, 8]
    values = [look["value"] for look in choice["checks"]]
    assert max(values) > values[0] + 0.05
    assert choice["step"] == choice["checks"][int(np.argmax(values))]["step"]
    assert list(record["evaluation"]) == ["unseen", "validation"]  # the main split is one that chose nothing
    by_name = {row["name"]: row["levels"]["kind"] for row in record["evaluation"]["unseen"]}
    assert by_name["untrained network"] == by_name["raw inputs"]
    assert by_name["trained"]["map@r"] > by_name["raw inputs"]["map@r"]
    assert (helped / "report.html").read_text().count("the step was chosen by them") == 1
    whole = RunFolder.open(helped).record()
    assert whole is not None
    line = choice_line(whole)
    assert line is not None
    assert line.startswith(f"The model is that of step {choice['step']}, the best on classes held out (validation, 4")
    best, last = (load_file(helped / name / "model.safetensors") for name in ("model", "model-last"))
    checkpoint = load_file(helped / "checkpoints" / "step-00000008.safetensors")
    assert all(np.array_equal(last[name], checkpoint[f"model/{name}"]) for name in last)
    assert all(np.array_equal(best[name], checkpoint[f"best/{name}"]) for name in best)


def test_where_no_step_is_better_the_model_is_the_raw_vectors_and_it_is_said(harmed: Path, file: Path) -> None:
    record = RunFolder.open(harmed).record()
    assert record is not None
    assert record.choosing is not None
    assert record.choosing.step == 0
    assert start(record) == "the raw vectors"
    ((tone, answer),) = result_lines(record)
    assert tone == "warn"  # three of sixteen dimensions tell classes apart, which is eight more right answers of 96
    shares = "8.9\u00a0% MAP@R on new classes (unseen by kind); 13.5\u00a0% recall@1"
    assert answer.startswith(
        f"The result is the raw vectors: {shares}; too few items to tell whether that is above chance"
    )
    line = str(choice_line(record))
    where = "on classes held out (validation, 4 classes)"
    assert line.startswith(f"No step had a higher MAP@R {where}.")
    # Patience was 1, and the first look found nothing higher.
    assert line.endswith(" Training ended early, at step 2, as 1 look found no higher MAP@R.")
    assert (record.status, record.step, record.choosing.ended) == ("finished", 2, 2)
    assert [moment.step for moment in record.history.moments] == [0, 1, 2]
    assert answer in (harmed / "report.html").read_text().replace("&nbsp;", "\u00a0")
    assert line in (harmed / "report.html").read_text().replace("&nbsp;", "\u00a0")
    weights = load_file(harmed / "model" / "model.safetensors")
    assert not weights["body.1.change.weight"].any()
    output = harmed.parent / "again.parquet"
    embed_data(harmed, str(file), output, which="best")
    embedded, given = read_vectors(output), np.load(file)
    unit = given["embeddings"] / np.linalg.norm(given["embeddings"], axis=1, keepdims=True)
    np.testing.assert_allclose(embedded.embeddings, unit, atol=1e-6)
    assert embedded.labels["kind"].tolist() == given["kind"].tolist()
    np.savez(harmed.parent / "short.npz", embeddings=given["embeddings"][:, :5])
    with pytest.raises(ValueError, match="must have the length that the run was trained on, 16: got 5"):
        embed_data(harmed, str(harmed.parent / "short.npz"), output)


@pytest.mark.parametrize(("run", "step", "best"), [("helped", 8, 8), ("stopped", 10, 8)])
def test_a_run_that_is_killed_keeps_the_same_step_bit_for_bit(
    run: Path, step: int, best: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = request.getfixturevalue(str(run))
    assert record_of(run)["choosing"]["step"] == best
    assert record_of(run)["history"]["moments"][-1]["step"] == step
    cut = killed(run, tmp_path / "cut")
    with without_verdicts():
        resume(cut)
    for part in ("choosing", "history", "evaluation", "step"):
        assert record_of(cut)[part] == record_of(run)[part]
    check_same_run(run, cut)


def test_a_run_that_patience_ended_is_finished_also_where_its_record_was_lost(stopped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    (run / "record.json").unlink()
    record = evaluate_run(run)
    assert record.status == "finished"
    assert record.choosing == RunFolder(stopped).record().choosing


def test_the_best_step_survives_later_worse_ones(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, 0.5, 0.7, 0.6, 0.7, 0.8, 0.5)
    config = settings(file, "training.steps=8", "evaluation.every=2", "evaluation.k=[1]")
    job = Trainer(RunFolder(tmp_path), Components(config, load_splits(config, None)), lambda *_: None)
    assert job.fit() == "finished"
    assert [look.step for look in job.state.selection.checks] == [0, 2, 4, 6, 8]
    assert job.state.selection.step == 2
    # What goes on from a checkpoint has the weights of that step, not of its own.
    later = Trainer(
        job.run, Components(config, load_splits(config, None)), lambda *_: None, checkpoint=job.run.checkpoints()[-1]
    )
    best, weights = job.state.selection.weights, later.state.selection.weights
    assert best.keys() == weights.keys()
    assert all(torch.equal(best[name], weights[name]) for name in best)
    last = later.state.learner.model.state_dict()
    assert not torch.equal(last["body.1.change.weight"], weights["body.1.change.weight"])


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
        (["choosing.measure=recall@3"], "choosing.measure = 'recall@3' is not known; did you mean 'recall@"),
        (["choosing.measure=nmi"], "choosing.measure = 'nmi' is not known"),
        (["choosing.patience=0"], "choosing.patience must be at least 1: got 0"),
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
    with pytest.raises(
        ValueError, match=r'keep = "best" needs items to choose by .*only unseen; .*, or set data.folds = 4'
    ):
        train(config.model_copy(update={"data": data}), tmp_path / "run")
    choosing = config.choosing.model_copy(update={"keep": "last", "patience": 3})
    with pytest.raises(ValueError, match=r"choosing.patience = 3 needs items to choose by beside"):
        train(config.model_copy(update={"data": data, "choosing": choosing}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("classes", "folds"), [(2, None), (4, 2), (6, 3), (20, 4)])
def test_as_many_folds_are_suggested_as_can_be(tmp_path: Path, classes: int, folds: int | None) -> None:
    path = tmp_path / "few.npz"
    kinds, numbers = np.repeat(np.arange(2 * classes), 8), np.random.default_rng(0).normal(size=(16 * classes, 4))
    np.savez(path, embeddings=numbers, kind=kinds.astype("U2"), split=np.where(kinds < classes, "train", "test"))
    changes = ["batch.num_classes=2", "data.folds=0"]
    with pytest.raises(ValueError, match="only unseen; ") as error:
        load_splits(settings(path, *changes), None)
    advice = re.findall(r"or set (data.folds = \d+), which|; set (choosing.keep = \"last\")", str(error.value))
    assert [first for first, _ in advice if first] == ([] if folds is None else [f"data.folds = {folds}"])
    for remedy in filter(None, (text for pair in advice for text in pair)):
        assert load_splits(settings(path, *changes, remedy.replace(" ", "")), None)


def test_patience_counts_looks_since_the_highest_or_the_best() -> None:
    def looks(*values: float) -> list[SelectionCheck]:
        return [SelectionCheck(step=10 * i, value=value, recall=0.5, gain=0.0) for i, value in enumerate(values)]

    checks = looks(0.5, 0.7, 0.6, 0.6)
    assert patience_end(None, checks, 0) is None
    assert patience_end(3, checks, 0) is None  # two since the highest, at step 10, though it is not beyond doubt
    assert patience_end(2, checks, 0) == 30
    assert patience_end(2, checks, 20) is None  # one since the best: that at step 10 had lost recall@1
    assert patience_end(1, [], 0) is None
    assert patience_end(1, looks(0.7, 0.6), 0) == 10


def test_what_may_change_before_a_run_goes_on(file: Path) -> None:
    config = settings(file)
    splits = load_splits(config, None)

    def known(*changes: str) -> str:
        return run_fingerprint(settings(file, *changes), splits)

    assert known() == known("choosing.patience=9", 'training.loggers=["wandb"]')
    assert known() != known("choosing.measure=recall@1")
    assert known() != known("choosing.level=kind")
    assert known("choosing.keep=last") == known("choosing.keep=last", "choosing.measure=recall@1")


@pytest.fixture
def sigint_arrives() -> Iterator[None]:
    """Also where the tests run as a job in the background, for which a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_arrives")
def test_with_last_the_best_lies_beside_it_also_where_a_signal_stops_the_run(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, 0.5, 0.7, 0.6)
    look = CheckpointSelection.measure

    def look_and_stop(self: CheckpointSelection, step: int, model: Embedder) -> dict[str, float]:
        if step == 4:
            signal.raise_signal(signal.SIGINT)
        return look(self, step, model)

    monkeypatch.setattr(CheckpointSelection, "measure", look_and_stop)
    run = tmp_path / "run"
    record = train(settings(file, "choosing.keep=last", "evaluation.every=2"), run)
    assert (record.status, record.step) == ("interrupted", 4)
    state = load_file(run / "checkpoints" / "step-00000004.safetensors")
    for which, folder, part in (("last", "model", "model"), ("best", "model-best", "best")):
        weights = load_file(run / folder / "model.safetensors")
        assert all(np.array_equal(weights[name], state[f"{part}/{name}"]) for name in weights)
        output = tmp_path / f"{which}.parquet"
        embed_data(run, str(file), output, which=which)
    last, best = (read_vectors(tmp_path / f"{which}.parquet").embeddings for which in ("last", "best"))
    assert not np.array_equal(last, best)
    assert choice_line(record) == (
        "The model is that of the last step, 4: MAP@R 60.0\u00a0% on classes held out (validation, 4 classes). "
        "The best is that of step 2: 70.0\u00a0%, against 50.0\u00a0% before training; it lies in model-best/."
    )
    assert start(record) is None


def test_where_nothing_can_be_chosen_there_is_one_model(file: Path, tmp_path: Path) -> None:
    config = settings(file, "choosing.keep=last", "training.steps=1")
    record = train(config.model_copy(update={"data": config.data.model_copy(update={"folds": None})}), tmp_path / "run")
    assert record.choosing is None
    assert not list((tmp_path / "run").glob("model-*"))
    with pytest.raises(ValueError, match="a run has a best model beside that in model/ where it had items to choose"):
        embed_data(tmp_path / "run", str(file), tmp_path / "out.parquet", which="best")


def test_a_choice_by_another_measure_at_another_level(file: Path, tmp_path: Path) -> None:
    parts = np.load(file)
    named = tmp_path / "two.npz"
    np.savez(
        named,
        embeddings=parts["embeddings"],
        side=np.array([f"{k[-1] in '02468'}" for k in parts["kind"]]),
        kind=parts["kind"],
    )
    config = settings(
        named, "data.level=kind", "choosing.measure=recall@2", "choosing.level=side", "evaluation.every=8"
    )
    job = Trainer(RunFolder(tmp_path), Components(config, load_splits(config, None)), lambda *_: None)
    items = job.state.selection.items
    embeddings = embed(job.untrained, items.inputs)
    found = retrieve_levels(**items.evaluation_arguments(embeddings), measures=("recall@2",), distance="cosine")["side"]
    assert job.state.selection.checks[0].value == pytest.approx(found.mean()["recall@2"])
    assert (tmp_path / "metrics.csv").read_text().startswith("step,loss")
    with pytest.raises(ValueError, match=r"choosing.level = 'sort' is not known; .*Allowed: kind, side"):
        Components(settings(named, "data.level=kind", "choosing.level=sort"), load_splits(config, None))
