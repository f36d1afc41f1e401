"""`trivet evaluate` and `trivet train` of items with tags, as a user calls them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call

import trivet
from trivet.metrics import retrieve, retrieve_by_tag

TAGS = [sorted({("red", "blue", "green")[i % 3], *("round", "flat")[: i % 3 % 2 + (i % 5 == 0)]}) for i in range(60)]
MEASURES = ("recall@1", "map@r")


@pytest.fixture
def embeddings() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path, embeddings: np.ndarray) -> Path:
    np.savez(tmp_path / "v.npz", embeddings=embeddings, tags=np.array([";".join(tags) for tags in TAGS]))
    return tmp_path / "v.npz"


def test_measures_are_those_of_the_tags(file: Path, embeddings: np.ndarray, run_command: Call, tmp_path: Path) -> None:
    tags, by_tag = trivet.Tags(TAGS, 0.5), tmp_path / "tags.csv"
    options = ["--labels", "tags", "--separator", ";", "--match", "0.5", "--distance", "euclidean", "--json"]
    measures = ["--measures", ",".join((*MEASURES, "nmi"))]
    code, out, err = run_command("evaluate", file, *options, *measures, "--per-class", by_tag)
    assert code == 0, err
    record = json.loads(out)
    record = record[0] if isinstance(record, list) else record
    found = record["evaluation"]["tags"]
    wanted = retrieve(embeddings, tags, measures=MEASURES)
    assert {name: found[name] for name in MEASURES} == pytest.approx(wanted.mean(), abs=1e-12)
    assert found["classes"] == 5
    assert "one class for each item" in found["nmi_missing"]
    rows = {row["class"]: row for row in csv.DictReader(by_tag.read_text().splitlines())}
    of_tags = retrieve_by_tag(embeddings, tags, measures=MEASURES)
    assert set(rows) == set(of_tags) == {"red", "blue", "green", "round", "flat"}
    for tag, result in of_tags.items():
        assert int(rows[tag]["queries"]) == len(result.values)
        assert {name: float(rows[tag][name]) for name in MEASURES} == pytest.approx(result.mean(), abs=1e-12)


def test_without_a_separator_such_cells_are_asked_about(file: Path, run_command: Call) -> None:
    code, _, err = run_command("evaluate", file, "--labels", "tags")
    assert code == 2
    assert 'read them as tags with --separator ";", or each cell as one class with --separator none' in err
    assert run_command("evaluate", file, "--labels", "tags", "--separator", "none")[0] == 0


def test_folds_need_classes(file: Path, run_command: Call) -> None:
    code, _, err = run_command("evaluate", file, "--labels", "tags", "--separator", ";", "--folds", "2")
    assert (code, "--folds divides classes: the items of v.npz have tags at level tags" in err) == (2, True)


def test_a_match_needs_a_separator(file: Path, run_command: Call) -> None:
    code, _, err = run_command("evaluate", file, "--match", "all")
    assert (code, "--match is for tags, and --separator the mark between them" in err) == (2, True)
