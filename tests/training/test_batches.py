"""Runs whose batches are shuffled, balanced by a coarser level, or of single items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.commands.train.run import train
from trivet.datasets import load
from trivet.reports.run_record import CoverageRecord
from trivet.training.components import Components
from trivet.training.config import RunConfig

pytestmark = pytest.mark.usefixtures("few_digits")

SETTINGS: dict[str, Any] = {
    "data": {"name": "digits", "level": "digit"},
    "model": {"name": "mlp", "width": 16, "embedding_dim": 8},
    "loss": {"name": "triplet"},
    "training": {"steps": 3, "log_every": 1, "accelerator": "cpu"},
    "evaluation": {"map_points": 20, "sample": 50},
}


def settings(**sections: Any) -> RunConfig:
    return RunConfig.parse(SETTINGS | sections, source="test")


@pytest.mark.parametrize(
    ("batch", "loss"),
    [({"size": 24}, "triplet"), ({"num_classes": 4, "samples_per_class": 1}, "proxy-nca")],
)
def test_a_run_without_classes_in_its_batches_reaches_its_report(
    batch: dict[str, int], loss: str, tmp_path: Path
) -> None:
    record = train(settings(batch=batch, loss={"name": loss}), tmp_path / "run")
    assert record.status == "finished"
    assert record.diagnosis["train"].verdicts
    assert record.data.coverage == CoverageRecord(items=1.0, classes=1.0)
    assert all(value is not None for value in record.curves.loss)


def test_balanced_batches_hold_the_parities_alike() -> None:
    config = settings(batch={"num_classes": 4, "samples_per_class": 2, "balance": "parity"})
    parts = Components(config, load(config.data, None))
    labels = parts.splits.train.labels
    for step in range(5):
        items = parts.batches.batch(0, step)
        digits = labels["digit"][items]
        parity = [labels["parity"][items[digits == digit]][0] for digit in np.unique(digits)]
        assert sorted(parity) == [0, 0, 1, 1]


@pytest.mark.parametrize(("balance", "message"), [("digit", "Allowed: parity"), ("party", "did you mean 'parity'")])
def test_balance_must_name_a_coarser_level(balance: str, message: str) -> None:
    config = settings(batch={"balance": balance, "num_classes": 4})
    with pytest.raises(ValueError, match=message):
        Components(config, load(config.data, None))


def test_a_class_of_one_item_is_trained_on_where_no_positive_is_needed(tmp_path: Path) -> None:
    labels = np.repeat(["a", "b", "c", "d", "e"], [4, 4, 1, 4, 4])
    vectors = np.random.default_rng(0).standard_normal((len(labels), 3))
    parts = np.where(labels < "d", "train", "test")
    np.savez(tmp_path / "v.npz", embeddings=vectors, kind=labels, split=parts)
    data = {"name": "vectors", "path": str(tmp_path / "v.npz")}
    batch = {"num_classes": 3, "samples_per_class": 2}
    with pytest.raises(
        ValueError, match=r"needs at least two items.*'c' \(1 of 3 classes at level 'kind'\) has one; add"
    ):
        train(settings(data=data, batch=batch), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for number, (loss, batches) in enumerate((("proxy-nca", batch), ("triplet", {"size": 4}))):
        run = tmp_path / f"run{number}"
        record = train(settings(data=data, batch=batches, loss={"name": loss}), run)
        assert record.status == "finished"
        assert record.data.coverage == CoverageRecord(items=1.0, classes=1.0)
