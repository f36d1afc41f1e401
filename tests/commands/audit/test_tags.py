"""`trivet audit --separator`: suspects per item and tag, whatever the order of the tags in a cell."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
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
    assert [each["kind"] for each in found["tag_ranges"]] == ["missing", "superfluous"]
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
    for option in (("--report", "r.html"), ("--decisions", "d.csv"), ("--neighbours", "5")):
        code, _, err = run_command("audit", "things.npz", *ASKED, *option)
        assert (code, f"{option[0]} is for classes" in err) == (2, True)


def test_tags_that_tell_nothing(given: np.ndarray, run_command: Call) -> None:
    content = dict(np.load("things.npz"))
    np.savez("things.npz", **content | {"embeddings": np.random.default_rng(1).normal(size=(400, 6))})
    code, out, _ = run_command("audit", "things.npz", *ASKED)
    assert code == 0
    assert out.startswith("These embeddings cannot judge these tags")
    assert "4 of 4 tags are not judged, such as 'big'" in " ".join(out.split())
