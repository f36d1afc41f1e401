"""A run folder holds what it should, a killed run goes on as if nothing had happened, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tests.commands.conftest import Call
from tests.training.runs import check_same_run, check_same_weights, killed

from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.folds import cross_validate, resume_folds
from trivet.commands.train.run import resume, train
from trivet.metrics import recall_at_k
from trivet.metrics.intervals import across_folds
from trivet.training import RunConfig
from trivet.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("few_digits", "undiagnosed")

SETTINGS = {
    "seed": 3,
    "data": {"name": "digits", "augment": "crop-flip"},
    "batch": {"num_classes": 2, "samples_per_class": 8},
    "model": {"name": "conv3", "embedding_dim": 4, "width": 4},
    "loss": {"name": "margin", "positives": "random"},
    "training": {"steps": 12, "log_every": 2, "checkpoint_every": 5, "schedule": "cosine", "optimizer": "sgd",
                 "momentum": 0.9, "learning_rate": 0.01, "accelerator": "cpu"},
    "evaluation": {"every": 6, "map_points": 40, "sample": 100, "nmi_plus": 2},
}  # fmt: skip


def config(**changes: dict[str, object]) -> RunConfig:
    merged = {
        key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value for key, value in SETTINGS.items()
    }
    return RunConfig.parse(merged, source="test")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "whole"
    train(config(), path, command="trivet train x.toml")
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_run_folder(finished: Path) -> None:
    assert {item.name for item in finished.iterdir()} == {
        ".lock", "config.toml", "metrics.csv", "checkpoints", "model", "embeddings", "record.json", "report.html",
    }  # fmt: skip
    assert RunFolder.open(finished).config() == config()
    record = json.loads((finished / "record.json").read_text())
    assert record["status"] == "finished"
    assert record["data"]["coverage"] == {"items": 1.0, "classes": 1.0}
    assert record["curves"]["step"] == [2, 4, 6, 8, 10, 12]
    assert record["validation"]["step"] == [6, 12]
    assert [row["name"] for row in record["evaluation"]["seen"]] == ["trained", "untrained network", "raw inputs"]
    assert [file.name for file in RunFolder.open(finished).checkpoints()[-2:]] == [
        "step-00000010.safetensors",
        "step-00000012.safetensors",
    ]


def test_recorded_recall_is_that_of_the_saved_embeddings(finished: Path) -> None:
    table = pq.read_table(finished / "embeddings" / "unseen.parquet").to_pydict()
    embeddings = np.array(table["embedding"], dtype=np.float32)
    assert embeddings.shape == (195, 4)
    record = json.loads((finished / "record.json").read_text())
    for level in ("parity", "digit"):
        labels = np.unique(table[level], return_inverse=True)[1]
        found = record["evaluation"]["unseen"][0]["levels"][level]["recall@1"]
        assert recall_at_k(embeddings, labels, (1,))[1] == found
    assert sorted(set(table["digit"])) == ["6", "7", "8", "9"]


def test_a_killed_run_goes_on_to_the_same_result(finished: Path, tmp_path: Path) -> None:
    path = killed(finished, tmp_path / "run")
    resume(path)
    check_same_run(finished, path)
    old, new = (json.loads((folder / "record.json").read_text()) for folder in (finished, path))
    for key in ("evaluation", "curves", "validation", "maps"):
        assert old[key] == new[key]


def test_evaluate_again(copied: Path, finished: Path) -> None:
    shutil.rmtree(copied / "embeddings")
    record = evaluate_run(copied)
    assert record.as_json()["evaluation"] == json.loads((finished / "record.json").read_text())["evaluation"]
    assert (copied / "embeddings" / "seen.parquet").is_file()
    (copied / "record.json").write_text("{")
    assert evaluate_run(copied).evaluation == record.evaluation


@pytest.mark.usefixtures("unevaluated")
def test_two_seeds_differ(finished: Path, tmp_path: Path) -> None:
    train(config().model_copy(update={"seed": 4}), tmp_path / "other")
    one, two = (load_file(path / "model" / "model.safetensors") for path in (finished, tmp_path / "other"))
    assert any((one[key] != two[key]).any() for key in one)


@pytest.mark.usefixtures("unevaluated")
def test_an_existing_run_is_replaced_on_demand_only(copied: Path) -> None:
    with pytest.raises(ValueError, match="--force"):
        train(config(), copied)
    assert json.loads((copied / "record.json").read_text())["status"] == "finished"
    train(config(training={"steps": 2}), copied, force=True)
    assert RunFolder.open(copied).config().training.steps == 2
    train(config(training={"steps": 0}), copied, force=True)
    assert RunFolder.open(copied).config().training.steps == 0


def test_a_folder_that_is_no_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"it holds thesis\.txt"):
        train(config(), tmp_path, force=True)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ValueError, match=r"it holds thesis\.txt"):
        train(config(), tmp_path, force=True)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_replaced_run_comes_back_if_the_new_one_fails_at_once(copied: Path, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="embeddings must be finite"):
        train(
            config(model={"normalize": False}, loss={"normalize": False, "negatives": "random"},
                   training={"learning_rate": 1e30}),
            copied, force=True,
        )  # fmt: skip
    assert (copied / "metrics.csv").read_bytes() == (finished / "metrics.csv").read_bytes()
    assert [item.name for item in tmp_path.iterdir()] == ["run"]


@pytest.mark.usefixtures("unevaluated")
@pytest.mark.parametrize("full", ["config.toml", "step-00000001.safetensors", "model.safetensors"])
def test_a_full_disk_loses_neither_the_old_run_nor_what_the_new_one_can_go_on_from(
    full: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, replace = tmp_path / "run", Path.replace
    shutil.copytree(finished, path)

    def replace_or_fail(self: Path, target: Path) -> Path:
        if Path(target).name == full:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace_or_fail)
        with pytest.raises(OSError, match="No space left"):
            train(config(training={"steps": 2, "checkpoint_every": 1}), path, force=True)
    if full != "model.safetensors":
        assert snapshot(path) == snapshot(finished)
        assert "put back what" in caplog.text
        return
    earlier = path / ".trivet-earlier"
    assert snapshot(earlier) == {name: data for name, data in snapshot(finished).items() if name != ".lock"}
    assert "is kept in" in caplog.text
    assert resume(path).status == "finished"
    assert not earlier.exists()
    assert RunFolder.open(path).config().training.steps == 2


@pytest.mark.usefixtures("unevaluated")
@pytest.mark.parametrize("moment", ["before its first checkpoint", "after its first checkpoint"])
def test_the_command_that_was_killed_while_it_replaced_a_run_goes_on(
    moment: str, copied: Path, finished: Path, tmp_path: Path, run_command: Call, caplog: pytest.LogCaptureFixture
) -> None:
    (file := tmp_path / "new.toml").write_text(config(training={"steps": 2, "checkpoint_every": 1}).to_toml())
    keep = RunFolder.keep

    def killed_here(run: RunFolder) -> None:
        if moment.startswith("after"):
            keep(run)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        RunFolder.keep = killed_here  # type: ignore[method-assign]  # of this process, which ends at once
        train(RunConfig.read(file), copied, force=True)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    aside = copied / (".trivet-earlier" if moment.startswith("after") else ".trivet-replaced")
    assert snapshot(aside) == {name: data for name, data in snapshot(finished).items() if name != ".lock"}
    code, _, err = run_command("train", file, "-o", copied)
    assert (code, "add --force" in err) == (2, True)
    code, _, err = run_command("train", file, "-o", copied, "--force")
    assert code == 0, err
    assert ("is kept until this has ended" if moment.startswith("after") else "put back what") in caplog.text
    assert not aside.exists()
    assert RunFolder.open(copied).config().training.steps == 2


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_that_goes_on_is_not_replaced(copied: Path, tmp_path: Path) -> None:
    with RunFolder(copied).locked():
        before = snapshot(copied)
        for force in (True, False):
            with pytest.raises(ValueError, match="is in use; wait for it to end"):
                train(config(), copied, force=force)
        for work in (resume, evaluate_run):
            with pytest.raises(ValueError, match="is in use"):
                work(copied)
    assert snapshot(copied) == before
    assert [item.name for item in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["checkpoints", "model", "metrics.csv", "record.json", "report.html"])
def test_a_run_that_cannot_be_written_is_refused_before_anything_is(name: str, copied: Path) -> None:
    item = copied / name
    if item.is_dir():
        shutil.rmtree(item)
        item.write_text("mine")
    else:
        item.unlink()
        item.mkdir()
    before = snapshot(copied)
    for work in (resume, evaluate_run):
        with pytest.raises(ValueError, match=rf"{name} must be a (file|folder)"):
            work(copied)
    assert snapshot(copied) == before


@pytest.mark.parametrize(
    ("old", "new"), [("seed = 3", "seed = 4"), ('"sgd"', '"rmsprop"'), ("learning_rate = 0.01", "learning_rate = 0.02")]
)
def test_a_run_goes_on_with_its_own_settings_only(old: str, new: str, copied: Path) -> None:
    text = (copied / "config.toml").read_text()
    assert old in text
    (copied / "config.toml").write_text(text.replace(old, new))
    with pytest.raises(ValueError, match="was written with other settings or data"):
        resume(copied)


def test_a_run_without_a_model_says_how_to_go_on(copied: Path, tmp_path: Path) -> None:
    shutil.rmtree(copied / "model")
    for work in (evaluate_run, lambda run: embed_data(run, "digits", tmp_path / "x.parquet")):
        with pytest.raises(ValueError, match="trivet train --resume"):
            work(copied)


@pytest.mark.usefixtures("unevaluated")
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, path = Path.replace, tmp_path / "run"

    def full(self: Path, target: Path) -> Path:
        if target.name == "step-00000010.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        train(config(), path)
    monkeypatch.undo()
    assert [file.name for file in (path / "checkpoints").iterdir()] == ["step-00000005.safetensors"]
    assert json.loads((path / "record.json").read_text())["status"] == "failed"
    assert resume(path).status == "finished"


@pytest.mark.usefixtures("unevaluated")
def test_easy_positives_of_two_samples_are_called_out(tmp_path: Path) -> None:
    settings = config(loss={"positives": "easy"}, batch={"samples_per_class": 2}, training={"steps": 1})
    record = train(settings, tmp_path / "run")
    assert "easy positives have no effect" in record.warnings[0]


def test_settings_that_do_not_fit_the_data_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_classes = 3 needs as many training classes: got 2"):
        train(config(batch={"num_classes": 3}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unevaluated")
def test_augmentation_and_batches_do_not_depend_on_workers(tmp_path: Path) -> None:
    for workers in (0, 2):
        train(config(training={"workers": workers}, data={"jitter": 0.2}), tmp_path / f"{workers}")
    check_same_weights(tmp_path / "0", tmp_path / "2")


def test_embed_a_data_set(finished: Path, tmp_path: Path) -> None:
    result = embed_data(finished, "digits", tmp_path / "digits.parquet")
    assert (result["items"], result["dimension"]) == (500, 4)
    assert result["columns"] == ["id", "parity", "digit", "split", "embedding"]
    table = pq.read_table(tmp_path / "digits.parquet").to_pydict()
    seen = pq.read_table(finished / "embeddings" / "seen.parquet").to_pydict()
    rows = dict(zip(table["id"], table["embedding"], strict=True))
    np.testing.assert_allclose([rows[id] for id in seen["id"]], seen["embedding"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="is none of these; check the path"):
        embed_data(finished, "nowhere", tmp_path / "x.parquet")


def test_a_broken_checkpoint_is_named(copied: Path) -> None:
    last = copied / "checkpoints" / "step-00000012.safetensors"
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"step-00000012.safetensors must be a complete checkpoint: .* delete it"):
        resume(copied)


def test_loss_record_is_what_is_logged(finished: Path) -> None:
    header, first, *_ = (finished / "metrics.csv").read_text().splitlines()
    assert header == "step,loss,active,hard,d_ap,d_an,dropped,recall@1/parity,recall@1/digit"
    step, loss, active, hard, d_ap, d_an, dropped, *recalls = first.split(",")
    assert step == "2"
    assert 0 < float(loss) < 2
    assert 0 <= float(active) <= 1
    assert 0 <= float(hard) <= 1
    assert 0 < float(d_ap) < 2
    assert 0 < float(d_an) < 2
    assert float(dropped) == 0
    assert recalls == ["", ""]


def test_cross_validation_trains_once_for_each_fold_and_says_what_they_say_together(tmp_path: Path) -> None:
    evaluation = {"nmi_plus": 1, "map_points": 10}
    settings = config(data={"level": "digit", "augment": "none"}, training={"steps": 2}, evaluation=evaluation)
    result = cross_validate(settings, tmp_path / "runs", 2)
    assert json.loads((tmp_path / "runs" / "folds.json").read_text()) == result.as_json(unset=False)
    records = [json.loads((tmp_path / "runs" / f"fold-{fold}" / "record.json").read_text()) for fold in range(2)]
    assert [record["settings"]["data"]["fold"] for record in records] == [0, 1]
    values = [record["evaluation"]["validation"][0]["levels"]["digit"]["map@r"] for record in records]
    found = result.evaluation["digit"]["map@r"]
    mean, interval = across_folds(values)
    assert (found.mean, found.values) == (mean, values)
    assert found.interval == [max(0, interval.low), min(1, interval.high)]
    for force, said in ((False, "--resume"), (True, "num_classes = 40 needs")):
        too_many = settings.model_copy(update={"batch": settings.batch.model_copy(update={"num_classes": 40})})
        with pytest.raises(ValueError, match=said):
            cross_validate(too_many if force else settings, tmp_path / "runs", 2, force=force)
        assert json.loads((tmp_path / "runs" / "folds.json").read_text()) == result.as_json(unset=False)
    with pytest.raises(ValueError, match="num_classes = 40 needs"):
        cross_validate(too_many, tmp_path / "others", 2)
    assert not (tmp_path / "others").exists()

    # What a kill in the second run leaves: it goes on, and the first stays as it is.
    (tmp_path / "runs" / "folds.json").unlink()
    second = tmp_path / "runs" / "fold-1"
    weights = (second / "model" / "model.safetensors").read_bytes()
    for name in ("model", "checkpoints", "embeddings"):
        shutil.rmtree(second / name)
    (second / "record.json").unlink()
    first = snapshot(tmp_path / "runs" / "fold-0")
    assert resume_folds(tmp_path / "runs") == result
    assert snapshot(tmp_path / "runs" / "fold-0") == first
    assert (second / "model" / "model.safetensors").read_bytes() == weights
