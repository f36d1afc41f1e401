"""A loss with parameters outside of the model, in the Trainer of transformers."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.ended import every_moment
from tests.integrations.trainers import trainer_of
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerState

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.transformers import LossTrainerCallback, MonitorTrainerCallback

STEPS, HALF = 12, 6
SAVED = {"save_strategy": "steps", "save_steps": HALF}
RATE, BETA_RATE = 1e-3, 0.02
pytestmark = pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")


class Outside(Trainer):
    """The loss is no part of the model, as in many trainers of one's own."""

    criterion: trivet.EmbeddingLoss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        value = self.criterion(model(inputs["points"]), inputs["labels"])
        return (value, {}) if return_outputs else value


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        return points @ self.weight


def rows(labels: int = 4) -> list[dict[str, Tensor]]:
    """One batch: the Trainer draws another order when it resumes."""
    points = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    return [{"points": point, "labels": torch.tensor(i % labels)} for i, point in enumerate(points)]


def margin_loss() -> trivet.MarginLoss:
    generator = torch.Generator().manual_seed(1)
    return trivet.MarginLoss(beta_learning_rate=BETA_RATE, positives="all", negatives="all", generator=generator)


def trainer_with(folder: Path, loss: trivet.EmbeddingLoss, *others: TrainerCallback, **options: Any) -> Outside:
    options = {"max_steps": STEPS, "learning_rate": RATE, **options}
    trainer = trainer_of(Linear(), folder, rows(), of=Outside, batch=16, options=options)
    assert isinstance(trainer, Outside)
    for callback in others:
        trainer.add_callback(callback)
    trainer.eval_dataset, trainer.criterion = rows(labels=16), loss
    return trainer


def trained(folder: Path, loss: Any, resume: str | None = None, **options: Any) -> Outside:
    """A trainer that has trained a loss, too."""
    trainer = trainer_with(folder, loss, **options)
    LossTrainerCallback(loss).add_to(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_beta_is_trained_at_its_own_rate_and_follows_the_schedule(tmp_path: Path) -> None:
    loss = margin_loss()
    before = loss.beta.detach().clone()
    trainer = trained(tmp_path, loss, lr_scheduler_type="linear")
    assert (loss.beta - before).abs().max() > 1e-3
    [group] = [group for group in trainer.optimizer.param_groups if any(one is loss.beta for one in group["params"])]
    assert group["initial_lr"] == BETA_RATE
    assert group["weight_decay"] == 0
    assert group["lr"] == 0  # at the end of the schedule


def test_two_losses_have_their_own_files(tmp_path: Path) -> None:
    """Of equal shapes, so that nothing else would tell one from the other; and their monitors too."""

    class Two(Outside):
        def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Any:
            points = model(inputs["points"])
            return sum(loss(points, inputs["labels"]) for loss in pair)

    pairs: list[list[trivet.MarginLoss]] = []
    weights: list[Tensor] = []
    monitors: list[list[CollapseMonitor]] = []
    for resumed in (None, str(tmp_path / f"checkpoint-{HALF}")):
        pair = [margin_loss(), margin_loss()]
        watched = [CollapseMonitor(every=1), CollapseMonitor(every=1)]
        with torch.no_grad():
            pair[1].beta.fill_(0.5)
        trainer = trainer_with(tmp_path, pair[0], **SAVED)
        trainer.__class__ = Two
        for monitor, loss in zip(watched, pair, strict=True):
            MonitorTrainerCallback(monitor, loss).add_to(trainer)
            LossTrainerCallback(loss).add_to(trainer)
        trainer.train(resume_from_checkpoint=resumed)
        pairs.append(pair)
        weights.append(trainer.model.weight)
        monitors.append(watched)
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-6)
    for place in (0, 1):
        torch.testing.assert_close(pairs[1][place].beta, pairs[0][place].beta, rtol=1e-5, atol=1e-6)
        norms = [one[place].series["norm"] for one in monitors]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert pairs[0][0].beta.item() != pytest.approx(pairs[0][1].beta.item(), abs=0.1)
    kept = sorted(path.name for path in (tmp_path / f"checkpoint-{HALF}").glob("*-0.*"))
    assert kept == [
        "collapse_monitor-0.json", "collapse_monitor2-0.json", "loss-0.safetensors", "loss2-0.safetensors",
    ]  # fmt: skip


def test_a_loss_at_prefixes_is_trained_too(tmp_path: Path) -> None:
    loss = trivet.MatryoshkaLoss(margin_loss(), prefixes=(2, 4))
    # that `longest` is a margin loss, and that a trainer takes it, is known here alone
    before = loss.longest.beta.detach().clone()
    trained(tmp_path, loss)
    assert (loss.longest.beta - before).abs().max() > 1e-3


def test_a_checkpoint_without_the_loss_is_said(tmp_path: Path) -> None:
    trained(tmp_path, margin_loss(), **SAVED)
    (tmp_path / f"checkpoint-{HALF}" / "loss-0.safetensors").unlink()
    with pytest.warns(UserWarning, match="the loss keeps the parameters it has"):
        trained(tmp_path, margin_loss(), str(tmp_path / f"checkpoint-{HALF}"), **SAVED)


def at_half(folder: Path) -> Any:
    """The arguments and the state of a Trainer at a checkpoint."""
    (folder / f"checkpoint-{HALF}").mkdir(exist_ok=True)
    return SimpleNamespace(output_dir=folder, process_index=0, device="cpu"), TrainerState(global_step=HALF)


@pytest.mark.parametrize("kind", ["loss", "monitor"])
def test_a_killed_save_leaves_the_old_state_and_nothing_else(kind: str, tmp_path: Path) -> None:
    loss = margin_loss()
    callback = LossTrainerCallback(loss) if kind == "loss" else MonitorTrainerCallback(CollapseMonitor(), loss)
    folder = tmp_path / f"checkpoint-{HALF}"

    def save() -> None:
        callback.on_save(*at_half(tmp_path), None)

    save()
    (file,) = folder.iterdir()
    before = file.read_bytes()
    with torch.no_grad():
        loss.beta.fill_(0.5)
    moments = []
    for moment in every_moment("killed", save, lambda: None):
        moments.append(moment)
        assert file.read_bytes() == before
        if kind == "loss":
            callback._load(at_half(tmp_path)[0], file)
        else:
            callback._restore(*at_half(tmp_path))
        assert list(folder.iterdir()) == [file]
    assert len(moments) > 2  # it is not written in place, nor by a library whose files nobody clears


@pytest.mark.parametrize("content", [b"", b"x" * 9, b"\xff" * 64], ids=["empty", "short", "sizes"])
def test_a_damaged_state_of_the_loss_is_said(content: bytes, tmp_path: Path) -> None:
    loss = margin_loss()
    (tmp_path / "loss-0.safetensors").write_bytes(content)
    with pytest.warns(UserWarning, match="the loss keeps the parameters it has"):
        LossTrainerCallback(loss)._load(at_half(tmp_path)[0], tmp_path / "loss-0.safetensors")


def test_without_a_checkpoint_of_the_trainer_nothing_is_written(tmp_path: Path) -> None:
    arguments, state = at_half(tmp_path)
    (tmp_path / f"checkpoint-{HALF}").rmdir()
    with pytest.warns(UserWarning, match="the checkpoint holds no state of the loss: "):
        LossTrainerCallback(margin_loss()).on_save(arguments, state, None)
    assert not list(tmp_path.iterdir())


def test_a_rate_of_the_trainer_gives_way() -> None:
    """The trainer of sentence-transformers has the parameters of the loss at the rate of the model."""
    loss, model = margin_loss(), Linear()
    optimizer = torch.optim.SGD([{"params": [model.weight, loss.beta]}], lr=RATE)
    made = SimpleTrainer(optimizer)
    LossTrainerCallback(loss).add_to(made)
    for _ in range(2):  # a second training has the groups already
        made.create_optimizer()
        assert [(group["params"], group["lr"]) for group in optimizer.param_groups] == [
            ([model.weight], RATE),
            ([loss.beta], BETA_RATE),
        ]


class SimpleTrainer:
    optimizer = None

    class args:  # noqa: N801  # an attribute of a Trainer
        device = torch.device("cpu")

    def __init__(self, made: torch.optim.Optimizer) -> None:
        self.made = made

    def create_optimizer(self) -> torch.optim.Optimizer:
        return self.made

    def add_callback(self, callback: TrainerCallback) -> None:
        pass


def test_parameters_that_would_stay_are_an_error(tmp_path: Path) -> None:
    loss = margin_loss()
    with pytest.raises(ValueError, match="beta of MarginLoss lies outside of the model"):
        trainer_with(tmp_path, loss, MonitorTrainerCallback(CollapseMonitor(), loss)).train()
    trainer_with(tmp_path, loss.requires_grad_(False), MonitorTrainerCallback(CollapseMonitor(), loss)).train()


def test_an_optimiser_that_is_there_is_said(tmp_path: Path) -> None:
    loss = margin_loss()
    trainer = trainer_with(tmp_path, loss)
    trainer.create_optimizer()
    with pytest.raises(ValueError, match="make its optimiser after this"):
        LossTrainerCallback(loss).add_to(trainer)
    with pytest.raises(ValueError, match="a loss of Trivet"):
        LossTrainerCallback(nn.Linear(1, 1))


def test_five_measures_are_logged_unless_others_are_chosen(tmp_path: Path) -> None:
    def logged(**options: Any) -> set[str]:
        loss = trivet.TripletLoss()
        trainer = trainer_with(tmp_path, loss, logging_steps=3)
        MonitorTrainerCallback(CollapseMonitor(), loss, **options).add_to(trainer)
        trainer.train()
        return {name for row in trainer.state.log_history for name in row if name.startswith("collapse/")}

    five = {"recall", "relative_spread", "hard", "active", "risk"}
    always = {"collapse/step", "collapse/events", "collapse/probe_calls"}  # the two are in the last row
    assert logged() <= always | {f"collapse/{name}" for name in five}
    assert "collapse/recall" in logged()
    assert logged(measures=["norm"]) == always | {"collapse/norm"}
    with pytest.raises(ValueError, match="measures = 'nrm' is not known"):
        MonitorTrainerCallback(CollapseMonitor(), trivet.TripletLoss(), measures=["nrm"])


def test_evaluation_batches_without_pairs_do_not_warn(tmp_path: Path) -> None:
    trainer = trainer_with(tmp_path, trivet.TripletLoss())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert trainer.evaluate()["eval_loss"] == 0
    with pytest.warns(UserWarning, match="two items that belong together"):
        trivet.TripletLoss()(torch.randn(4, 2, requires_grad=True), torch.arange(4))
