"""Embeddings stored in fewer bits are measured beside the whole ones, and the answer comes first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.commands.conftest import Call

from trivet.distances import unit_rows
from trivet.io.parquet_files import write_embeddings
from trivet.knn import codes
from trivet.knn.codes import quantized
from trivet.metrics import recall_at_k

WIDTH = 24
WANTED = ("--labels", "label", "--measures", "recall@1,map@r")
LABELS = np.repeat(np.arange(8), 40)
POINTS = (
    np.random.default_rng(0).normal(size=(8, WIDTH))[LABELS] + 1.6 * np.random.default_rng(1).normal(size=(320, WIDTH))
).astype(np.float32)


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "evaluate")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", embeddings=POINTS, label=LABELS, split=np.where(np.arange(320) % 2, "test", "train"))
    return tmp_path / "a.npz"


def recall(rows: np.ndarray) -> float:
    return recall_at_k(rows, LABELS, (1,), distance="cosine")[1]


def unit(rows: np.ndarray) -> np.ndarray:
    return unit_rows(torch.from_numpy(rows)).numpy()


def recalls(out: str) -> dict[str, float]:
    return {one["form"]: one["evaluation"]["label"]["recall@1"] for one in json.loads(out)["results"]}


def test_each_form_is_measured_by_its_definition_and_against_the_whole(file: Path, run: Call) -> None:
    code, out, _ = run(file, "--quantize", "int8,float16,binary", *WANTED, "--json")
    assert code == 0
    results, rows = json.loads(out)["results"], unit(POINTS)
    forms = [("float32", 4 * WIDTH), ("float16", 2 * WIDTH), ("int8", WIDTH), ("binary", WIDTH // 8)]
    assert [(one["form"], one["bytes"]) for one in results] == forms
    assert recalls(out) == {form: pytest.approx(recall(quantized(rows, rows, form))) for form, _ in forms}
    differences = json.loads(out)["differences"]["label"]["recall@1"]
    whole = recall(rows)
    assert [row["difference"] for row in differences] == [
        pytest.approx(recall(quantized(rows, rows, form)) - whole) for form, _ in forms[1:]
    ]


def test_rescored_codes_find_what_the_embeddings_find(file: Path, run: Call) -> None:
    code, out, _ = run(file, "--quantize", "binary", "--rescore", *WANTED, "--json")
    assert code == 0
    measured = recalls(out)
    assert [*measured] == ["float32", "binary", "rescored binary"]
    assert measured["binary"] < measured["float32"] - 0.05
    assert measured["rescored binary"] == pytest.approx(measured["float32"], abs=0.01)
    assert json.loads(out)["results"][2]["protocol"]["approximate"]["kind"] == "binary"


def test_the_smallest_good_form_comes_first(file: Path, tmp_path: Path, run: Call) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(file, "--quantize", "float16,binary", "--rescore", *WANTED, "--report", page)
    assert code == 0
    line = out.splitlines()[0]
    assert line.startswith("label: 24 numbers in rescored binary ")
    assert "3 bytes an item in place of 96" in line
    written = page.read_text("utf-8")
    assert written.index("24 numbers in rescored binary") < written.index("<section")
    code, out, _ = run(file, "--quantize", "binary", *WANTED)
    assert out.splitlines()[0] == "label: Each shorter form loses half a point of recall@1 or more."
    code, out, _ = run(file, file, "--quantize", "binary", *WANTED)
    assert "Each shorter form" not in out  # of which of the two?


def test_prefixes_and_their_forms_stand_beside_the_whole(tmp_path: Path, run: Call) -> None:
    rows = np.hstack([POINTS, np.zeros_like(POINTS)])  # the second half says nothing
    np.savez(tmp_path / "a.npz", embeddings=rows, label=LABELS)
    code, out, _ = run(tmp_path / "a.npz", "--prefixes", f"{WIDTH},4", "--quantize", "int8", *WANTED)
    assert code == 0
    assert out.startswith(f"label: {WIDTH} numbers in int8 ")
    assert f"{WIDTH} bytes an item in place of {8 * WIDTH}" in out.splitlines()[0]
    code, out, _ = run(tmp_path / "a.npz", "--prefixes", WIDTH, *WANTED)
    assert out.startswith(f"label: {WIDTH} numbers in float32 are enough: ")


def test_codes_are_learned_from_what_is_retrieved_from_or_from_what_a_run_trained_on(tmp_path: Path, run: Call) -> None:
    moved = np.where(np.arange(WIDTH) < WIDTH // 2, 3, 0) + POINTS
    sides = {"queries": moved[::2], "gallery": POINTS[1::2]}
    for name, rows in sides.items():
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, label=LABELS[:: 320 // len(rows)])
    code, out, _ = run(
        *("--query", tmp_path / "queries.npz", "--gallery", tmp_path / "gallery.npz", "--quantize", "binary"),
        *(*WANTED, "--distance", "euclidean", "--json"),
    )
    assert code == 0
    mean = sides["gallery"].mean(axis=0)
    bits, others = (np.where(rows > mean, 1.0, -1.0) for rows in sides.values())
    far = -(bits @ others.T)
    nearest = far == far.min(axis=1, keepdims=True)
    right = LABELS[::2][:, None] == LABELS[1::2]
    assert recalls(out)["binary"] == pytest.approx(float(((nearest & right).sum(axis=1) / nearest.sum(axis=1)).mean()))
    trained = tmp_path / "run" / "embeddings"
    trained.mkdir(parents=True)
    (tmp_path / "run" / "config.toml").write_text('[data]\nname = "digits"\n')
    for name, rows in (("train", moved), ("test", POINTS)):
        ids = np.array([f"{name} {i}" for i in range(320)])
        write_embeddings(trained / f"{name}.parquet", rows, ids, {"label": LABELS.astype(str)}, levels=["label"])
    code, out, _ = run(
        tmp_path / "run", "--split", "test", "--quantize", "binary", "--distance", "euclidean", *WANTED, "--json"
    )
    assert code == 0
    assert recalls(out)["binary"] == pytest.approx(recall(np.where(moved.mean(axis=0) < POINTS, 1.0, -1.0)))
    assert recall(np.where(moved.mean(axis=0) < POINTS, 1.0, -1.0)) != recall(quantized(POINTS, POINTS, "binary"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--quantize", "int4"), "--quantize must name float16, int8, binary, pq: got int4."),
        (("--quantize", "pq"), "codes of kind pq are learned from at least 10000 rows: got 320; use int8 or binary"),
        (("--rescore",), "only --quantize gives codes, whose finds are ranked anew: leave out --rescore."),
        (
            ("--quantize", "int8", "--approximate", "hnsw"),
            "--quantize compares with every row: leave out --approximate",
        ),
    ],
)
def test_mistakes_are_one_sentence(options: Sequence[str], sentence: str, file: Path, run: Call) -> None:
    code, _, error = run(file, *options, *WANTED)
    assert code == 2
    assert sentence in error


def test_learned_groups_are_measured_too(file: Path, run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "LEAST_ROWS", 300)
    code, out, _ = run(file, "--quantize", "pq", "--rescore", *WANTED, "--json")
    assert code == 0
    measured, rows = recalls(out), unit(POINTS)
    assert measured["pq"] == pytest.approx(recall(quantized(rows, rows, "pq")))
    assert measured["rescored pq"] == pytest.approx(measured["float32"], abs=0.01)
