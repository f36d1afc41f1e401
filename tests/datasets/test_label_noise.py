"""Label noise reaches the training labels of the trained level and nothing else, and a run says what was done."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.conftest import without_evaluation

from trivet.commands.train.run import resume, train
from trivet.datasets import DataConfig, Dataset, NoiseConfig, Splits, load, noise_summary
from trivet.datasets.inputs import in_memory
from trivet.datasets.label_noise import add_noise
from trivet.label_noise import boundary, topline
from trivet.training import RunConfig
from trivet.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("digits_read_once")

MATRIX = (0.7 * np.eye(6) + 0.3 * np.roll(np.eye(6), 2, axis=1)).tolist()
KINDS: list[dict[str, Any]] = [
    {"kind": "symmetric", "rate": 0.3},
    {"kind": "pair-flip", "rate": 0.3},
    {"kind": "within-superclass", "rate": 0.3, "superclass": "parity"},
    {"kind": "transition", "matrix": MATRIX},
    {"kind": "boundary", "rate": 0.3},
]


def digits(noise: dict[str, Any] | None = None, **given: Any) -> Splits:
    values = {"name": "digits", "level": "digit", **given} | ({} if noise is None else {"noise": noise})
    return load(DataConfig.parse(values, source="data"), None)


@pytest.mark.parametrize("noise", KINDS, ids=lambda noise: noise["kind"])
def test_only_the_training_labels_of_the_trained_level_change(noise: dict[str, Any]) -> None:
    clean, noisy = digits(), digits(noise)
    wrong = clean.train.labels["digit"] != noisy.train.labels["digit"]
    assert 0.2 < wrong.mean() < 0.4
    assert set(noisy.train.labels["digit"]) == set(range(6)), "a wrong label is a trained class"
    assert noisy.train.ids == clean.train.ids
    np.testing.assert_array_equal(noisy.train.labels["parity"], clean.train.labels["parity"])
    for split, data in clean.evaluation.items():
        for level, labels in data.labels.items():
            np.testing.assert_array_equal(noisy.evaluation[split].labels[level], labels)
    assert noisy.noise is not None
    np.testing.assert_array_equal(noisy.noise.true_labels, clean.train.labels["digit"])
    assert noise_summary(noisy) == {
        "kind": noise["kind"],
        "topline": False,
        "items": 649,
        "wrong": wrong.sum(),
        "rate": wrong.mean(),
        "dropped": 0,
    }
    np.testing.assert_array_equal(digits(noise).train.labels["digit"], noisy.train.labels["digit"])
    other = digits({**noise, "seed": 1})
    assert not np.array_equal(other.train.labels["digit"], noisy.train.labels["digit"])
    exact = noise_summary(digits({**noise, "exact": True}))
    assert exact is not None
    assert abs(exact["wrong"] - 0.3 * 649) <= (3 if noise["kind"] == "transition" else 0.5)


def test_each_kind_is_that_of_the_settings() -> None:
    truth = digits().train.labels["digit"]
    found = {noise["kind"]: digits(noise).train.labels["digit"] for noise in KINDS}
    steps = {kind: set(((labels - truth) % 6).tolist()) for kind, labels in found.items()}
    assert steps["symmetric"] == {0, 1, 2, 3, 4, 5}
    assert steps["pair-flip"] == {0, 1}
    assert steps["within-superclass"] == {0, 2, 4}
    assert steps["transition"] == {0, 2}
    train = digits().train
    pixels = train.inputs.batch(np.arange(len(train))).flatten(1)
    np.testing.assert_array_equal(found["boundary"], boundary(truth, pixels, 0.3, generator=0).labels)


def test_without_noise_nothing_is_said() -> None:
    assert digits().noise is None
    assert noise_summary(digits()) is None


def test_classes_without_training_items_count_for_nothing() -> None:
    # Trained on 1, 3 and 6 of 0 to 9: the class after 6 is 1, and the rows of a matrix are theirs.
    splits = made(np.repeat([1, 3, 6], 40), num_classes=10)
    labels = add_noise(splits, NoiseConfig(kind="pair-flip", rate=0.5)).train.labels["class"]
    pairs = set(zip(splits.train.labels["class"].tolist(), labels.tolist(), strict=True))
    assert pairs == {(1, 1), (1, 3), (3, 3), (3, 6), (6, 6), (6, 1)}
    matrix = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
    labels = add_noise(splits, NoiseConfig(kind="transition", matrix=matrix)).train.labels["class"]
    np.testing.assert_array_equal(labels, np.repeat([6, 3, 1], 40))


def test_a_validation_fold_stays_true() -> None:
    clean, noisy = (digits(noise, folds=3, fold=1) for noise in (None, KINDS[0]))
    held_out = clean.evaluation["validation"].labels["digit"]
    np.testing.assert_array_equal(noisy.evaluation["validation"].labels["digit"], held_out)
    assert not set(held_out) & set(noisy.train.labels["digit"])
    assert (noisy.train.labels["digit"] != clean.train.labels["digit"]).any()


@pytest.mark.parametrize("noise", [*KINDS, {"kind": "symmetric", "rate": 0.0}], ids=lambda noise: noise["kind"])
def test_a_topline_trains_on_the_clean_share(noise: dict[str, Any]) -> None:
    clean, splits = digits(), digits({**noise, "topline": True})
    rate = noise.get("rate", 0.3)
    assert len(splits.train) == round((1 - rate) * 649)
    place = [clean.train.ids.index(name) for name in splits.train.ids]
    np.testing.assert_array_equal(splits.train.labels["digit"], clean.train.labels["digit"][place])
    np.testing.assert_array_equal(place, topline(clean.train.labels["digit"], rate, generator=0))
    assert noise_summary(splits) == {
        "kind": noise["kind"], "topline": True, "items": len(place), "wrong": 0, "rate": 0.0, "dropped": 0,
    }  # fmt: skip


def made(labels: np.ndarray, num_classes: int) -> Splits:
    inputs = in_memory(np.zeros((len(labels), 1, 2, 2), np.uint8), white=255, channels=1)
    names = {"class": tuple(f"class {c}" for c in range(num_classes))}
    train = Dataset("made", inputs, {"class": labels}, names, tuple(f"item {i}" for i in range(len(labels))))
    return Splits(train=train, evaluation={"seen": train}, level="class")


@pytest.mark.parametrize("top", [False, True])
def test_items_of_a_class_left_with_one_are_dropped(top: bool) -> None:
    splits = made(np.repeat(np.arange(100), 2), num_classes=100)
    noisy = add_noise(splits, NoiseConfig(kind="symmetric", rate=0.5, exact=True, topline=top))
    counts = np.bincount(noisy.train.labels["class"])
    assert 1 not in counts
    assert noisy.noise is not None
    assert noisy.noise.dropped > 0
    assert len(noisy.train) == (100 if top else 200) - noisy.noise.dropped
    truth = [int(name.split()[1]) // 2 for name in noisy.train.ids]
    np.testing.assert_array_equal(noisy.noise.true_labels, truth)
    summary = noise_summary(noisy)
    assert summary is not None
    assert summary["wrong"] == (noisy.train.labels["class"] != truth).sum()
    assert (summary["wrong"] == 0) == top


@pytest.mark.parametrize(
    ("noise", "given", "sentence"),
    [
        ({"kind": "symetric", "rate": 0.1}, {}, "data: noise.kind = 'symetric' is not known; did you mean 'symmetric'"),
        ({"kind": "symmetric", "rat": 0.1}, {}, "unknown setting 'noise.rat'; did you mean 'rate'"),
        ({"kind": "symmetric", "rate": 1.0}, {}, "noise.rate must be below 1: got 1.0"),
        ({"kind": "boundary"}, {}, 'kind = "boundary" needs rate: set data.noise.rate to a share in'),
        ({"rate": 0.1}, {}, "the setting 'noise.kind' is missing"),
        ({"kind": "transition"}, {}, 'kind = "transition" needs matrix'),
        ({"kind": "transition", "matrix": MATRIX, "rate": 0.1}, {}, "takes its rate from matrix: remove rate"),
        ({"kind": "symmetric", "rate": 0.1, "matrix": MATRIX}, {}, 'matrix is for kind = "transition" only'),
        ({"kind": "pair-flip", "rate": 0.1, "superclass": "parity"}, {}, 'superclass is for kind = "within'),
        ({"kind": "within-superclass", "rate": 0.1}, {}, 'kind = "within-superclass" needs superclass'),
        ({"kind": "transition", "matrix": [[1.0, 0.0], [1.0]]}, {}, r"as many columns as rows, 2: got .* \[1, 2\]"),
        ({"kind": "transition", "matrix": [[1.0, 0.0], [0.0, 1.0]]}, {}, "each of the 6 classes .* got 2"),
        ({"kind": "transition", "matrix": [[0.5] * 6] * 6}, {}, "add up to 1 within 1e-8: got sums from 3 to 3"),
        ({"kind": "within-superclass", "rate": 0.1, "superclass": "party"}, {}, "did you mean 'parity'"),
        (
            {"kind": "within-superclass", "rate": 0.1, "superclass": "digit"},
            {"level": "parity"},
            "a label level above the trained one: 'parity' is the first of",
        ),
        ({"kind": "symmetric", "rate": 0.999, "topline": True}, {}, "at least two classes"),
    ],
)  # fmt: skip
def test_noise_that_cannot_be_is_refused(noise: dict[str, Any], given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        digits(noise, **given)
    assert "\n" not in str(error.value)


SETTINGS = {
    "data": {"name": "digits", "level": "digit", "noise": {"kind": "symmetric", "rate": 0.2, "exact": True}},
    "batch": {"num_classes": 3, "samples_per_class": 4},
    "model": {"name": "conv3", "embedding_dim": 4, "width": 4},
    "loss": {"name": "triplet"},
    "training": {"steps": 4, "checkpoint_every": 2, "accelerator": "cpu"},
    "evaluation": {"map_points": 20, "sample": 50, "nmi_plus": 2},
}


def test_written_settings_read_back() -> None:
    for noise in KINDS:
        data = {"name": "digits", "level": "digit", "noise": noise}
        config = RunConfig.parse({**SETTINGS, "data": data}, source="x")
        assert RunConfig.parse(tomllib.loads(config.to_toml()), source="x") == config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noise") / "run"
    with without_evaluation():
        train(RunConfig.parse(SETTINGS, source="test"), path)
    return path


def test_a_run_lists_what_was_made_wrong(finished: Path) -> None:
    record = json.loads((finished / "record.json").read_text())
    splits = digits(SETTINGS["data"]["noise"])
    assert record["data"]["noise"] == noise_summary(splits)
    assert record["data"]["noise"]["wrong"] == 130
    with (finished / "noise.csv").open(newline="") as file:
        rows = {row["id"]: (row["label"], row["true_label"]) for row in csv.DictReader(file)}
    truth = dict(zip(digits().train.ids, digits().train.labels["digit"].tolist(), strict=True))
    labels = dict(zip(splits.train.ids, splits.train.labels["digit"].tolist(), strict=True))
    assert rows == {name: (str(labels[name]), str(truth[name])) for name in truth if labels[name] != truth[name]}


@pytest.mark.usefixtures("unevaluated")
def test_a_killed_run_goes_on_with_the_same_labels(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    (path / "checkpoints" / "step-00000004.safetensors").unlink()
    (path / "record.json").unlink()
    resume(path)
    before, after = (load_file(run / "model" / "model.safetensors") for run in (finished, path))
    for key in before:
        np.testing.assert_array_equal(before[key], after[key], err_msg=key)
    assert (path / "noise.csv").read_bytes() == (finished / "noise.csv").read_bytes()
    old, new = (json.loads((run / "record.json").read_text()) for run in (finished, path))
    assert old["data"]["noise"] == new["data"]["noise"]


def test_a_run_does_not_go_on_with_other_labels(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    lines = (path / "noise.csv").read_text().splitlines(keepends=True)
    (path / "noise.csv").write_text("".join(lines[:-1]))
    with pytest.raises(ValueError, match=r"must resume with the same labels: .*noise\.csv lists different wrong"):
        resume(path)
    (path / "noise.csv").write_text("".join(lines))
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("rate = 0.2", "rate = 0.3"))
    with pytest.raises(ValueError, match="must resume with the same labels"):
        resume(path)


def test_a_run_with_noise_can_be_replaced(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    with RunFolder(path).new(RunConfig.parse(SETTINGS, source="test"), force=True):
        assert not (path / "noise.csv").exists()
