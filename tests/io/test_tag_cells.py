"""Cells of several labels: what asks about them, and what reads them as tags."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from trivet.io.parquet_files import level_line, write_embeddings
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.io.tag_cells import TagCells, several_labels, tag_match

TEXTS = ["one", "two", "three", "four"]


def parquet(folder: Path, tags: pa.Array, **columns: list[object]) -> Path:
    path = folder / "t.parquet"
    pa.parquet.write_table(pa.table({"text": TEXTS, "tags": tags, **columns}), path)
    return path


def csv(folder: Path, cells: list[str]) -> Path:
    path = folder / "t.csv"
    quoted = [json.dumps(cell).replace('\\"', '""') for cell in cells]
    path.write_text("text,tags\n" + "".join(f"{text},{cell}\n" for text, cell in zip(TEXTS, quoted, strict=True)))
    return path


@pytest.mark.parametrize(
    ("names", "several"),
    [
        (["red;blue", "blue", "green"], ("red;blue", ";")),
        (["a|b", "a|c", "d"], ("a|b", "|")),
        (["a, b", "a", "b"], ("a, b", ",")),
        (['["a", "b"]', "['c']"], ('["a", "b"]', "list")),
        (['{"choices": ["a", "b"]}', '{"choices": ["a"]}'], ('{"choices": ["a", "b"]}', "list")),
        (["Books, films", "Toys", "Sports; outdoor"], None),
        (["C;D", "E;F"], None),
        (["[unknown]", "x", "y"], None),
        (["[red]", "[/blue]"], None),
    ],
)
def test_cells_of_several_labels(names: list[str], several: tuple[str, str] | None) -> None:
    assert several_labels(names) == several


# Cells of four rows as a csv holds them -> the separator by which they all are round and red; red; round; blue.
MARKS = {
    ";": ["round; red;red", "red", "round ;", "blue"],
    "|": ["round|red", " red", "round", "blue|blue"],
    " / ": ["red / round", "red", "round", "blue"],
    "list": ['["round", "red"]', '["red"]', "['round']", "blue"],
}
LISTS = {
    "lists": pa.array([["round", "red"], ["red", "red"], ["round"], ["blue"]]),
    "objects": pa.array(
        [{"choices": ["red", "round"]}, {"choices": ["red"]}, {"choices": ["round"]}, {"choices": ["blue"]}]
    ),
    "lists of objects": pa.array(
        [[{"category": "red", "iou": 0.5}, {"category": "round", "iou": 0.1}]]
        + [[{"category": name, "iou": 1.0}] for name in ("red", "round", "blue")]
    ),
}
SETS = ["red;round", "red", "round", "blue"]


@pytest.mark.parametrize("separator", MARKS)
def test_marks_and_json_are_read_as_tags(separator: str, tmp_path: Path) -> None:
    read = read_texts(csv(tmp_path, MARKS[separator]), levels=["tags"], tags=TagCells(separator, 0.5))
    assert read.labels["tags"].tolist() == SETS
    assert read.tags == {"tags": 0.5}


def test_choices_of_an_annotation_program(tmp_path: Path) -> None:
    cells = ['{"choices": ["round", "red"]}', "red", '{"choices": ["round"]}', "blue"]  # Label Studio's csv
    read = read_texts(csv(tmp_path, cells), levels=["tags"], tags=TagCells("list"))
    assert read.labels["tags"].tolist() == SETS


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_a_file_are_read_as_tags_or_asked_about(kind: str, tmp_path: Path) -> None:
    path = parquet(tmp_path, LISTS[kind], sort=["a", "a", "b", "b"])
    read = read_texts(path, levels=["tags", "sort"], tags=TagCells("list"))
    assert (read.labels["tags"].tolist(), read.labels["sort"].tolist()) == (SETS, ["a", "a", "b", "b"])
    assert read.tags == {"tags": "any"}
    with pytest.raises(ValueError, match=r"'tags' of .* holds .*; read them as tags with --separator list"):
        read_texts(path, levels=["tags"])
    assert list(read_texts(path).labels) == ["sort"]


def test_unnamed_columns_are_found_by_the_separator(tmp_path: Path) -> None:
    read = read_texts(csv(tmp_path, MARKS[";"]), tags=TagCells(";"))
    assert (read.labels["tags"].tolist(), read.tags) == (SETS, {"tags": "any"})
    vectors = read_vectors(with_vectors(tmp_path, LISTS["lists"]), tags=TagCells("list"))
    assert (vectors.labels["tags"].tolist(), vectors.embeddings.shape) == (SETS, (4, 2))


def with_vectors(folder: Path, tags: pa.Array) -> Path:
    path = folder / "v.parquet"
    pa.parquet.write_table(pa.table({"tags": tags, "embedding": [[0.0, float(i)] for i in range(4)]}), path)
    return path


def test_a_row_without_tags_lacks_its_label(tmp_path: Path) -> None:
    path = csv(tmp_path, ["a;b", "", " ; ", "b"])
    with pytest.raises(ValueError, match="must have a class name of level 'tags': 2 of 4 have none"):
        read_texts(path, levels=["tags"], tags=TagCells(";"))
    read = read_texts(path, levels=["tags"], tags=TagCells(";"), skip_empty=True)
    assert read.labels["tags"].tolist() == ["a;b", "b"]


def test_what_cannot_be_tags_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = csv(tmp_path, ["a", "b", "a", "b"])
    with pytest.raises(ValueError, match=r"labels with ';' between them: no cell of 'tags' of .* does; leave it out"):
        read_texts(path, levels=["tags"], tags=TagCells(";"))
    with pytest.raises(ValueError, match=r"must be for cells that hold lists: no cell of any column"):
        read_texts(path, tags=TagCells("list"))
    with pytest.raises(ValueError, match=r"a tag must hold no ';', which stands between tags: 'tags' of .* has 'a;b'"):
        read_texts(csv(tmp_path, ['["a;b", "c"]', "c", "c", "c"]), levels=["tags"], tags=TagCells("list"))


def test_a_file_of_embeddings_says_which_levels_are_of_tags(tmp_path: Path) -> None:
    path, columns = tmp_path / "e.parquet", {"tags": SETS, "sort": ["a;b", "b", "a", "b"]}
    lines = [level_line("tags", 0.5), level_line("sort", None)]
    write_embeddings(path, np.eye(4, dtype=np.float32), ("0", "1", "2", "3"), columns, levels=lines)
    read = read_vectors(path)
    assert (list(read.labels), read.tags, read.labels["sort"].tolist()) == (
        ["tags", "sort"],
        {"tags": 0.5},
        columns["sort"],
    )


@pytest.mark.parametrize(("text", "match"), [("any", "any"), ("all", "all"), ("0.5", 0.5), ("1", 1.0)])
def test_how_tags_match(text: str, match: object) -> None:
    assert tag_match(text) == match


@pytest.mark.parametrize("text", ["0", "1.5", "nan", "some", ""])
def test_another_match_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="match must be any, all, or a Jaccard index"):
        tag_match(text)
