"""The monitor inside foreign trainings: Lightning, and the Trainer of transformers."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.loggers.logger import Logger
from tests.integrations.trainers import LIGHTNING_WARNINGS, lightning_trainer, trainer_of
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from trivet.collapse.monitor import SERIES, CollapseMonitor
from trivet.integrations.lightning import MonitorCallback
from trivet.integrations.transformers import MonitorTrainerCallback
from trivet.integrations.watch import LossWatch

pytestmark = [
    *LIGHTNING_WARNINGS,
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
]
STEPS, BATCH = 40, 16
LOSS = "inner.criterion.pull"
COLLAPSING, STEADY = 0.7, 1.0  # factors of the distances from step to step


class Pull(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.square().mean()


class Shrinking(nn.Module):
    """Embeddings that come nearer to one point at each step of training, however it goes."""

    def __init__(self, factor: float = COLLAPSING, fails_at: int | None = None) -> None:
        super().__init__()
        self.factor, self.fails_at = factor, fails_at
        self.weight = nn.Parameter(torch.eye(8))
        self.register_buffer("done", torch.tensor(0))
        self.criterion = nn.ModuleDict({"pull": Pull(), "unused": nn.Identity()})

    def forward(self, points: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if self.fails_at == self.done:
            raise RuntimeError("out of luck")
        embeddings = 1 + points @ self.weight * self.factor**self.done
        self.done += self.training
        return {"loss": self.criterion["pull"](embeddings, labels)}

    def watched(self, monitor: CollapseMonitor) -> bool:
        """Whether a call of the loss in training is seen."""
        before = monitor.state_dict()
        self.criterion["pull"](torch.randn(4, 8, requires_grad=True), torch.arange(4) % 2)
        return monitor.state_dict() != before


class Task(lightning.LightningModule):
    def __init__(self, inner: Shrinking) -> None:
        super().__init__()
        self.inner = inner

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.inner(**batch)["loss"]
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.inner(**batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Kept(Logger):
    """Keeps what it is given."""

    name, version = "kept", 0

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, metrics))

    def log_hyperparams(self, *_: Any) -> None:
        pass


class Recorder(TrainerCallback):
    """As a logger of the Trainer does, takes a copy of what is logged when it is its turn."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **others: Any) -> None:
        self.rows.append(dict(logs))


def rows() -> list[dict[str, Tensor]]:
    """All batches are equal: a Lightning training that resumes inside an epoch begins its loader anew."""
    points = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(0)).repeat(STEPS, 1)
    return [{"points": point, "labels": torch.tensor(i % 4)} for i, point in enumerate(points)]


def fit(
    callback: MonitorCallback | list[MonitorCallback],
    inner: Shrinking,
    *,
    steps: int = STEPS,
    resume: Path | None = None,
    **options: Any,
) -> lightning.Trainer:
    callbacks = callback if isinstance(callback, list) else [callback]
    trainer = lightning_trainer(max_steps=steps, callbacks=callbacks, **options)
    loader = DataLoader(rows(), batch_size=BATCH)
    trainer.fit(Task(inner), loader, loader, ckpt_path=resume, weights_only=True)
    return trainer


def trainer_with(inner: Shrinking, folder: Path, *others: TrainerCallback, **options: Any) -> Trainer:
    options = {"max_steps": STEPS, "learning_rate": 1e-3, "logging_steps": 5, **options}
    trainer = trainer_of(inner, folder, rows(), batch=BATCH, options=options)
    for callback in others:
        trainer.add_callback(callback)
    return trainer


def steps_of(
    framework: str, seen: CollapseMonitor, inner: Shrinking, folder: Path, *, loss: str = "pull", **options: Any
) -> int:
    """Train with a callback; returns the steps made."""
    steps, together = options.pop("steps", STEPS), options.pop("accumulate", 1)
    if framework == "lightning":
        watching = MonitorCallback(seen, f"inner.criterion.{loss}", **options)
        return fit(watching, inner, steps=steps, accumulate_grad_batches=together).global_step
    trainer = trainer_with(inner, folder, max_steps=steps, gradient_accumulation_steps=together)
    MonitorTrainerCallback(seen, inner.criterion[loss], **options).add_to(trainer)
    trainer.train()
    return trainer.state.global_step


def event_told() -> Any:
    return pytest.warns(UserWarning, match="network collapse suspected at step")


def monitor() -> CollapseMonitor:
    return CollapseMonitor(every=5)


def finite(series: dict[str, list[float]], look: int) -> dict[str, float]:
    return {name: values[look] for name, values in series.items() if math.isfinite(values[look])}


def test_lightning_logs_every_look_and_warns_of_an_event() -> None:
    seen, inner, loggers = monitor(), Shrinking(), [Kept(), Kept()]
    with event_told() as told:
        fit(MonitorCallback(seen, LOSS, measures=SERIES[1:]), inner, logger=loggers)
    [event] = seen.events
    [text] = [str(one.message) for one in told if " at step " in str(one.message)]
    assert event.rule in text
    assert all(change in text for change in event.changes)
    assert len(seen.series["step"]) > 5
    for logger in loggers:
        assert [{"collapse/step": step} | row for step, row in logger.rows] == [
            {f"collapse/{name}": value for name, value in finite(seen.series, look).items()}
            for look in range(len(seen.series["step"]))
        ]
    assert not inner.watched(seen)


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_a_training_stops_after_the_step_of_an_event_that_the_probe_shows(framework: str, tmp_path: Path) -> None:
    seen = monitor()
    with pytest.warns(UserWarning, match="Training stops"):
        steps = steps_of(framework, seen, Shrinking(), tmp_path, action="stop", probe=probe_of(STEPS, 64))
    assert steps == seen.events[0].step + 1 < STEPS
    assert not seen.events[0].suspected
    suspecting = monitor()
    with event_told():
        assert steps_of(framework, suspecting, Shrinking(), tmp_path / "batches", action="stop") == STEPS


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_steps_of_the_optimiser_are_counted(framework: str, tmp_path: Path) -> None:
    seen = monitor()
    steps_of(framework, seen, Shrinking(STEADY), tmp_path, steps=2, accumulate=2)
    assert seen.series["step"] == [0, 0, 1, 1]


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_a_loss_that_was_never_called_is_said(framework: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the loss was never called"):
        steps_of(framework, monitor(), Shrinking(STEADY), tmp_path, loss="unused", steps=2)


def test_lightning_keeps_the_states_of_several_monitors_apart(tmp_path: Path) -> None:
    inner, seen = Shrinking(STEADY), [monitor(), monitor()]
    inner.criterion["second"] = Pull()
    forward = inner.forward

    def both(points: Tensor, labels: Tensor) -> dict[str, Tensor]:
        inner.criterion["second"](2 + points @ inner.weight, labels)
        return forward(points, labels)

    inner.forward = both
    names = (LOSS, "inner.criterion.second")
    trainer = fit([MonitorCallback(one, name) for one, name in zip(seen, names, strict=True)], inner, steps=6)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = [monitor(), monitor()]
    watching = [MonitorCallback(one, name) for one, name in zip(again, names, strict=True)]
    fit(watching, inner, steps=6, resume=tmp_path / "last.ckpt")
    assert [one.state_dict() for one in again] == [one.state_dict() for one in seen]
    assert again[0].series["norm"] != again[1].series["norm"]


def test_lightning_watches_training_alone() -> None:
    seen = monitor()
    fit(MonitorCallback(seen, LOSS), Shrinking(STEADY), steps=4, val_check_interval=1)
    assert seen.series["step"] == [0, 1, 2, 3]


@pytest.mark.parametrize("factor", [STEADY, COLLAPSING])
def test_lightning_resumes_the_monitor_exactly(tmp_path: Path, factor: float) -> None:
    whole, first, second = monitor(), monitor(), monitor()
    told = event_told if factor == COLLAPSING else nullcontext
    with told():
        fit(MonitorCallback(whole, LOSS), Shrinking(factor))
    with told():
        trainer = fit(MonitorCallback(first, LOSS), Shrinking(factor), steps=STEPS - 7)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    # A training that resumes after an event goes on, and warns of nothing that was told.
    fit(MonitorCallback(second, LOSS, action="stop"), Shrinking(factor), resume=tmp_path / "last.ckpt")
    assert first.state_dict() != whole.state_dict()
    assert second.state_dict() == whole.state_dict()
    assert second.series["step"][-1] == STEPS - 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("loss", "got 'loss', and its submodules are inner;"),
        ("", "got '', and its submodules are inner;"),
        ("inner.criterion.pul", "are inner.criterion.pull, inner.criterion.unused;"),
        ("inner.criterion.pull.more", "are none;"),
    ],
)
def test_lightning_names_the_submodules_there_are(name: str, sentence: str) -> None:
    seen = monitor()
    with pytest.raises(ValueError, match="loss must name a submodule of Task") as error:
        fit(MonitorCallback(seen, name), Shrinking(fails_at=0))  # before the first batch, be it of an evaluation
    assert sentence in str(error.value)
    assert seen.series["step"] == []


@pytest.mark.parametrize("step", [0, 3])
def test_lightning_leaves_the_loss_after_an_exception(step: int) -> None:
    seen, inner = monitor(), Shrinking(STEADY, fails_at=step)
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(MonitorCallback(seen, LOSS), inner, num_sanity_val_steps=0)
    assert seen.series["step"] == list(range(step))
    assert not inner.watched(seen)


def test_the_trainer_logs_the_last_look_and_warns_of_an_event(tmp_path: Path) -> None:
    seen, inner, logger = monitor(), Shrinking(), Recorder()
    trainer = trainer_with(inner, tmp_path, logger)
    MonitorTrainerCallback(seen, inner.criterion["pull"], measures=SERIES[1:]).add_to(trainer)
    with event_told() as told:
        trainer.train()
    [event] = seen.events
    [text] = [str(one.message) for one in told if " at step " in str(one.message)]
    assert event.rule in text
    assert trainer.state.global_step == STEPS
    for rows in (logger.rows, trainer.state.log_history):
        rows = [row for row in rows if "loss" in row]
        assert len(rows) == STEPS // 5
        for number, row in enumerate(rows):
            [look] = [i for i, step in enumerate(seen.series["step"]) if step == 5 * number + 4]
            logged = {name: value for name, value in row.items() if name.startswith("collapse/")}
            assert logged == {f"collapse/{name}": value for name, value in finite(seen.series, look).items()}
    assert not inner.watched(seen)


def probe_of(steps: int, items: int = 16) -> Any:
    """Recall@1 is 1 at the first call and falls by a quarter of the items at each further one."""
    labels, classes = torch.arange(items) // 2, items // 2
    calls: list[int] = []

    def probe(model: nn.Module) -> tuple[Tensor, Tensor]:
        points = 10.0 * torch.eye(classes)[labels]
        moved = items // 4 * len(calls)
        points[:moved:2] = points[:moved:2].roll(1, dims=1)
        calls.append(steps)
        return points + 0.1 * torch.eye(items, classes), labels

    return probe


def test_what_the_probe_showed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen, inner = monitor(), Shrinking(STEADY)
    trainer = trainer_with(inner, tmp_path)
    callback = MonitorTrainerCallback(seen, inner.criterion["pull"], probe=probe_of(STEPS))
    callback.add_to(trainer)
    assert callback.summary() == "The monitor saw no batch."
    with caplog.at_level("INFO", logger="trivet"), pytest.warns(UserWarning, match="harm detected at step 40"):
        trainer.train()
    steps, recall = (seen.probing.series[name] for name in ("step", "recall"))
    assert len(steps) > 1
    assert recall[0] > recall[1]
    rows = [row for row in trainer.state.log_history if "collapse/probe_step" in row]
    logged = [(row["collapse/probe_step"], row["collapse/probe_recall"]) for row in rows]
    assert set(logged) <= set(zip(steps, recall, strict=True))
    assert logged[-1] == (steps[-1], recall[-1])
    assert logged[0][0] < 5 <= logged[-1][0]
    last = trainer.state.log_history[-1]
    assert (last["collapse/events"], last["collapse/probe_calls"]) == (len(seen.events), len(steps))
    assert steps[-1] == STEPS
    assert callback.summary().startswith("Recall@1 by the labels of 16 held-out items ends ")
    assert callback.summary().endswith(f"it asked the probe {len(steps)} times.")
    assert callback.summary() in caplog.messages


def test_lightning_logs_every_call_of_the_probe() -> None:
    seen, logger = monitor(), Kept()
    callback = MonitorCallback(seen, LOSS, probe=probe_of(STEPS))
    with pytest.warns(UserWarning, match="harm detected at step 40"):
        fit(callback, Shrinking(STEADY), logger=[logger])
    found = [(step, row["collapse/probe_recall"]) for step, row in logger.rows if "collapse/probe_recall" in row]
    assert found == list(zip(*(seen.probing.series[name] for name in ("step", "recall")), strict=True))
    assert found[0] == (0, 1.0)
    assert found[-1][0] == STEPS
    assert callback.summary().startswith("Recall@1 by the labels of 16 held-out items ends ")


@pytest.mark.parametrize("factor", [STEADY, COLLAPSING])
def test_the_trainer_resumes_the_monitor_exactly(tmp_path: Path, factor: float) -> None:
    save = {"save_strategy": "steps", "save_steps": STEPS - 7}
    whole, second = monitor(), monitor()
    inner = Shrinking(factor)
    trainer = trainer_with(inner, tmp_path, MonitorTrainerCallback(whole, inner.criterion["pull"]), **save)
    with event_told() if factor == COLLAPSING else nullcontext():
        trainer.train()

    inner = Shrinking(factor)
    callback = MonitorTrainerCallback(second, inner.criterion["pull"], action="stop")
    trainer = trainer_with(inner, tmp_path, callback, **save)
    trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS - 7}"))
    assert second.state_dict() == whole.state_dict()
    assert second.series["step"][-1] == STEPS - 1


def test_the_trainer_resumes_without_a_state_of_the_monitor(tmp_path: Path) -> None:
    save = {"save_strategy": "steps", "save_steps": 5}
    trainer_with(Shrinking(STEADY), tmp_path, max_steps=5, **save).train()
    seen, inner = monitor(), Shrinking(STEADY)
    trainer = trainer_with(inner, tmp_path, MonitorTrainerCallback(seen, inner.criterion["pull"]), max_steps=7, **save)
    with pytest.warns(UserWarning, match="the monitor starts over at step 5"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert seen.series["step"] == [5, 6]
    kept = json.loads((tmp_path / "checkpoint-7" / "collapse_monitor-0.json").read_text())
    assert kept == seen.state_dict()

    other = monitor()
    other.load_state_dict(kept)  # by hand, for the checkpoint has none
    callback = MonitorTrainerCallback(other, inner.criterion["pull"])
    trainer_with(inner, tmp_path, callback, max_steps=7, **save).train(str(tmp_path / "checkpoint-5"))
    assert len(other.series["step"]) == 4


def test_the_trainer_watches_once_after_an_exception(tmp_path: Path) -> None:
    seen, inner = monitor(), Shrinking(STEADY, fails_at=2)
    callback = MonitorTrainerCallback(seen, inner.criterion["pull"])
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer_with(inner, tmp_path, callback, max_steps=3).train()
    inner.fails_at = None
    trainer_with(inner, tmp_path, callback, max_steps=3).train()
    assert len(seen.series["step"]) == 2 + 3
    assert not inner.watched(seen)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match='action must be "warn" or "stop": got \'halt\''):
        MonitorCallback(monitor(), action="halt")
    with pytest.raises(ValueError, match='action must be "warn" or "stop": got \'halt\''):
        MonitorTrainerCallback(monitor(), Pull(), action="halt")
    with pytest.raises(ValueError, match=r"loss must be the module .*: got 'loss'; pass the module"):
        MonitorTrainerCallback(monitor(), "loss")


def test_processes_agree_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process finds something at step 2; the others hear of it at step 5, together."""
    sums: list[float] = []

    def all_reduce(value: Tensor) -> None:
        sums.append(value.item())
        value += others[-1]

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    others: list[float] = []
    for elsewhere, mine in ((0.0, 2), (1.0, None)):
        others.append(elsewhere)
        watch: LossWatch[nn.Module] = LossWatch(monitor())
        watch.begin(Pull(), lambda: 0)
        agreed = [watch.agree(step == mine, torch.device("cpu")) for step in range(1, 6)]
        assert agreed == [False] * 4 + [True]
    assert sums == [1.0, 0.0]
