"""Items that are trained on and evaluated: one warning for texts, vectors and images, of every command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests import miniatures
from tests.commands.conftest import Call

CLASSES = [f"k{i}" for i in range(10)]
EACH = {"train": 4, "test": 2}
ROWS = [(part, name, number) for part, count in EACH.items() for name in CLASSES for number in range(count)]
COPIES = {("test", "k0", 0): ("train", "k0", 1), ("test", "k1", 1): ("train", "k2", 0)}  # the second of another class
QUICK = [
    f"--set={one}"
    for one in ("training.steps=2", "training.warmup_steps=0", "evaluation.every=2", "evaluation.map_points=20")
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIVET_DATA", str(tmp_path / "data"))
    return tmp_path


def images() -> str:
    for value, (part, name, number) in enumerate(ROWS):
        miniatures.picture(Path(f"photos/{part}/{name}/{number}.png"), value * 3)
    for copy, original in COPIES.items():
        shutil.copy("photos/{}/{}/{}.png".format(*original), "photos/{}/{}/{}.png".format(*copy))
    return "photos"


def table() -> str:
    images()
    lines = [f"photos/{part}/{name}/{number}.png,{name},{part}" for part, name, number in ROWS]
    Path("items.csv").write_text("\n".join(["path,label,split", *lines]) + "\n")
    return "items.csv"


def positions() -> dict[int, int]:
    return {ROWS.index(copy): ROWS.index(original) for copy, original in COPIES.items()}


def texts() -> str:
    said = [f"{name} is number {i}" for i, (_, name, _) in enumerate(ROWS)]
    for copy, original in positions().items():
        said[copy] = said[original]
    lines = [f"{text},{name},{part}" for text, (part, name, _) in zip(said, ROWS, strict=True)]
    Path("texts.csv").write_text("\n".join(["text,label,split", *lines]) + "\n")
    return "texts.csv"


def vectors() -> str:
    points = np.random.default_rng(0).normal(size=(len(ROWS), 8)).astype(np.float32)
    for copy, original in positions().items():
        points[copy] = points[original]
    part, name, _ = (np.array(column) for column in zip(*ROWS, strict=True))
    np.savez("vectors.npz", embeddings=points, label=name, split=part)
    return "vectors.npz"


@pytest.mark.parametrize("data", [images, table, texts, vectors])
def test_it_is_said_by_init_and_train_and_on_the_page(data: Callable[[], str], run_command: Call) -> None:
    path = data()
    first = {"images": "'test/k0/0.png' (training item train/k0/1.png)", "texts": "'k0 is number 1' (training item 1)"}
    pair = first.get(
        data.__name__, "'40' (training item 1)" if data is vectors else "(training item photos/train/k0/1."
    )
    code, out, _ = run_command("init", path, *(["--labels", "label"] if path != "photos" else []))
    assert code == 0
    start = "seen: 2 of 20 items equal a training item, 1 of them of another class: "
    assert start in " ".join(out.split())
    assert pair in " ".join(out.split())
    assert 'folds_of = "items"' in Path("trivet.toml").read_text()  # as queries are of classes that are trained on
    code, out, _ = run_command("train", "trivet.toml", "-o", "run", *QUICK, "--set=evaluation.k=[1]")
    assert code == 0
    assert f"Warning: {start}" in " ".join(out.split())
    (warning,) = (line for line in json.loads(Path("run/record.json").read_text())["warnings"] if "equal a" in line)
    assert pair in warning
    assert start in Path("run/report.html").read_text()


@pytest.mark.parametrize("whole", [True, False])
def test_evaluate_names_equal_vectors_of_two_sets(whole: bool, run_command: Call) -> None:
    path = vectors()
    with np.load(path) as file:
        columns = dict(file)
    sets: list[str] = [path]
    if not whole:
        for part in EACH:
            some = columns["split"] == part
            np.savez(f"{part}.npz", embeddings=columns["embeddings"][some], label=columns["label"][some])
        sets = ["--query", "test.npz", "--gallery", "train.npz"]
    code, out, _ = run_command(
        "evaluate", *sets, "--labels", "label", "--measures", "recall@1", "--report", "page.html"
    )
    assert code == 0
    what = "training" if whole else "gallery"
    pair = f"{'40' if whole else '0'}' ({what} item 1)"
    assert f"2 of 20 items equal a {what} item, 1 of them of another class: '{pair}" in " ".join(out.split())
    assert f"2 of 20 items equal a {what} item" in Path("page.html").read_text()
    if whole:
        only = ("evaluate", path, "--split", "train", "--labels", "label", "--measures", "recall@1")
        assert "equal" not in run_command(*only)[1]
