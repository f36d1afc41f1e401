"""Runs whose batches are embedded in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import settings_of
from torch import Tensor

from trivet.commands.train.run import train
from trivet.datasets import load
from trivet.training import RunConfig
from trivet.training.components import Components, first_task, run_fingerprint
from trivet.training.loop import Learner, fit

pytestmark = pytest.mark.usefixtures("few_digits")

LEAST: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "digits", "augment": "crop-flip"},
    "batch": {"num_classes": 2, "samples_per_class": 16, "micro": 5},
    "model": {"name": "mlp", "embedding_dim": 4, "width": 16},
    "loss": {"name": "margin", "positives": "random"},
    "training": {"steps": 8, "log_every": 2, "accelerator": "cpu", "ema": 0.9, "checkpoint_every": 5},
    "evaluation": {"every": 100, "map_points": 20, "sample": 40, "nmi_plus": 1, "k": [1]},
}


def config(**changes: dict[str, Any]) -> RunConfig:
    return settings_of(LEAST, "x", **changes)


def trained(settings: RunConfig) -> Learner:
    splits = load(settings.data, None)
    task, batches = first_task(settings, splits.train, splits.level, steps=settings.training.num_steps)
    assert fit(task, batches)
    return task


def weights(task: Learner) -> Tensor:
    assert task.average is not None
    modules = (task.model, task.average, task.loss)
    return torch.cat([p.detach().flatten() for module in modules for p in module.parameters()])


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_a_run_in_pieces_comes_to_the_weights_of_the_whole_batch(precision: str) -> None:
    tasks = [
        trained(config(batch={"micro": micro}, training={"precision": precision, "optimizer": "sgd"}))
        for micro in (None, 5, 32)
    ]
    whole, pieces, one = map(weights, tasks)
    moved = whole - weights(first_task_of(config()))
    assert (pieces - whole).norm() < {"32": 1e-5, "bf16": 2e-2}[precision] * moved.norm()
    assert torch.equal(one, whole)
    assert not torch.equal(pieces, whole)


def first_task_of(settings: RunConfig) -> Learner:
    splits = load(settings.data, None)
    return first_task(settings, splits.train, splits.level, steps=1)[0]


@pytest.mark.parametrize(
    ("model", "micro", "said"),
    [
        (
            "conv3",
            5,
            "Batch norm normalises each piece of 5 items over itself (batch.micro = 5), not the whole batch of 32.",
        ),
        ("conv3", 32, ""),
        ("conv3", None, ""),
        ("mlp", 5, ""),
    ],
)
def test_what_batch_norm_is_over_is_said(model: str, micro: int | None, said: str) -> None:
    settings = config(model={"name": model}, batch={"micro": micro})
    parts = Components(settings, load(settings.data, None))
    assert parts.piece_note.startswith(said)
    assert bool(parts.piece_note) == bool(said)
    assert parts.notes == parts.state.learner.model.notes + ((parts.piece_note,) if said else ())


@pytest.mark.usefixtures("unevaluated")
def test_it_is_said_at_the_start_and_stands_in_the_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = train(config(model={"name": "conv3"}, training={"steps": 1}), tmp_path / "run")
    [note] = [one for one in record.warnings if one.startswith("Batch norm")]
    assert caplog.messages.count(note) == 1


def test_the_settings_are_checked_and_a_run_without_them_is_the_same_as_ever() -> None:
    with pytest.raises(ValueError, match=r"^x: batch\.micro must be at least 1: got 0\.$"):
        config(batch={"micro": 0})
    shapes = [(5, 5), (31, 16), (32, 32), (40, 32), (None, 32)]
    assert [config(batch={"micro": micro}).batch.piece_size for micro, _ in shapes] == [size for _, size in shapes]
    settings = config(batch={"micro": None})
    splits = load(settings.data, None)
    assert run_fingerprint(settings, splits) != run_fingerprint(config(), splits)
    assert "micro" not in settings.model_dump(mode="json", exclude_none=True)["batch"]
