"""What a run does about an event: it says so, or it stops, with the best network that its probe saw as the result."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.commands.conftest import Call
from tests.training.runs import check_same_weights, record_of, settings_of

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train import run
from trivet.commands.train.page import write_run_report
from trivet.commands.train.run import resume, train
from trivet.models import load_model
from trivet.reports.run_record import RunRecord
from trivet.training import RunConfig
from trivet.training.checkpoint import step_of
from trivet.training.run_folder import REPORT, Metrics, RunFolder

pytestmark = pytest.mark.usefixtures("few_digits")

EVALUATE = run.write_evaluation
SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits", "level": "digit"},
    "batch": {"num_classes": 4, "samples_per_class": 4},
    "model": {"name": "mlp", "width": 16, "embedding_dim": 8, "normalize": False},
    "loss": {"name": "triplet", "positives": "hard", "negatives": "hard", "margin": 0.0, "distance": "euclidean"},
    "training": {"steps": 16, "log_every": 1, "checkpoint_every": 4, "warmup_steps": 2, "accelerator": "cpu"},
    "evaluation": {"every": 8, "map_points": 10, "sample": 50, "nmi_plus": 2},
}  # fmt: skip


def config(**changes: dict[str, Any]) -> RunConfig:
    return settings_of(SETTINGS, guard=changes.pop("guard", {}), **changes)


class Scripted(CollapseMonitor):
    """Sees what it is told to: (the step of the event, its kind)."""

    script: tuple[int, Any] = (-1, None)  # told by each test

    def update(self, *args: Any, **kwargs: Any) -> list[Event]:
        before, step = len(self.events), kwargs["step"]
        super().update(*args, **kwargs)
        del self.events[before:]
        if step != self.script[0]:
            return []
        event = Event(step, self.script[1], {"relative_spread": 0.01}, "told to", ("Change it.",), 0.9, step - 3)
        self.events.append(event)
        return [event]


def unmeasured(run: RunFolder, record: RunRecord, *_: Any, **__: Any) -> RunRecord:
    """In place of an evaluation, which takes longer than the training here."""
    run.write_record(record)
    write_run_report(record, run.path / REPORT)
    return record


@contextmanager
def scripting() -> Iterator[type[Scripted]]:
    """A scripted monitor and no evaluation, so that only what a guard does is seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trivet.training.guard.CollapseMonitor", Scripted)
        patch.setattr("trivet.commands.train.run.write_evaluation", unmeasured)
        yield Scripted


@pytest.fixture
def scripted() -> Iterator[type[Scripted]]:
    with scripting() as found:
        yield found


ONCE = (9, "network-collapse")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each action, with an event at step 9."""
    found = {}
    for action in ("warn", "stop"):
        found[action] = tmp_path_factory.mktemp("runs") / action
        with scripting() as scripted, pytest.MonkeyPatch.context() as patch:
            scripted.script = ONCE
            if action == "stop":
                patch.setattr("trivet.commands.train.run.write_evaluation", EVALUATE)
            train(config(guard={"action": action}), found[action])
    return found


def steps_of(path: Path) -> list[int]:
    return [step_of(file) for file in RunFolder(path).checkpoints()]


def test_rows_up_to_a_step_are_kept(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.csv", ["loss"])
    for step in (1, 2, 3):
        metrics.add(step, {"loss": float(step)})
    assert metrics.series("loss") == {"step": [1, 2, 3], "loss": [1.0, 2.0, 3.0]}
    assert Metrics(tmp_path / "m.csv", ["loss"], upto=2).series("loss")["step"] == [1, 2]
    assert Metrics(tmp_path / "m.csv", ["loss"]).series("loss")["step"] == []


@pytest.mark.usefixtures("unevaluated")
def test_a_warning_is_said_at_once_with_its_remedy(
    scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.script = ONCE
    record = record_of(runs["warn"])
    assert record["status"] == "finished"
    assert record["guard"] == {"action": "warn", "snapshot": None, "stopped_by": None}
    (seen,) = record["monitor"]["events"]
    assert (seen["step"], seen["kind"], seen["healthy"]) == (9, "network-collapse", 6)
    assert record["monitor"]["series"]["step"] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert steps_of(runs["warn"]) == [12, 16]
    assert "Change it." in (runs["warn"] / "report.html").read_text()
    with caplog.at_level(logging.WARNING, logger="trivet"):
        train(config(training={"steps": 10}), tmp_path / "run")
    assert caplog.messages == ["network collapse detected at step 9: told to. Change it."]


@pytest.mark.usefixtures("unevaluated")
def test_a_monitor_changes_no_weight(
    scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.script = (-1, None)
    monkeypatch.setattr("trivet.training.guard.EVERY", 1)
    train(config(), tmp_path / "run")
    check_same_weights(tmp_path / "run", runs["warn"])


def test_a_stopped_run_is_evaluated(runs: dict[str, Path]) -> None:
    path = runs["stop"]
    record = record_of(path)
    assert (record["status"], record["step"]) == ("stopped", 10)
    assert record["guard"]["stopped_by"] == "network collapse detected at step 9: told to"
    assert record["evaluation"]["seen"][0]["name"] == "trained"
    assert steps_of(path) == [8, 10]
    assert "The guard stopped this training: network collapse detected at step 9" in (path / "report.html").read_text()
    assert load_model(path / "model").num_parameters > 0


def test_a_stopped_run_goes_on_where_it_is(scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path) -> None:
    scripted.script = ONCE
    for action in ("stop", "warn"):  # the guard may be another by then
        path = tmp_path / action
        shutil.copytree(runs["stop"], path)
        text = (path / "config.toml").read_text()
        (path / "config.toml").write_text(text.replace('action = "stop"', f'action = "{action}"'))
        record = resume(path)
        assert record.status == "finished"
        check_same_weights(path, runs["warn"])


def test_a_lost_record_is_told_by_the_checkpoint(
    scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.script = ONCE
    monkeypatch.setattr("trivet.commands.evaluate.trained_model.write_evaluation", unmeasured)
    shutil.copytree(runs["warn"], tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    before, after = record_of(runs["warn"]), evaluate_run(tmp_path / "run")
    assert after.status == "finished"
    for section in ("monitor", "history", "label_noise", "cleaning", "choosing"):
        assert after.as_json()[section] == before[section], section


def test_a_run_that_diverges(scripted: type[Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing: without a healthy network to evaluate, a stopped run says so; a warning saves nothing."""
    scripted.script = (-1, None)
    monkeypatch.setattr("trivet.commands.train.run.write_evaluation", EVALUATE)
    diverging = {"training": {"learning_rate": 1e30, "warmup_steps": 0}, "evaluation": {"every": 1}}
    record = train(config(**diverging, guard={"action": "stop"}), tmp_path / "stop")
    assert (record.status, record.step) == ("stopped", 1)
    assert record.guard.stopped_by == "not finite detected at step 1: embeddings are not finite"
    assert record.evaluation == {}
    assert record.warnings == ["The embeddings are not finite, so nothing was evaluated."]
    with pytest.raises(ValueError, match="embeddings must be finite"):
        train(config(**diverging), tmp_path / "warn")
    failed = record_of(tmp_path / "warn")
    assert failed["status"] == "failed"
    assert [one["kind"] for one in failed["monitor"]["events"]] == ["not-finite"]


def test_commands_say_what_happened(scripted: type[Scripted], tmp_path: Path, run_command: Call) -> None:
    scripted.script = ONCE
    (tmp_path / "run.toml").write_text(config(training={"steps": 12}).to_toml())
    path = tmp_path / "run"
    command = ["train", tmp_path / "run.toml", "-o", path]
    code, out, err = run_command(*command, "--set", "guard.action=stop", "--json")
    assert code == 1
    summary = json.loads(out)
    assert summary["status"] == "stopped"
    assert [(one["kind"], one["step"]) for one in summary["events"]] == [("network-collapse", 9)]
    assert err.splitlines()[-1] == (
        "trivet: the guard stopped the training after step 10: network collapse detected at step 9: told to; "
        f"train again with what {path / 'report.html'} proposes"
    )
    code, out, _ = run_command("train", "--resume", path)
    assert code == 0
    assert "Note: network collapse detected at step 9: told to. Change it." in " ".join(out.split())
    code, _, err = run_command(*command, "--force", "--set", "guard.action=repair")
    assert code == 2
    assert "guard.action = 'repair' is not known" in err
