"""A run says how many wrong labels its strategy stands, and so does a resumed one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from tests.training.runs import check_same_weights, record_of, settings_of, write_pictures

from trivet import EmbeddingLoss
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import train
from trivet.datasets import load
from trivet.label_noise import PickCounts, count_picks
from trivet.mining import mine
from trivet.runtime.json_numbers import as_json
from trivet.samplers import PKBatches
from trivet.training import RunConfig
from trivet.training.components import Components
from trivet.training.sampling_log import CHECKS, SPACING, SamplingLog, spacing

pytestmark = pytest.mark.usefixtures("undiagnosed")

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "folder", "image_size": 8, "channels": 1, "noise": {"kind": "symmetric", "rate": 0.3}},
    "batch": {"num_classes": 4, "samples_per_class": 6},
    "model": {"name": "linear", "embedding_dim": 4},
    "loss": {"name": "triplet", "positives": "random", "negatives": "hard"},
    "training": {"steps": 40, "checkpoint_every": 20, "accelerator": "cpu"},
    "evaluation": {"map_points": 10, "sample": 20, "nmi_plus": 2, "k": [1]},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"), 25)


def settings(pictures: Path, **changes: dict[str, Any]) -> RunConfig:
    return settings_of(SETTINGS, **{"data": {"root": str(pictures)}, **changes})


@pytest.fixture(scope="module")
def whole(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "whole"
    train(settings(pictures), path)
    return path


def test_the_record_says_what_the_strategy_stands(whole: Path) -> None:
    found = record_of(whole)["label_noise"]["strategy"]
    assert found["checks"] == 10
    # The nearest of 18 negatives: the first of ten bins holds 2 of 18 ranks.
    assert found["skew"]["skew"]["value"] == pytest.approx(9)
    assert found["tolerance"]["by"] == "skew"
    assert found["tolerance"]["rate"]["value"] == pytest.approx(1 - (1 - 1 / 9) ** 0.5)
    assert found["skew"]["wrong_skew"]["value"] > 1
    assert [(part["from"], part["to"]) for part in found["along"]] == [(0, 16), (20, 36)]
    # Nothing about the labels, which its network was trained on.
    assert list(record_of(whole)["label_noise"]) == ["strategy"]


def test_true_labels_are_those_of_the_batch(whole: Path, pictures: Path) -> None:
    splits = load(settings(pictures).data, None)
    assert splits.noise is not None
    with safe_open(whole / "checkpoints" / "step-00000040.safetensors", framework="pt") as file:
        kept = json.loads(file.metadata()["state"])["sampling"]
    batches = PKBatches(splits.train.labels["class"], num_classes=4, samples_per_class=6, seed=1)
    assert [look["step"] for look in kept] == list(range(0, 40, 4))
    for look in kept:
        index = batches.batch(*divmod(look["step"], batches.steps_per_epoch))
        labels, truth = splits.train.labels["class"][index], splits.noise.true_labels[index]
        same, other = truth[:, None] == truth, labels[:, None] != labels
        # One pick for each anchor, so that uniform picking gives the sum of the shares.
        assert sum(look["picks"]) == 24
        assert look["wrong"][1] == pytest.approx(((same & other).sum(axis=1) / other.sum(axis=1)).sum())


@pytest.mark.parametrize("lost", [False, True], ids=["the record is there", "and is lost"])
def test_evaluating_anew_keeps_what_was_seen_while_training(lost: bool, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    if lost:
        (path / "record.json").unlink()
    evaluate_run(path)
    assert record_of(path)["label_noise"] == record_of(whole)["label_noise"]


@pytest.mark.usefixtures("unevaluated")
def test_looking_changes_nothing(whole: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SamplingLog, "watch", lambda *_: None)
    train(settings(pictures), tmp_path / "blind")
    check_same_weights(whole, tmp_path / "blind")
    blind = record_of(tmp_path / "blind")["label_noise"]["strategy"]
    assert blind["reason"] == "the loss picked no negatives"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "proxy-nca", "positives": "all", "negatives": "all"}, "picks no negatives"),
        ({"name": "multi-similarity", "positives": "all", "negatives": "all"}, "weights a set of negatives"),
    ],
)
@pytest.mark.usefixtures("unevaluated")
def test_without_picks_the_reason_is_said(change: dict[str, Any], words: str, pictures: Path, tmp_path: Path) -> None:
    record = train(settings(pictures, loss=change, training={"steps": 4}), tmp_path / "run")
    assert words in record.label_noise.strategy.reason
    assert record.label_noise.strategy.tolerance is None


def test_the_looks_of_a_longer_run_are_among_those_of_a_shorter_one() -> None:
    assert spacing(1) == spacing(SPACING * CHECKS) == SPACING
    for steps in (401, 800, 801, 5000, 123456):
        assert steps / spacing(steps) <= CHECKS
        assert spacing(2 * steps) % spacing(steps) == 0


def test_steps_that_are_added_leave_no_look_that_is_none(pictures: Path) -> None:
    longer = settings(pictures, training={"steps": 800})
    log = Components(longer, load(longer.data, None)).state.sampling
    counts = as_json(PickCounts(np.zeros(10), np.zeros(10), 0.0))
    log.load([{"step": step} | counts for step in (0, 4, 8, 12)])
    assert [step for step, _ in log.checks] == [0, 8]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_look_counts_the_batch_that_the_loss_was_given(pictures: Path) -> None:
    config = settings(pictures, loss={"positives": "easy", "negatives": "semihard-hardest"})
    loss: EmbeddingLoss = config.loss.build(num_classes=4, embedding_dim=4, generator=seeded())
    log, steps = SamplingLog(load(config.data, None), loss, steps=config.training.num_steps), iter([0, 1, 4])
    log.watch(loss, lambda: next(steps), lambda _: None)
    draws = seeded()
    rows, labels = torch.randn(12, 4, generator=draws), torch.arange(12) // 3
    expected = []
    for _ in range(3):
        rows = rows[torch.randperm(12, generator=draws)]
        loss(rows, labels)
        picks = mine(rows, labels, positives="easy", negatives="semihard-hardest")
        expected.append(count_picks(rows, labels, picks).picks.tolist())
    assert len({tuple(picks) for picks in expected}) == 3
    assert [(step, counts.picks.tolist()) for step, counts in log.checks] == [(0, expected[0]), (4, expected[2])]
