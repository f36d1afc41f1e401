"""`trivet audit --separator`: suspects per item and tag, whatever the order of the tags in a cell."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tests.commands.conftest import Call

TAGS = np.array(["big", "red", "round", "soft"])
ASKED = ("--labels", "tags", "--separator", ";")


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Vectors with tags in any order, `(400, 4)`; item 3 lacks a tag, item 40 has one more."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    tags = random.random((400, 4)) < 0.4
    tags[:, 0] |= ~tags.any(axis=1)
    tags[3] = tags[40] = [True, True, False, False]
    points = tags @ (5 * np.eye(4, 6)) + random.normal(size=(400, 6)) * 0.5
    tags[3, 1], tags[40, 3] = False, True
    cells = [";".join(random.permutation(TAGS[row])) for row in tags]
    np.savez("things.npz", embeddings=points, id=[f"t{i}" for i in range(400)], tags=cells)
    return tags


def test_suspects_by_item_and_tag(given: np.ndarray, run_command: Call) -> None:
    code, out, err = run_command("audit", "things.npz", *ASKED, "--distance", "euclidean", "--out", "s.csv", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(row["id"], row["tag"], row["kind"]) for row in found["tag_suspects"][:2]] in (
        [("t3", "red", "missing"), ("t40", "soft", "superfluous")],
        [("t40", "soft", "superfluous"), ("t3", "red", "missing")],
    )
    assert (found["tags"], found["judged_tags"]) == (4, 4)
    assert [each["kind"] for each in found["ranges"]] == ["missing", "superfluous"]
    with Path("s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["tag"] for row in rows] == [row["tag"] for row in found["tag_suspects"]]
    assert list(rows[0]) == ["id", "tag", "kind", "probability_wrong", "evidence", "decision"]
    code, out, _ = run_command("audit", "things.npz", *ASKED, "--distance", "euclidean")
    assert out.startswith("Called wrong: ")
    assert "t3" in out


def test_such_cells_are_asked_about(given: np.ndarray, run_command: Call) -> None:
    code, _, err = run_command("audit", "things.npz", "--labels", "tags")
    assert code == 2
    assert 'read them as tags with --separator ";"' in err


def test_what_only_classes_have(given: np.ndarray, run_command: Call) -> None:
    for option in (("--neighbours", "5"), ("--drop-above", "0.5", "--decisions", "d.csv")):
        code, _, err = run_command("audit", "things.npz", *ASKED, *option)
        assert (code, f"{option[0]} is for classes, and these are tags" in err) == (2, True)


def test_decisions_are_sets_of_tags(given: np.ndarray, run_command: Call) -> None:
    options = ("--decisions", "d.csv", "--relabel-above", "0.5", "--report", "page.html", "--distance", "euclidean")
    code, _, err = run_command("audit", "things.npz", *ASKED, *options)
    assert (code, err) == (0, "")
    assert sorted(Path("d.csv").read_text().splitlines()[1:]) == ["t3,relabel,big;red", "t40,relabel,big;red"]
    page = Path("page.html").read_text()
    assert "Called wrong: 1 missing and 1 superfluous tags" in page
    assert "red is missing with" in page
    code, _, err = run_command("audit", "things.npz", *ASKED, "--apply", "d.csv", "-o", "clean.npz")
    assert (code, err) == (0, "")
    before, after = (np.load(name)["tags"] for name in ("things.npz", "clean.npz"))
    assert np.flatnonzero(before != after).tolist() == [3, 40]
    assert [set(after[row].split(";")) for row in (3, 40)] == [{"big", "red"}] * 2


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet"])
def test_a_set_that_no_row_has(tmp_path: Path, run_command: Call, suffix: str) -> None:
    """It is written as the cells are, with the separator or as a list; a tag is added, a set changed."""
    lists = suffix != "csv"
    cells = [["x"], ["y"], ["x", "y"], ["z"]]
    rows = [{"id": f"a{row}", "text": f"words {row}", "tags": tags} for row, tags in enumerate(cells)]
    path, out = tmp_path / f"t.{suffix}", tmp_path / f"clean.{suffix}"
    if suffix == "csv":
        path.write_text(
            "id,text,tags\n" + "".join(f"{row['id']},{row['text']},{'|'.join(row['tags'])}\n" for row in rows)
        )
    elif suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        lines = "\n".join(json.dumps(row) for row in rows)
        path.write_text(json.dumps(rows) if suffix == "json" else lines)
    decisions = tmp_path / "d.csv"
    decisions.write_text("id,decision,label\na1,add,z\na0,drop,\na3,relabel,x\n")
    asked = ("--labels", "tags", "--separator", "list" if lists else "|")
    code, said, err = run_command("audit", str(path), *asked, "--apply", str(decisions), "-o", str(out))
    assert (code, err) == (0, "")
    assert ": 3 rows from 4; 1 tag added, 1 relabelled, 1 dropped, 0 kept as they are, 1 not" in " ".join(said.split())
    if suffix == "csv":
        assert out.read_text().splitlines()[1:] == ["a1,words 1,y|z", "a2,words 2,x|y", "a3,words 3,x"]
        return
    text = out.read_text() if suffix != "parquet" else ""
    after = (
        pyarrow.parquet.read_table(out).to_pylist()
        if suffix == "parquet"
        else json.loads(text)
        if suffix == "json"
        else [json.loads(line) for line in text.splitlines()]
    )
    assert [row["tags"] for row in after] == [["y", "z"], ["x", "y"], ["x"]]


def test_a_decision_for_a_tag_that_is_not_there(given: np.ndarray, run_command: Call) -> None:
    Path("d.csv").write_text("id,decision,label\nt3,relabel,big;redd\n")
    code, _, err = run_command("audit", "things.npz", *ASKED, "--apply", "d.csv", "-o", "clean.npz")
    assert code == 2
    assert "a new set must be of the 4 tags" in err
    assert "did you mean 'red'?" in err


def test_tags_that_tell_nothing(given: np.ndarray, run_command: Call) -> None:
    content = dict(np.load("things.npz"))
    np.savez("things.npz", **content | {"embeddings": np.random.default_rng(1).normal(size=(400, 6))})
    code, out, _ = run_command("audit", "things.npz", *ASKED)
    assert code == 0
    assert out.startswith("These embeddings cannot judge these tags")
    assert "4 of 4 tags are not judged, such as 'big'" in " ".join(out.split())


@pytest.mark.usefixtures("undiagnosed")
def test_a_run_by_tags(given: np.ndarray, run_command: Call) -> None:
    """Each fold is judged by itself, and the run is trained again on what was decided."""
    settings = (
        '[data]\nname = "vectors"\npath = "things.npz"\nlevels = ["tags"]\nseparator = ";"\n[model]\nname = "linear"\n'
        '[loss]\nname = "supcon"\n[training]\nsteps = 4\n'
    )
    Path("s.toml").write_text(settings)
    assert run_command("train", "s.toml", "-o", "runs/x")[0] == 0
    code, out, err = run_command("audit", "runs/x", "--folds", "2", "--json", "--decisions", "d.csv", "--out", "s.csv")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["items"] == 320
    suspects = record["tag_suspects"]
    assert {(row["id"], row["tag"]) for row in suspects[:2]} <= {("t3", "red"), ("t40", "soft")}
    assert [row["probability_wrong"] for row in suspects] == sorted(
        (row["probability_wrong"] for row in suspects), reverse=True
    )
    Path("d.csv").write_text(f"id,decision,label\n{suspects[0]['id']},relabel,big;red\n")
    code, _, err = run_command("train", "s.toml", "--labels", "d.csv", "-o", "runs/y")
    assert (code, err) == (0, "")
    assert Path("runs/y/applied_decisions.csv").read_text().splitlines()[1].endswith(",relabel,big;red")
