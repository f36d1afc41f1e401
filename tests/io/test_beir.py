"""BEIR's layout: read as pairs with grades, and written so that it reads the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trivet.io.beir import is_beir, read_beir, write_beir
from trivet.io.pair_table import read_pairs

CORPUS = [
    {"_id": "d1", "title": "Prices", "text": "It costs ten."},
    {"_id": "d2", "title": "", "text": "Here."},
    {"_id": "007", "text": "Nobody asks for this.", "metadata": {"url": "x"}},
]
QUERIES = [{"_id": "1", "text": "how much?"}, {"_id": "2", "text": "where?"}, {"_id": "3", "text": "why?"}]


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "nfcorpus"
    (path / "qrels").mkdir(parents=True)
    write_lines(path / "corpus.jsonl", CORPUS)
    write_lines(path / "queries.jsonl", QUERIES)
    (path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n1\td1\t2\n1\td2\t0\n")
    (path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n2\td2\t1\n")
    return path


def test_is_read_as_pairs_with_grades(folder: Path) -> None:
    assert is_beir(folder)
    assert not is_beir(folder.parent)
    table = read_beir(folder)
    assert list(table.left.ids) == ["1", "2"]
    assert list(table.right.ids) == ["d1", "d2", "007"]
    assert table.right.contents[0] == "Prices It costs ten."
    rows = [*zip(table.splits.tolist(), table.pairs.tolist(), table.grades.tolist(), strict=True)]
    assert sorted(rows) == [("train", [0, 0], 2.0), ("train", [0, 1], 0.0), ("val", [1, 1], 1.0)]
    assert table.collection
    assert table.notes == ("1 query without a judgement left out.",)


def test_is_written_so_that_it_reads_the_same(folder: Path, tmp_path: Path) -> None:
    table, again = read_beir(folder), tmp_path / "again"
    write_beir(table, again)
    other = read_beir(again)
    for side in ("left", "right"):
        assert vars(getattr(other, side)) == vars(getattr(table, side))
    np.testing.assert_array_equal(other.pairs, table.pairs)
    np.testing.assert_array_equal(other.grades, table.grades)
    np.testing.assert_array_equal(other.splits, table.splits)
    assert (again / "qrels" / "dev.tsv").read_text() == (folder / "qrels" / "dev.tsv").read_text()
    assert json.loads((again / "corpus.jsonl").read_text().splitlines()[0]) == CORPUS[0]
    with pytest.raises(ValueError, match="--force"):
        write_beir(table, again)
    write_beir(table, again, force=True)


def test_a_table_becomes_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text("question,answer,negative\nhow much?,ten,here\nwhere?,here,\n")
    write_beir(read_pairs(path), tmp_path / "faq")
    assert (tmp_path / "faq" / "qrels" / "test.tsv").read_text().splitlines() == [
        "query-id\tcorpus-id\tscore",
        "question-0\tanswer-0\t1",
        "question-0\tanswer-1\t0",
        "question-1\tanswer-1\t1",
    ]
    path.write_text("question,answer,score\nhow much?,ten,0.5\nwhere?,here,1\n")
    with pytest.raises(ValueError, match=r"whole numbers: .* has 0\.5"):
        write_beir(read_pairs(path), tmp_path / "other")


def test_documents_of_equal_content_are_one(folder: Path) -> None:
    write_lines(folder / "corpus.jsonl", [*CORPUS, {"_id": "d4", "text": "Here."}])
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n2\td4\t1\n")
    table = read_beir(folder)
    assert list(table.right.ids) == ["d1", "d2", "007"]
    assert [1, 1] in table.pairs.tolist()
    assert table.notes[0] == "1 of 4 in corpus.jsonl equal an earlier one and are one item with it."


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\n2\td9\t1\n", "line 2 of .* names 'd9', which is not in corpus"),
        ("qrels/dev.tsv", "qid\tdid\tscore\n2\td2\t1\n", "must begin with a line of the columns query-id, corpus-id"),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\n2\td2\t\n", "must have a score: line 2"),
        ("queries.jsonl", '{"_id": 1, "text": "x"}\n', "1 in line 1 .* is no text"),
        ("queries.jsonl", '{"_id": "1"}\n', "must be an object such as .*: line 1 is none"),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', "'a' in line 2 .* comes twice"),
        ("corpus.jsonl", "", "must hold at least one document"),
    ],
)
def test_what_is_no_such_folder(folder: Path, file: str, text: str, message: str) -> None:
    (folder / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_beir(folder)
