"""`trivet evaluate` on files."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call
from tests.programs import Programs

from trivet.commands.evaluate.record import FoldsRecord
from trivet.commands.main import main
from trivet.metrics import positive_ranks, recall_at_k


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, 90)
    points = np.random.default_rng(7).normal(size=(5, 4))[labels] + 0.6 * generator.normal(size=(90, 4))
    split = np.where(np.arange(90) % 3 == 0, "test", "train")
    for name, rows in (("good", points), ("flat", np.ones_like(points))):
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, label=labels, split=split)
    return tmp_path / "good.npz", tmp_path / "flat.npz"


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "evaluate")


def test_json_is_one_object_and_progress_is_elsewhere(
    files: tuple[Path, Path], heard: list[tuple[str, float, float]], run: Call
) -> None:
    code, out, _ = run(files[0], "--labels", "label", "--json")
    assert code == 0
    record = json.loads(out)
    assert {"recall@1", "precision@10", "r-precision", "map@r", "map", "mrr", "nmi", "ami", "roc-auc"} <= set(
        record["evaluation"]["label"]
    )
    assert record["intervals"]["label"]["map"].keys() == {"queries", "classes"}
    for name in ("nmi", "ami", "nmi+", "roc-auc", "tar@far=0.01", "verification-accuracy"):
        assert record["intervals"]["label"][name]["queries"][0] <= record["evaluation"]["label"][name]
        assert name in record["macro"]["label"]
    assert ("queries", 90, 90) in heard


def test_further_measures_on_request(files: tuple[Path, Path], tmp_path: Path, run: Call) -> None:
    names, page = ["found@5", "map@5", "ndcg@5", "ndcg"], tmp_path / "page.html"
    wanted = ("--measures", ",".join(names), "--json", "--report", page)
    code, out, _ = run(files[0], "--labels", "label", *wanted)
    assert code == 0
    record = json.loads(out)
    for name in names:
        low, high = record["intervals"]["label"][name]["queries"]
        assert 0 < low <= record["evaluation"]["label"][name] <= high <= 1
        assert 0 < record["evaluation"]["label"][f"chance_{name}"] < 1
    shown = page.read_text()
    assert all(name in shown for name in ("found@5", "MAP@5", "nDCG@5", "Share of all items of the query"))


def test_a_level_without_folds_is_told_of(tmp_path: Path, run: Call) -> None:
    kinds, path = np.repeat(np.arange(6), 10), tmp_path / "a.npz"
    points = np.random.default_rng(0).normal(size=(60, 4))
    np.savez(path, embeddings=points, coarse=kinds % 2, fine=kinds)
    wanted = ("--folds", 3, "--measures", "recall@1")
    code, out, _ = run(path, *wanted)
    assert code == 0
    assert "fine, recall@1 over 3 folds: " in out
    assert "coarse: no folds: 3 folds need as many classes: there are 2." in out


def test_prefixes_stand_side_by_side(files: tuple[Path, Path], run: Call) -> None:
    wanted = ("--labels", "label", "--measures", "recall@1", "--json")
    with np.load(files[0]) as arrays:
        rows, labels = arrays["embeddings"], arrays["label"]
    code, out, _ = run(files[0], "--prefixes", "2,1,4", *wanted)
    assert code == 0
    results = json.loads(out)["results"]
    assert [(one["embeddings"], one["dimension"], one["prefix"], one["bytes"]) for one in results] == [
        ("good.npz", 4, None, 16), ("good.npz, first 2", 2, 2, 8), ("good.npz, first 1", 1, 1, 4)
    ]  # fmt: skip
    for one, size in zip(results, (4, 2, 1), strict=True):
        expected = recall_at_k(rows[:, :size], labels, (1,), distance="cosine")[1]
        assert one["evaluation"]["label"]["recall@1"] == pytest.approx(expected)
    repeated = json.loads(run(files[0], "--prefixes", "2", "--prefixes", "1, 4", *wanted)[1])["results"]
    assert [one["prefix"] for one in repeated] == [None, 2, 1]


def test_clustering_and_rejection_are_shown_with_their_intervals(files: tuple[Path, Path], run: Call) -> None:
    wanted = ("--measures", "nmi,roc-auc", "--query", "test", "--gallery", "train")
    code, out, _ = run(files[0], *wanted, "--out-of-scope", 3)
    assert code == 0
    for name in ("nmi", "roc-auc"):
        (row,) = (line for line in out.splitlines() if f" {name} " in line)
        assert row.count("…") == 2
    (note,) = (line for line in out.splitlines() if "rejection of" in line)
    assert note.count("(95 % over queries") == note.count("(95 % over classes") == 2
    assert "mean of classes" in note


def test_several_files_are_compared_in_tables(files: tuple[Path, Path], run: Call) -> None:
    arguments = (*files, "--measures", "recall@1,map", "--query", "test", "--gallery", "train")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "good.npz, label: 5 classes, 30 items" in out
    assert "label: difference from good.npz" in out
    assert "4 dimensions, compared by cosine distance. 30 queries against a gallery of 60 items." in out


def test_outputs_are_written_and_named(files: tuple[Path, Path], tmp_path: Path, run: Call) -> None:
    page, table = tmp_path / "page.html", tmp_path / "classes.csv"
    code, out, _ = run(files[0], "--measures", "map", "--report", page, "--per-class", table, "--json")
    assert code == 0
    assert json.loads(out)["report"] == str(page)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert len(table.read_text().splitlines()) == 6


def evaluate_in_two_processes(*command: str) -> None:
    """The program: the second process prints into the file `other`."""
    positive_ranks.TILE = (16, 64)  # a share for each
    sys.argv = ["trivet", *command]
    second = os.fork()
    os.environ["RANK"] = "0" if second else "1"
    if not second:
        os.dup2(os.open("other", os.O_WRONLY | os.O_CREAT), 1)
    try:
        main()
    finally:
        if second:
            assert os.waitpid(second, 0)[1] == 0


def test_processes_of_torchrun_share_the_queries(
    files: tuple[Path, Path], tmp_path: Path, run: Call, programs: Programs
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["evaluate", str(files[0]), "--json", "--measures", "map,nmi,roc-auc,tar@far"]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    function = "tests.commands.evaluate.test_command:evaluate_in_two_processes"
    ended = programs.run(function, *command, folder=tmp_path, environment=environment)
    assert ended.returncode == 0, ended.stderr.decode()
    assert (tmp_path / "other").read_text() == ""
    code, alone, _ = run(*command[1:])
    assert code == 0
    for text in ("evaluation", "intervals", "macro"):
        assert json.loads(ended.stdout)[text] == json.loads(alone)[text]


def test_what_says_nothing_is_told_first(tmp_path: Path, run: Call) -> None:
    points = np.random.default_rng(0).normal(size=(7, 3))
    np.savez(tmp_path / "x.npz", embeddings=points, label=np.zeros(7, int))
    _, out, _ = run(tmp_path / "x.npz", "--measures", "recall@1,recall@8")
    first, second, *_ = [line for line in out.splitlines() if line.startswith("Warning:")]
    assert first.startswith("Warning: x.npz: label has one class, so every neighbour is right: retrieval at this level")
    assert "recall@8: a query can retrieve 6 items in all" in second


def test_the_interval_over_folds_stays_within_the_range_of_a_share() -> None:
    folds = FoldsRecord.of([1.0, 0.98, 1.0])
    assert folds.mean == pytest.approx(0.99333, abs=1e-5)
    assert folds.interval == pytest.approx([0.96465, 1], abs=1e-5)  # 0.99333 - 4.30265 * 0.011547 / root(3), and 1.022
