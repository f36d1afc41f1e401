"""Label columns: those that are meant, labels that look alike, cells of several labels, rows with gaps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from trivet.commands.init.data import detect
from trivet.datasets.vectors import VectorsConfig, load_vectors
from trivet.io.embedding_table import Vectors
from trivet.io.label_columns import odd_labels, split_names
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.io.tag_cells import TagCells


def table(folder: Path, columns: dict[str, Sequence[object]], name: str = "t.jsonl") -> Path:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def texts(folder: Path, **columns: Sequence[object]) -> Vectors:
    count = len(next(iter(columns.values())))
    return read_texts(table(folder, {"text": [f"text {i}" for i in range(count)], **columns}))


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        (["dog", "dog "], "'dog' (2) and 'dog ' (1)"),
        (["Dog", "dog", "DOG"], "'Dog' (3) and 'dog' (2) and 'DOG' (1)"),
        (["caf\u00e9", "cafe\u0301"], r"'caf\xe9' (2) and 'cafe\u0301' (1)"),
        (["a b", "a\u00a0b"], r"'a b' (2) and 'a\xa0b' (1)"),
        (["x\u200by", "xy"], r"'x\u200by' (2) and 'xy' (1)"),
        (["\uff21B", "ab"], "'\uff21B' (2) and 'ab' (1)"),
        (["stra\u00dfe", "STRASSE"], "'stra\u00dfe' (2) and 'STRASSE' (1)"),
        (["1", "1.0", "2"], "'1' (3) and '1.0' (2)"),
        (["7", "-07.50", "-7.5"], "'-07.50' (2) and '-7.5' (1)"),
        (["dog", "dogs", "a", "A", "\u00e4", "b1", "b2"], None),
    ],
)
def test_names_that_look_alike(names: list[str], pairs: str | None) -> None:
    sentences = odd_labels("label", {name: len(names) - i for i, name in enumerate(names)})
    if pairs is None:
        assert not sentences
    else:
        (sentence,) = sentences
        assert f"{pairs}. Write them alike" in sentence


@pytest.mark.parametrize("name", ["nan", "None", "NULL", "?", "-", "n/a", "Unknown"])
def test_names_that_stand_for_no_label(name: str) -> None:
    (note,) = odd_labels("label", {"a": 3, "b": 2, name: 4})
    assert f"count as classes: {name!r} (4). If they do here, leave these items out" in note


def test_a_list_of_one_is_its_entry_and_more_are_refused_in_a_sentence(tmp_path: Path) -> None:
    assert texts(tmp_path, kind=[["a"], ["b"], ["a"]]).labels["kind"].tolist() == ["a", "b", "a"]
    read = texts(tmp_path, tags=[["a", "b"], ["b"], []], meta=[{"x": 1, "y": 2}] * 3, kind=["k", "k", "l"])
    assert list(read.labels) == ["kind"]
    assert "tags holds lists, such as ['a', 'b']" in read.why_none()
    path = table(tmp_path, {"text": ["s", "t"], "tags": [["a", "b"], ["c"]], "slots": [{"x": [1]}, {"x": [2]}]})
    for name, what in (("tags", r"lists, such as \['a', 'b'\]"), ("slots", "objects of x|lists")):
        with pytest.raises(
            ValueError,
            match=rf"a label must be one value in each row: '.*' of .* holds ({what}); (read them as tags .*, )?write",
        ):
            read_texts(path, levels=[next(n for n in ("slots", "x") if name == "slots") if name == "slots" else name])


def test_a_named_column_of_several_labels_is_asked_about(tmp_path: Path) -> None:
    path = table(tmp_path, {"text": ["s", "t", "u"], "tags": ["a;b", "b", "a"]})
    assert read_texts(path).labels == {}
    asked = (
        r"'tags' of .* holds several in a cell, such as 'a;b'; read them as tags with --separator \";\", or each cell"
    )
    with pytest.raises(ValueError, match=asked):
        read_texts(path, levels=["tags"])
    named = read_texts(path, levels=["tags"], tags=TagCells("none"))
    assert named.labels["tags"].tolist() == ["a;b", "b", "a"]
    assert (named.tags, named.notes) == ({}, ())


def test_poor_labels_are_left_where_there_are_better_ones(tmp_path: Path) -> None:
    dates = ["2024-05-01", "2024-05-02", "2024-05-01"]
    read = texts(tmp_path, posted=dates, stars=[1, 5, 1], author=["x", "y", "x"], sort=["a", "b", "a"])
    assert list(read.labels) == ["sort"]
    assert list(texts(tmp_path, posted=["1. Mai 2024"] * 3, stars=[1, 5, 1]).labels) == ["stars"]
    assert list(texts(tmp_path, author=["x", "y", "x"]).labels) == ["author"]


FILES = {
    "t.csv": ('text,label,id\na,x,1\n\n,y,2\n"c\nd", ,3\ne,x,\n', "lines 5, 7", "line 4", "line 7"),
    "t.jsonl": (
        '{"text": "a", "label": "x", "id": 1}\n\n{"text": "", "label": "y", "id": 2}\n'
        '{"text": "c", "label": null, "id": 3}\n{"text": "e", "label": "x", "id": null}\n',
        "line 4",
        "line 3",
        "line 5",
    ),
    "t.json": (
        '[{"text": "a", "label": "x", "id": 1}, {"text": "", "label": "y", "id": 2},'
        ' {"text": "c", "label": null, "id": 3}, {"text": "e", "label": "x"}]',
        "row 2 counted from 0",
        "row 1 counted from 0",
        "row 3 counted from 0",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_all_that_is_missing_is_said_at_once_by_the_lines_of_the_file(name: str, tmp_path: Path) -> None:
    content, label, text, row = FILES[name]
    (tmp_path / name).write_text(content)
    label = label.replace("lines 5, 7", "line 5")
    with pytest.raises(ValueError, match="every row of") as error:
        read_texts(tmp_path / name, skip_empty=False)
    sentence = str(error.value)
    assert "must have a class name of level 'label' and an id and a text: " in sentence
    assert f"1 of 4 have no class name of level 'label', {label}; 1 of 4 have no id, {row};" in sentence
    assert f"1 of 4 have no text, {text}; fill them in, or go on without these rows: --skip-empty" in sentence
    read = read_texts(tmp_path / name, skip_empty=True)
    assert (read.texts, read.labels["label"].tolist(), read.rows.tolist()) == (["a"], ["x"], [0])
    assert read.notes[0].startswith(f"3 of 4 rows of {name} were left out: 1 of 4 have no class name")
    with pytest.raises(ValueError, match="fill them in, or leave out these rows") as error:
        read_texts(tmp_path / name)  # as `trivet embed` does, which has no such option
    assert "--" not in str(error.value)


def test_the_last_rows_of_a_spreadsheet_are_left_out_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.csv").write_bytes("sep=;\r\ntext;label\r\nKöln;x\r\nb;y\r\n;\r\n ;\r\n".encode("cp1252"))
    read = read_texts(tmp_path / "t.csv")
    assert (read.texts, read.labels["label"].tolist()) == (["Köln", "b"], ["x", "y"])
    assert "ends with 2 empty rows, left out" in caplog.text


def test_columns_that_are_there_are_named(tmp_path: Path) -> None:
    path = table(tmp_path, {"text": ["a"], "tags": [["x", "y"]]})
    with pytest.raises(ValueError, match="has no 'label'; Allowed: text"):
        read_texts(path, levels=["label"])
    pyarrow.parquet.write_table(pa.table({"tags": [["x", "y"]], "embedding": [[0.5, 1.0]]}), tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=r"has no 'label'; it has 'tags' \(list<element: string>\); add a column of"):
        read_vectors(tmp_path / "v.parquet", levels=["label"])


PRODIGY = [
    {"text": "a", "accept": ["X"], "answer": "accept"},
    {"text": "b", "accept": ["Y"], "answer": "reject"},
    {"text": "c", "accept": ["Y"], "answer": "accept"},
    {"text": "d", "accept": [], "answer": "ignore"},
]


@pytest.mark.parametrize("name", ["p.jsonl", "p.json"])
def test_answers_of_prodigy(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(PRODIGY) if name == "p.json" else "".join(json.dumps(row) + "\n" for row in PRODIGY))
    read = read_texts(path)
    assert (read.texts, read.labels["label"].tolist()) == (["a", "c"], ["X", "Y"])
    assert "2 of 4 rows are left out, as their answer is not 'accept'" in caplog.text
    several = [{**row, "accept": ["X", "Y"]} for row in PRODIGY]
    path.write_text(json.dumps(several) if name == "p.json" else "".join(json.dumps(row) + "\n" for row in several))
    with pytest.raises(ValueError, match=r"'label' of .* holds lists, such as \['X', 'Y'\]"):
        read_texts(path, levels=["label"])
    binary = [{"text": row["text"], "label": "X", "answer": row["answer"]} for row in PRODIGY]
    path.write_text(json.dumps(binary) if name == "p.json" else "".join(json.dumps(row) + "\n" for row in binary))
    assert read_texts(path).texts == ["a", "c"]
    quiz = [{**row, "answer": "yes"} for row in binary]  # not of Prodigy
    path.write_text(json.dumps(quiz) if name == "p.json" else "".join(json.dumps(row) + "\n" for row in quiz))
    assert len(read_texts(path, levels=["label"])) == 4


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            '{"text": {"0": "a"}}',
            "list of objects, one a row: it may hold columns, 'text'; write rows.json: import json",
        ),
        ("[1, 2]", "list of objects, one a row: it is something else"),
        ('[{"id": 1, "data": {"text": "a"}, "annotations": []}]', "complete export of Label Studio.* JSON-MIN or CSV"),
        ('{"text": "a", "label": null}', "it is one object; write its rows as a list"),
        ("[", "must be a complete json file"),
        ('[{"a": {"b": 1}}, {"a": "c"}]', "must hold values of one kind: 'a' holds object in some rows and string in"),
    ],
)
def test_other_json_is_refused_in_a_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_texts(tmp_path / "t.json")


WORDS = [["train", "test"], ["Train", "TEST"], ["training", "testing", "validation"], ["TRAIN", "dev", " test"]]


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.npz"])
@pytest.mark.parametrize("column", ["set", "split", "label2"])
def test_a_column_of_words_of_splits_is_the_split_and_no_class(
    words: list[str], name: str, column: str, tmp_path: Path
) -> None:
    parts = words * 8
    columns: dict[str, Sequence[Any]] = {
        "embedding": [[float(i), 1.0 + i % 3] for i in range(len(parts))],
        "label": [f"k{i % 5}" for i in range(len(parts))],
        column: parts,
    }
    path = tmp_path / name
    if name == "t.npz":
        np.savez(path, **{key: np.array(values) for key, values in columns.items()})
    elif name == "t.parquet":
        pa.parquet.write_table(pa.table(columns), path)
    elif name == "t.csv":
        rows = zip(*columns.values(), strict=True)
        path.write_text("\n".join([",".join(columns), *(f'"{v}",{k},{part}' for v, k, part in rows)]) + "\n")
    else:
        table(tmp_path, columns)
    for levels in (None, ["label"]):
        vectors = read_vectors(path, levels=levels)
        assert list(vectors.labels) == ["label"]
        assert vectors.splits is not None
        assert set(vectors.splits.tolist()) == {"train", "test", "val"} - ({"val"} if len(words) == 2 else set())
        assert (column == "split") == (not vectors.notes)
    assert len(read_vectors(path, split="Test")) == 8
    assert list(read_vectors(path, levels=[column]).labels) == [column]  # which was named
    splits = load_vectors(VectorsConfig(path=path), tmp_path, None)
    assert len(splits.train) == 8
    assert list(splits.train.labels) == ["label"]
    detected = detect(path)
    assert detected.divided
    assert list(detected.levels) == ["label"]


def test_words_of_splits_that_leave_it_open() -> None:
    assert split_names(["Train", "train ", "valid", "dev", "query"]) == {
        "Train": "train", "train ": "train", "valid": "valid", "dev": "dev", "query": "query",
    }  # fmt: skip


def test_two_columns_of_splits_are_asked_about_and_the_remedy_works(tmp_path: Path) -> None:
    parts = ["train", "test"] * 10
    columns = {"text": [f"text {i}" for i in range(20)], "label": list("aabb") * 5, "set": parts, "fold": parts[::-1]}
    with pytest.raises(ValueError, match=r"set, fold of .* rename the one that is meant to 'split'"):
        read_texts(table(tmp_path, columns))
    vectors = read_texts(table(tmp_path, {("split" if key == "set" else key): side for key, side in columns.items()}))
    assert list(vectors.labels) == ["label"]
    assert "fold says which rows are trained on" in vectors.why_none()


def test_one_hot_columns_are_named_as_such(tmp_path: Path) -> None:
    kinds = ["ant", "bee", "cat"]
    hot = {kind: [int(i % 3 == k) for i in range(24)] for k, kind in enumerate(kinds)}
    path = table(tmp_path, {"embedding": [[i, 0.5] for i in range(24)], **hot})
    assert not read_vectors(path).labels
    with pytest.raises(ValueError, match=r"ant, bee, cat are one-hot: .* idxmax\(axis=1\)"):
        detect(path)
    path = table(tmp_path, {"embedding": [[i, 0.5] for i in range(24)], **hot, "kind": kinds * 8})
    assert list(detect(path).levels) == ["kind"]


@pytest.mark.parametrize("name", ["Bearbeiter", "usuario", "Name"])
def test_people_are_no_coarse_level(name: str, tmp_path: Path) -> None:
    people = [f"p{i % 4 // 2}" for i in range(24)]
    path = table(tmp_path, {"embedding": [[i, 0.5] for i in range(24)], "label": list("abcd") * 6, name: people})
    assert list(detect(path).levels) == ["label"]
