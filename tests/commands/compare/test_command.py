"""`trivet compare`: a table and sentences, JSON of a stated form, a page that replaces nothing but its like."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.commands.conftest import Call
from tests.made_runs import make_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of two seeds, in a folder that is entered."""
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        make_run(tmp_path / f"easy-{seed}", [1], seed=seed)
        make_run(tmp_path / f"random-{seed}", [*range(0, 60, 3)], seed=seed, name="random")
    return tmp_path


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "compare")


def test_words_and_one_table(runs: Path, monkeypatch: pytest.MonkeyPatch, run: Call) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run("easy-0", "easy-1", "random-0", "random-1")
    assert code == 0
    words = " ".join(out.split())
    assert "random is worse than easy: unseen by digit 66.7 %, against 98.3 % (-31.7 points, -" in words
    assert "; lower in 2 of 2 pairs)." in words
    assert "│ easy, mean of 2   │         98.3 ± 0.0 │        │" in out
    assert "66.7 (30.0 … 40.0) │  -31.7 │" in out
    assert "│ loss.positives │ easy │ random │" in out
    assert "not what another seed would" in words


def test_json_holds_all_but_what_a_page_shows(runs: Path, run: Call) -> None:
    code, out, _ = run("easy-0", "random-0", "--json")
    assert code == 0
    record = json.loads(out)
    assert set(record) == {
        "runs", "sides", "confidence", "tables", "settings", "notes", "command", "created", "trivet"
    }  # fmt: skip
    (first, *_) = record["tables"][0]["differences"]
    assert set(first) == {
        "of", "less", "measure", "value", "reference", "difference", "interval", "outcome", "pairs", "known_classes"
    }  # fmt: skip
    assert (first["of"], first["less"], first["measure"], first["outcome"]) == (
        "random-0", "easy-0", "recall@1", "worse"
    )  # fmt: skip
    assert all("training" not in one for one in record["runs"])


def test_a_page_replaces_its_like(runs: Path, run: Call) -> None:
    for _ in range(2):
        code, out, _ = run("easy-0", "random-0", "--report", "page.html")
        assert code == 0
        assert out.endswith("Report: page.html\n")
    assert b'content="Trivet compare"' in Path("page.html").read_bytes()[:200]


def test_a_measure_that_a_step_was_chosen_by_has_a_table_too(runs: Path, run: Call) -> None:
    settings = '[choosing]\nkeep = "best"\nmeasure = "mrr"\n'
    for name, wrong in (("one", [1]), ("other", [1, 12])):
        make_run(runs / name, wrong, settings=settings + f"[training]\nsteps = {len(wrong)}\n")
    code, out, _ = run("one", "other")
    assert code == 0
    titles = [line for line in out.splitlines() if "in per cent" in line]
    assert [title.split()[0] for title in titles] == ["mrr", "recall@1"]
    assert "No clear difference between other and one by MRR: unseen by digit" in " ".join(out.split())
