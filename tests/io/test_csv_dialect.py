from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from trivet.io.csv_dialect import SAMPLE, CsvForm, csv_form
from trivet.io.csv_files import CsvTable, csv_rows
from trivet.io.label_decisions import read_decisions
from trivet.io.read_embeddings import read_vectors


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
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("cp1252", "cp1252"),
        ("latin-1", "cp1252"),
    ],
)
def test_letters_are_read_as_they_were_written(
    encoding: str, found: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id;Größe\n1;große Möwe\n2;é\n".encode(encoding))
    assert csv_form(path) == CsvForm(";", found)
    table = CsvTable.read(path)
    assert table.columns == ["id", "Größe"]
    assert table.texts("Größe") == ["große Möwe", "é"]
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
