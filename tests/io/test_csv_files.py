"""Csv files: their dialects, and cells of which none is lost and none a spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import io
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.io.corrected_files import write_cleaned
from trivet.io.csv_files import SAMPLE, CsvForm, csv_form, csv_rows, csv_table, csv_text, guarded, unguarded
from trivet.io.label_decisions import read_decisions, write_decisions
from trivet.io.read_embeddings import read_texts, read_vectors

BEGINNINGS = "=+-@\t\r\n＝＋－＠"
NAMES = [
    "=cmd|'/c calc'!A0", "+1-800", "-x", "@SUM(A1)", "\tx", "\rx", "'=x", "''-x", "'tis", "-7", "+1e-3", "cat",
    "'", "-",
]  # fmt: skip


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
    assert csv_table(foreign).read("text").to_pylist() == ["'=x", "=x"]
    own = tmp_path / "suspects.csv"
    columns = ["id", "label", "proposed_label", "probability_wrong", "evidence", "text"]
    own.write_text(csv_text([columns, *([f"{i}", name, "x", 0.5, "e", name] for i, name in enumerate(NAMES))]))
    vectors = read_texts(own, levels=["label"])
    assert vectors.texts == NAMES
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


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("id,label\n1,a\n", ","),
        ("id;label\n1;a\n", ";"),
        ("id\tlabel\n1\ta\n", "\t"),
        ("id|label\n1|a\n", "|"),
        ("label\na;b\nc\n", ","),  # one column
        ("id;price\n1;0,5\n2;1,5\n", ";"),
        ("text,label\na;b,x\nc;d,y\n", ","),
        ('text;label\n"a;b\nc";x\n', ";"),  # a quoted delimiter and line end
        ("id;label,or class;cls\n1;a,b;c\n", ";"),
        ("id;label\n1;a;b\n", ";"),  # broken, which whoever parses it says
        ("id,label\n1,a,b\n", ","),
        ("", ","),
    ],
)
def test_the_delimiter_gives_all_lines_the_same_columns(text: str, delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert csv_form(path).delimiter == delimiter


@pytest.mark.parametrize(
    ("encoding", "found"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("cp1252", "cp1252"), ("latin-1", "cp1252")],
)
def test_letters_are_read_as_they_were_written(
    encoding: str, found: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id;Größe\n1;große Möwe\n2;é\n".encode(encoding))
    assert csv_form(path) == CsvForm(";", found)
    table = csv_table(path)
    assert table.columns == ["id", "Größe"]
    assert table.read("Größe").to_pylist() == ["große Möwe", "é"]
    assert csv_rows(path)[1][0][1] == {"id": "1", "Größe": "große Möwe"}
    said = caplog.messages[-1]
    assert said.startswith(f"{path} is read as separated by semicolons")
    assert (f"as encoded in {found}" in said) == (not found.startswith("utf-8"))


def test_a_letter_behind_the_sample_decides_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,label\n" + b"1,a\n" * SAMPLE + b"2,\x81\xe9\n")
    assert csv_form(path).encoding == "latin-1"  # \x81 is no letter of Windows-1252
    assert "because it is not in UTF-8" in caplog.messages[0]
    caplog.clear()
    path.write_text("id,label\n1,a\n")
    assert csv_form(path) == CsvForm(",", "utf-8")
    assert not caplog.messages


def test_files_of_commands_are_read_in_any_form(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "trivet")
    np.save(tmp_path / "a.npy", np.eye(4))
    (tmp_path / "a.csv").write_bytes("id;cls\n1;Möwe\n2;Möwe\n3;b\n4;b\n".encode("latin-1"))
    vectors = read_vectors(tmp_path / "a.npy")
    assert list(vectors.labels) == ["cls"]
    assert vectors.labels["cls"].tolist() == ["Möwe", "Möwe", "b", "b"]
    (tmp_path / "d.csv").write_text("id;decision;label\na;relabel;b,c\n", encoding="utf-16")
    assert [(one.id, one.decision, one.label) for one in read_decisions(tmp_path / "d.csv")] == [
        ("a", "relabel", "b,c")
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_spaces_around_quotes_are_named_and_the_lines_remove_them(
    delimiter: str, line_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f" label {delimiter} text ", *(f' {kind} {delimiter} "one{delimiter} two: ü" ' for kind in "abc")]
    Path("spaced.csv").write_bytes(line_end.join(lines).encode())
    with pytest.raises(ValueError, match="must have no spaces between its delimiters and its quotes") as error:
        csv_table(Path("spaced.csv"))
    assert "\n" not in str(error.value)
    subprocess.run([sys.executable, "-c", "import csv" + str(error.value).partition("import csv")[2]], check=True)
    table = csv_table(Path("spaced_clean.csv"))
    assert table.read("label").to_pylist() == ["a", "b", "c"]
    assert table.read("text").to_pylist() == [f"one{delimiter} two: ü"] * 3
    Path("even.csv").write_text('label,text\na, "one"\n')  # divides no cell
    assert csv_table(Path("even.csv")).read("text").to_pylist() == [' "one"']
    Path("uneven.csv").write_text('label,text\na, "one, two"\nb,c,d,e\n')  # the lines would not mend it
    with pytest.raises(ValueError, match="must be a complete csv file"):
        csv_table(Path("uneven.csv"))


@pytest.mark.parametrize(
    ("lines", "names", "first"),
    [
        (["# made by a tool, version 2, of today", "label,text", "a,b", "c,d"], ["label", "text"], 3),
        (["# one", "#", "label;text", "a;b", "c;d"], ["label", "text"], 4),
        (["#label,text", "a,b", "c,d"], ["#label", "text"], 2),
        (["# made", "#label,text", "a,b", "c,d"], ["#label", "text"], 3),
        (["# one column", "a", "c"], ["# one column"], 2),
    ],
)
def test_comments_above_the_names_are_left_out(
    lines: list[str], names: list[str], first: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "items.csv"
    path.write_text("\n".join(lines))
    table = csv_table(path)
    assert (table.names, table.count, table.read(names[0]).to_pylist()) == (names, 2, ["a", "c"])
    assert table.where(np.array([0])) == f"line {first}"
    assert any("as those above begin with #" in message for message in caplog.messages) == (
        lines[0][:2] == "# " and first > 2
    )
    assert [line for line, _ in csv_rows(path)[1]] == [first, first + 1]
