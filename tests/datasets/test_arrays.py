"""Arrays in memory: any usual form of embeddings and labels is what a file of them is read as."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import trivet
from trivet.datasets.arrays import read_arrays
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

    def tolist(self) -> list[Any]:
        return self.values


class Frame:
    """What a data frame has."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns, self._values = list(columns), columns
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> Column:
        return Column(self._values[name], name)


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


MISTAKES: dict[str, Callable[[], object]] = {
    r"labels of 'label' must be one for each embedding: got 5 for 6; pass": lambda: read_arrays(ROWS, NAMES[:5]),
    r"the embeddings of the arrays must be finite: row 2 holds NaN": lambda: read_arrays(broken(np.nan), NAMES),
    r"the embeddings of the arrays must be finite: row 2 holds NaN or inf": lambda: read_arrays(broken(np.inf), NAMES),
    r"the embeddings of the arrays must have shape \(N, d\).*got \(6,\)": lambda: read_arrays(ROWS[:, 0], NAMES),
    r"the embeddings of the arrays must have shape \(N, d\).*got \(1, 6": lambda: read_arrays(ROWS[None], NAMES),
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
    r"labels must be classes or tags here: got Pairs; trivet\.metrics\.evaluate and": lambda: read_arrays(
        ROWS, trivet.Pairs(3, 3)
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
