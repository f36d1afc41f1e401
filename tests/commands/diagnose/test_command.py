"""`trivet diagnose`: verdicts first, JSON of a stated form, one sentence for each mistake."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands.conftest import Call
from tests.made_runs import make_run

pytestmark = pytest.mark.usefixtures("few_pairs")

VERDICT = {"kind", "severity", "evidence", "rule", "cause", "changes"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Embeddings of every fate, in a folder that is entered."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    labels, fine = np.repeat(np.arange(5), 24), np.repeat(np.arange(10), 12)
    centres = random.normal(size=(5, 6))[labels]
    good = centres + random.normal(size=(10, 6))[fine] + 0.3 * random.normal(size=(120, 6))
    np.savez("good.npz", embeddings=good, label=labels, kind=fine)
    np.savez("flat.npz", embeddings=np.ones_like(good), label=labels)
    np.savez("blobs.npz", embeddings=centres + 1e-3 * random.normal(size=(120, 6)), label=labels)
    np.savez("singles.npz", embeddings=good, label=np.arange(120))
    np.savez("line.npz", embeddings=(labels + random.normal(size=120))[:, None], label=labels)
    return tmp_path


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "diagnose")


def test_json_of_one_and_of_several(files: Path, heard: list[tuple[str, float, float]], run: Call) -> None:
    code, out, _ = run("blobs.npz", "--json")
    assert code == 0
    assert any(title == "diagnosis" for title, _, _ in heard)
    found: dict[str, Any] = json.loads(out)
    assert list(found)[:3] == ["verdicts", "measures", "notes"]
    assert found.keys() == {
        "verdicts", "measures", "notes", "name", "split", "level", "distance", "items", "dimension",
        "num_classes", "unit", "reference",
    }  # fmt: skip
    (verdict,) = found["verdicts"]
    assert verdict.keys() == VERDICT
    assert (verdict["kind"], verdict["severity"]) == ("class-collapse", "full")
    assert verdict["evidence"]["class_spread"] == found["measures"]["class_spread"] < 0.01
    assert 1 <= len(verdict["changes"]) <= 3
    assert (found["name"], found["level"], found["distance"]) == ("blobs.npz", "label", "cosine")

    code, out, _ = run("blobs.npz", "good.npz", "--json")
    both = json.loads(out)
    assert (code, list(both)) == (0, ["results"])
    assert both["results"][0] == found
    assert [one["name"] for one in both["results"]] == ["blobs.npz", "good.npz"]
    assert list(both["results"][1]["measures"]["fine"]) == ["kind"]


def test_the_verdict_comes_first_then_evidence_cause_changes_and_the_table(files: Path, run: Call) -> None:
    code, out, _ = run("flat.npz", "good.npz")
    assert code == 0
    assert out.startswith("flat.npz: no better than chance: recall@1 19.3 %; with permuted labels")
    words = ("Evidence:", "Cause:", "Change 1:", "flat.npz: network collapse, full: recall@1 is 19.3 %, what chance")
    places = [out.index(text) for text in (*words, "5 classes", "good.npz: spread out: whether it is good", "┃")]
    assert places == sorted(places)
    (row,) = (line for line in out.splitlines() if "class spread" in line and "│" in line)
    assert row.count("–") == 1  # nothing to divide by in a constant embedding
    _, out, _ = run("good.npz", "flat.npz")
    assert out.startswith("flat.npz: no better than chance")  # nothing good stands above it
    assert out.index("good.npz ") < out.index("flat.npz ", out.index("┏"))  # in the table the order is that given


def test_markup_in_names_is_printed_as_it_is(files: Path, run: Call) -> None:
    Path("good.npz").rename("[red]x.npz")
    code, out, _ = run("[red]x.npz")
    assert code == 0
    assert out.startswith("[red]x.npz: spread out")


def test_a_bad_result_fails_if_asked_to(files: Path, run: Call) -> None:
    random = np.random.default_rng(0)
    with np.load("good.npz") as good:
        np.savez("noise.npz", embeddings=random.normal(size=(120, 6)), label=good["label"])
        np.savez("turned.npz", embeddings=good["embeddings"][:, ::-1], label=good["label"])
    asked = ("--reference", "good.npz", "--fail-on", "worse")
    code, out, _ = run("noise.npz", *asked)
    assert code == 1
    assert out.index("noise.npz: worse than reference: recall@1") < out.index("Change 1: Use good.npz.")
    assert run("turned.npz", *asked)[0] == 0
    code, _, err = run("good.npz", *asked)
    assert code == 2
    assert "a reference must be another embedding" in err
    assert run("noise.npz", "--fail-on", "collapse")[0] == 0
    assert run("noise.npz", "--fail-on", "collapse", "--fail-on", "chance")[0] == 1
    code, out, err = run("good.npz", "--fail-on", "worse")
    assert (code, out) == (2, "")
    assert "give --reference FILE" in err


def test_what_was_compared_with_nothing_is_not_said_to_be_no_worse(files: Path, run: Call) -> None:
    config = make_run(Path("moved")) / "config.toml"
    config.write_text(config.read_text().replace('name = "digits"', 'name = "vectors"\npath = "gone.npz"'))
    assert run("moved", "--fail-on", "chance")[0] == 0
    for asked in (("moved",), ("good.npz", "moved")):
        code, out, err = run(*asked, "--fail-on", "worse")
        assert (code, out) == (2, "")
        assert "--fail-on worse needs something to compare with: " in err
    labels = [f"d{row // 10}" for row in range(60)]
    np.savez("other.npz", embeddings=np.random.default_rng(0).normal(size=(60, 6)), digit=labels)
    assert run("moved", "--reference", "other.npz", "--fail-on", "worse")[0] == 0


@pytest.mark.parametrize(("name", "code"), [("good.npz", 0), ("flat.npz", 1), ("blobs.npz", 1), ("line.npz", 0)])
def test_a_collapse_fails_if_asked_to(files: Path, name: str, code: int, run: Call) -> None:
    assert run(name)[0] == 0
    assert run(name, "--fail-on", "collapse")[0] == code
    assert run("good.npz", name, "--fail-on", "collapse", "--json")[0] == code


def test_one_item_per_class_is_a_diagnosis_with_a_note(files: Path, run: Call) -> None:
    code, out, _ = run("singles.npz", "--level", "label")
    assert code == 0
    assert "Note: Every class has a single item" in out
    assert "Note: Nearly every row has a value of its own in the column 'label'" in out
    assert run("singles.npz", "--level", "label", "--fail-on", "collapse")[0] == 0
    code, _, err = run("singles.npz")
    assert code == 2
    assert "singles.npz has no label column (nearly every row has its own label); add one, or name it" in err


def test_a_report_is_written_and_named(files: Path, run: Call) -> None:
    code, out, _ = run("good.npz", "--reference", "blobs.npz", "--report", "page.html", "--json")
    assert code == 0
    assert json.loads(out)["report"] == "page.html"
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")


def test_the_table_holds_what_is_compared_with(files: Path, run: Call) -> None:
    code, out, _ = run("blobs.npz", "--labels", "label", "--reference", "good.npz")
    assert code == 0
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows[(place := rows.index("recall@1")) + 1] == "recall@1 of good.npz"
    assert rows[place + 2 : place + 5] == ["map@r", "map@r of the reference", "recall@1 by chance"]
