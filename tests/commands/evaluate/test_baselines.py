"""Measures of baselines are found once for the same items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.commands.evaluate import baselines
from trivet.commands.evaluate.baselines import baseline_retrieval
from trivet.commands.train.run import train
from trivet.datasets import Dataset, DigitsConfig, load
from trivet.metrics import Retrieval, retrieve_levels
from trivet.training import RunConfig
from trivet.training.embed_dataset import raw_inputs

NAMES = ("recall@1", "map")


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setattr(baselines, "WORTH", 0)
    return load(DigitsConfig(), None).evaluation["seen"].subset(np.arange(60))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often something was measured."""
    calls: list[int] = []

    def watched(*given: Any, **named: Any) -> dict[str, Retrieval]:
        calls.append(1)
        return retrieve_levels(*given, **named)

    monkeypatch.setattr(baselines, "retrieve_levels", watched)
    return calls


@pytest.mark.usefixtures("digits", "few_digits", "rough_evaluation")
def test_a_run_keeps_them_in_the_cache_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, data = tmp_path / "cache", tmp_path / "data"
    monkeypatch.setenv("TRIVET_CACHE", str(cache))
    data.mkdir()
    values = {"data": {"name": "digits"}, "model": {"name": "linear"}, "loss": {"name": "triplet"}}
    values |= {"batch": {"num_classes": 2, "samples_per_class": 2}, "training": {"steps": 1, "accelerator": "cpu"}}
    values |= {"evaluation": {"map_points": 10, "nmi_plus": 1}}
    config = RunConfig.parse(values, source="test")
    train(config, tmp_path / "run", data_root=data)
    assert list((cache / "baselines").glob("*.npz"))
    assert not list(data.iterdir())


def test_what_was_measured_is_kept_and_is_the_same(digits: Dataset, measured: list[int], tmp_path: Path) -> None:
    points = raw_inputs(digits.inputs)
    first, again = (baseline_retrieval(points, digits, NAMES, "cosine", tmp_path) for _ in range(2))
    assert len(measured) == 1
    assert list(again) == list(first) == list(digits.labels)
    for level, one in first.items():
        for name in ("values", "classes", "labels", "positives"):
            np.testing.assert_array_equal(getattr(again[level], name), getattr(one, name))
        assert again[level].mean() == one.mean()
        assert (again[level].chance, again[level].gallery) == (one.chance, one.gallery)
    assert again["digit"].per_class() == first["digit"].per_class()


def test_anything_else_is_measured_anew(digits: Dataset, measured: list[int], tmp_path: Path) -> None:
    points = raw_inputs(digits.inputs)
    other = points.copy()
    other[-1, -1] += 1
    baseline_retrieval(points, digits, NAMES, "cosine", tmp_path)
    baseline_retrieval(other, digits, NAMES, "cosine", tmp_path)
    baseline_retrieval(points, digits, NAMES, "euclidean", tmp_path)
    baseline_retrieval(points, digits, ("map",), "cosine", tmp_path)
    labels = {level: np.roll(values, 1) for level, values in digits.labels.items()}
    moved = Dataset(digits.name, digits.inputs, labels, digits.names, digits.ids)
    baseline_retrieval(points, moved, NAMES, "cosine", tmp_path)
    assert len(measured) == len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("damage", ["cut", "a byte", "empty"])
def test_a_damaged_file_is_made_again(damage: str, digits: Dataset, measured: list[int], tmp_path: Path) -> None:
    points = raw_inputs(digits.inputs)
    first = baseline_retrieval(points, digits, NAMES, "cosine", tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    middle = whole.index(first["digit"].values.tobytes()) + 100
    broken = {"cut": whole[:middle], "empty": b"", "a byte": whole[:middle] + b"\xa5" + whole[middle + 1 :]}
    file.write_bytes(broken[damage])
    again = baseline_retrieval(points, digits, NAMES, "cosine", tmp_path)
    assert len(measured) == 2
    assert again["digit"].mean() == first["digit"].mean()
    assert file.read_bytes() == whole


def test_the_oldest_make_room_and_small_sets_are_not_kept(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = raw_inputs(digits.inputs)
    baseline_retrieval(points, digits, NAMES, "cosine", tmp_path)
    (first,) = tmp_path.iterdir()
    monkeypatch.setenv("TRIVET_CACHE_LIMIT", str(1.5e-9 * first.stat().st_size))
    baseline_retrieval(points + 1, digits, NAMES, "cosine", tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert not first.exists()
    kept = list(tmp_path.iterdir())
    monkeypatch.setattr(baselines, "WORTH", 10**9)
    baseline_retrieval(points + 2, digits, NAMES, "cosine", tmp_path)
    assert list(tmp_path.iterdir()) == kept


def test_a_folder_that_cannot_be_written_is_left_alone(digits: Dataset, measured: list[int], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for _ in range(2):
        baseline_retrieval(raw_inputs(digits.inputs), digits, NAMES, "cosine", tmp_path / "file" / "baselines")
    assert len(measured) == 2


def test_coordinates_in_the_span_of_wide_rows_keep_all_distances() -> None:
    rows = np.random.default_rng(0).random((30, 200)).astype(np.float32)
    rows[7] = rows[3]
    span = baselines.in_their_span(rows)
    assert span.shape[1] < 30
    assert span @ span.T == pytest.approx(rows.astype(np.float64) @ rows.T.astype(np.float64), abs=1e-10)
    assert (span[7] == span[3]).all()
