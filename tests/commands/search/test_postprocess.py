"""What an index does with every search is stored with it, applied unasked, and stays right when the index changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.commands.conftest import Call

from trivet.distances import unit_rows
from trivet.knn.index import build_index
from trivet.knn.postprocessing import RerankedIndex
from trivet.knn.whitening import WHITENING, whitening_map

NUMBERS = np.random.default_rng(0)
LABELS = np.repeat(np.arange(10), 12)
POINTS = (NUMBERS.normal(size=(10, 8))[LABELS] + 0.9 * NUMBERS.normal(size=(120, 8))).astype(np.float32)
FIRST, MORE = POINTS[:100], POINTS[100:]


def write(path: Path, rows: np.ndarray, start: int = 0) -> Path:
    ids = np.array([f"item {start + i}" for i in range(len(rows))])
    np.savez(path, embeddings=rows, label=LABELS[start : start + len(rows)], id=ids)
    return path


def found(run: Call, index: Path, *options: object) -> list[list[str]]:
    code, out, err = run("search", index, *options, "--k", 6, "--json")
    assert code == 0, err
    return [[item["id"] for item in query["neighbours"]] for query in json.loads(out)["queries"]]


def expected(way: str | None, rows: np.ndarray, queries: list[int]) -> list[list[str]]:
    """The ids that a search of these rows finds, in memory."""
    fitted = whitening_map(unit_rows(torch.from_numpy(FIRST))) if way == "whitening" else None
    index = build_index(rows, whitening=fitted)
    searched = RerankedIndex(index, way) if way in ("expansion", "reciprocal") else index
    return [[f"item {row}" for row in each] for each in searched.search_rows(queries, 6).indices.tolist()]


@pytest.mark.parametrize("way", ["whitening", "expansion", "reciprocal"])
def test_a_search_does_what_the_index_says_also_after_it_changed(way: str, tmp_path: Path, run_command: Call) -> None:
    index, file = tmp_path / "index", write(tmp_path / "first.npz", FIRST)
    code, out, err = run_command("index", file, "-o", index, "--postprocess", way)
    assert code == 0, err
    assert f"post-processing: {way}" in out
    assert (index / WHITENING).is_file() == (way == "whitening")
    wanted = expected(way, FIRST, [3, 50])
    assert [found(run_command, index, "--id", f"item {row}")[0] for row in (3, 50)] == wanted
    assert wanted != expected(None, FIRST, [3, 50]), "it does something"
    _, out, _ = run_command("search", index, "--id", "item 3")
    assert out.startswith(f"Post-processing: {way}; ")
    code, _, err = run_command("index", write(tmp_path / "more.npz", MORE, 100), "-o", index, "--add")
    assert code == 0, err
    assert found(run_command, index, "--id", "item 110")[0] == expected(way, POINTS, [110])[0]
    (tmp_path / "ids.csv").write_text("id\nitem 3\n")
    code, _, err = run_command("index", tmp_path / "ids.csv", "-o", index, "--remove")
    assert code == 0, err
    assert "item 3" not in found(run_command, index, "--id", "item 5")[0]


def test_a_search_may_look_again_or_not(tmp_path: Path, run_command: Call) -> None:
    file = write(tmp_path / "first.npz", FIRST)
    plain, again = tmp_path / "plain", tmp_path / "again"
    run_command("index", file, "-o", plain)
    run_command("index", file, "-o", again, "--postprocess", "reciprocal")
    reranked = found(run_command, plain, "--id", "item 7", "--postprocess", "reciprocal")
    assert reranked == expected("reciprocal", FIRST, [7])
    assert found(run_command, again, "--id", "item 7", "--postprocess", "none") == expected(None, FIRST, [7])


def test_what_cannot_be_is_refused(tmp_path: Path, run_command: Call) -> None:
    file, index = write(tmp_path / "first.npz", FIRST), tmp_path / "index"
    run_command("index", file, "-o", index, "--postprocess", "whitening")
    code, _, err = run_command("search", index, "--id", "item 1", "--postprocess", "expansion")
    assert code == 2
    assert "are whitened, and searched as they are: got --postprocess expansion; leave it out, or index" in err
    code, _, err = run_command("index", file, "-o", index, "--add", "--postprocess", "expansion")
    assert code == 2
    assert "leave out --postprocess" in err
    (index / WHITENING).unlink()
    code, _, err = run_command("search", index, "--id", "item 1")
    assert code == 2
    assert "must hold the whitening of the index" in err
