"""Small data, runs that a kill has cut short, and whether two runs came to the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

from trivet.training import RunConfig
from trivet.training.run_folder import RunFolder


def settings_of(base: Mapping[str, Any], source: str = "test", **changes: Mapping[str, Any]) -> RunConfig:
    """Settings with other values in some sections."""
    changed = {key: {**base.get(key, {}), **values} for key, values in changes.items()}
    return RunConfig.parse({**base, **changed}, source=source)


def head_settings(path: Path, *changes: str) -> RunConfig:
    """A residual head on vectors with a column `kind`, whose step a quarter of the training classes chooses."""
    with np.load(path) as file:
        width, classes = file["embeddings"].shape[1], len(np.unique(file["kind"])) // 2
    values = {
        "data": {"name": "vectors", "path": str(path), "folds": 4},
        "model": {"name": "residual", "embedding_dim": width},
        "loss": {"name": "triplet", "margin": 0.4, "positives": "random", "negatives": "violating"},
        "batch": {"num_classes": classes - -(-classes // 4), "samples_per_class": 8},
        "training": {"steps": 200, "learning_rate": 1e-3, "warmup_steps": "all"},
        "evaluation": {"distance": "cosine", "every": 20, "sample": 10_000, "nmi_plus": 2},
        "choosing": {"keep": "best", "measure": "recall@1"},
    }
    return RunConfig.parse(RunConfig.with_overrides(values, changes), source="test")


def record_of(run: Path) -> dict[str, Any]:
    """The record as it lies in the folder."""
    record: dict[str, Any] = json.loads((run / "record.json").read_text())
    return record


def write_vectors(path: Path, items: int, dimensions: int = 10) -> None:
    """Of eight classes that overlap."""
    source = np.random.default_rng(0)
    labels, means = np.arange(items) % 8, source.normal(size=(8, dimensions))
    vectors = (means[labels] + 0.7 * source.normal(size=(items, dimensions))).astype(np.float32)
    np.savez(path, embeddings=vectors, label=labels)


def known_classes(folder: Path, *, each: int = 12, same: bool = True) -> Path:
    """Vectors whose class lies in 4 of 16 numbers, and texts; the split test has the classes of train, or others."""
    draw = np.random.default_rng(0)
    kinds = np.tile(np.arange(20), each)
    parts = np.repeat(["train", "test"], [20 * each * 2 // 3, 20 * each - 20 * each * 2 // 3])
    vectors = np.where(np.arange(16) < 4, 0.3, 0.8) * draw.normal(size=(len(kinds), 16))
    vectors[:, :4] += draw.normal(size=(20, 4))[kinds]
    names = np.where((parts == "test") & (not same), "z", "k") + kinds.astype("U2").astype(object)
    path = folder / "known.npz"
    np.savez(path, embeddings=vectors.astype(np.float32), kind=names.astype("U3"), split=parts)
    texts = [f"{name} said so {i}" for i, name in enumerate(names)]
    lines = (",".join(row) for row in zip(texts, names, parts.tolist(), strict=True))
    (folder / "known.csv").write_text("\n".join(["text,kind,split", *lines]) + "\n")
    return path


def write_pictures(root: Path, trained: int) -> Path:
    """Four classes of so many noisy pictures to train on, and two of each to evaluate."""
    random = np.random.default_rng(0)
    for name in "abcd":
        pattern = random.integers(0, 200, (8, 8))
        for number in range(trained + 2):
            file = root / ("train" if number < trained else "test") / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pattern + random.integers(0, 55, (8, 8))).astype(np.uint8)).save(file)
    return root


def killed(run: Path, path: Path) -> Path:
    """A copy of a run as a kill before its last checkpoint leaves it, without even a record."""
    shutil.copytree(run, path)
    RunFolder(path).checkpoints()[-1].unlink()
    shutil.rmtree(path / "model")
    (path / "record.json").unlink()
    return path


def check_same_run(one: Path, two: Path) -> None:
    """Every tensor of the models and of the last checkpoint is equal to the last bit, and every row of metrics."""
    last = RunFolder(one).checkpoints()[-1].relative_to(one)
    check_same_weights(one, two, *(path.relative_to(one) for path in one.glob("model*/model.safetensors")), last)
    assert (one / "metrics.csv").read_bytes() == (two / "metrics.csv").read_bytes()


def check_same_weights(one: Path, two: Path, *files: Path) -> None:
    """Every tensor of some files, or of the model, is equal to the last bit."""
    for file in files or (Path("model", "model.safetensors"),):
        before, after = load_file(one / file), load_file(two / file)
        assert before.keys() == after.keys()
        for key in before:
            np.testing.assert_array_equal(before[key], after[key], err_msg=f"{file} {key}")
