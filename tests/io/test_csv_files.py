"""Cells of csv files: none that a spreadsheet takes for a formula, and none that is lost."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.io.corrected_files import write_cleaned
from trivet.io.csv_files import CsvTable, csv_rows, csv_text, guarded, unguarded
from trivet.io.label_decisions import read_decisions, write_decisions
from trivet.io.text_files import read_texts

BEGINNINGS = "=+-@\t\r\n＝＋－＠"
NAMES = [
    "=cmd|'/c calc'!A0",
    "+1-800",
    "-x",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "'=x",
    "''-x",
    "'tis",
    "-7",
    "+1e-3",
    "cat",
    "'",
    "-",
]


@given(st.text(st.sampled_from("'=+-@\t\r\n＝ 1.eExé"), max_size=6) | st.text())
def test_every_text_comes_back_and_none_is_a_formula(text: str) -> None:
    cell = guarded(text)
    assert unguarded(cell) == text
    try:
        float(text)
    except ValueError:
        assert cell[:1] not in (*BEGINNINGS, "\n") or not cell
    (row,) = csv.reader(io.StringIO(csv_text([[text, "end"]]), newline=""))
    assert [unguarded(one) for one in row] == [text, "end"]


def test_numbers_stay_numbers() -> None:
    assert csv_text([[-1, -1.5, "-7", "+1e-3", "-.5", float("-inf")]]) == "-1,-1.5,-7,+1e-3,-.5,-inf\n"


def test_what_is_decided_reads_back_and_a_foreign_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(write_decisions((f"{name} {i}", "relabel", name) for i, name in enumerate(NAMES)))
    assert [(one.id, one.label) for one in read_decisions(path)] == [
        (f"{name} {i}", name) for i, name in enumerate(NAMES)
    ]
    assert not [
        cell
        for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
        for cell in row
        if cell[:1] in BEGINNINGS and len(cell) > 5
    ]
    foreign = tmp_path / "texts.csv"
    foreign.write_text("id,text\n1,'=x\n2,=x\n")
    assert [row["text"] for _, row in csv_rows(foreign)[1]] == ["'=x", "=x"]
    assert CsvTable.read(foreign).texts("text") == ["'=x", "=x"]
    own = tmp_path / "suspects.csv"
    columns = ["id", "label", "proposed_label", "probability_wrong", "evidence", "text"]
    own.write_text(csv_text([columns, *([f"{i}", name, "x", 0.5, "e", name] for i, name in enumerate(NAMES))]))
    vectors, texts = read_texts(own, lambda texts: np.zeros((len(texts), 1)), levels=["label"])
    assert texts == NAMES
    assert vectors.labels["label"].tolist() == NAMES


def test_decisions_on_such_names_are_applied_and_the_cells_of_the_file_stay(tmp_path: Path) -> None:
    path, decisions, out = (tmp_path / f"{name}.csv" for name in ("texts", "d", "out"))
    path.write_text("id,kind,text\n-a,=x,'=one\n=b,'=x,two\n+c,=x,three\n@d,'=x,four\n")
    decisions.write_text(write_decisions([("-a", "relabel", "'=x"), ("=b", "drop", "")]))
    write_cleaned(path, decisions, out, level="kind")
    assert out.read_text() == "id,kind,text\n-a,'=x,'=one\n+c,=x,three\n@d,'=x,four\n"


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,decision,label,label\n1,relabel,a,b\n")
    with pytest.raises(ValueError, match="'label' occurs twice"):
        read_decisions(tmp_path / "d.csv")
