"""The probe of a run: which items, that they are not trained on, and that a guard with it does what it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.collapse.probe import ProbeResult
from trivet.commands.train.outcome import choice_line, fell_back
from trivet.commands.train.run import resume, train
from trivet.datasets import Splits, load
from trivet.models import load_model
from trivet.training import RunConfig
from trivet.training.checkpoint import fingerprint, step_of, trained_to_the_end
from trivet.training.components import Components
from trivet.training.guard import Guard
from trivet.training.probe import probe_items
from trivet.training.repairs import LADDERS, Repair, repaired, with_changes
from trivet.training.run_folder import RunFolder
from trivet.training.trainer import Trainer

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits", "level": "digit"},
    "batch": {"num_classes": 4, "samples_per_class": 16},
    "model": {"name": "mlp", "width": 16, "embedding_dim": 8},
    "loss": {"name": "triplet"},
    "training": {"steps": 1000, "accelerator": "cpu"},
    "evaluation": {"every": 1000, "map_points": 10, "sample": 50, "nmi_plus": 2},
}  # fmt: skip


def config(**changes: dict[str, Any]) -> RunConfig:
    return RunConfig.parse({**SETTINGS, "guard": {}, **changes}, source="test")


@pytest.fixture(scope="module")
def splits() -> Splits:
    """The digits, four times: enough to leave a hundred of them out."""
    once = load(config().data, None)
    train = once.train
    rows = np.tile(np.arange(len(train)), 4)
    fourfold = train.subset(np.arange(len(train)))
    object.__setattr__(fourfold, "ids", tuple(f"{i}" for i in range(len(rows))))
    object.__setattr__(fourfold, "inputs", train.inputs.subset(rows))
    object.__setattr__(fourfold, "labels", {level: values[rows] for level, values in train.labels.items()})
    return Splits(**{**vars(once), "train": fourfold})


@pytest.mark.parametrize(
    ("guard", "left_out"),
    [
        ({}, 0),
        ({"probe": 120}, 120),
        ({"action": "stop"}, 0),  # filled in below: a twentieth of all
        ({"action": "repair", "probe": 0}, 0),
        ({"probe": 99}, 0),  # too few to tell
    ],
    ids=["warn", "asked for", "stop", "none", "too few"],
)
def test_training_items_are_left_out_where_the_settings_say_so(
    guard: dict[str, Any], left_out: int, splits: Splits
) -> None:
    if guard == {"action": "stop"}:
        left_out = len(splits.train) // 20
    found = probe_items(config(guard=guard), splits)
    assert (0 if found is None else len(found.rows)) == left_out
    if found is None:
        return
    labels = splits.train.labels["digit"]
    counts, all_counts = np.bincount(labels[found.rows]), np.bincount(labels)
    assert (counts <= all_counts / 5).all()
    assert counts[counts > 0].min() >= 4
    parts = Components(config(guard=guard), splits)
    assert set(parts.items.ids) == set(splits.train.ids) - set(found.items.ids)
    assert f"left out of training, so that {left_out} fewer are trained on" in parts.notes[-1]
    assert fingerprint(config(guard=guard), splits) != fingerprint(config(), splits)


def test_the_validation_part_is_asked_where_there_is_one() -> None:
    settings = config(data={"name": "digits", "level": "digit", "folds": 2})
    splits = load(settings.data, None)
    found = probe_items(settings, splits)
    assert found is not None
    assert (found.split, len(found.rows)) == ("validation", 0)
    assert set(found.items.ids) <= set(splits.evaluation["validation"].ids)
    assert fingerprint(settings, splits) == fingerprint(settings.model_copy(update={"guard": config().guard}), splits)


@pytest.mark.parametrize("validation", [False, True], ids=["left out", "validation"])
def test_a_probe_holds_as_many_of_each_finer_class(validation: bool, splits: Splits) -> None:
    """Else a level with many classes would have one item of each, and nothing to retrieve."""
    parity = replace(splits, level="parity")
    if validation:
        parity = replace(parity, evaluation={"validation": splits.train})
    found = probe_items(config(data={"name": "digits", "level": "parity"}, guard={"probe": 120}), parity)
    assert found is not None
    assert (found.levels, found.split) == (("parity", "digit"), "validation" if validation else None)
    _, counts = np.unique(found.items.labels["digit"], return_counts=True)
    assert counts.tolist() == [20] * 6


@pytest.mark.parametrize(("samples", "items"), [(4, 100), (16, 192), (40, 300)])
def test_a_call_costs_as_much_as_a_step(samples: int, items: int) -> None:
    settings = config(
        data={"name": "digits", "level": "digit", "folds": 2}, batch={"num_classes": 4, "samples_per_class": samples}
    )
    found = probe_items(settings, load(settings.data, None))
    assert found is not None
    assert len(found.items) == items


def test_a_run_asks_its_probe_and_trains_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits: Splits
) -> None:
    monkeypatch.setattr(
        "trivet.commands.train.run.write_evaluation", lambda run, record, *_, **__: run.write_record(record)
    )
    short = {"steps": 30, "checkpoint_every": 10, "accelerator": "cpu"}
    whole = train(config(training=short, guard={"probe": 120, "action": "stop"}), tmp_path / "whole", splits=splits)
    seen = whole["monitor"]["attempts"][0]["probe"]
    assert seen["items"] == 120
    assert seen["series"]["step"][0] == 0
    assert len(seen["series"]["step"]) > 1
    assert any("left out of training" in line for line in whole["warnings"])
    untouched = Components(config(training=short, guard={"probe": 120}), splits)
    assert untouched.probe_items is not None
    asked = untouched.probe_items.probe_of(untouched.model, cosine=False)()
    assert seen["start"]["recall"] == pytest.approx(_recall(*asked[:2]))
    for file in RunFolder(tmp_path / "whole").checkpoints()[1:]:
        file.unlink()
    again = resume(tmp_path / "whole", splits=splits)
    assert again["monitor"] == whole["monitor"]


def _recall(embeddings: torch.Tensor, labels: torch.Tensor) -> float:
    distances = torch.cdist(embeddings.double(), embeddings.double()).fill_diagonal_(torch.inf)
    return float((labels[distances.argmin(dim=1)] == labels).double().mean())


BACKBONE = {"name": "timm:resnet18", "weights": "w.safetensors", "embedding_dim": 8}


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ({**BACKBONE, "batch_norm": "train"}, {"model.batch_norm": ["train", "frozen"]}),
        (BACKBONE, {"training.learning_rate": [1e-3, 3e-5]}),  # frozen by default
        ({"name": "mlp"}, {"training.learning_rate": [1e-3, 1e-4]}),
    ],
    ids=["trained statistics", "kept statistics", "no backbone"],
)
def test_harm_keeps_the_statistics_or_lowers_the_rate(model: dict[str, Any], changes: dict[str, Any]) -> None:
    settings = config(model=model, training={"steps": 9})
    found = repaired(settings, "harm", [], class_sizes=(30,) * 6)
    assert found is not None
    assert found[1] == changes


@pytest.mark.parametrize(
    ("model", "training", "changes"),
    [
        (BACKBONE, {"learning_rate": 1e-3}, {"training.learning_rate": [1e-3, 3e-5]}),
        (BACKBONE, {"learning_rate": 1e-4}, {"training.learning_rate": [1e-4, 1e-5]}),
        (BACKBONE, {"learning_rate": 1e-2, "optimizer": "sgd"}, {"training.learning_rate": [1e-2, 1e-3]}),
        ({**BACKBONE, "freeze": "all"}, {"learning_rate": 1e-3}, {"training.learning_rate": [1e-3, 1e-4]}),
        (
            BACKBONE,
            {"learning_rate": 1e-2, "backbone_learning_rate": 1e-3},
            {"training.learning_rate": [1e-2, 1e-3], "training.backbone_learning_rate": [1e-3, 3e-5]},
        ),
        ({"name": "text:folder"}, {"learning_rate": 2e-3}, {"training.learning_rate": [2e-3, 3e-5]}),
        ({"name": "text:folder", "lora": 4}, {"learning_rate": 2e-3}, {"training.learning_rate": [2e-3, 2e-4]}),
    ],
)
def test_a_pretrained_network_goes_on_at_a_rate_of_fine_tuning(
    model: dict[str, Any], training: dict[str, Any], changes: dict[str, Any]
) -> None:
    data = {"data": {"name": "texts", "path": "t.csv", "levels": ["a"]}} if "text:" in model["name"] else {}
    settings = config(model=model, training={"steps": 9, **training}, **data)
    found = repaired(settings, "harm", [], class_sizes=(30,) * 6)
    assert found is not None
    assert found[1] == changes


class Told(CollapseMonitor):
    """Calls a network collapse at step 60 of the first attempt, whatever it sees, and nothing else."""

    def update(self, *args: Any, **kwargs: Any) -> list[Event]:
        super().update(*args, **kwargs)
        first, self.events[:] = self.probing.series["step"][:1] == [0], []
        if kwargs["step"] != 60 or not first:
            return []
        self.events.append(Event(60, "network-collapse", {}, "told to", (), None, 0))
        return self.events[:]


def ruinous(values: dict[str, Any], class_sizes: Any) -> str | None:
    values["training"]["learning_rate"] = 1e-9
    values["model"]["embedding_dim"] = 4
    return "Ruinous."


@pytest.fixture
def ruined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard whose only repair makes all worse."""
    monkeypatch.setattr("trivet.training.guard.CollapseMonitor", Told)
    monkeypatch.setitem(LADDERS, "network-collapse", (ruinous,))
    monkeypatch.setattr(
        "trivet.commands.train.run.write_evaluation", lambda run, record, *_, **__: run.write_record(record)
    )


REPAIRED = {
    "training": {"steps": 100, "learning_rate": 0.01, "checkpoint_every": 30, "accelerator": "cpu"},
    "guard": {"action": "repair"},
}


@pytest.mark.usefixtures("ruined")
def test_the_best_attempt_is_kept_not_the_last(
    tmp_path: Path, splits: Splits, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run"
    record = train(config(**REPAIRED), path, splits=splits)
    (repair,) = record["guard"]["repairs"]
    assert repair["changes"]["training.learning_rate"] == [0.01, 1e-9]
    start, later = record["monitor"]["attempts"][0]["probe"], record["monitor"]["attempts"][1]["probe"]
    best = max(range(len(start["series"]["recall"])), key=lambda look: start["series"]["recall"][look])
    kept = {"attempt": 0, "step": int(start["series"]["step"][best])}
    assert record["guard"]["kept"] == kept
    assert later["series"]["recall"][-1] < start["series"]["recall"][best] - 0.1
    assert record["guard"]["settings"] == {}
    assert RunFolder(path).config() == config(**REPAIRED)
    assert f"the network of step {kept['step']} is kept, before repair 1" in caplog.messages[-1]
    parts = Components(config(**REPAIRED), splits)
    parts.model.load_state_dict(load_model(path / "model").state_dict())
    assert parts.probe_items is not None
    found = _recall(*parts.probe_items.probe_of(parts.model, cosine=False)())
    assert found == pytest.approx(start["series"]["recall"][best])
    again = resume(path, splits=splits)
    assert again["guard"] == record["guard"]


@pytest.mark.usefixtures("ruined")
def test_a_killed_run_keeps_the_same_attempt(tmp_path: Path, splits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    whole = train(config(**REPAIRED), tmp_path / "whole", splits=splits)
    after_step = Trainer._after_step

    def dies(self: Trainer) -> None:
        if self.parts.guard.attempt and self.task.step == 65:
            raise Killed
        after_step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", dies)
        with pytest.raises(Killed):
            train(config(**REPAIRED), tmp_path / "killed", splits=splits)
    again = resume(tmp_path / "killed", splits=splits)
    assert (again["guard"], again["monitor"]) == (whole["guard"], whole["monitor"])
    weights = [load_model(tmp_path / name / "model").state_dict() for name in ("whole", "killed")]
    assert all(weights[0][name].equal(value) for name, value in weights[1].items())


@pytest.mark.usefixtures("ruined")
def test_a_run_that_goes_on_from_the_kept_attempt_is_its_own(tmp_path: Path, splits: Splits) -> None:
    """Its record does not say any more that something was kept, and the checkpoints of the worse attempt are gone."""
    path = tmp_path / "run"
    kept = train(config(**REPAIRED), path, splits=splits)
    assert kept["guard"]["kept"] is not None
    record = resume(path, changes=["training.steps=130"], splits=splits)
    assert (record["guard"]["kept"], record["guard"]["settings"], record["step"]) == (None, {}, 130)
    last, best = (one["monitor"]["attempts"][-1]["probe"]["series"]["recall"][-1] for one in (record, kept))
    assert last > best + 0.1  # as that was of the worse attempt
    assert [step_of(file) for file in RunFolder(path).checkpoints()] == [0, 120, 130]


@pytest.mark.usefixtures("ruined")
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("keep", ["last", "best"])
def test_the_choice_of_the_best_step_stays_that_of_the_last_attempt(
    keep: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the guard keeps is the model with keep = "last" alone; patience has ended the run all the same."""

    def worse(values: dict[str, Any], class_sizes: Any) -> str | None:
        values["training"]["learning_rate"] = 1e-9
        values["model"]["embedding_dim"] = width
        return "Worse."

    monkeypatch.setitem(LADDERS, "network-collapse", (worse,))
    settings = config(
        **REPAIRED,
        data={"name": "digits", "level": "digit", "folds": 2},
        batch={"num_classes": 3, "samples_per_class": 16},
        evaluation={**SETTINGS["evaluation"], "every": 25},
        choosing={"keep": keep, "patience": 2},
    )
    path = tmp_path / "run"
    record = train(settings, path)
    choice = record["choosing"]
    assert choice is not None
    assert ([look["step"] for look in choice["looks"]], choice["ended"]) == ([0, 25, 50], 50)
    assert choice["step"] == 0
    assert (record["guard"]["kept"] is None) == (keep == "best")
    assert load_model(path / "model").body[-1].out_features == (8 if keep == "last" else width)
    assert (path / "model-best").is_dir() == (keep == "last" and width == 8)
    last = RunFolder(path).checkpoints()[-1]
    assert trained_to_the_end(settings, last)
    line = choice_line(record)
    assert line is not None
    if keep == "last":
        kept = record["guard"]["kept"]
        assert line.startswith(f"The model is that of step {kept['step']} of attempt 0, which the guard kept. The best")
        assert not fell_back(record)
    again = resume(path)
    assert (again["choosing"], again["guard"], again["step"]) == (choice, record["guard"], 50)


def test_what_a_probe_shows_decides_what_is_changed_first() -> None:
    hard = {"name": "triplet", "positives": "hard", "negatives": "hard"}
    sizes = (300,) * 6

    def first(model: dict[str, Any] | None = None, **shown: bool) -> dict[str, list[Any]]:
        collapsing = config(loss=hard, model=model or SETTINGS["model"])
        found = repaired(collapsing, "network-collapse", [], class_sizes=sizes, **shown)
        assert found is not None
        assert with_changes(collapsing, {name: new for name, (_, new) in found[1].items()}) == found[0]
        return found[1]

    easy = {"loss.positives": ["hard", "easy"]}
    assert first(probed=True) == first(probed=True, at_once=True) == easy  # random weights have nothing to lose
    for model in (BACKBONE, {"name": "residual", "embedding_dim": 8}):
        assert first(model, probed=True) == easy
        rate = 3e-5 if model is BACKBONE else 1e-4
        assert first(model, probed=True, at_once=True)["training.learning_rate"] == [1e-3, rate]
    statistics = first({**BACKBONE, "batch_norm": "train"}, probed=True, at_once=True)
    assert statistics == {"model.batch_norm": ["train", "frozen"]}
    assert first(probed=True, wrong_labels=True)["cleaning.action"] == [None, "drop"]
    assert first()["loss.name"] == ["triplet", "selectively-contrastive"]


def test_a_change_that_made_it_worse_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one that was, the best call after the start of each attempt tells, if by more than chance."""

    def slower(values: dict[str, Any], class_sizes: Any) -> str | None:
        values["training"]["learning_rate"] /= 10
        return "Slower."

    def wider(values: dict[str, Any], class_sizes: Any) -> str | None:
        values["model"]["embedding_dim"] = 32
        return "Wider."

    monkeypatch.setitem(LADDERS, "network-collapse", (slower, wider))
    for second, expected in ((0.4, {"training.learning_rate": [1e-4, 1e-3]}), (0.55, {}), (0.7, {})):
        guard = Guard(config(), (30,) * 6)
        for recall in (0.6, second):
            probing = guard.monitor.probing
            probing._classes = np.arange(200) % 2
            for value in (*([0.9] if not guard.attempt else []), recall):
                probing.record(ProbeResult(0, value, float("nan"), 1.0, 1.0, 0.0, *[np.zeros(8)] * 5))
            plan = guard.plan(Event(300, "network-collapse", {}, "told to", (), None, 0), [0])
            assert isinstance(plan, Repair)
            guard.begin(plan)
        assert plan.changes == expected | {"model.embedding_dim": [8, 32]}
        assert guard.settings.training.learning_rate == (1e-3 if expected else 1e-4)


def test_a_probe_that_was_asked_for_and_is_not_there_is_said(splits: Splits) -> None:
    small = load(config().data, None)
    parts = Components(config(guard={"probe": 200}), small)
    assert parts.probe_items is None
    assert parts.notes[-1] == (
        f"The guard asks no probe: it needs 100 items in two classes or more, at most a twentieth of the "
        f"{len(small.train)} training items and a fifth of a class, and guard.probe = 200."
    )
    one = replace(splits, evaluation={"val": splits.train.subset(np.flatnonzero(splits.train.labels["digit"] == 0))})
    assert "and the split val has fewer" in Components(config(guard={"probe": 120}), one).probe_note
    for guard in ({}, {"action": "repair"}, {"probe": 0}):
        assert Components(config(guard=guard), small).probe_note == ""


def test_the_first_check_of_cleaning_is_where_the_batches_of_the_user_put_it(splits: Splits) -> None:
    """Whatever repairs make of them: a process that goes on after a kill knows only the last."""
    cleaning = with_changes(config(), {"cleaning.action": "drop", "batch.samples_per_class": 64})
    parts = Components(config(), splits)
    parts.clean_as(cleaning)
    first = 2 * -(-len(splits.train) // 64)
    assert [step for step in range(first + 1) if parts.cleaning.due(step)] == [first]


def test_cleaning_that_a_repair_began_cleans(splits: Splits) -> None:
    parts = Components(config(), splits)
    assert parts.cleaning.config is None
    cleaning = with_changes(config(), {"cleaning.action": "drop", "cleaning.after": 5})
    parts.clean_as(cleaning)
    parts.put_in_force(cleaning)
    assert parts.cleaning.due(5)
    begun = parts.cleaning
    parts.clean_as(cleaning)
    assert parts.cleaning is begun  # it keeps what it has judged
