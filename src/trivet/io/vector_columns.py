"""Embeddings in the columns of a table: one list a row, or one number a column; a new form is one more entry here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trivet.io.table import DataTable, check_embeddings, is_list, listed
from trivet.runtime.progress import report

EMBEDDING = "embedding"  # the column of embeddings in a table that Trivet writes
EMBEDDINGS = ("embeddings", EMBEDDING, "features", "vectors")


class VectorForm(NamedTuple):
    """A form in which columns hold embeddings.

    Attributes:
        find: a table -> the columns that do, first dimension first; none if it has them in another form.
        numbers: the type of such a column -> that of its numbers.
        rows: makes `(B, d)` of a batch of those columns; d is that of the first row of the table, None before it.
    """

    find: Callable[[DataTable], list[str]]
    numbers: Callable[[pa.DataType], pa.DataType]
    rows: Callable[[DataTable, int, pa.RecordBatch, int | None], npt.NDArray[Any]]


def holds_vectors(table: DataTable) -> bool:
    """Test whether columns are taken for embeddings, and are not just numbered columns of integers."""
    columns = next((names for form in FORMS.values() if (names := form.find(table))), [])
    return any(not pa.types.is_integer(table.types[name]) for name in columns)


def with_vectors(table: DataTable) -> DataTable:
    """The table with the embeddings of its columns in memory, and without those columns.

    Raises:
        ValueError: if no columns can be taken for embeddings, or what they hold is not `(N, d)` floating point.
    """
    if table.vectors is not None:
        return table
    form, names = _form(table)
    dtypes = [_dtype(form.numbers(table.types[name])) for name in names]
    for dtype in dtypes:
        check_embeddings(table.path, (1, 1), dtype)
    vectors: npt.NDArray[Any] = np.empty((0, 0), np.result_type(*dtypes))
    start = 0
    for rows in vector_blocks(table):
        if start == 0:
            vectors = np.empty((table.count, rows.shape[1]), vectors.dtype)
        vectors[start : start + len(rows)] = rows
        start += len(rows)
    check_embeddings(table.path, vectors.shape, vectors.dtype)
    return replace(table.without(names), vectors=vectors)


def vector_blocks(table: DataTable) -> Iterator[npt.NDArray[Any]]:
    """The embeddings of all rows in order, some thousand `(B, d)` at a time."""
    form, names = _form(table)
    start, dimension = 0, None
    for batch in table.batches(names):
        if len(batch):
            rows = form.rows(table, start, batch, dimension)
            dimension = rows.shape[1]
            yield rows
        start += len(batch)
        report(f"reading {table.path.name}", start, table.count)


def _form(table: DataTable) -> tuple[VectorForm, list[str]]:
    for form in FORMS.values():
        if names := form.find(table):
            return form, names
    families = [f"{names[0]} to {names[-1]}" for names in _families(table).values()]
    raise ValueError(
        f"{table.path} must hold the embeddings as a list column 'embedding', or as one set of columns e0, e1, ...: it "
        f"has {listed(families)} of that kind among {listed(table.names)}; name the list column 'embedding'."
    )


def _find_list(table: DataTable) -> list[str]:
    return [name for name in EMBEDDINGS if name in table.types and is_list(table.types[name])][:1]


def _list_rows(table: DataTable, start: int, batch: pa.RecordBatch, dimension: int | None) -> npt.NDArray[Any]:
    name, lists = batch.schema.names[0], batch.column(0)
    _check_no_null(table, name, start, lists)
    lengths = pc.list_value_length(lists).to_numpy()
    dimension = int(lengths[0]) if dimension is None else dimension
    wrong = np.flatnonzero(lengths != dimension)
    if len(wrong):
        raise ValueError(
            f"the embeddings of {table.path} must have the same length: row {start + wrong[0]} has {lengths[wrong[0]]} "
            f"values, row 0 has {dimension}; embed all rows with one model."
        )
    values = lists.flatten()
    _check_no_null(table, name, start, values, per_row=dimension)
    rows: npt.NDArray[Any] = values.to_numpy().reshape(len(lists), dimension)
    return rows


def _find_numbered(table: DataTable) -> list[str]:
    """The columns that hold one dimension each, first dimension first; none if there is not one set of them."""
    families = _families(table)
    return next(iter(families.values())) if len(families) == 1 else []


def _families(table: DataTable) -> Mapping[str, list[str]]:
    groups: dict[str, list[tuple[int, str]]] = {}
    floating = set()
    for name, kind in table.types.items():
        match = re.fullmatch("(.*?)([0-9]+)", name, re.DOTALL)
        if match and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            groups.setdefault(match[1], []).append((int(match[2]), name))
            if pa.types.is_floating(kind):
                floating.add(match[1])
    families = {}
    for prefix, columns in groups.items():
        numbers = [number for number, _ in sorted(columns)]
        if len(numbers) > 1 and numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1))):
            families[prefix] = [name for _, name in sorted(columns)]
    # Integer columns level1, level2 beside e0, e1, ... are labels; alone they are embeddings to be converted.
    return {prefix: names for prefix, names in families.items() if prefix in floating} or families


def _numbered_rows(table: DataTable, start: int, batch: pa.RecordBatch, dimension: int | None) -> npt.NDArray[Any]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _check_no_null(table, name, start, column)
    return np.stack([column.to_numpy() for column in batch.columns], axis=1)


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    # Not `to_pandas_dtype`, which needs pandas itself up to pyarrow 20.
    dtype: np.dtype[Any] = pa.array([], type=kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def _check_no_null(table: DataTable, name: str, start: int, values: pa.Array, *, per_row: int = 1) -> None:
    if values.null_count:
        row = start + values.is_null().to_numpy(zero_copy_only=False).argmax() // per_row
        raise ValueError(
            f"the embeddings of {table.path} must be complete: row {row} (counted from 0) has no value in column "
            f"{name!r}; drop the row, or embed it again."
        )


FORMS = {  # the first that finds its columns is taken
    "lists": VectorForm(_find_list, lambda kind: kind.value_type, _list_rows),
    "numbered": VectorForm(_find_numbered, lambda kind: kind, _numbered_rows),
}
