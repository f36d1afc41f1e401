"""Parquet files, read and written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from trivet.io.atomic_files import write_atomic
from trivet.io.overwrite_guard import EMBEDDED
from trivet.io.table import BATCH, DataTable, arrow_column, check_columns, is_text, read_errors
from trivet.io.tag_cells import PAIRS, CellRule, tag_match
from trivet.io.vector_columns import EMBEDDING
from trivet.runtime.safe_read import check_expanded

LEVELS = b"trivet.levels"
MATCH = "\t"  # between a level and how its tags match


def parquet_table(path: Path, file: pa.parquet.ParquetFile | None = None) -> DataTable:
    """The columns of a parquet file, which may be open already.

    Raises:
        ValueError: as `open_parquet`.
    """
    opened = open_parquet(path) if file is None else file
    schema, count = opened.schema_arrow, opened.metadata.num_rows

    def check_count(there: int) -> None:
        if there != count:
            raise ValueError(f"it holds {there} rows where its footer says {count}")

    def read(name: str) -> pa.ChunkedArray:
        with read_errors(path, "parquet"):
            values = opened.read([name]).column(name)
            check_count(len(values))
        return values

    def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
        end = 0
        with read_errors(path, "parquet"):
            for batch in opened.iter_batches(BATCH, columns=names):
                end += len(batch)
                if end <= count:
                    yield batch.select(names)
            check_count(end)

    types, levels = dict(zip(schema.names, schema.types, strict=True)), levels_of(schema)
    return DataTable(
        path,
        types,
        count,
        read,
        batches,
        lambda name: arrow_column(path, name, read(name)),
        list(levels),
        tags=levels,
    )


def levels_of(schema: pa.Schema) -> dict[str, CellRule | None]:
    """The columns that are label levels, where the file says so, and how the tags of those match that are of tags."""
    written = (schema.metadata or {}).get(LEVELS, b"").decode(errors="replace").split("\n")
    levels = (line.partition(MATCH) for line in written)
    return {
        level: PAIRS if match == PAIRS else tag_match(match) if match else None
        for level, _, match in levels
        if level in schema.names
    }


def level_line(level: str, match: CellRule | None) -> str:
    """The line by which a file says that a column is a label level, and how its tags match if it is one of tags."""
    return level if match is None else f"{level}{MATCH}{match}"


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
        levels: lines for the columns that are label levels, see `level_line`, kept as "trivet.levels" in the metadata
            of the file; where none is given, who reads it decides.
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
