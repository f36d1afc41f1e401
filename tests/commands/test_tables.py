"""Tables show every number whole in a narrow terminal."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from trivet.commands.printing import print_table, print_text
from trivet.commands.train.printing import print_folds, print_run, run_contents
from trivet.commands.train.record import CrossValidation
from trivet.reports.result import TextTable
from trivet.reports.run_record import RunRecord
from trivet_papers.checks import Check
from trivet_papers.simulate.command import print_checks

WIDTHS = (80, 60)


def numbers(text: str) -> list[str]:
    return re.findall(r"(?<![\w.@=-])>?\d+\.\d+(?![\w])", text)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def shown(width: int, capsys: pytest.CaptureFixture[str]) -> str:
    out = capsys.readouterr().out
    assert "…" not in re.sub(r"\d … ?-?\d", "", out), "a text was cut"
    assert "..." not in out
    assert max(map(len, out.splitlines())) <= width
    return out


@pytest.mark.parametrize("seed", range(20))
def test_no_cell_of_numbers_is_cut_or_broken(width: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    words = [f"word {number}" for number in range(draw.randint(1, 4))]
    heads = ["a rather long head of a column"[: draw.randint(1, 30)] for _ in range(draw.randint(1, 12))]
    rows = [
        (
            *("x" * draw.randint(1, 60) for _ in words),
            *(f"{draw.random() * 10 ** draw.randint(0, 6):.{draw.randint(1, 4)}f}" for _ in heads),
        )
        for _ in range(4)
    ]
    print_table("title", words, heads, rows)
    out = shown(width, capsys)
    assert sorted(numbers(out)) == sorted(cell for row in rows for cell in row[len(words) :])


def test_a_sentence_is_broken_between_words(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_text("The loss fell from 123456.789 to 0.0001234 " * 4 + "/a/path/" + "x" * 100, indent=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= width
    assert lines[-1] == "  /a/path/" + "x" * 100


LEVELS = {
    level: {f"recall@{k}": 0.1234 * k**0.5 for k in (1, 2, 4, 8)} | {"map@r": 0.7456, "nmi": 0.6543, "nmi+": None}
    for level in ("superclass of things", "class")
}


def test_a_run(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": name, "levels": LEVELS} for name in ("trained", "untrained network", "raw inputs")]
    print_run(RunRecord.read({"status": "finished", "evaluation": {"seen": rows}}), Path("runs/x"))
    out = shown(width, capsys)
    assert numbers(out).count("74.6") == 2  # of each level: equal rows are one
    assert all(head in out for head in ("recall@1", "recall@8", "map@r"))


def test_the_result_is_among_the_candidates_where_there_is_room_for_a_few() -> None:
    names = ("one", "two", "three", "four")
    tried = [{"name": name, "rung": "head", "recall@1": 0.5, "map@r": 0.4} for name in names]
    record = {"ladder": {"candidates": [*tried, {"name": "no", "rung": "head"}], "result": "four"}}
    (table,) = [each for each in run_contents(RunRecord.read(record), Path("runs/x")) if isinstance(each, TextTable)]
    assert [line.split()[0] for line in table.lines(4)] == ["Candidates", "candidate", "one", "four"]
    assert [line.split()[0] for line in table.lines()][2:] == [*names]


def test_folds(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    values = [0.711, 0.722, 0.733, 0.744, 0.755, 0.766, 0.777, 0.788]
    found = {"mean": 0.7, "interval": [0.6543, 0.7654], "values": values}
    measured = {
        "folds": 8,
        "runs": ["r"],
        "status": "finished",
        "evaluation": {"digit": {"verification-accuracy": found}},
    }
    print_folds(CrossValidation.read(measured))
    out = shown(width, capsys)
    assert set(numbers(out)) == {"70.0", "65.4", "76.5", "71.1", "72.2", "73.3", "74.4", "75.5", "76.6", "77.7", "78.8"}


def test_checks(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"statement": "a statement " * 12, "expected": "at least 0.123456789", "observed": "0.987654321 " * 9}
    print_checks("risk", [Check(id="P1", **texts, holds=True)])
    assert numbers(shown(width, capsys)).count("0.987654321") == 9


COMMANDS = {
    "evaluate": ("evaluate", "a.npz"),
    "compare": ("evaluate", "a.npz", "an embedding with a long name.npz", "--measures", "recall@1,tar@far,nmi"),
    "approximate": ("evaluate", "a.npz", "--measures", "recall@1", "--approximate", "hnsw"),
    "diagnose": ("diagnose", "a.npz", "an embedding with a long name.npz", "a.npz", "a.npz"),
    "audit": ("audit", "a.npz"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_on_files(
    command: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trivet.commands.group import app

    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, 9 if "--approximate" in command else 60)
    rows = np.eye(8)[labels] + 0.4 * draws.normal(size=(len(labels), 8))
    ids = [f"photographs/of things/number {number}.jpeg" for number in range(len(labels))]
    for name in ("a.npz", "an embedding with a long name.npz"):
        np.savez(tmp_path / name, embeddings=rows, label=labels, id=ids)
    monkeypatch.chdir(tmp_path)
    found = {}
    for width in (200, *WIDTHS):
        monkeypatch.setenv("COLUMNS", str(width))
        assert app([*command], prog_name="trivet", standalone_mode=False) == 0
        found[width] = shown(width, capsys)
    assert sorted(numbers(found[80])) == sorted(numbers(found[60])) == sorted(numbers(found[200])) != []
    if "--approximate" in command:
        assert "100.0 % of the 8 nearest items" in " ".join(found[200].split())


def test_words_are_broken_at_their_signs_and_a_further_table_names_the_rows_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    label = "balance_not_updated_after_cheque_or_cash_deposit"
    heads = [f"{name} column" for name in ("first", "second", "third", "fourth")]
    print_table(None, ("id", "label"), heads, [("i1", label, *["1234567.1"] * 4)], named_by=1)
    out = shown(60, capsys)
    first, further = out.split("┏")[1:]
    parts = [part for line in first.splitlines() for part in re.findall(r"│ i?1? *│ (\S+) ", line)]
    assert "".join(parts) == label
    assert all(part.endswith("_") for part in parts[:-1])
    assert "id" in further
    assert "i1" in further
    assert "label" not in further
