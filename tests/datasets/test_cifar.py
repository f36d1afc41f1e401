from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import miniatures

from trivet.datasets import DataConfig, Splits, load, noise_summary

REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def read(name: str, data_root: Path, **values: Any) -> Splits:
    return load(DataConfig.parse({"name": name, **values}, source="data"), data_root)


def people(root: Path, clean: np.ndarray) -> np.ndarray:
    """Labels of CIFAR-10N that are wrong for the first two images."""
    worse = clean.copy()
    worse[:2] = (worse[:2] + 1) % 3
    root.mkdir(exist_ok=True)
    np.savez(root / "cifar_n_labels.npz", c10_clean_label=clean, c10_worse_label=worse)
    return worse


def test_the_pixels_of_the_binary_version(tmp_path: Path) -> None:
    labels = miniatures.cifar10(tmp_path / "cifar10")
    splits = read("cifar10", tmp_path)
    assert splits.train.labels["class"].tolist() == labels.tolist()
    assert splits.train.names["class"][:3] == ("airplane", "automobile", "bird")
    assert list(splits.evaluation) == ["seen"]
    assert splits.evaluation["seen"].ids == tuple(f"test/{number:05d}" for number in range(4))
    data = (tmp_path / "cifar10" / "cifar-10-batches-bin" / "data_batch_2.bin").read_bytes()
    second = np.frombuffer(data, np.uint8).reshape(-1, 3073)[1, 1:].reshape(3, 32, 32)
    assert (splits.train.inputs.batch(np.array([7]))[0].numpy() == second).all()
    assert read("cifar10", tmp_path, image_size=8).train.inputs.shape == (3, 8, 8)
    assert "where train 50,000 images of 10 classes" in splits.warnings[0]
    (tmp_path / "cifar10" / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"\0" * 3072)
    with pytest.raises(ValueError, match=r"must hold 3073 bytes for each image: it has 3,072"):
        read("cifar10", tmp_path)


def test_the_levels_of_cifar100(tmp_path: Path) -> None:
    miniatures.cifar100(tmp_path / "cifar100")
    splits = read("cifar100", tmp_path)
    assert splits.level == "fine"
    assert splits.train.names == {"coarse": ("fish", "flowers"), "fine": ("cod", "rose", "eel", "iris")}
    assert splits.train.labels["fine"].tolist() == [0, 1, 2, 3] * 3
    clean = np.arange(12) % 4
    np.savez(tmp_path / "cifar_n_labels.npz", c100_clean_label=clean, c100_noisy_label=clean[::-1])
    noisy = read("cifar100", tmp_path, level="noisy-fine", human_labels=tmp_path / "cifar_n_labels.npz")
    assert list(noisy.train.labels) == ["coarse", "fine"]
    assert noisy.train.labels["fine"].tolist() == [3, 2, 1, 0] * 3


def test_the_labels_of_people_are_noise_of_which_the_truth_is_known(tmp_path: Path) -> None:
    clean = miniatures.cifar10(tmp_path / "cifar10")
    worse = people(tmp_path / "cifar-n", clean)
    splits = read("cifar10", tmp_path, level="worse")
    assert list(splits.train.labels) == ["class"] == list(splits.evaluation["seen"].labels)
    assert splits.level == "class"
    assert splits.train.labels["class"].tolist() == worse.tolist()
    assert splits.evaluation["seen"].labels["class"].tolist() == [2, 0, 1, 2]  # nobody labelled these: as published
    summary = noise_summary(splits)
    assert summary is not None
    assert [summary["kind"], summary["wrong"], summary["items"]] == ["human", 2, 30]
    part = read("cifar10", tmp_path, level="worse", folds=3, folds_of="items")
    assert part.noise is not None
    assert len(part.noise.true_labels) == len(part.train)
    people(tmp_path / "cifar-n", clean[::-1].copy())
    with pytest.raises(ValueError, match=r"must be in the order of the images: c10_clean_label differs"):
        read("cifar10", tmp_path, level="worse")
    (tmp_path / "cifar-n" / "cifar_n_labels.npz").unlink()
    with pytest.raises(ValueError, match=r"needs the labels of CIFAR-N .* which are pickles and are not read"):
        read("cifar10", tmp_path, level="worse")


@pytest.mark.parametrize("damage", ["empty", "cut", "bytes", "numbers", "objects", "missing", "short"])
def test_damaged_labels_of_people_are_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    clean = miniatures.cifar10(tmp_path / "cifar10")
    people(tmp_path / "cifar-n", clean)
    file = tmp_path / "cifar-n" / "cifar_n_labels.npz"
    data = file.read_bytes()
    arrays: dict[str, Any] = {"c10_clean_label": clean, "c10_worse_label": clean}
    if damage in ("empty", "cut", "bytes"):
        file.write_bytes({"empty": b"", "cut": data[:-40], "bytes": data[:60] + b"\xff" * 40 + data[100:]}[damage])
    elif damage == "missing":
        np.savez(file, c10_clean_label=clean)
    else:
        changed = {"numbers": clean + 0.5, "objects": clean.astype(object), "short": clean[:3]}[damage]
        np.savez(file, **(arrays | {"c10_worse_label": changed}))
    with pytest.raises(ValueError, match=r"cifar_n_labels\.npz must "):
        read("cifar10", tmp_path, level="worse")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"level": "worst"}, "did you mean 'worse'"),
        ({"level": "worse", "noise": {"kind": "symmetric", "rate": 0.1}}, "has the noise of people already"),
        ({"level": "worse", "split": "class-disjoint"}, "for the published training images only"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataConfig.parse({"name": "cifar10", **values}, source="data")


def test_image_files_in_class_folders_with_their_published_place(tmp_path: Path) -> None:
    rows = ["path,original_index"]
    for number, path in enumerate(f"train/{name}/{i}.png" for name in ("airplane", "bird") for i in range(4)):
        miniatures.picture(tmp_path / "made" / path, number)
        rows.append(f"{path},{7 - number}")
    for path in ("test/airplane/0.png", "test/bird/0.png"):
        miniatures.picture(tmp_path / "made" / path, 9)
    (tmp_path / "made" / "train_index.csv").write_text("\n".join(rows))
    archive = miniatures.zipped(tmp_path / "made", tmp_path / "cifar-n" / "images.zip", inside="cifar10-jpg/")
    people(tmp_path / "cifar-n", np.repeat([2, 0], 4))
    splits = read("cifar10", tmp_path, level="worse")
    assert splits.noise is not None
    assert [splits.train.names["class"][label] for label in splits.noise.true_labels] == ["airplane"] * 4 + ["bird"] * 4
    assert splits.train.labels["class"].tolist() == [0, 0, 0, 0, 2, 2, 0, 0]
    assert "was read from image files" in splits.warnings[1]
    archive.unlink()
    (tmp_path / "made" / "train_index.csv").unlink()
    with pytest.raises(ValueError, match="whose place is not known"):
        read(
            "cifar10",
            tmp_path,
            level="worse",
            root=tmp_path / "made",
            human_labels=tmp_path / "cifar-n" / "cifar_n_labels.npz",
        )


@pytest.mark.skipif(not REAL.is_dir(), reason="needs $TRIVET_DATA")
def test_the_real_labels_of_people_fit_the_real_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one decoded image for all: what is measured is the order of the labels."""
    monkeypatch.setattr("trivet.datasets.inputs.decode_files", lambda *_, **__: {})
    splits = read("cifar10", REAL, level="worse", image_size=2)
    summary = noise_summary(splits)
    assert summary is not None
    assert [len(splits.train), len(splits.evaluation["seen"])] == [20_000, 10_000]
    assert summary["rate"] == pytest.approx(0.402, abs=0.01)  # of all 50,000, as published
