"""What a run foretells of itself before its first step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from trivet.collapse import Forecast
from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.commands.train.pre_run_forecast import foresee, preventions
from trivet.commands.train.run import resume, train
from trivet.datasets import load
from trivet.models import load_model
from trivet.training import RunConfig
from trivet.training.components import Components

pytestmark = pytest.mark.usefixtures("undiagnosed")

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits", "level": "digit", "folds": 2},
    "batch": {"num_classes": 3, "samples_per_class": 8},
    "model": {"name": "mlp", "embedding_dim": 2},
    "loss": {"name": "triplet", "positives": "hard", "negatives": "hard"},
    "training": {"steps": 40, "accelerator": "cpu"},
    "evaluation": {"every": 1000, "map_points": 10, "sample": 50, "nmi_plus": 2},
    "guard": {"forecast": True},
}


def config(**changes: dict[str, Any]) -> RunConfig:
    merged = {
        key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value for key, value in SETTINGS.items()
    }
    return RunConfig.parse(merged, source="test")


def parts(**changes: dict[str, Any]) -> Components:
    settings = config(**changes)
    return Components(settings, load(settings.data, None))


def test_a_run_that_would_collapse_is_told_with_a_change_that_helps() -> None:
    found = foresee(parts(training={"learning_rate": 0.05}, model={"embedding_dim": 2}))
    own, *others = found.tried
    assert own.foreseen
    assert own.changes == {}
    assert found.sentence.startswith("This run will probably collapse: after 20 trial steps")
    assert "recall@1 of held-out items went from" in found.sentence
    proposed = next(one for one in others if one.changes == found.changes)
    assert not proposed.foreseen
    for name, (_, new) in found.changes.items():
        assert new is None or name in found.sentence


def test_a_run_that_would_not_collapse_is_told_nothing() -> None:
    found = foresee(parts(model={"embedding_dim": 32}, loss={"positives": "easy", "negatives": "semihard"}))
    assert found.sentence is None
    assert len(found.tried) == 1


def test_held_out_items_that_are_told_apart_better_outweigh_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    certain = Forecast(0.99, 0.01, (0.001, 0.1), 20, 400, 20, {"shrinkage": 0.5})
    monkeypatch.setattr("trivet.commands.train.pre_run_forecast.CollapseMonitor.forecast", lambda self: certain)
    easy = {"loss": {"positives": "easy", "negatives": "semihard"}, "model": {"embedding_dim": 2, "width": 8}}
    easy |= {"training": {"learning_rate": 0.01}}
    found = foresee(parts(**easy))
    before, after = found.tried[0].recall
    assert found.tried[0].outlook == "likely"
    assert after > before
    assert found.sentence is not None  # by less than chance
    monkeypatch.setattr("trivet.collapse.probe.CHOOSING", 0.01)
    assert foresee(parts(**easy)).sentence is None
    monkeypatch.setattr("trivet.training.probe.selection_split", lambda _: None)  # no probe
    assert foresee(parts(**easy)).sentence is not None


def test_what_held_out_items_show_is_foreseen_whatever_batches_suggest(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(CollapseMonitor):
        def update(self, *given: Any, **others: Any) -> list[Event]:
            found = super().update(*given, **others)
            if others["step"] == 5 and others["probe"] is not None:
                self.events.append(Event(5, "harm", {}, "told to", (), None, 0))
            return found

    monkeypatch.setattr("trivet.commands.train.pre_run_forecast.CollapseMonitor", Told)
    well = {"model": {"embedding_dim": 32}, "loss": {"positives": "easy", "negatives": "semihard"}}
    found = foresee(parts(**well))
    assert found.tried[0].outlook == "unlikely"
    assert found.sentence.endswith("none of the changes that were tried helps enough.")


def test_embeddings_that_are_not_finite_are_foreseen() -> None:
    found = foresee(parts(training={"learning_rate": 1e30}, model={"normalize": False}))
    assert "the embeddings are not finite, or all equal" in found.sentence


def test_each_prevention_changes_one_thing() -> None:
    rate, width, choice = preventions(config(), class_sizes=(90,) * 3)
    assert rate[1] == {"training.learning_rate": [1e-3, 1e-4], "training.warmup_steps": [0, 2]}
    assert width[1] == {"model.embedding_dim": [2, 32]}
    assert choice[1]["loss.positives"] == ["hard", "easy"]
    assert len(preventions(config(model={"embedding_dim": 32}), class_sizes=(90,) * 3)) == 2


@pytest.mark.usefixtures("unevaluated")
def test_trial_steps_change_nothing_and_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = {"learning_rate": 0.05, "steps": 30}
    with caplog.at_level(logging.WARNING, logger="trivet"):
        told = train(config(training=bad), tmp_path / "told")
    plain = train(config(training=bad, guard={"forecast": False}), tmp_path / "plain")
    assert told.foreseen is not None
    assert told.foreseen.sentence in caplog.messages
    assert plain.foreseen is None
    assert told.monitor == plain.monitor
    weights = [load_model(tmp_path / name / "model").state_dict() for name in ("told", "plain")]
    assert all(weights[0][name].equal(value) for name, value in weights[1].items())
    assert resume(tmp_path / "told").foreseen == told.foreseen


@pytest.mark.parametrize("probability", [0.5, 0.1], ids=["open", "unlikely"])
@pytest.mark.usefixtures("unevaluated")
def test_that_nobody_can_tell_is_a_warning(
    probability: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = Forecast(probability, 0.05, (0.001, 0.5), 19, 60, 40, {"shrinkage": 0.5})
    monkeypatch.setattr(CollapseMonitor, "forecast", lambda self: ahead)
    well = {"model": {"embedding_dim": 32}, "loss": {"positives": "easy", "negatives": "semihard"}}
    with caplog.at_level(logging.WARNING, logger="trivet"):
        record = train(config(**well), tmp_path / "run")
    assert record.foreseen.sentence is None
    assert (ahead.sentence in caplog.messages) == (probability == 0.5)
