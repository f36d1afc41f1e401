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

pytestmark = pytest.mark.usefixtures("undiagnosed")

CLASSES = [f"k{i}" for i in range(10)]
EACH = {"train": 4, "test": 2}
ROWS = [(part, name, number) for part, count in EACH.items() for name in CLASSES for number in range(count)]
COPIES = {("test", "k0", 0): ("train", "k0", 1), ("test", "k1", 1): ("train", "k2", 0)}  # the second of another class
QUICK = [f"--set={one}" for one in ('ladder.rungs=["encoder"]', "evaluation.map_points=20")]


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
        said[copy] = said[original] if copy % 2 == 0 else f" {said[original].upper()}! "
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
    kinds = "1 exact, 1 near" if data is texts else "2 exact"
    pair = first.get(
        data.__name__, "'40' (training item 1)" if data is vectors else "(training item photos/train/k0/1."
    )
    code, out, _ = run_command("init", path, *(["--labels", "label"] if path != "photos" else []))
    assert code == 0
    start = f"seen: 2 of 20 items (10.0 %) are copies of training items: {kinds}; 1 of another class. These are "
    assert start in " ".join(out.split())
    assert pair in " ".join(out.split())
    code, out, _ = run_command("train", "trivet.toml", "-o", "run", *QUICK, "--set=evaluation.k=[1]")
    assert code == 0
    assert f"Warning: {start}" in " ".join(out.split())
    assert json.loads(Path("run/ladder.json").read_text())["folds_of"] == "items"  # as queries are of trained classes
    (warning,) = (
        line for line in json.loads(Path("run/record.json").read_text())["warnings"] if "copies of training" in line
    )
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
    start = f"{'test' if whole else 'queries'}: 2 of 20 items (10.0 %) are copies of "
    start += f"{'training items' if whole else 'items of the gallery'}: 2 exact; 1 of another class. These are "
    pair = f"'{'40' if whole else '0'}' ({'training' if whole else 'gallery'} item 1)"
    assert start + pair in " ".join(out.split())
    assert start in Path("page.html").read_text()
    if whole:
        only = ("evaluate", path, "--split", "train", "--labels", "label", "--measures", "recall@1")
        assert "copies" not in run_command(*only)[1]


@pytest.mark.parametrize("command", ["evaluate", "init"])
def test_copies_within_one_set_are_said_by_each_command(command: str, run_command: Call) -> None:
    points = np.random.default_rng(0).normal(size=(40, 8))
    points[[7, 9]] = points[[1, 2]]
    label = np.array(["a", "b", "c", "d"])[np.arange(40) % 4]
    options = ["--measures", "recall@1"] if command == "evaluate" else []
    for vectors, copied in ((points, True), (points[10:], False)):
        np.savez("x.npz", embeddings=vectors, label=label[-len(vectors) :])
        code, out, _ = run_command(command, "x.npz", *options, *(["--force"] if command == "init" else []))
        assert code == 0
        assert ("Copies of other vectors, number for number: 2 of 40." in " ".join(out.split())) == copied


FORMS = [
    (["1", "2", "3"], ["1.0", "2.0", "3.0"], True),
    (["1", "2", "3"], ["01", "02", "03"], True),
    (["true", "false"], ["True", "False"], True),
    (["ant", "bee"], ["ant ", "bee"], False),
    (["Ant", "bee"], ["ant", "bee"], False),
    (["1", "1.0", "2"], ["01", "2", "3"], False),  # of which "1" and "1.0" would become one
]


@pytest.mark.parametrize(("queries", "gallery", "matched"), FORMS)
def test_labels_of_query_and_gallery_that_differ_in_form(
    queries: list[str], gallery: list[str], matched: bool, run_command: Call
) -> None:
    points = np.random.default_rng(0).normal(size=(len(queries), 8))
    for name, names in (("q", queries), ("g", gallery)):
        np.savez(f"{name}.npz", embeddings=points[: len(names)], label=np.array(names))
    code, out, _ = run_command("evaluate", "--query", "q.npz", "--gallery", "g.npz", "--measures", "recall@1")
    text = " ".join(out.split())
    assert code == 0
    assert ("are matched by value" in text) == matched
    assert ("write alike in both what differs only in form" in text) == (not matched)
    assert "add items of them" not in text
    if matched:
        assert "100.0" in text


def test_how_a_file_is_read_and_what_is_left_out_is_said_once(
    run_command: Call, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f'"[{i},0.5]";{"" if i == 7 else "äb"[i % 2]}\n' for i in range(40))
    Path("t.csv").write_bytes(f"embedding;label\n{rows}".encode("cp1252"))
    for command in (["init", "t.csv"], ["evaluate", "t.csv", "--measures", "recall@1"]):
        caplog.clear()
        code, out, _ = run_command(*command, "--skip-empty")
        text = " ".join(out.split())
        assert code == 0
        assert caplog.text.count("encoded in cp1252") == 1
        assert text.count("1 of 40") == 1
        assert "rows of t.csv were left out: they have no class name of level 'label', line 9." in text
