"""`trivet compare`: a table and sentences, JSON of a stated form, a page that replaces nothing but its like."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.made_runs import make_run

from trivet.commands.main import main


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of two seeds, in a folder that is entered."""
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        make_run(tmp_path / f"easy-{seed}", [1], seed=seed)
        make_run(tmp_path / f"random-{seed}", [*range(0, 60, 3)], seed=seed, name="random")
    return tmp_path


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["trivet", "compare", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    return int(str(ended.value.code)), shown.out, shown.err


def test_words_and_one_table(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(capsys, monkeypatch, "easy-0", "easy-1", "random-0", "random-1")
    assert code == 0
    words = " ".join(out.split())
    assert "random is worse than easy: unseen by digit 66.7 %, against 98.3 % (−31.7 points, −" in words
    assert "; lower in 2 of 2 pairs)." in words
    assert "│ easy, mean of 2   │         98.3 ± 0.0 │        │" in out
    assert "66.7 (30.0 … 40.0) │  -31.7 │" in out
    assert "│ loss.positives │ easy │ random │" in out
    assert "not what another seed would" in words


def test_json_holds_all_but_what_a_page_shows(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, monkeypatch, "easy-0", "random-0", "--json")
    assert code == 0
    record = json.loads(out)
    assert set(record) == {
        "runs", "sides", "comparisons", "confidence", "tables", "settings", "notes", "command", "created", "trivet"
    }  # fmt: skip
    (first, *_) = record["tables"][0]["differences"]
    assert set(first) == {
        "of", "less", "measure", "value", "reference", "difference", "interval", "outcome", "pairs"
    }  # fmt: skip
    assert (first["of"], first["less"], first["measure"], first["outcome"]) == (
        "random-0", "easy-0", "recall@1", "worse"
    )  # fmt: skip
    assert all("training" not in one for one in record["runs"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["easy-0"], "compare takes 2 to 24 runs: got 1"),
        (["easy-0", "easy-0/../easy-0"], "compared runs must be different: easy-0/../easy-0 is given twice"),
        (["easy-0", "file.npz"], "compare takes the folders of runs: file.npz is a file"),
        (["easy-0", "empty"], "a run folder must hold config.toml: empty does not"),
        (["easy-0", "lost"], "a compared run must have a record: lost has none that can be read"),
        (["easy-0", "nowhere"], "an input must exist: nowhere does not exist"),
        (["easy-0", "random-0", "--report", "file.npz"], "--report replaces only a file that it wrote itself"),
        (["easy-0", "random-0", "--report", "easy-0/report.html"], "--report must lie outside of what is read"),
        (["easy-0", "random-0", "--data-root", "."], "the data are read only for the pictures of a --report"),
        (["easy-0", "other"], "compared runs must share an evaluation split with the same items: other and easy-0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_compared_is_said_in_a_sentence(
    arguments: list[str],
    said: str,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("file.npz").write_bytes(b"no page")
    Path("empty").mkdir()
    make_run(runs / "lost")
    Path("lost/record.json").unlink()
    make_run(runs / "other", split="unseen", labels=np.arange(40) // 10)
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]  # after what a slow machine says of its progress
    assert "Traceback" not in err
    assert Path("file.npz").read_bytes() == b"no page"


def test_a_page_replaces_its_like(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        code, out, _ = run(capsys, monkeypatch, "easy-0", "random-0", "--report", "page.html")
        assert code == 0
        assert out.endswith("Report: page.html\n")
    assert b'content="Trivet compare"' in Path("page.html").read_bytes()[:200]


def test_a_measure_that_a_step_was_chosen_by_has_a_table_too(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = '[choosing]\nkeep = "best"\nmeasure = "mrr"\n'
    for name, wrong in (("one", [1]), ("other", [1, 12])):
        make_run(runs / name, wrong, settings=settings + f"[training]\nsteps = {len(wrong)}\n")
    code, out, _ = run(capsys, monkeypatch, "one", "other")
    assert code == 0
    titles = [line for line in out.splitlines() if "in per cent" in line]
    assert [title.split()[0] for title in titles] == ["mrr", "recall@1"]
    assert "No clear difference between other and one by MRR: unseen by digit" in " ".join(out.split())
