"""Embeddings in parquet files, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from trivet.io.atomic_files import write_atomic
from trivet.io.embedding_source import (
    EMBEDDINGS,
    ColumnValues,
    EmbeddingSource,
    arrow_column,
    check_columns,
    check_embeddings,
    is_text,
    listed,
    read_errors,
)
from trivet.io.embedding_table import EMBEDDING
from trivet.io.overwrite_guard import EMBEDDED
from trivet.runtime.progress import report
from trivet.runtime.safe_read import check_expanded

LEVELS = b"trivet.levels"
BATCH = 16384  # rows of a parquet file that are decoded at once


def read_parquet(path: Path) -> EmbeddingSource:
    """The embeddings of a parquet file, in a list column or in numbered ones, and its other columns."""
    file = open_parquet(path)
    schema = file.schema_arrow
    key = next((name for name in EMBEDDINGS if name in schema.names and _is_list(schema.field(name).type)), None)
    embedding_columns = [key] if key else _numbered(path, schema)
    embeddings = _fill_lists(path, file, key) if key else _fill_columns(path, file, embedding_columns)
    columns = [field.name for field in schema if field.name not in embedding_columns and is_readable(field.type)]

    def column(name: str) -> ColumnValues:
        with read_errors(path, "parquet"):
            values = file.read([name]).column(name)
            _check_count(file, len(values))
        return arrow_column(path, name, values)

    return EmbeddingSource(embeddings, columns, column, levels_of(schema))


def holds_embeddings(path: Path) -> bool:
    """Test whether a parquet file has columns that `read_parquet` takes for embeddings."""
    schema = open_parquet(path).schema_arrow
    if any(name in schema.names and _is_list(schema.field(name).type) for name in EMBEDDINGS):
        return True
    try:
        return any(pa.types.is_floating(schema.field(name).type) for name in _numbered(path, schema))
    except ValueError:
        return False


def levels_of(schema: pa.Schema) -> list[str]:
    """The columns that are label levels, where the file says so."""
    written = (schema.metadata or {}).get(LEVELS, b"").decode(errors="replace").split("\n")
    return [level for level in written if level in schema.names]


def open_parquet(path: Path) -> pa.parquet.ParquetFile:
    """A parquet file whose sizes are checked; its texts are read as numbers of different texts, which take less room.

    Raises:
        ValueError: if it is broken, two columns have one name, or it expands to far more than it holds.
    """
    with read_errors(path, "parquet"):
        file = pa.parquet.ParquetFile(path, memory_map=True)
        texts = [field.name for field in file.schema_arrow if is_text(field.type)]
    check_columns(path, file.schema_arrow.names)
    with read_errors(path, "parquet"):
        check_expanded(path, _size(file))
        return pa.parquet.ParquetFile(path, memory_map=True, read_dictionary=texts) if texts else file


def _size(file: pa.parquet.ParquetFile) -> int:
    """The bytes that the file takes when it is decoded, but for texts that occur more than once."""
    metadata, size, rows = file.metadata, 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows += group.num_rows
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.num_values < 0 or chunk.total_uncompressed_size < 0 or group.num_rows < 0:
                raise ValueError("its footer counts less than nothing")
            width = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}.get(chunk.physical_type, 8)
            size += max(chunk.total_uncompressed_size, chunk.num_values * width)
    if rows != metadata.num_rows:
        raise ValueError(f"it holds {rows} rows where its footer says {metadata.num_rows}")
    return size


def write_embeddings(
    path: Path,
    embeddings: npt.NDArray[Any],
    ids: tuple[str, ...],
    columns: Mapping[str, Sequence[str] | npt.NDArray[Any]],
    *,
    levels: Iterable[str] = (),
    model: str | None = None,
) -> None:
    """Write a parquet file: `id`, the columns, `embedding` (a list of d float32).

    Args:
        columns: name -> `(N,)` texts, bools or integers, such as label levels.
        levels: the columns that are label levels, kept as "trivet.levels" in the metadata of the file; where none is
            given, who reads it decides.
        model: the hash of the model that made them, kept as "trivet.model" in the metadata of the file.
    """
    metadata = {} if model is None else {EMBEDDED: model}
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table_of(embeddings, ids, columns, levels=levels, metadata=metadata), sink)
    write_atomic(path, sink.getvalue().to_pybytes())


def table_of(
    embeddings: npt.NDArray[Any],
    ids: Sequence[str],
    columns: Mapping[str, Sequence[str] | npt.NDArray[Any]],
    *,
    levels: Iterable[str],
    metadata: Mapping[str, str],
) -> pa.Table:
    """The table that `write_embeddings` writes, which may be without rows, with more metadata."""
    flat = pa.array(np.ascontiguousarray(embeddings, dtype=np.float32).reshape(-1))
    arrays: dict[str, pa.Array] = {"id": pa.array(ids, pa.string())}
    arrays |= {name: pa.array(values, None if len(values) else pa.string()) for name, values in columns.items()}
    arrays[EMBEDDING] = pa.FixedSizeListArray.from_arrays(flat, embeddings.shape[1])
    return pa.table(arrays).replace_schema_metadata({**metadata, LEVELS.decode(): "\n".join(levels)})


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_readable(kind: pa.DataType) -> bool:
    """Test whether the values have texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    dated = pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return bool(is_text(kind) or numeric or dated or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def batches(path: Path, file: pa.parquet.ParquetFile, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The first row and the rows of parts of the file, as many in all as its footer says."""
    start = 0
    with read_errors(path, "parquet"):
        for batch in file.iter_batches(BATCH, columns=columns):
            end = start + len(batch)
            if end <= file.metadata.num_rows:
                yield start, batch
            start = end
            report(f"reading {path.name}", start, file.metadata.num_rows)
        _check_count(file, start)


def _check_count(file: pa.parquet.ParquetFile, count: int) -> None:
    if count != file.metadata.num_rows:
        raise ValueError(f"it holds {count} rows where its footer says {file.metadata.num_rows}")


def _fill_lists(path: Path, file: pa.parquet.ParquetFile, name: str) -> npt.NDArray[Any]:
    count = file.metadata.num_rows
    dtype = _dtype(file.schema_arrow.field(name).type.value_type)
    embeddings: npt.NDArray[Any] = np.empty((count, 0), dtype)
    for start, batch in batches(path, file, [name]):
        lists = batch.column(name)
        if start == 0:
            shape = (count, len(lists[0]) if lists[0].is_valid else 1)
            check_embeddings(path, shape, dtype)
            embeddings = np.empty(shape, dtype)
        embeddings[start : start + len(batch)] = rows_of_lists(path, name, start, lists, embeddings.shape[1])
    check_embeddings(path, embeddings.shape, dtype)
    return embeddings


def rows_of_lists(path: Path, name: str, start: int, lists: pa.Array, dimension: int) -> npt.NDArray[Any]:
    """The lists `(B,)` from row `start` on as rows `(B, dimension)`; ValueError unless all are there and have this
    length.
    """
    _check_no_null(path, name, start, lists)
    lengths = pc.list_value_length(lists).to_numpy()
    wrong = np.flatnonzero(lengths != dimension)
    if len(wrong):
        raise ValueError(
            f"the embeddings of {path} must have the same length: row {start + wrong[0]} has {lengths[wrong[0]]} "
            f"values, row 0 has {dimension}; embed all rows with one model."
        )
    values = lists.flatten()
    _check_no_null(path, name, start, values, per_row=dimension)
    rows: npt.NDArray[Any] = values.to_numpy().reshape(-1, dimension)
    return rows


def _fill_columns(path: Path, file: pa.parquet.ParquetFile, names: list[str]) -> npt.NDArray[Any]:
    dtypes = [_dtype(file.schema_arrow.field(name).type) for name in names]
    for dtype in dtypes:
        check_embeddings(path, (file.metadata.num_rows, len(names)), dtype)
    embeddings = np.empty((file.metadata.num_rows, len(names)), np.result_type(*dtypes))
    for start, batch in batches(path, file, names):
        for index, name in enumerate(names):
            values = batch.column(name)
            _check_no_null(path, name, start, values)
            embeddings[start : start + len(batch), index] = values.to_numpy()
    return embeddings


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    # Not `to_pandas_dtype`, which needs pandas itself up to pyarrow 20.
    dtype: np.dtype[Any] = pa.array([], type=kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def _check_no_null(path: Path, name: str, start: int, values: pa.Array, *, per_row: int = 1) -> None:
    if values.null_count:
        row = start + values.is_null().to_numpy(zero_copy_only=False).argmax() // per_row
        raise ValueError(
            f"the embeddings of {path} must be complete: row {row} (counted from 0) has no value in column {name!r}; "
            "drop the row, or embed it again."
        )


def _numbered(path: Path, schema: pa.Schema) -> list[str]:
    """The columns that hold one dimension each, first dimension first."""
    groups: dict[str, list[tuple[int, str]]] = {}
    floating = set()
    for field in schema:
        match = re.fullmatch("(.*?)([0-9]+)", field.name, re.DOTALL)
        if match and (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            groups.setdefault(match[1], []).append((int(match[2]), field.name))
            if pa.types.is_floating(field.type):
                floating.add(match[1])
    families = {}
    for prefix, columns in groups.items():
        numbers = [number for number, _ in sorted(columns)]
        if len(numbers) > 1 and numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1))):
            families[prefix] = [name for _, name in sorted(columns)]
    # Integer columns level1, level2 beside e0, e1, ... are labels; alone they are embeddings to be converted.
    families = {prefix: names for prefix, names in families.items() if prefix in floating} or families
    if len(families) != 1:
        got = f"it has {listed([f'{names[0]} to {names[-1]}' for names in families.values()])} of that kind among "
        raise ValueError(
            f"{path} must hold the embeddings as a list column 'embedding', or as one set of columns e0, e1, ...: "
            f"{got}{listed(schema.names)}; name the list column 'embedding'."
        )
    return next(iter(families.values()))
