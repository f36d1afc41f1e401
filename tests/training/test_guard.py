"""What a run does about an event: it says so, stops, or goes back and changes the least that may help."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.main import main
from trivet.commands.train import run
from trivet.commands.train.page import write_run_report
from trivet.commands.train.run import resume, train
from trivet.datasets import load
from trivet.losses import MarginLoss
from trivet.models import Embedder, build, load_model
from trivet.reports.run_record import RunRecord
from trivet.runtime.progress import report
from trivet.training import RunConfig
from trivet.training.checkpoint import Progress, load_weights, read_progress, save_checkpoint, step_of
from trivet.training.components import Components
from trivet.training.embed_dataset import embed
from trivet.training.guard import Guard
from trivet.training.loop import NotFiniteError, TrainState
from trivet.training.repairs import LADDERS, Repair, preventions, repaired, with_changes
from trivet.training.run_folder import REPORT, Metrics, RunFolder
from trivet.training.schedule import rate_factor
from trivet.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("few_digits")

EVALUATE = run.write_evaluation
KINDS = ("network-collapse", "class-collapse", "dead-sampler", "exploding-norm", "not-finite")
SIZES = (30, 30, 30, 30, 30, 30)
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
    merged = {
        key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value
        for key, value in {**SETTINGS, "guard": {}}.items()
    }
    return RunConfig.parse(merged, source="test")


def with_loss(name: str, **loss: Any) -> RunConfig:
    return RunConfig.parse({**SETTINGS, "loss": {"name": name, **loss}}, source="test")


class Scripted(CollapseMonitor):
    """Sees what it is told to: first look of an attempt -> (updates until the event, its kind, how healthy before)."""

    script: dict[int, tuple[int, Any, int]] = {}  # noqa: RUF012  # told by each test

    def update(self, *args: Any, **kwargs: Any) -> list[Event]:
        before, step = len(self.events), kwargs["step"]
        super().update(*args, **kwargs)
        del self.events[before:]
        self.series["risk"] = [0.0] * len(self.series["step"])
        first = int(self.series["step"][0])
        after, kind, calm = self.script.get(first, (-1, None, 0))
        if step - first != after:
            return []
        event = Event(step, kind, {"relative_spread": 0.01}, "told to", ("Change it.",), 0.9, step - calm)
        self.events.append(event)
        return [event]


def unmeasured(run: RunFolder, record: dict[str, Any], *_: Any, **__: Any) -> RunRecord:
    """In place of an evaluation, which takes longer than the training here."""
    whole = run.write_record(record)
    write_run_report(whole, run.path / REPORT)
    return whole


def gentler(values: dict[str, Any], class_sizes: Any) -> str | None:
    if values["loss"]["negatives"] != "hard":
        return None
    values["loss"] |= {"negatives": "semihard-hardest", "margin": 0.2}
    return "Gentler."


def easier(values: dict[str, Any], class_sizes: Any) -> str | None:
    values["loss"]["positives"] = "easy"
    values["batch"] = {"num_classes": 2, "samples_per_class": 8}
    return "Easier."


def slower(values: dict[str, Any], class_sizes: Any) -> str | None:
    values["training"]["learning_rate"] /= 10
    return "Slower."


@contextmanager
def scripting() -> Iterator[type[Scripted]]:
    """A scripted monitor, three rungs, and no evaluation, so that only what a guard does with them is seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trivet.training.guard.CollapseMonitor", Scripted)
        patch.setitem(LADDERS, "network-collapse", (gentler, easier, slower))
        patch.setitem(LADDERS, "not-finite", (slower,))
        patch.setattr("trivet.commands.train.run.write_evaluation", unmeasured)
        yield Scripted


@pytest.fixture
def scripted() -> Iterator[type[Scripted]]:
    with scripting() as found:
        yield found


ONCE = {0: (9, "network-collapse", 3)}  # seen at step 9, healthy at 6: the checkpoint is that of step 4


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each action, with an event at step 9."""
    found = {}
    for action in ("warn", "stop", "repair"):
        found[action] = tmp_path_factory.mktemp("runs") / action
        with scripting() as scripted, pytest.MonkeyPatch.context() as patch:
            scripted.script = ONCE
            if action == "stop":
                patch.setattr("trivet.commands.train.run.write_evaluation", EVALUATE)
            train(config(guard={"action": action}), found[action])
    return found


def steps_of(path: Path) -> list[int]:
    return [step_of(file) for file in RunFolder(path).checkpoints()]


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "record.json").read_text())
    return found


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["trivet", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def same_weights(one: Path, two: Path) -> None:
    first, second = (load_file(path / "model" / "model.safetensors") for path in (one, two))
    assert first.keys() == second.keys()
    for key in first:
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)


# The ladder.


@pytest.mark.parametrize(
    ("loss", "kind", "changes"),
    [
        ({"negatives": "semihard"}, "dead-sampler", {"loss.negatives": ["semihard", "semihard-hardest"]}),
        ({"negatives": "semihard-hardest", "margin": 0.0}, "dead-sampler", {"loss.margin": [0.0, 0.2]}),
        ({"negatives": "semihard-hardest", "margin": 0.4}, "dead-sampler", {"loss.margin": [0.4, 0.8]}),
        ({}, "exploding-norm", {"training.learning_rate": [1e-3, 1e-4]}),
        ({}, "not-finite", {"training.learning_rate": [1e-3, 1e-4]}),
    ],
)
def test_the_least_change_is_made_first(loss: dict[str, Any], kind: Any, changes: dict[str, list[Any]]) -> None:
    before = with_loss("triplet", **loss)
    found = repaired(before, kind, [], class_sizes=SIZES)
    assert found is not None
    after, changed, why = found
    assert changed == changes
    assert why.endswith(".")
    assert with_changes(before, {name: new for name, (_, new) in changed.items()}) == after


@pytest.mark.parametrize("size", [30, 60])
@pytest.mark.parametrize(
    "loss",
    [
        {"name": "triplet", "positives": "hard", "negatives": "hard", "margin": 0.0, "trim": 0.1},
        {"name": "margin", "positives": "hard", "trim": 0.1},
        {"name": "second-order", "trim": 0.1},
        {"name": "contrastive", "margin": 0.5, "trim": 0.1},
    ],
    ids=lambda loss: loss["name"],
)
def test_a_collapsing_network_gets_easy_positives_and_the_loss_for_the_size_of_its_classes(
    loss: dict[str, Any], size: int
) -> None:
    """What it has no option for, as a margin, is left out."""
    settings = RunConfig.parse(
        {**SETTINGS, "loss": loss, "batch": {"num_classes": 4, "samples_per_class": 2}}, source=""
    )
    found = repaired(settings, "network-collapse", [], class_sizes=(size,) * 6)
    assert found is not None
    after = found[0]
    name, negatives = ("multi-similarity", "multi-similarity") if size == 30 else ("selectively-contrastive", "hard")
    assert (after.loss.name, after.loss.positives, after.loss.negatives) == (name, "easy", negatives)
    assert after.loss.trim == 0.1
    assert after.model.normalize
    assert (after.batch.num_classes, after.batch.samples_per_class) == (2, 4)
    again = repaired(after, "network-collapse", [], class_sizes=(size,) * 6)
    assert again is not None
    assert again[1] == {"training.learning_rate": [1e-3, 1e-4]}


@pytest.mark.parametrize(
    ("batch", "sizes", "filled"),
    [
        ((8, 4), (20,) * 964, (32, 4)),
        ((8, 2), (20,) * 964, (32, 4)),  # FEWEST of a class
        ((4, 6), (500,) * 18, (18, 6)),  # all there are
        ((48, 4), (20,) * 964, (48, 4)),  # large as it is
        ((2, 10), (500, 500), (2, 32)),
        ((2, 10), (12, 12), (2, 12)),
        ((2, 50), (500, 500), (2, 50)),
        ((6, 4), (100,) * 10, (6, 4)),  # many of the classes, not all
    ],
)
def test_a_small_batch_is_filled(batch: tuple[int, int], sizes: tuple[int, ...], filled: tuple[int, int]) -> None:
    settings = config(batch={"num_classes": batch[0], "samples_per_class": batch[1]})
    found = repaired(settings, "network-collapse", [], class_sizes=sizes)
    assert found is not None
    assert (found[0].batch.num_classes, found[0].batch.samples_per_class) == filled


def test_the_ladder_of_the_first_order_loss_ends_with_a_lower_rate_and_a_warm_up() -> None:
    settings = RunConfig.parse({**SETTINGS, "loss": {"name": "nca"}, "training": {"steps": 400}}, source="test")
    done: list[Repair] = []
    while settings.training.learning_rate == 1e-3:
        found = repaired(settings, "network-collapse", done, class_sizes=SIZES)
        assert found is not None
        settings, changes, why = found
        done.append(Repair(9, 0, "network-collapse", changes, why))
    assert [one.changes["loss.name"] for one in done[:-1]] == [["nca", "multi-similarity"]]
    assert done[0].changes["loss.temperature"] == [1.0, None]
    assert done[-1].changes == {"training.learning_rate": [1e-3, 1e-4], "training.warmup_steps": [0, 20]}


@pytest.mark.parametrize(
    "settings", [with_loss("contrastive", margin=0.5), with_loss("proxy-nca")], ids=["pairs", "proxies"]
)
def test_pairs_and_proxies_give_way_to_easy_positives(settings: RunConfig) -> None:
    found = repaired(settings, "class-collapse", [], class_sizes=SIZES)
    assert found is not None
    assert found[0].loss.name == "selectively-contrastive"
    assert (found[0].loss.positives, found[0].loss.negatives) == ("easy", "hard")
    assert found[0].batch.samples_per_class == 8


@pytest.mark.parametrize(
    ("section", "setting", "changes"),
    [
        ("model", {"embedding_dim": 4}, {"model.embedding_dim": [4, 32]}),
        (
            "training",
            {"learning_rate": 0.05, "steps": 400},
            {"training.learning_rate": [0.05, 0.001], "training.warmup_steps": [2, 20]},
        ),
    ],
    ids=["few dimensions", "a high rate"],
)
def test_what_no_choice_makes_up_for_is_changed_first(
    section: str, setting: dict[str, Any], changes: dict[str, list[Any]]
) -> None:
    found = repaired(config(**{section: setting}), "network-collapse", [], class_sizes=SIZES)
    assert found is not None
    assert found[1] == changes


def test_a_widened_embedding_keeps_the_other_layers_of_its_checkpoint(
    scripted: type[Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wider(values: dict[str, Any], class_sizes: Any) -> str | None:
        values["model"]["embedding_dim"] = 12
        return "Wider."

    monkeypatch.setitem(LADDERS, "network-collapse", (wider,))
    scripted.script = ONCE
    begun: list[dict[str, Any]] = []
    task = Components.task

    def noted(self: Components, after_step: Callable[[], None]) -> Any:
        begun.append({name: value.clone() for name, value in self.model.state_dict().items()})
        return task(self, after_step)

    monkeypatch.setattr(Components, "task", noted)
    loaded, load = [], load_weights

    def seen(file: Path, *parts: Any) -> Any:
        loaded.append(load_file(file))
        return load(file, *parts)

    monkeypatch.setattr("trivet.training.trainer.load_weights", seen)
    path = tmp_path / "run"
    train(config(guard={"action": "repair"}), path)
    fresh = build(RunFolder(path).config().model, (1, 8, 8), 1).state_dict()
    last = [name for name, value in fresh.items() if value.shape[:1] == (12,)]
    assert len(last) == 2
    for name, value in begun[1].items():
        expected = fresh[name] if name in last else torch.from_numpy(loaded[0][f"model/{name}"])
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
    assert load_model(path / "model").state_dict()[last[0]].shape[0] == 12
    again = tmp_path / "again"
    shutil.copytree(path, again)
    for file in RunFolder(again).checkpoints():
        if step_of(file) > 12:
            file.unlink()
    resume(again)
    same_weights(path, again)


def test_embeddings_inside_the_loss_are_normalised_when_norms_explode() -> None:
    settings = with_loss("margin", normalize=False)
    found = repaired(settings, "exploding-norm", [], class_sizes=SIZES)
    assert found is not None
    assert found[1]["loss.normalize"] == [False, True]


def test_a_change_that_did_not_help_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LADDERS, "dead-sampler", (slower, gentler))
    settings, done = config(), [Repair(5, 0, "not-finite", {}, "Slower.")]  # of another kind: it does not count
    for _ in range(3):
        found = repaired(settings, "dead-sampler", done, class_sizes=SIZES)
        assert found is not None
        settings, changes, why = found
        done.append(Repair(5, 0, "dead-sampler", changes, why))
    assert [one.why for one in done[1:]] == ["Slower.", "Gentler.", "Slower."]
    assert settings.training.learning_rate == pytest.approx(1e-5)


def test_a_change_that_a_loss_refuses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy loss has no selectors to change."""
    monkeypatch.setitem(LADDERS, "dead-sampler", (easier, slower))
    found = repaired(with_loss("proxy-nca"), "dead-sampler", [], class_sizes=SIZES)
    assert found is not None
    assert found[2] == "Slower."
    monkeypatch.setitem(LADDERS, "dead-sampler", (easier,))
    assert repaired(with_loss("proxy-nca"), "dead-sampler", [], class_sizes=SIZES) is None


@pytest.mark.parametrize(("sizes", "samples"), [((30,) * 4, 8), ((6, 6, 6, 30), 6), ((3, 3, 3, 30), 4)])
def test_no_more_of_a_class_than_half_of_the_classes_have(sizes: tuple[int, ...], samples: int) -> None:
    found = repaired(with_loss("triplet"), "class-collapse", [], class_sizes=sizes)
    assert found is not None
    assert found[0].batch.samples_per_class == samples
    assert found[0].batch.num_classes == max(2, round(16 / samples))


def shuffled(size: int, **loss: Any) -> RunConfig:
    return RunConfig.parse({**SETTINGS, "loss": loss or {"name": "triplet"}, "batch": {"size": size}}, source="test")


@pytest.mark.parametrize(
    ("size", "kind", "classes", "batch"),
    [
        (64, "network-collapse", 10, (10, 6)),
        (128, "class-collapse", 10, (10, 12)),
        (64, "network-collapse", 3, (3, 21)),
        (64, "class-collapse", 100, (8, 8)),
    ],
)
def test_shuffled_batches_give_way_to_those_of_the_classes_there_are(
    size: int, kind: Any, classes: int, batch: tuple[int, int]
) -> None:
    """Of about the same size, with as many classes as there are at most."""
    for probed in (False, True):
        found = repaired(shuffled(size), kind, [], class_sizes=(30,) * classes, probed=probed)
        assert found is not None
        assert (found[0].batch.num_classes, found[0].batch.samples_per_class) == batch or not probed
        assert found[0].batch.size is None
        assert found[0].batch.needed_classes <= classes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [shuffled(16), shuffled(16, name="proxy-nca"), with_loss("proxy-nca")])
def test_what_needs_positives_is_passed_over_where_a_class_has_one_item(settings: RunConfig, kind: Any) -> None:
    sizes, done = (30, 30, 30, 30, 1), []
    for _ in range(5):
        found = repaired(settings, kind, done, class_sizes=sizes, probed=True, at_once=True, wrong_labels=True)
        if found is None:
            break
        settings, changes, why = found
        assert not settings.needs_positives
        done.append(Repair(1, 0, kind, changes, why))
    assert done or kind == "dead-sampler"
    assert not any(one.needs_positives for one, _ in preventions(settings, class_sizes=sizes))


def test_a_run_of_shuffled_batches_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into batches of the classes that it has, with the ladder as it is."""
    monkeypatch.setattr("trivet.training.guard.CollapseMonitor", Scripted)
    monkeypatch.setattr("trivet.commands.train.run.write_evaluation", unmeasured)
    monkeypatch.setattr(Scripted, "script", ONCE)
    settings = RunConfig.parse(shuffled(64).model_dump(mode="json") | {"guard": {"action": "repair"}}, source="test")
    record = train(settings, tmp_path / "run")
    assert record["status"] == "finished"
    assert record["guard"]["settings"]["batch.num_classes"] <= len(splits().train.names["digit"])


def test_a_repair_takes_cleaning_back() -> None:
    cleaning = {"cleaning.action": "drop", "cleaning.every": 100, "cleaning.above": 0.5}
    cleaned = with_changes(config(), cleaning)
    for settings in (config(), cleaned):
        assert with_changes(settings, dict.fromkeys(cleaning)) == config()


def test_settings_of_an_earlier_attempt_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the repair that made them was for another kind of event, and the settings that are changed are earlier."""
    monkeypatch.setitem(LADDERS, "network-collapse", (slower, gentler))
    guard = Guard(config(), SIZES)
    monkeypatch.setattr(Guard, "_best_attempt", lambda self: 0)
    guard.begin(Repair(5, 0, "not-finite", {"training.learning_rate": [1e-3, 1e-4]}, "Slower."))
    plan = guard.plan(event(50, healthy=10), [0])
    assert isinstance(plan, Repair)
    assert plan.why == "Gentler."
    assert plan.changes["training.learning_rate"] == [1e-4, 1e-3]
    guard.begin(plan)
    assert guard.settings.training.learning_rate == 1e-3
    assert guard.plan(event(50, healthy=10), [0]) == "no change that may help is left"


def test_a_repair_after_an_attempt_was_kept_is_of_its_settings() -> None:
    settings = config(training={"steps": 200})
    guard = Guard(settings, SIZES)
    guard.begin(Repair(90, 0, "network-collapse", {"training.learning_rate": [1e-3, 1e-4]}, "why."))
    guard.kept, guard.undone = 0, [[0, 1]]
    assert guard.settings == settings
    again = Guard(settings, SIZES)
    again.restore(guard.state())
    assert (again.kept, again.settings) == (0, settings)
    old = guard.state()
    del old["undone"]
    again.restore(old)
    assert again.settings == settings
    again.go_on()
    assert again.kept is None
    assert again.settings == settings
    plan = again.plan(event(120, healthy=100), [0, 100])
    assert isinstance(plan, Repair)
    again.begin(plan)
    assert again.as_json()["settings"] == {name: new for name, (_, new) in plan.changes.items()}
    assert again._settings_of(1) == settings


def test_a_batch_keeps_two_classes() -> None:
    settings = RunConfig.parse(
        {
            **SETTINGS,
            "loss": {"name": "selectively-contrastive"},
            "batch": {"num_classes": 2, "samples_per_class": 6},
        },
        source="test",
    )
    found = repaired(settings, "class-collapse", [], class_sizes=SIZES)
    assert found is not None
    assert found[1] == {"batch.samples_per_class": [6, 12]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["triplet", "margin", "multi-similarity", "nca", "second-order", "selectively-contrastive", "n-pair", "proxy-nca"],
)
def test_every_rung_gives_settings_that_can_be_used(name: str, kind: Any) -> None:
    settings, done = with_loss(name), []
    for _ in range(5):
        found = repaired(settings, kind, done, class_sizes=SIZES)
        if found is None:
            break
        after, changes, why = found
        assert after != settings
        assert after == with_changes(settings, {key: new for key, (_, new) in changes.items()})
        assert after.batch.batch_size <= 2 * settings.batch.batch_size
        after.loss.build(num_classes=6, embedding_dim=8, generator=torch.Generator())
        settings = after
        done.append(Repair(1, 0, kind, json.loads(json.dumps(changes)), why))
    assert (
        with_changes(with_loss(name), {key: new for one in done for key, (_, new) in one.changes.items()}) == settings
    )


def event(step: int, healthy: int, kind: Any = "network-collapse") -> Event:
    return Event(step, kind, {}, "told to", (), None, healthy)


def test_a_repair_returns_to_the_newest_healthy_checkpoint() -> None:
    guard = Guard(config(training={"steps": 100}), SIZES)
    plan = guard.plan(event(90, healthy=60), [0, 40, 60, 80])
    assert isinstance(plan, Repair)
    assert (plan.step, plan.returned_to, plan.kind) == (90, 60, "network-collapse")
    assert guard.plan(event(90, healthy=30), [40, 80]) == "there is no healthy checkpoint (at step 30 or before)"
    guard.begin(plan)
    later = guard.plan(event(95, healthy=75), [0, 40, 60, 70])
    assert isinstance(later, Repair)
    assert later.returned_to == 70


def test_a_checkpoint_from_which_nothing_was_healthy_is_not_returned_to_again() -> None:
    guard = Guard(config(training={"steps": 100}), SIZES)
    guard.begin(Repair(90, 60, "network-collapse", {"loss.margin": [0.0, 0.2]}, "why."))
    plan = guard.plan(event(80, healthy=60), [0, 40, 60, 80])
    assert isinstance(plan, Repair)
    assert plan.returned_to == 40


def test_a_guard_that_has_nothing_left_says_so() -> None:
    guard = Guard(config(guard={"max_repairs": 1}), SIZES)
    guard.begin(Repair(90, 0, "network-collapse", {"loss.margin": [0.0, 0.2]}, "why."))
    assert guard.plan(event(50, healthy=10), [0]) == "guard.max_repairs = 1 repairs were made"
    guard = Guard(with_loss("proxy-nca"), SIZES)
    assert guard.plan(event(50, 10, "dead-sampler"), [0]) == "no change that may help is left"


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_warm_up_counts_from_where_the_optimiser_began(schedule: Any) -> None:
    training = config(training={"steps": 100, "warmup_steps": 9, "schedule": schedule}).training
    cosine = [1.0 if schedule == "constant" else 0.5 * (1 + np.cos(np.pi * max(0, s - 9) / 91)) for s in range(100)]
    for since in (0, 40):
        for step in range(since, 100):
            rise = min(1, (step - since + 1) / 10)
            assert rate_factor(step, training, since=since) == pytest.approx(rise * cosine[step], rel=1e-12)


def test_an_optimiser_that_begins_anew_warms_up_anew() -> None:
    settings = config(training={"steps": 100, "warmup_steps": 9})
    model = build(settings.model, (1, 8, 8), 0)
    loss = settings.loss.build(num_classes=6, embedding_dim=8, generator=torch.Generator())
    task = TrainState(model, loss, settings.training, seed=0, since=40)
    assert task.step == 40
    task.begin_step()
    assert [group["lr"] for group in task.optimizer.param_groups] == [pytest.approx(1e-4)]


def test_parameters_of_the_loss_come_back_where_they_are_the_same(tmp_path: Path) -> None:
    def loss(classes: int) -> MarginLoss:
        found = with_loss("margin").loss.build(num_classes=classes, embedding_dim=8, generator=torch.Generator())
        assert isinstance(found, MarginLoss)
        return found

    model, learned = build(config().model, (1, 8, 8), 0), loss(6)
    with torch.no_grad():
        learned.beta.fill_(0.7)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    done = Progress(3, 0.0, [{"step": 0}], {"repairs": []})
    save_checkpoint(RunFolder(tmp_path), done, model, learned, optimizer, fingerprint="", healthy=0)
    (path,) = RunFolder(tmp_path).checkpoints()
    same, other = loss(6), loss(7)
    assert load_weights(path, build(config().model, (1, 8, 8), 1), same) == [{"step": 0}]
    load_weights(path, model, other)
    assert same.beta.unique().tolist() == [pytest.approx(0.7)]
    assert other.beta.unique().tolist() == [pytest.approx(1.2)]
    assert read_progress(path) == done


def test_rows_of_attempts_before_are_kept(tmp_path: Path) -> None:
    """Also by an attempt that has no row yet; those after where it stands go, as those of a file without attempts."""
    metrics = Metrics(tmp_path / "m.csv", ["loss"])
    for attempt, steps in ((0, (1, 2, 3)), (1, (1, 2))):
        metrics.attempt = attempt
        for step in steps:
            metrics.add(step, {"loss": float(step)})
    rows = metrics.series("loss")
    assert rows == {"step": [1, 2, 3, 1, 2], "attempt": [0, 0, 0, 1, 1], "loss": [1.0, 2.0, 3.0, 1.0, 2.0]}
    assert Metrics(tmp_path / "m.csv", ["loss"], upto=1, attempt=1).series("loss")["step"] == [1, 2, 3, 1]
    assert Metrics(tmp_path / "m.csv", ["loss"], upto=0, attempt=1).series("loss")["step"] == [1, 2, 3]
    assert Metrics(tmp_path / "m.csv", ["loss"], upto=2, attempt=0).series("loss")["step"] == [1, 2]
    (tmp_path / "old.csv").write_text("step,loss\n1,0.5\n2,0.25\n")
    old = Metrics(tmp_path / "old.csv", ["loss"], upto=1).series("loss")
    assert old == {"step": [1], "attempt": [0], "loss": [0.5]}


# What a run does.


def test_a_warning_is_said_at_once_and_kept(
    scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.script = ONCE
    record = read(runs["warn"])
    assert record["status"] == "finished"
    nothing: dict[str, Any] = {"repairs": [], "settings": {}, "not_repaired": [], "kept": None, "stopped_by": None}
    assert record["guard"] == {"action": "warn"} | nothing
    (attempt,) = record["monitor"]["attempts"]
    (seen,) = attempt["events"]
    assert (seen["step"], seen["kind"], seen["healthy"]) == (9, "network-collapse", 6)
    assert attempt["series"]["step"] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert steps_of(runs["warn"]) == [4, 12, 16]  # the last two, and the newest from before the event
    with caplog.at_level(logging.WARNING, logger="trivet"):
        train(config(training={"steps": 10}), tmp_path / "run")
    assert caplog.messages == ["network collapse detected at step 9: told to"]


def test_a_monitor_changes_no_weight(scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path) -> None:
    scripted.script = {}
    train(config(guard={"every": 1}), tmp_path / "run")
    same_weights(tmp_path / "run", runs["warn"])


def test_a_stopped_run_is_evaluated(runs: dict[str, Path]) -> None:
    path = runs["stop"]
    record = read(path)
    assert (record["status"], record["step"]) == ("stopped", 10)
    assert record["guard"]["stopped_by"] == "network collapse detected at step 9: told to"
    assert record["evaluation"]["seen"][0]["name"] == "trained"
    assert steps_of(path) == [0, 4, 8, 10]
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
        assert record["status"] == "finished"
        same_weights(path, runs["warn"])


def test_a_repair_goes_back_and_on(runs: dict[str, Path]) -> None:
    path = runs["repair"]
    record = read(path)
    assert record["status"] == "finished"
    (repair,) = record["guard"]["repairs"]
    assert (repair["step"], repair["returned_to"], repair["kind"]) == (9, 4, "network-collapse")
    assert repair["changes"] == {"loss.negatives": ["hard", "semihard-hardest"], "loss.margin": [0.0, 0.2]}
    assert record["guard"]["settings"] == {"loss.negatives": "semihard-hardest", "loss.margin": 0.2}
    assert record["guard"]["not_repaired"] == []
    first, second = record["monitor"]["attempts"]
    assert [one["kind"] for one in first["events"]] == ["network-collapse"]
    assert second["events"] == []
    assert second["series"]["step"][0] == 4
    assert record["curves"]["step"] == [*range(1, 11), *range(5, 17)]
    assert record["curves"]["attempt"] == [0] * 10 + [1] * 12
    assert record["validation"]["attempt"] == [0, 1, 1]
    assert [moment["step"] for moment in record["history"]["moments"]] == [0, 1, 2, 5, 10, 16]
    assert steps_of(path) == [0, 12, 16]
    folder = RunFolder(path)
    assert folder.user_config() == config(guard={"action": "repair"})
    assert folder.config() == with_changes(folder.user_config(), record["guard"]["settings"])


def test_an_attempt_begins_with_the_weights_of_its_checkpoint(
    scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path
) -> None:
    """The rows of the abandoned attempt are those of a run that was only warned; the others begin after step 4."""
    rows = [line.split(",") for line in (runs["repair"] / "metrics.csv").read_text().splitlines()[1:]]
    warned = [line.split(",") for line in (runs["warn"] / "metrics.csv").read_text().splitlines()[1:]]
    assert [row for row in rows if row[1] == "0"] == warned[:10]
    scripted.script = {}
    train(config(training={"steps": 4}, guard={"action": "repair"}), tmp_path / "run")
    parts = Components(RunFolder(runs["repair"]).config(), splits())
    parts.model.load_state_dict(load_model(tmp_path / "run" / "model").state_dict())
    batch = parts.batches.batch(*divmod(4, parts.batches.steps_per_epoch))
    images, labels = parts.items.inputs.batch(batch), parts.items.labels["digit"][batch]
    value = parts.loss(parts.model.train()(images), torch.from_numpy(labels))
    assert [row[2] for row in rows if row[:2] == ["5", "1"]] == [repr(float(value.detach()))]


def splits() -> Any:
    return load(config().data, None)


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize(
    ("attempt", "step", "left"),
    [(0, 7, [0, 4]), (1, 4, [0, 4, 8]), (1, 7, [0, 4]), (1, 13, [0, 8, 12])],
    ids=["before the event", "in the repair", "after the repair", "long after it"],
)
def test_a_killed_run_comes_to_the_same_repair_and_result(
    attempt: int,
    step: int,
    left: list[int],
    scripted: type[Scripted],
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted.script = ONCE
    path = tmp_path / "repair"
    after_step, checkpoint = Trainer._after_step, Trainer.checkpoint

    def dies(self: Trainer) -> None:
        if (self.parts.guard.attempt, self.task.step) == (attempt, step):
            raise Killed
        after_step(self)

    def dies_before_anything_is_deleted(self: Trainer) -> None:
        checkpoint(self)
        if (self.parts.guard.attempt, self.task.step) == (1, 4) == (attempt, step):
            raise Killed

    monkeypatch.setattr(Trainer, "_after_step", dies)
    monkeypatch.setattr(Trainer, "checkpoint", dies_before_anything_is_deleted)
    with pytest.raises(Killed):
        train(config(guard={"action": "repair"}), path)
    monkeypatch.undo()
    assert steps_of(path) == left
    resume(path)
    same_weights(path, runs["repair"])
    assert (path / "metrics.csv").read_bytes() == (runs["repair"] / "metrics.csv").read_bytes()
    old, new = read(runs["repair"]), read(path)
    for key in ("guard", "monitor", "curves", "validation", "history"):
        assert old[key] == new[key], key


def test_at_most_three_repairs_and_the_last_event_is_not_silent(
    scripted: type[Scripted], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each attempt is healthy for a step only, so each returns to the step before."""
    scripted.script = {0: (6, "network-collapse", 1), 4: (3, "network-collapse", 2)}
    with caplog.at_level(logging.WARNING, logger="trivet"):
        record = train(config(training={"checkpoint_every": 4}, guard={"action": "repair"}), tmp_path / "run")
    assert record["status"] == "finished"
    guard = record["guard"]
    assert [(repair["step"], repair["returned_to"]) for repair in guard["repairs"]] == [(6, 4), (7, 4), (7, 4)]
    why = "guard.max_repairs = 3 repairs were made"
    assert guard["not_repaired"] == [{"step": 7, "kind": "network-collapse", "why": why}]
    assert caplog.messages[-1] == f"not repaired: network collapse detected at step 7: told to; {why}"
    assert [message.partition(" ")[0] for message in caplog.messages].count("repair") == 3
    assert set(record["curves"]["attempt"]) == {0, 1, 2, 3}
    assert len(record["monitor"]["attempts"]) == 4
    assert guard["settings"] == {
        "loss.negatives": "semihard-hardest", "loss.margin": 0.2, "loss.positives": "easy",
        "batch.samples_per_class": 8, "batch.num_classes": 2, "training.learning_rate": 1e-4,
    }  # fmt: skip


def refuses(monkeypatch: pytest.MonkeyPatch, *, above: float) -> None:
    """Embeddings are not finite from step 6 on where the learning rate is larger."""
    train_on = TrainState.train_on

    def step(self: TrainState, batch: Any) -> None:
        if self.step >= 6 and self.config.learning_rate > above:
            raise NotFiniteError("embeddings must be finite: rows 0")
        train_on(self, batch)

    monkeypatch.setattr(TrainState, "train_on", step)


def test_what_is_not_finite_is_repaired(
    scripted: type[Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.script = {}
    refuses(monkeypatch, above=5e-4)
    record = train(config(guard={"action": "repair"}), tmp_path / "run")
    (repair,) = record["guard"]["repairs"]
    assert record["status"] == "finished"
    assert (repair["step"], repair["returned_to"], repair["kind"]) == (6, 4, "not-finite")
    assert repair["changes"] == {"training.learning_rate": [1e-3, 1e-4]}


def test_a_run_that_diverges(scripted: type[Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing: without a healthy network to evaluate, a stopped run says so; a warning saves nothing."""
    scripted.script = {}
    monkeypatch.setattr("trivet.commands.train.run.write_evaluation", EVALUATE)
    diverging = {"training": {"learning_rate": 1e30, "warmup_steps": 0}, "evaluation": {"every": 1}}
    record = train(config(**diverging, guard={"action": "stop"}), tmp_path / "stop")
    assert (record["status"], record["step"]) == ("stopped", 1)
    assert record["guard"]["stopped_by"] == "not finite detected at step 1: embeddings are not finite"
    assert record["evaluation"] == {}
    assert record["warnings"] == ["The embeddings are not finite, so nothing was evaluated."]
    for action in ("warn", "repair"):
        with pytest.raises(ValueError, match="embeddings must be finite"):
            train(config(**diverging, guard={"action": action}), tmp_path / action)
        record = read(tmp_path / action)
        assert record["status"] == "failed"
        assert [one["kind"] for one in record["monitor"]["attempts"][-1]["events"]] == ["not-finite"]
    assert len(record["guard"]["repairs"]) == 3
    assert record["guard"]["not_repaired"][0]["why"] == "guard.max_repairs = 3 repairs were made"


def test_a_repair_can_be_asked_for_later(scripted: type[Scripted], runs: dict[str, Path], tmp_path: Path) -> None:
    """It comes to the weights of a run whose settings asked for it from the start, from a stopped or finished one."""
    scripted.script = ONCE
    for action in ("stop", "warn"):
        path = tmp_path / action
        shutil.copytree(runs[action], path)
        record = resume(path, repair=True)
        assert record["status"] == "finished"
        assert record["guard"]["action"] == "repair"
        assert record["guard"]["repairs"] == read(runs["repair"])["guard"]["repairs"]
        assert RunFolder(path).user_config() == config(guard={"action": action})
        same_weights(path, runs["repair"])
    assert resume(path)["guard"]["action"] == "repair"
    (path / "record.json").unlink()
    assert evaluate_run(path)["guard"]["repairs"] == record["guard"]["repairs"]


def test_a_repair_that_cannot_be_made_is_one_sentence(
    scripted: type[Scripted],
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted.script = ONCE
    for name in ("without", "late", "quiet"):
        shutil.copytree(runs["warn"], tmp_path / name)
    shutil.rmtree(tmp_path / "without" / "checkpoints")
    (tmp_path / "late" / "checkpoints" / "step-00000004.safetensors").unlink()
    (tmp_path / "quiet" / "checkpoints" / "step-00000016.safetensors").unlink()
    (tmp_path / "quiet" / "checkpoints" / "step-00000012.safetensors").unlink()
    before = (tmp_path / "late" / "metrics.csv").read_bytes()
    expected = {
        "without": "a repair needs a checkpoint to return to: {} has none; train again with",
        "late": "{} cannot be repaired: there is no healthy checkpoint (at step 6 or before)",
        "quiet": "a repair needs an event to be repaired: the monitor detected none in {}; leave out --repair.",
    }
    for name, sentence in expected.items():
        assert call(monkeypatch, "train", "--resume", tmp_path / name, "--repair") == 2
        out, err = capsys.readouterr()
        assert sentence.format(tmp_path / name) in err
        assert (out, err.count("\n")) == ("", 1)
    assert (tmp_path / "late" / "metrics.csv").read_bytes() == before
    assert call(monkeypatch, "train", tmp_path / "late" / "config.toml", "--repair") == 2
    assert "--repair goes with --resume RUN" in capsys.readouterr().err


def test_commands_say_what_happened(
    scripted: type[Scripted],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted.script = ONCE
    (tmp_path / "run.toml").write_text(config(training={"steps": 12}).to_toml())
    path = tmp_path / "run"
    command = ["train", tmp_path / "run.toml", "-o", path]
    assert call(monkeypatch, *command, "--set", "guard.action=stop", "--json") == 1
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary["status"] == "stopped"
    assert [(one["attempt"], one["kind"], one["step"]) for one in summary["events"]] == [(0, "network-collapse", 9)]
    assert err.splitlines()[-1] == (
        "trivet: the guard stopped the training after step 10: network collapse detected at step 9: told to; "
        f"to repair it, run trivet train --resume {path} --repair"
    )
    assert call(monkeypatch, "train", "--resume", path, "--repair") == 0
    out, err = capsys.readouterr()
    assert "Note: repair 1: back to step 4 with loss.negatives" in out
    assert call(monkeypatch, *command, "--force", "--set", "guard.action=restart") == 2
    assert "guard.action = 'restart' is not known" in capsys.readouterr().err


def test_a_model_changed_before_the_start_stays_so(scripted: type[Scripted], tmp_path: Path) -> None:
    scripted.script = ONCE
    settings = config(guard={"action": "repair"})
    parts = Components(settings, splits())
    before = embed(parts.model, parts.sample.inputs)

    class Scaled(Embedder):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return 3 * super().forward(images)

    changed = Scaled(parts.model.body, input_shape=parts.model.input_shape, normalize=False)
    parts.model = changed
    run = RunFolder(tmp_path / "run")
    with run.new(settings, force=False):
        job = Trainer(run, parts, report)
        assert job.fit() == "finished"
    assert parts.guard.attempt == 1
    assert parts.model is changed
    np.testing.assert_allclose(embed(job.untrained, parts.sample.inputs), 3 * before, rtol=1e-6)
