from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.nightly import sampled

from trivet.io.embedding_table import Vectors, class_numbers
from trivet.io.parquet_files import write_embeddings
from trivet.io.read_embeddings import read_vectors
from trivet.io.table import BATCH, read_errors
from trivet.io.vector_choice import VectorChoice

ROWS = [[0.5, -1.0, 2.0], [3.0, 0.25, 1.0], [7.0, 8.0, -9.5], [0.0, 0.0, 1e-3]]
EMBEDDINGS = np.array(ROWS, np.float32)
IDS = ["a/1.png", "a/2.png", "b/1.png", "ü"]


def as_npz(path: Path, columns: dict[str, Any], embeddings: Any = EMBEDDINGS) -> Path:
    np.savez(path / "file.npz", embeddings=embeddings, **{name: np.array(column) for name, column in columns.items()})
    return path / "file.npz"


def as_npy(path: Path, columns: dict[str, Any], embeddings: Any = EMBEDDINGS) -> Path:
    np.save(path / "file.npy", embeddings)
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join("" if value is None else str(value) for value in row) for row in rows)]
    (path / "file.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path / "file.npy"


def as_lists(path: Path, columns: dict[str, Any], embeddings: Any = EMBEDDINGS) -> Path:
    pq.write_table(pa.table({**columns, "embedding": list(embeddings)}), path / "file.parquet")
    return path / "file.parquet"


def as_columns(path: Path, columns: dict[str, Any], embeddings: Any = EMBEDDINGS) -> Path:
    numbered = {f"e{i}": column for i, column in enumerate(np.asarray(embeddings).T)}
    pq.write_table(pa.table({**columns, **numbered}), path / "file.parquet")
    return path / "file.parquet"


Write = Callable[..., Path]
FORMATS = [as_npz, as_npy, as_lists, as_columns]
TYPED = [as_npz, as_lists, as_columns]


def texts(column: np.ndarray | None) -> list[str] | None:
    return None if column is None else column.tolist()


def levels_of(vectors: Vectors) -> dict[str, list[str]]:
    return {level: names.tolist() for level, names in vectors.labels.items()}


@pytest.mark.parametrize("write", FORMATS)
def test_every_format_gives_back_what_was_written(write: Write, tmp_path: Path) -> None:
    columns = {
        "make": ["kia", "kia", "vw", "ü b"],
        "id": IDS,
        "model": [10, 2, 10, -3],
        "split": ["train", "train", "test", "val"],
        "camera": [1, 2, 1, 2],
    }
    vectors = read_vectors(write(tmp_path, columns))
    assert vectors.name in ("file.npz", "file.npy", "file.parquet")
    assert vectors.embeddings.tolist() == EMBEDDINGS.tolist()
    assert vectors.embeddings.dtype == np.float32
    assert levels_of(vectors) == {"make": ["kia", "kia", "vw", "ü b"], "model": ["10", "2", "10", "-3"]}
    assert list(vectors.labels) == ["make", "model"]
    assert texts(vectors.ids) == IDS
    assert texts(vectors.splits) == ["train", "train", "test", "val"]
    assert texts(vectors.cameras) == ["1", "2", "1", "2"]
    assert len(vectors) == 4
    assert all(names.dtype.kind == "U" for names in (*vectors.labels.values(), vectors.ids, vectors.cameras))


@pytest.mark.parametrize("write", FORMATS)
def test_what_is_not_there_is_none(write: Write, tmp_path: Path) -> None:
    vectors = read_vectors(write(tmp_path, {"label": [1, 1, 2, 2]}))
    assert (vectors.ids, vectors.splits, vectors.cameras) == (None, None, None)
    assert levels_of(vectors) == {"label": ["1", "1", "2", "2"]}


@pytest.mark.parametrize("write", FORMATS)
def test_levels_named_are_taken_in_that_order_and_of_any_kind(write: Write, tmp_path: Path) -> None:
    path = write(
        tmp_path, {"a": [1, 2, 3, 4], "b": ["x", "y", "x", "y"], "weight": [0.5, 2.25, -1.5, 0.1], "cam": [1, 1, 2, 2]}
    )
    assert list(read_vectors(path).labels) == ["a", "b"]
    chosen = read_vectors(path, levels=["weight", "b", "cam"])
    assert list(chosen.labels) == ["weight", "b", "cam"]
    assert chosen.labels["weight"].tolist() == ["0.5", "2.25", "-1.5", "0.1"]
    assert chosen.labels["cam"].tolist() == ["1", "1", "2", "2"]
    assert texts(chosen.cameras) == ["1", "1", "2", "2"]
    assert read_vectors(path, levels=[]).labels == {}
    with pytest.raises(ValueError, match=r"has no 'wieght'; did you mean 'weight'\? Allowed: a, b, cam, weight\."):
        read_vectors(path, levels=["b", "wieght"])


NUMBERS: list[tuple[list[Any], str, list[str]]] = [
    ([7, -1, 0, 127], "int8", ["7", "-1", "0", "127"]),
    ([7, 2**63 + 1, 0, 2**64 - 1], "uint64", ["7", "9223372036854775809", "0", "18446744073709551615"]),
    ([-(2**63), 2**53 + 1, 2**53, 0], "int64", ["-9223372036854775808", "9007199254740993", "9007199254740992", "0"]),
    ([True, False, False, True], "bool", ["true", "false", "false", "true"]),
    ([7.0, -0.0, 12.0, 0.0], "float16", ["7", "0", "12", "0"]),
    ([7.0, -3.0, 16777216.0, 0.0], "float32", ["7", "-3", "16777216", "0"]),
    ([1e15, -3.0, 1e22, 0.0], "float64", ["1000000000000000", "-3", "10000000000000000000000", "0"]),
]


@pytest.mark.parametrize("write", TYPED)
@pytest.mark.parametrize(("values", "dtype", "names"), NUMBERS, ids=[dtype for _, dtype, _ in NUMBERS])
def test_numbers_become_texts(values: list[Any], dtype: str, names: list[str], write: Write, tmp_path: Path) -> None:
    assert levels_of(read_vectors(write(tmp_path, {"label": np.array(values, dtype)}))) == {"label": names}


@pytest.mark.parametrize("write", TYPED)
def test_floats_that_are_not_all_integral_are_levels_only_when_named(write: Write, tmp_path: Path) -> None:
    columns = {
        "label": [1, 1, 2, 2],
        "score": np.array([1.0, 0.1, 2.0, -2.5], np.float32),
        "far": np.array([1.0, np.inf, 2.0, 3.0]),
        "none": np.full(4, np.nan),
    }
    path = write(tmp_path, columns)
    assert list(read_vectors(path).labels) == ["label"]
    assert levels_of(read_vectors(path, levels=["score", "far"])) == {
        "score": ["1", "0.1", "2", "-2.5"],
        "far": ["1", "inf", "2", "3"],
    }


def test_text_columns_of_parquet_of_every_kind(tmp_path: Path) -> None:
    written = ["b", "a", " a", "b"]
    columns = {
        "plain": pa.array(written),
        "large": pa.array(written, pa.large_string()),
        "coded": pa.array(written).dictionary_encode(),
        "numbers": pa.array([5, 5, 6, 6]).dictionary_encode(),
        "day": pa.array([datetime.date(2024, 1, 2)] * 4),
        "tags": [["x"], [], ["y"], None],
        "raw": [b"\xff", b"", b"", b""],
        "wait": pa.array([1, 2, 3, 4], pa.duration("s")),
        "none": pa.nulls(4),
    }
    path = as_lists(tmp_path, columns)
    expected = {"plain": written, "large": written, "coded": written, "numbers": ["5", "5", "6", "6"]}
    assert levels_of(read_vectors(path)) == expected
    assert levels_of(read_vectors(path, levels=["day"])) == {"day": ["2024-01-02"] * 4}
    with pytest.raises(ValueError, match="level 'none': 4 of 4 have none"):
        read_vectors(path, levels=["none"])
    with pytest.raises(ValueError, match=r"must have a class name of level 'tags': 2 of 4 have none, rows 1, 3"):
        read_vectors(path, levels=["tags"])  # each list has one entry at most
    assert levels_of(read_vectors(path, levels=["tags"], skip_empty=True)) == {"tags": ["x", "y"]}
    with pytest.raises(ValueError, match=r"has no 'tag'; .*Allowed: coded, day, large, none, numbers, plain"):
        read_vectors(path, levels=["tag"])


def test_text_columns_of_npz_of_every_kind(tmp_path: Path) -> None:
    columns = {
        "word": ["b", "a", " a", "b"],
        "bytes": np.char.encode(["ü", "a", "a", "b"], "utf-8"),
        "swapped": np.array(["b", "a", "c", "b"]).astype(">U3"),
        "swapped numbers": np.array([2, 1, 3, 2], ">i4"),
        "day": np.array(["2024-01-02"] * 4, "datetime64[D]"),
        "complex": np.ones(4, complex),
        "weights": np.ones((4, 2), int),
        "names of classes": ["a", "b"],
        "one": 5,
    }
    path = as_npz(tmp_path, columns)
    vectors = read_vectors(path)
    assert levels_of(vectors) == {
        "word": ["b", "a", " a", "b"],
        "bytes": ["ü", "a", "a", "b"],
        "swapped": ["b", "a", "c", "b"],
        "swapped numbers": ["2", "1", "3", "2"],
    }
    assert vectors.labels["swapped"].dtype.isnative
    assert levels_of(read_vectors(path, levels=["day"])) == {"day": ["2024-01-02"] * 4}


def test_a_csv_keeps_texts_as_written(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", EMBEDDINGS)
    (tmp_path / "a.csv").write_bytes(
        '\ufeff,id,code,word,flag,score,whole\n0,1,007,NA,True,0.5,1.0\n1,01,7,"x, y",true,1,2\n'
        '2,001,1e3,"two\nlines",no,2,3\n3,0,+7," null",False,3,4\n'.encode()
    )
    vectors = read_vectors(tmp_path / "a.npy")
    assert levels_of(vectors) == {
        "code": ["007", "7", "1e3", "+7"],
        "word": ["NA", "x, y", "two\nlines", " null"],
        "flag": ["True", "true", "no", "False"],
        "whole": ["1.0", "2", "3", "4"],
    }
    assert texts(vectors.ids) == ["1", "01", "001", "0"]
    assert levels_of(read_vectors(tmp_path / "a.npy", levels=["score"])) == {"score": ["0.5", "1", "2", "3"]}


def test_a_long_csv_with_lines_in_its_values(tmp_path: Path) -> None:
    count = 300_000  # more than the csv reader takes at once
    path = as_npy(tmp_path, {"y": ['"a\nb"'] * count}, np.ones((count, 1), np.float16))  # "y": a part ends in a text
    assert set(read_vectors(path).labels["y"].tolist()) == {"a\nb"}


def test_a_csv_of_another_name(tmp_path: Path) -> None:
    as_npy(tmp_path, {"label": [1, 1, 2, 2]})
    (tmp_path / "other.csv").write_text("label\nx\nx\ny\ny\n")
    assert levels_of(read_vectors(tmp_path / "file.npy", choice=VectorChoice(tmp_path / "other.csv"))) == {
        "label": ["x", "x", "y", "y"]
    }
    with pytest.raises(ValueError, match=r"--table describes the rows of an \.npy file or .*: got .*file\.npz"):
        read_vectors(tmp_path / "file.npz", choice=VectorChoice(tmp_path / "other.csv"))


def test_an_npy_file_stays_on_disk(tmp_path: Path) -> None:
    path = as_npy(tmp_path, {"label": [1, 1, 2, 2], "split": ["a", "b", "b", "a"]})
    vectors = read_vectors(path)
    assert isinstance(vectors.embeddings, np.memmap)
    assert vectors.embeddings.mode == "r"
    assert vectors.embeddings.filename == str(path) or Path(vectors.embeddings.filename) == path
    middle = read_vectors(path, split="b").embeddings
    assert isinstance(middle, np.memmap)
    assert np.shares_memory(vectors.select(slice(None)).embeddings, vectors.embeddings)
    assert read_vectors(path, split="a").embeddings.tolist() == EMBEDDINGS[[0, 3]].tolist()


@pytest.mark.parametrize("dtype", sampled([np.float16, np.float32, np.float64], 3))
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed_size_list", "columns"])
def test_parquet_of_every_kind_and_size(kind: str, dtype: type, tmp_path: Path) -> None:
    count = 2 * BATCH + 3
    expected = np.random.default_rng(0).standard_normal((count, 3)).astype(dtype)
    flat = pa.array(expected.reshape(-1))
    ends = np.arange(0, 3 * count + 1, 3)
    embedding = {
        "list": lambda: pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat),
        "large_list": lambda: pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), flat),
        "fixed_size_list": lambda: pa.FixedSizeListArray.from_arrays(flat, 3),
    }
    numbers = np.arange(count)
    if kind == "columns":
        table = pa.table({"row": numbers, **{f"dim_{i + 1}": expected[:, i] for i in (2, 0, 1)}})
    else:
        table = pa.table({"row": numbers, "embedding": embedding[kind]()})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    vectors = read_vectors(tmp_path / "a.parquet", levels=["row"])
    assert vectors.embeddings.dtype == dtype
    assert (vectors.embeddings == expected).all()
    assert (vectors.labels["row"].astype(int) == numbers).all()


def test_numbered_columns(tmp_path: Path) -> None:
    def read(**columns: Any) -> list[list[float]]:
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        values: list[list[float]] = read_vectors(tmp_path / "a.parquet", levels=["y"]).embeddings.tolist()
        return values

    y = ["a", "b"]
    assert read(**{"1": [3.0, 4.0], "0": [1.0, 2.0], "y": y}) == [[1, 3], [2, 4]]
    assert read(**{f"e{i}": [float(i)] * 2 for i in range(11, -1, -1)}, y=y) == [list(range(12))] * 2
    assert read(**{f"e{i:02d}": [float(i)] * 2 for i in range(11)}, y=y) == [list(range(11))] * 2
    levels = {"level1": [1, 2], "level2": [3, 4]}
    assert read(e0=[1.0, 2.0], e1=[3.0, 4.0], y=y, **levels) == [[1, 3], [2, 4]]
    assert list(read_vectors(tmp_path / "a.parquet").labels) == ["y", "level1", "level2"]
    mixed = read(e0=np.ones(2, np.float32), e1=np.full(2, 0.1), y=y)
    assert mixed == [[1, 0.1]] * 2

    for columns, message in [
        (
            {"e0": [1.0], "e1": [1.0], "f1": [1.0], "f2": [1.0]},
            r"in e0, f1, of which .* meant: choose it with --embedding, such as --embedding e0 ",
        ),
        ({"e0": [1.0], "e2": [1.0]}, "as lists of numbers, .*: it has e0, e2, y;"),
        ({"e2": [1.0], "e3": [1.0]}, "it has e2, e3, y;"),
        ({"e0": [1.0]}, "it has e0, y;"),
        ({"e0": [1.0], "e00": [1.0], "e1": [1.0]}, "it has e0, e00, e1, y;"),
        ({"e0": [1], "e1": [2]}, "it has e0, e1, y;"),
        ({f"e{i}": [1] for i in range(8)}, "are whole numbers from 1 to 1 .*--codes bits .*--codes int8"),
        ({"e0": [1.0], "e1": [None]}, "e0, e1 has none in any row; embed them"),
    ]:
        columns = {
            name: pa.array(column, pa.float64() if column == [None] else None) for name, column in columns.items()
        }
        with pytest.raises(ValueError, match=message):
            read(**columns, y=["a"])


def test_embeddings_of_npz_are_named_or_the_only_ones(tmp_path: Path) -> None:
    other = np.zeros((4, 3))
    for arrays in ({"vectors": EMBEDDINGS, "other": other}, {"other": other, "features": EMBEDDINGS}):
        np.savez_compressed(tmp_path / "a.npz", **arrays, y=np.arange(4))
        assert read_vectors(tmp_path / "a.npz").embeddings.tolist() == EMBEDDINGS.tolist()
    np.savez(tmp_path / "a.npz", x=EMBEDDINGS, y=np.arange(4))
    assert read_vectors(tmp_path / "a.npz").embeddings.tolist() == EMBEDDINGS.tolist()
    np.savez(tmp_path / "a.npz", a=EMBEDDINGS, b=other, y=np.arange(4))
    with pytest.raises(ValueError, match="vectors in a, b, of which one must be meant: choose it with --embedding"):
        read_vectors(tmp_path / "a.npz")
    assert read_vectors(tmp_path / "a.npz", choice=VectorChoice(embedding="b")).embeddings.tolist() == other.tolist()
    np.savez(tmp_path / "a.npz", y=np.arange(4))
    with pytest.raises(ValueError, match=r"must hold the embeddings .*: it has y;"):
        read_vectors(tmp_path / "a.npz")


@pytest.mark.parametrize("write", FORMATS)
def test_split_chooses_rows(write: Write, tmp_path: Path) -> None:
    columns = {"label": [1, 2, 3, 4], "id": ["a", "b", "b", "c"], "split": ["test", "test", "train", "test"]}
    path = write(tmp_path, columns)
    vectors = read_vectors(path, split="test")
    assert vectors.embeddings.tolist() == EMBEDDINGS[[0, 1, 3]].tolist()
    assert levels_of(vectors) == {"label": ["1", "2", "4"]}
    assert texts(vectors.ids) == ["a", "b", "c"]
    assert texts(vectors.splits) == ["test"] * 3
    with pytest.raises(ValueError, match=r"no row of the split 'tset'; did you mean 'test'\? Allowed: test, train\."):
        read_vectors(path, split="tset")
    with pytest.raises(
        ValueError,
        match=r"the ids of .* must be unique: (rows 1, 2 counted from 0|lines 3, 4) both have 'b', and 1 of 4",
    ):
        read_vectors(path)
    with pytest.raises(ValueError, match="must have a column 'split' to choose the split 'x' from: it has none"):
        read_vectors(write(tmp_path, {"label": [1, 2, 3, 4]}), split="x")


@pytest.mark.parametrize(
    ("write", "values", "present"),
    [
        (as_npz, [1.0, np.nan, 2.0, np.nan], ["1", "2"]),
        (as_lists, ["a", None, "b", None], ["a", "b"]),
        (as_lists, [2**53 + 1, None, 2, None], ["9007199254740993", "2"]),
        (as_lists, [True, None, False, None], ["true", "false"]),
        (as_lists, [1.0, None, 2.0, np.nan], ["1", "2"]),
        (as_npy, ["a", None, "b", ""], ["a", "b"]),
        (as_npy, ["1", "nan", "2", ""], ["1", "2"]),
    ],
)
def test_missing_values_are_named_by_row(write: Write, values: list[Any], present: list[str], tmp_path: Path) -> None:
    split = ["x", "y", "x", "y"]
    path = write(tmp_path, {"label": values, "split": split})
    where = "lines 3, 5" if write is as_npy else "rows 1, 3 counted from 0"
    with pytest.raises(ValueError, match=rf"a class name of level 'label': 2 of 4 have none, {where}"):
        read_vectors(path)
    with pytest.raises(ValueError, match=rf"level 'label': 2 of 2 have none, {where}"):
        read_vectors(path, split="y")
    assert levels_of(read_vectors(path, split="x")) == {"label": present}
    assert read_vectors(path, levels=[]).labels == {}


@pytest.mark.parametrize(("column", "role"), [("id", "id"), ("split", "split"), ("camid", "camera")])
def test_other_missing_values(column: str, role: str, tmp_path: Path) -> None:
    path = as_lists(tmp_path, {column: ["a", "b", None, "c"]})
    with pytest.raises(ValueError, match=rf"must have an? {role}: 1 of 4 have none, row 2 counted"):
        read_vectors(path)
    if role == "split":
        assert len(read_vectors(path, split="c")) == 1
        with pytest.raises(ValueError, match=r"Allowed: a, b, c\.$"):
            read_vectors(path, split="z")


def test_many_missing_values_are_not_all_listed(tmp_path: Path) -> None:
    path = as_lists(tmp_path, {"label": [None] * 10 + ["a"]}, np.ones((11, 2)))
    with pytest.raises(ValueError, match=r"10 of 11 have none, rows 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. counted"):
        read_vectors(path)


def test_lists_must_agree(tmp_path: Path) -> None:
    def read(rows: Any, kind: Any = None) -> Vectors:
        pq.write_table(pa.table({"embedding": pa.array(rows, kind)}), tmp_path / "a.parquet")
        return read_vectors(tmp_path / "a.parquet")

    long = [[1.0, 2.0]] * (BATCH + 5)
    with pytest.raises(ValueError, match=rf"row {BATCH + 5} counted from 0 has 3 values, the first row has 2; embed"):
        read([*long, [1.0, 2.0, 3.0], [1.0]])
    with pytest.raises(
        ValueError, match=rf"have a complete embedding: 1 of {BATCH + 6:,} have none, row {BATCH + 5} counted from 0;"
    ):
        read([*long, None])
    with pytest.raises(ValueError, match=rf"'embedding' lacks a number in row {BATCH + 6} counted from 0; drop"):
        read([*long, [0.0, 1.0], [1.0, None]], pa.list_(pa.float32(), 2))
    with pytest.raises(ValueError, match=r"N, d >= 1: got \(2, 0\)"):
        read([[], []], pa.list_(pa.float32()))
    with pytest.raises(ValueError, match="must hold at least one row"):
        read([], pa.list_(pa.float32()))
    with pytest.raises(
        ValueError, match=r"floating point, or whole numbers of 8 bits: got int64 from 1 to 256; .*\.astype"
    ):
        read([[1, 256]])
    with pytest.raises(ValueError, match="must be finite: 1 of 2 hold NaN or infinity, row 1 counted from 0; drop"):
        read([[0.0, 1.0], [np.nan, 1.0]])


@pytest.mark.parametrize("write", [as_npz, as_npy])
@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.full((4, 3), 256), r"must be floating point, or .*: got int64 from 256 to 256; .* with \.astype"),
        (np.ones((4, 3), int), "are whole numbers from 1 to 1 .*--codes bits .*--codes int8"),
        (np.ones((4, 3), complex), r"embeddings.*(\(complex128 of shape|must be numbers: got complex128)"),
        (np.ones(4), r"shape \(N, d\) with N, d >= 1: got \(4,\)"),
        (np.ones((4, 1, 3)), r"got \(4, 1, 3\); write one row for each item"),
        (np.ones((0, 3)), r"got \(0, 3\)"),
        (np.ones((4, 0)), r"got \(4, 0\)"),
        (
            np.array([[None]]),
            r"holds Python objects, which are never loaded; save texts with \.astype\(str\), and vectors",
        ),
    ],
)
def test_arrays_that_are_no_embeddings(write: Write, embeddings: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_vectors(write(tmp_path, {"label": [1, 2, 3, 4]}, embeddings))


def test_objects_are_not_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    path = as_npz(tmp_path, {"y": [1, 2, 3, 4], "label": np.array([Trap()] * 4), "meta": np.array({"a": 1})})
    with pytest.raises(
        ValueError, match=r"'label' holds Python objects, which are never loaded; save texts with \.astype"
    ):
        read_vectors(path)
    assert levels_of(read_vectors(path, levels=["y"])) == {"y": ["1", "2", "3", "4"]}
    assert not (tmp_path / "sprung").exists()


def test_lengths_must_agree(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"file\.csv must hold one row per embedding: it has 3 rows .*file\.npy 4;"):
        read_vectors(as_npy(tmp_path, {"label": [1, 2, 3]}))
    for columns, levels, name, shape in [
        ({"label": [1, 2, 3]}, None, "label", "(3,)"),
        ({"y": [1, 2, 3, 4], "id": [1, 2]}, None, "id", "(2,)"),
        ({"y": [1, 2, 3, 4], "camid": [1, 2]}, None, "camid", "(2,)"),
        ({"y": [1, 2, 3, 4], "label": [[1], [2], [3], [4]]}, ["label"], "label", "(4, 1)"),
    ]:
        message = f"must hold one {name!r} per embedding: got shape {shape} for 4 embeddings; save it with shape (4,)"
        with pytest.raises(ValueError, match=re.escape(message)):
            read_vectors(as_npz(tmp_path, columns), levels=levels)


def test_names_that_are_not_clear(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="have one column for the camera: it has camera and camid; remove one"):
        read_vectors(as_lists(tmp_path, {"camid": [1, 2, 3, 4], "camera": [1, 2, 3, 4]}))
    (tmp_path / "twice.csv").write_text("a,b,a\n" + "1,2,3\n" * 4)
    with pytest.raises(ValueError, match=r"columns of .*twice\.csv must have different names: 'a' occurs twice"):
        read_vectors(as_npy(tmp_path, {"a": [1, 2, 3, 4]}), choice=VectorChoice(tmp_path / "twice.csv"))
    stories = as_lists(tmp_path, {"story": ["a", "b", "c" * 1001, "d" * 1000], "kind": [1, 1, 2, 2]})
    with pytest.raises(ValueError, match=r"level 'story' must have at most 1000 .* row 2 of .* has 1001; shorten"):
        read_vectors(stories, levels=["story"])
    read = read_vectors(stories, text="story")  # no level, but a text
    assert (list(read.labels), read.texts and read.texts[2]) == (["kind"], "c" * 1001)
    assert len(read_vectors(as_lists(tmp_path, {"story": ["a", "b", "c", "d" * 1000]})).labels["story"][3]) == 1000
    with pytest.raises(ValueError, match="has no 'label'; it has no other columns; add one"):
        read_vectors(as_lists(tmp_path, {}), levels=["label"])


@pytest.mark.parametrize("write", FORMATS)
def test_texts_and_file_names_are_no_labels_unless_named(write: Write, tmp_path: Path) -> None:
    rows = np.arange(30)
    columns = {
        "path": [f"{row}.png" for row in rows],
        "figure": rows,
        "word": [f"words {row}" for row in [*range(26), 0, 1, 0, 1]],  # 6 of 30 rows share theirs: a fifth
        "mostly": [f"words {row}" for row in [*range(27), 0, 1, 1]],  # 5 of them
        "pair": rows // 2,
    }
    path = write(tmp_path, columns, np.ones((30, 2)))
    read = read_vectors(path)
    assert (list(read.labels), list(read.passed_over), read.notes) == (
        ["word", "pair"],
        ["path", "figure", "mostly"],
        (),
    )
    named = read_vectors(path, levels=["path", "pair"], text="mostly")
    assert (list(named.labels), named.passed_over, len(named.notes)) == (["path", "pair"], {}, 1)
    assert "a value of its own in the column 'path'" in named.notes[0]
    assert named.texts == columns["mostly"]
    # Of few rows nothing can be told.
    few = write(tmp_path, {name: column[:19] for name, column in columns.items()}, np.ones((19, 2)))
    assert list(read_vectors(few).labels) == list(columns)
    assert read_vectors(path, split=None).select(np.array([4, 2])).names() == ["4", "2"]


def test_row_numbers_of_pandas_are_no_labels(tmp_path: Path) -> None:
    path = as_lists(tmp_path, {"__index_level_0__": [4, 5, 6, 7], "y": [1, 1, 2, 2]})
    assert list(read_vectors(path).labels) == ["y"]


def test_broken_files_are_named_in_one_sentence(tmp_path: Path) -> None:
    whole = {}
    for write in (as_npz, as_npy, as_lists):
        path = write(tmp_path, {"label": ["a", "b", "c", "d"]}, np.ones((4, 100)))
        whole[path.suffix] = path.read_bytes()
    np.savez_compressed(tmp_path / "file.npz", embeddings=np.random.default_rng(0).random((4, 100)))
    packed = (tmp_path / "file.npz").read_bytes()
    spoilt = [
        (suffix, content)
        for suffix, data in whole.items()
        for content in (
            b"",
            b"garbage",
            b"PK\x03\x04garbage",
            data[: len(data) // 2],
            data[:-9],
            data[:90],
            whole[".npz"][:200],
        )
    ]
    middle = len(packed) // 2
    spoilt += [
        (".npz", packed[:middle] + bytes(40) + packed[middle + 40 :]),
        (".npy", whole[".npz"]),
        (".parquet", whole[".npy"]),
    ]
    body = whole[".parquet"]
    spoilt += [(".parquet", body[:40] + b"\xff" * 60 + body[100:])]
    for suffix, content in spoilt:
        (tmp_path / f"file{suffix}").write_bytes(content)
        with pytest.raises(
            ValueError, match=rf"^\S*file\{suffix} must be a complete {suffix[1:]} file: .+; write it again\.$"
        ) as caught:
            read_vectors(tmp_path / f"file{suffix}")
        assert type(caught.value) is ValueError
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("write", [as_lists, as_columns])
def test_a_parquet_footer_that_counts_other_rows(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, {}, np.ones((50, 2)))
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    messages = []
    for place in range(footer, len(whole) - 8):
        for count in (40, 60):
            if whole[place] == 2 * 50:  # as the footer writes 50
                path.write_bytes(whole[:place] + bytes([2 * count]) + whole[place + 1 :])
                try:
                    assert read_vectors(path).embeddings.tolist() == [[1, 1]] * 50
                except ValueError as error:
                    messages.append(str(error).partition(": ")[2])
    for count in (40, 60):
        assert f"it holds 50 rows where its footer says {count}; write it again." in messages


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("label,b\n1,2\n3,4,5\n6,7\n8,9\n", "Row #3: Expected 2 columns, got 3"),
        ("label,b\n1,2\n3\n6,7\n8,9\n", "Row #3: Expected 2 columns, got 1"),
        ('label,b\n1,2\n"3\n\n4",4,5\n', "Row #3: Expected 2 columns, got 3"),
        ("", "Empty CSV file"),
        (b"label,b\na,1\nb,2\n\0,3\nd,4\n", "it holds a zero byte"),
    ],
)
def test_a_broken_csv_is_named(table: str | bytes, reason: str, tmp_path: Path) -> None:
    path = as_npy(tmp_path, {})
    (tmp_path / "file.csv").write_bytes(table if isinstance(table, bytes) else table.encode())
    with pytest.raises(
        ValueError, match=rf"^\S*file\.csv must be a complete csv file: [^\n]*{reason}[^\n]*; write it again\.$"
    ) as caught:
        read_vectors(path)
    assert type(caught.value) is ValueError


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    np.save(tmp_path / "lonely.npy", EMBEDDINGS)
    (tmp_path / "a.pt").touch()
    (tmp_path / "folder").mkdir()
    for name, message in [
        ("absent.npz", r"absent\.npz does not exist; check the path"),
        ("lonely.npy", r"lonely\.csv does not exist; write it with a header"),
        ("a.pt", r"must be in a file .*\.npy or a run folder: got .*a\.pt; save them in the program that wrote it"),
        ("folder", r"must be a run, with a config\.toml, or of shards, .*folder has neither"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_vectors(tmp_path / name)


def make_run(path: Path, splits: list[str], record: str | None) -> Path:
    path.mkdir()
    (path / "config.toml").write_text("")
    for number, split in enumerate(splits):
        labels = {"make": ("a", "a", "b", "b"), "model": ("007", "7", " 7", "x")}
        write_embeddings(path / "embeddings" / f"{split}.parquet", EMBEDDINGS + number, tuple(IDS), labels)
    if record is not None:
        (path / "record.json").write_text(record)
    return path


def test_a_run_folder(tmp_path: Path) -> None:
    run = make_run(tmp_path / "cars", ["unseen", "val", "seen"], json.dumps({"evaluation": {"unseen": [], "seen": []}}))
    vectors = read_vectors(run)
    assert vectors.name == "cars (unseen)"
    assert vectors.embeddings.tolist() == EMBEDDINGS.tolist()
    assert levels_of(vectors) == {"make": ["a", "a", "b", "b"], "model": ["007", "7", " 7", "x"]}
    assert texts(vectors.ids) == IDS
    assert vectors.splits is None
    chosen = read_vectors(run, split="val", levels=["model"])
    assert (chosen.name, list(chosen.labels)) == ("cars (val)", ["model"])
    assert chosen.embeddings.tolist() == (EMBEDDINGS + 1).tolist()
    with pytest.raises(
        ValueError, match=r"no embeddings of the split 'sen'; did you mean 'seen'\? Allowed: seen, unseen, val"
    ):
        read_vectors(run, split="sen")
    with pytest.raises(ValueError, match=r"--table describes the rows of an \.npy file"):
        read_vectors(run, choice=VectorChoice(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    "record", [None, "no json", "[]", "{}", '{"evaluation": {}}', '{"evaluation": 5}', '{"evaluation": {"gone": []}}']
)
def test_a_run_without_a_readable_record(record: str | None, tmp_path: Path) -> None:
    assert read_vectors(make_run(tmp_path / "cars", ["seen", "mixed"], record)).name == "cars (mixed)"


def test_a_run_without_embeddings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^a run must hold embeddings: .*cars has no .*`trivet evaluate .*cars`\.$"):
        read_vectors(make_run(tmp_path / "cars", [], None))


def test_select(tmp_path: Path) -> None:
    columns = {"label": [1, 2, 3, 4], "id": IDS, "split": ["a", "b", "a", "b"], "cam": [5, 6, 7, 8]}
    vectors = read_vectors(as_npz(tmp_path, columns))
    mask = np.array([False, True, False, True])
    for rows, expected in [(np.array([3, 0]), [3, 0]), (mask, [1, 3]), (slice(1, 3), [1, 2]), (np.array([], int), [])]:
        chosen = vectors.select(rows)
        assert (len(chosen), chosen.name) == (len(expected), "file.npz")
        assert chosen.embeddings.tolist() == [EMBEDDINGS[i].tolist() for i in expected]
        for column, values in (
            (chosen.labels["label"], ["1", "2", "3", "4"]),
            (chosen.ids, IDS),
            (chosen.splits, columns["split"]),
            (chosen.cameras, ["5", "6", "7", "8"]),
        ):
            assert texts(column) == [values[i] for i in expected]
    for rows in (slice(None), np.ones(4, bool), np.array([1, 2, 3], np.uint8)):
        assert np.shares_memory(vectors.select(rows).embeddings, vectors.embeddings)


@pytest.mark.parametrize(
    ("query", "gallery", "names"),
    [
        (["10", "9", "10"], ["-1", "9"], ["-1", "9", "10"]),
        (["007", "7", "6"], ["8"], ["6", "007", "7", "8"]),
        (["10", "9", "b"], ["B", ""], ["", "10", "9", "B", "b"]),
        (["1", "1_0", "2"], ["٣"], ["1", "1_0", "2", "٣"]),
        (["x"], [], ["x"]),
    ],
)
def test_class_numbers_are_shared_and_in_natural_order(query: list[str], gallery: list[str], names: list[str]) -> None:
    (first, second), found = class_numbers(np.array(query, np.str_), np.array(gallery, np.str_))
    assert found == tuple(names)
    assert first.dtype == second.dtype == np.int64
    assert [found[i] for i in first] == query
    assert [found[i] for i in second] == gallery


def test_a_file_too_large_for_memory_is_not_called_broken() -> None:
    with pytest.raises(ValueError, match="must fit into memory"), read_errors(Path("a.npz"), "npz"):
        raise MemoryError
