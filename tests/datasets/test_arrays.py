"""Arrays in memory: any usual form of embeddings and labels is what a file of them is read as."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import trivet
from trivet.datasets.arrays import read_arrays
from trivet.datasets.item_table import item_table
from trivet.io.read_embeddings import read_vectors

ROWS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
NAMES = ["b", "a", "b", "a", "b", "c"]
TAGS = [["a", "b"], ["a"], ["b"], ["c"], ["a", "c"], ["b"]]
JOINED = ["a;b", "a", "b", "c", "a;c", "b"]


class Column:
    """What a series of a data frame library has."""

    def __init__(self, values: list[Any], name: str | None = None) -> None:
        self.values, self.name, self.shape = values, name, (len(values),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if isinstance(self.values[0], list):
            rows = np.empty(len(self.values), object)
            rows[:] = self.values
            return rows
        return np.asarray(self.values, dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, row: int) -> Any:
        return self.values[row]

    def tolist(self) -> list[Any]:
        return self.values


class Frame:
    """What a data frame has."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns, self._values = list(columns), columns
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> Column:
        return Column(self._values[name], name)

    def drop(self, names: list[str]) -> Frame:
        return Frame({name: values for name, values in self._values.items() if name not in names})

    def to_numpy(self) -> np.ndarray:
        return np.array(list(self._values.values())).T


class Indexed(Column):
    """What a series of pandas has."""

    def __init__(self, values: list[Any], index: list[Any]) -> None:
        super().__init__(values)
        self.index = index

    @property
    def loc(self) -> Indexed:
        return self

    iloc = loc

    def __getitem__(self, order: list[Any]) -> Indexed:
        return Indexed([self.values[self.index.index(entry)] for entry in order], order)

    def set_axis(self, index: list[Any]) -> Indexed:
        return Indexed(self.values, index)


def pandas(make: Callable[[Any], object]) -> Callable[[], object]:
    return lambda: make(pytest.importorskip("pandas"))


def polars(make: Callable[[Any], object]) -> Callable[[], object]:
    return lambda: make(pytest.importorskip("polars"))


def by_dimension(rows: np.ndarray) -> dict[str, list[float]]:
    return {f"e{column}": rows[:, column].tolist() for column in range(rows.shape[1])}


EMBEDDINGS: dict[str, Callable[[], object]] = {
    "numpy": lambda: ROWS,
    "float64": lambda: ROWS.astype(np.float64),
    "not contiguous": lambda: np.asfortranarray(ROWS),
    "torch": lambda: torch.tensor(ROWS, requires_grad=True),
    "sparse": lambda: sparse.csr_array(ROWS),
    "masked nowhere": lambda: np.ma.masked_array(ROWS),
    "lists": ROWS.tolist,
    "list of arrays": lambda: list(ROWS),
    "list of tensors": lambda: list(torch.tensor(ROWS)),
    "frame": lambda: Frame(by_dimension(ROWS)),
    "frame of lists": lambda: Frame({"embedding": ROWS.tolist()}),
    "series of lists": lambda: Column(ROWS.tolist()),
    "pandas": pandas(lambda pd: pd.DataFrame(ROWS)),
    "pandas series of arrays": pandas(lambda pd: pd.Series(list(ROWS))),
    "polars": polars(lambda pl: pl.DataFrame(ROWS)),
    "polars series of lists": polars(lambda pl: pl.Series("v", ROWS.tolist())),
}
LABELS: dict[str, Callable[[], Any]] = {
    "list": lambda: NAMES,
    "tuple": lambda: tuple(NAMES),
    "numpy": lambda: np.array(NAMES),
    "objects": lambda: np.array(NAMES, object),
    "series": lambda: Column(NAMES),
    "pandas": pandas(lambda pd: pd.Series(NAMES)),
    "categorical": pandas(lambda pd: pd.Categorical(NAMES)),
    "pandas strings": pandas(lambda pd: pd.Series(NAMES, dtype="string", index=range(7, 13))),
    "polars": polars(lambda pl: pl.Series("label", NAMES, dtype=pl.Categorical)),
}
NUMBERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 0, 1, 0, 1, 2],
    "torch": lambda: torch.tensor([1, 0, 1, 0, 1, 2]),
    "int32": lambda: np.array([1, 0, 1, 0, 1, 2], np.int32),
    "floats": lambda: [1.0, 0.0, 1.0, 0.0, 1.0, 2.0],
    "numpy scalars": lambda: list(np.array([1, 0, 1, 0, 1, 2])),
    "tensors": lambda: list(torch.tensor([1, 0, 1, 0, 1, 2])),
}


@pytest.mark.parametrize("form", EMBEDDINGS)
def test_embeddings_of_every_form_are_the_same(form: str) -> None:
    vectors = read_arrays(EMBEDDINGS[form](), NAMES)
    np.testing.assert_array_equal(vectors.embeddings, ROWS)
    assert vectors.embeddings.dtype.kind == "f"


def test_a_type_that_numpy_lacks_is_read_as_float32() -> None:
    rows = torch.tensor(ROWS).bfloat16()
    np.testing.assert_array_equal(read_arrays(rows, NAMES).embeddings, rows.float().numpy())


@pytest.mark.parametrize("form", LABELS)
def test_labels_of_every_form_are_the_same(form: str) -> None:
    assert {level: names.tolist() for level, names in read_arrays(ROWS, LABELS[form]()).labels.items()} == {
        "label": NAMES
    }


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_are_classes(form: str) -> None:
    assert read_arrays(ROWS, NUMBERS[form]()).labels["label"].tolist() == ["1", "0", "1", "0", "1", "2"]


@pytest.mark.parametrize("columns", [dict, Frame])
def test_columns_are_levels(columns: Callable[[Any], Any]) -> None:
    vectors = read_arrays(ROWS, columns({"fine": NAMES, "coarse": [0, 0, 0, 1, 1, 1]}))
    assert list(vectors.labels) == ["fine", "coarse"]
    assert vectors.labels["coarse"].tolist() == list("000111")


def test_a_series_names_its_level() -> None:
    assert list(read_arrays(ROWS, Column(NAMES, "intent")).labels) == ["intent"]


@pytest.mark.parametrize(
    ("labels", "options", "match"),
    [
        (TAGS, {}, "any"),
        ([set(tags) for tags in TAGS], {"match": "all"}, "all"),
        (trivet.Tags(TAGS, match=0.5), {}, 0.5),
        (JOINED, {"separator": ";"}, "any"),
    ],
    ids=["lists", "sets", "Tags", "texts"],
)
def test_lists_are_tags(labels: object, options: dict[str, Any], match: object) -> None:
    vectors = read_arrays(ROWS, labels, **options)
    assert vectors.labels["label"].tolist() == JOINED
    assert vectors.tags == {"label": match}


def test_arrays_are_read_as_their_file_is(tmp_path: Path) -> None:
    columns = {"id": list("uvwxyz"), "label": NAMES}
    np.savez(tmp_path / "file.npz", embeddings=ROWS, **{name: np.array(values) for name, values in columns.items()})
    read, made = read_vectors(tmp_path / "file.npz"), read_arrays(ROWS, NAMES, ids=columns["id"], name="file.npz")
    for name, value in vars(read).items():
        other = getattr(made, name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, other)
        elif name == "labels":
            assert {level: names.tolist() for level, names in value.items()} == {"label": NAMES}
            assert {level: names.tolist() for level, names in other.items()} == {"label": NAMES}
        elif name != "columns":  # in another order
            assert value == other, name
    assert sorted(read.columns) == sorted(made.columns)


def broken(value: float) -> np.ndarray:
    rows = ROWS.copy()
    rows[2, 1] = value
    return rows


def left_in(name: str, values: list[Any]) -> Frame:
    """Embeddings in a frame with another column."""
    return Frame({**by_dimension(ROWS), name: values})


CODES = [1, 0, 1, 0, 1, 2]
LEFT_IN: dict[str, tuple[Callable[[], Frame], object]] = {
    "'y', the labels of 'label'": (lambda: left_in("y", CODES), NAMES),
    "'share', the labels of 'label'": (lambda: left_in("share", [0.2 + each / 7 for each in CODES]), NAMES),
    "'intent', the labels of 'intent'": (
        lambda: left_in("intent", [1, 1, 1, 1, 1, 2]),
        {"intent": NAMES, "other": TAGS},
    ),
    "'e0', the labels of 'e0'": (lambda: Frame(by_dimension(ROWS)), {"e0": TAGS}),
    "'kind', the labels of 'coarse'": (
        lambda: left_in("kind", [0, 0, 0, 1, 1, 1]),
        {"a": NAMES, "coarse": [*"xxxyyy"]},
    ),
    "'row', the numbers of the rows": (lambda: left_in("row", [3, 1, 2, 6, 5, 4]), NAMES),
}


@pytest.mark.parametrize("found", LEFT_IN)
@pytest.mark.parametrize("read", [read_arrays, item_table])
def test_a_column_that_is_no_dimension_is_named_and_the_code_drops_it(found: str, read: Callable[..., Any]) -> None:
    frame, labels = LEFT_IN[found][0](), LEFT_IN[found][1]
    variable = "items" if read is item_table else "embeddings"
    with pytest.raises(ValueError, match=f"^the columns of {variable} must be dimensions: got {found}; pass") as caught:
        read(frame, labels)
    known = {variable: frame}
    matrix, dropped = [eval(code, known) for code in re.findall(rf"{variable}\.\w+\(.*?\)", str(caught.value))]
    np.testing.assert_array_equal(read_arrays(matrix, labels).embeddings, frame.to_numpy())
    read(dropped, labels)
    assert dropped.shape == (6, frame.shape[1] - 1)


CLASSES = [5, 5, 7, 7, 9, 9]
COUNTED, LABELLED = (np.insert(ROWS, 1, column, axis=1) for column in (range(6), CLASSES))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (COUNTED, "1, the numbers of the rows"),
        (torch.from_numpy(COUNTED + np.eye(1, COUNTED.shape[1], 1)), "1, the numbers of the rows"),  # from 1
        (LABELLED.tolist(), "1, the labels of 'kind'"),
        (np.insert(COUNTED, 0, CLASSES, axis=1), "0, the labels of 'kind', 2, the numbers of the rows"),
        (Frame({"rows": COUNTED.tolist()}), "1, the numbers of the rows"),
        (left_in("id", [*range(6)]), "'id', the numbers of the rows"),
    ],
)
@pytest.mark.parametrize("read", [read_arrays, item_table])
def test_a_column_that_counts_the_rows_or_equals_the_labels_is_none_in_any_form(
    read: Callable[..., Any], rows: Any, found: str
) -> None:
    variable = "items" if read is item_table else "embeddings"
    message = f"^the columns of {variable} must be dimensions: got {found}; pass (.*)\\.$"
    with pytest.raises(ValueError, match=message) as caught:
        read(rows, {"kind": CLASSES})
    matched = re.match(message, str(caught.value))
    assert matched is not None
    dropped = eval(matched[1], {variable: rows, "np": np})
    np.testing.assert_array_equal(read_arrays(dropped, {"kind": CLASSES}).embeddings, ROWS)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (COUNTED[:, ::-1][::-1], CLASSES),  # counts down
        (COUNTED[[0, 2, 1, 3, 4, 5]], CLASSES),
        (COUNTED[:, 1:2], CLASSES),  # all there is
        (LABELLED, [5, 5, 7, 7, 9, 5]),
        (LABELLED, [*"aabbcc"]),
        (np.insert(ROWS, 1, [0, 0, 1, 1, 0, 0], axis=1), [0, 0, 1, 1, 0, 0]),  # may be a feature
        (COUNTED[:2], [1, 1]),
        (LABELLED, {}),
    ],
)
def test_what_may_be_a_dimension_of_an_array_is_one(rows: np.ndarray, labels: object) -> None:
    np.testing.assert_array_equal(read_arrays(rows, labels).embeddings, rows)


@pytest.mark.parametrize(
    ("frame", "labels"),
    [
        (Frame({"e0": CODES, "e1": [0.5 * each for each in CODES]}), NAMES),  # all items of a class are at one point
        (left_in("constant", [1.0] * 6), NAMES),
        (left_in("constant", [1.0] * 6), ["a"] * 6),
        (left_in("other", [1, 0, 1, 0, 1, 1]), NAMES),
        (left_in("finer", [1, 0, 1, 0, 3, 2]), NAMES),
        (left_in("0", [7.0, 9.0, 8.0, 1.0, 2.0, 3.0]), {"0": NAMES}),  # columns without names
        (left_in("different", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), [*"abcdef"]),
        (left_in("even", [0, 2, 4, 6, 8, 10]), NAMES),
        (Frame({"e0": [0, 1], "e1": [0.5, 0.7]}), ["a", "a"]),
    ],
)
def test_columns_that_tell_less_than_the_labels_are_dimensions(frame: Frame, labels: object) -> None:
    np.testing.assert_array_equal(read_arrays(frame, labels).embeddings, frame.to_numpy())


def test_the_index_of_a_frame_is_no_dimension() -> None:
    frame = left_in("item", [40, 10, 70, 20, 30, 90])
    read_arrays(frame, NAMES)
    frame.index = frame.iloc = np.array([40, 10, 70, 20, 30, 90])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="got 'item', the numbers of the rows"):
        read_arrays(frame, NAMES)


ORDER = [4, 2, 0, 1, 5, 3]


@pytest.mark.parametrize("read", [read_arrays, item_table])
@pytest.mark.parametrize(
    ("variable", "others"),
    [
        ("labels", lambda values: {"labels": values}),
        ("labels['kind']", lambda values: {"labels": {"kind": values}}),
        ("ids", lambda values: {"labels": NAMES, "ids": values}),
    ],
)
def test_another_order_of_the_index_is_an_error_and_the_code_aligns(
    read: Callable[..., Any], variable: str, others: Callable[[Any], dict[str, Any]]
) -> None:
    first = "items" if read is item_table else "embeddings"
    rows, known = Indexed(ROWS[ORDER].tolist(), ORDER), others(Indexed([*"uvwxyz"], [*range(6)]))
    with pytest.raises(ValueError, match=f"^{re.escape(variable)} must be in the order of {first}: got an ") as caught:
        read(rows, **known)
    assert "such as 0 in place of 4 at row 0" in str(caught.value)
    aligned, positional = re.findall(r"\S+\.loc\[.*?\.index\]|\S+\.set_axis\(.*?\)", str(caught.value))
    expected = {aligned: ["uvwxyz"[row] for row in ORDER], positional: [*"uvwxyz"]}
    for code, values in expected.items():
        made = eval(code, {first: rows, **known})
        assert made.tolist() == values
        read(rows, **others(made))


def test_other_orders_are_not_compared() -> None:
    rows = Indexed(ROWS.tolist(), ORDER)
    read_arrays(rows, Indexed(NAMES, ORDER))
    read_arrays(rows, Indexed(NAMES, [*range(6, 12)]))
    read_arrays(ROWS, Indexed(NAMES, ORDER))
    with pytest.raises(ValueError, match=r"at row 0; if the rows do .*, labels\.set_axis\(embeddings\.index\)\.$"):
        read_arrays(Indexed(ROWS.tolist(), [0, 0, 1, 1, 2, 2]), Indexed(NAMES, [1, 1, 0, 0, 2, 2]))


FRACTIONS: dict[str, Any] = {
    "frame": Frame(by_dimension(ROWS)),
    "array": ROWS,
    "tensor": torch.tensor(ROWS),
    "lists": ROWS.tolist(),
    "arrays": list(ROWS),
    "numbers": [1.0, 2.0, 1.0, 2.0, 0.5, 1.0],
}


@pytest.mark.parametrize("form", FRACTIONS)
@pytest.mark.parametrize("first", [ROWS, NAMES, CODES])
@pytest.mark.parametrize("read", [read_arrays, item_table])
def test_embeddings_in_place_of_labels_are_an_error(form: str, first: Any, read: Callable[..., Any]) -> None:
    words = rf"the {'items' if read is item_table else 'embeddings'} come first and the labels second"
    with pytest.raises(ValueError, match=f"^labels of .* must be classes, integers or texts: got .*; {words}"):
        read(first, FRACTIONS[form])


def test_numbers_that_name_classes_are_converted_as_the_error_says() -> None:
    numbers = FRACTIONS["numbers"]
    for labels in (numbers, {"label": numbers}):
        with pytest.raises(ValueError, match=re.escape("got 0.5; the embeddings come first")) as caught:
            read_arrays(ROWS, labels)
        made = eval(str(caught.value).rpartition(" with ")[2].removesuffix("."), {"labels": labels})
        assert read_arrays(ROWS, made).labels["label"].tolist() == [str(each) for each in numbers]


@pytest.mark.parametrize("labels", [[1, "a", None, 1, "a", 1], [0.5, 1.5, math.nan, 0.5, 1.5, None]])
def test_rows_without_a_label_are_left_out_before_labels_become_texts(labels: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"once rows without one are left out of all that is passed: rows? ") as caught:
        read_arrays(ROWS, labels)
    named = re.findall(r"\d+", str(caught.value).rpartition(": row")[2])
    kept = [row for row in range(6) if str(row) not in named]
    code = re.findall(r"list\(map\(str, labels\)\)", str(caught.value))[0]
    made = eval(code, {"labels": [labels[row] for row in kept]})
    found = set(read_arrays(ROWS[kept], made).labels["label"].tolist())
    assert found == {str(label) for label in labels if label is not None and label == label}


MISTAKES: dict[str, Callable[[], object]] = {
    r"labels of 'label' must be one for each embedding: got 5 for 6; pass": lambda: read_arrays(ROWS, NAMES[:5]),
    r"the embeddings of the arrays must be finite: row 2 holds NaN": lambda: read_arrays(broken(np.nan), NAMES),
    r"the embeddings of the arrays must be finite: row 2 holds NaN or infinity, in column 1; leave": lambda: (
        read_arrays(broken(np.inf), NAMES)
    ),
    r"the embeddings of the arrays must be finite: row 2 holds NaN or infinity, in column 'b'; leave": lambda: (
        read_arrays(Frame(dict(zip("abc", broken(np.inf).T, strict=True))), NAMES)
    ),
    r"labels of 'label' must be classes, integers or texts: got inf": lambda: read_arrays(ROWS, [1.0] * 5 + [np.inf]),
    r"labels of 'label' must be classes, integers or texts: got -inf": lambda: read_arrays(
        ROWS, np.array([1.0] * 5 + [-np.inf])
    ),
    r"embeddings must have a row for each label: got shape \(3, 6\) for 6 labels; they seem transposed": lambda: (
        read_arrays(ROWS.T, NAMES)
    ),
    r"embeddings of pairs must be those of both sides: got 6 rows for 12 items; pass both in a tuple": lambda: (
        read_arrays(ROWS, trivet.Pairs(6, 6))
    ),
    r"the embeddings of the arrays must be rows of numbers: got 2 arrays of shapes \(6, 3\), \(6,\); join": lambda: (
        read_arrays((ROWS, NAMES), NAMES)
    ),
    r"the embeddings of the arrays must be rows of numbers: got 2 arrays of shapes \(4, 3\), \(2, 3\); join": lambda: (
        read_arrays([ROWS[:4], ROWS[4:]], NAMES)
    ),
    r"labels must be one for each row: got 'name', a name of columns; pass .*, embeddings\['name'\]\.": lambda: (
        read_arrays(Frame({**by_dimension(ROWS), "name": NAMES}), "name")
    ),
    r"the embeddings of the arrays must have shape \(N, d\).*got \(6,\)": lambda: read_arrays(ROWS[:, 0], NAMES),
    r"the embeddings of the arrays must have shape \(N, d\).*got \(1, 6": lambda: read_arrays(ROWS[None], NAMES),
    r"embeddings must have shape \(N, d\)": lambda: read_arrays([], [], name="embeddings"),
    r"the embeddings of before must have shape": lambda: read_arrays([], [], name="before"),
    r"the embeddings of the arrays must be an array \(N, d\): got 'abc'": lambda: read_arrays("abc", NAMES),
    r"the embeddings of the arrays must be an array \(N, d\): got None": lambda: read_arrays(None, NAMES),
    r"the embeddings of the arrays must be floating point: got int64; if these are measurements, convert": lambda: (
        read_arrays(ROWS.astype(int), NAMES)
    ),
    r"the embeddings of the arrays must be floating point: got <U1; pass rows": lambda: read_arrays(
        np.array([["a"] * 3] * 6), NAMES
    ),
    r"the embeddings of the arrays must have the same length: row 1 has 1 values": lambda: read_arrays(
        [[1.0, 2.0], [1.0]], NAMES
    ),
    r"the embeddings of the arrays must be columns of numbers: got others in 'name'; pass embeddings\.drop": lambda: (
        read_arrays(Frame({**by_dimension(ROWS), "name": NAMES}), NAMES)
    ),
    r"the embeddings of the arrays must be finite: row 4 holds NaN": lambda: read_arrays(
        np.ma.masked_array(ROWS, mask=np.arange(18).reshape(6, 3) == 13), NAMES
    ),
    r"the embeddings of the arrays must be columns.*got others in 'v', 'name'; pass embeddings\['v'\]": lambda: (
        read_arrays(Frame({"v": ROWS.tolist(), "name": NAMES}), NAMES)
    ),
    r"every row of the arrays must have a class name of level 'label': 1 of 6 have none, row 0": lambda: read_arrays(
        ROWS, [None, *NAMES[1:]]
    ),
    r"every row of the arrays must have a class name of level 'label': 1 of 6 have none, row 1": lambda: read_arrays(
        ROWS, [1, float("nan"), 1, 2, 1, 2]
    ),
    r"every row of the arrays must have a class name of level 'label': 1 of 6 have none, row 5": lambda: read_arrays(
        ROWS, [*TAGS[:5], []]
    ),
    r"labels of 'label' must be one for each of the 6 embeddings: got 'class'": lambda: read_arrays(ROWS, "class"),
    r"labels of 'label' must be one for each of the 6 embeddings: got None": lambda: read_arrays(ROWS, None),
    r"labels of 'label' must be one for each embedding, \(N,\): got shape \(6, 1\); flatten them: np.rav": (
        lambda: read_arrays(ROWS, np.array(NAMES)[:, None])
    ),
    r"labels of 'label' must be integers.*got int, str; convert them with list\(map\(str, labels": lambda: read_arrays(
        ROWS, [1, "a", 2, "b", 3, "c"]
    ),
    r"labels must be classes or tags here: got Grades; trivet\.metrics\.evaluate and": lambda: read_arrays(
        ROWS, trivet.Grades(np.eye(6), positive=1.0, negative=0.5)
    ),
    r"the ids of the arrays must be unique: rows 4, 5 .* both have 'y'": lambda: read_arrays(
        ROWS, NAMES, ids=list("uvwxyy")
    ),
    r"texts must be one for each embedding: got 2 for 6": lambda: read_arrays(ROWS, NAMES, texts=["a", "b"]),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        MISTAKES[message]()
    assert "\n" not in str(caught.value)
