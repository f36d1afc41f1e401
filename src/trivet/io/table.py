"""The rows of a csv, tsv, parquet or JSON lines file, or of a Hugging Face data set saved on disk, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from trivet.config.base import nearest
from trivet.io.csv_files import CsvTable
from trivet.io.embedding_source import EmbeddingSource, arrow_column, check_columns, check_complete, read_errors
from trivet.io.embedding_table import Vectors, display_texts, select_rows
from trivet.io.hf_dataset import is_saved, read_saved
from trivet.io.parquet_files import is_readable, open_parquet
from trivet.runtime.safe_read import check_regular

TEXT = "text"  # the column of texts where none is named
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", *JSON_LINES)


@dataclass(frozen=True, eq=False)
class DataTable:
    """The rows of a table.

    Attributes:
        path: the file or folder.
        table: its columns, at least one row.
        source: for `select_rows`; the numbers of the rows stand for embeddings. Nested and binary columns are left out.
    """

    path: Path
    table: pa.Table
    source: EmbeddingSource

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str, kind: str) -> pa.ChunkedArray:
        """A column; ValueError that names the nearest if there is none.

        Args:
            kind: what it is for, as in "the paths".
        """
        if name not in self.table.column_names:
            raise ValueError(f"{kind} must be a column: {self.path} has no {name!r}; {nearest(name, self.names)}")
        column = self.table.column(name)
        return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.table.column_names)


def open_rows(path: Path, what: str = "a table") -> DataTable:
    """The rows of a table, by the suffix of its file.

    Args:
        what: it is, for errors.

    Raises:
        ValueError: if the file is missing, broken, empty or of another kind.
    """
    if path.is_dir():
        if not is_saved(path):
            raise ValueError(
                f"{what} in a folder must be a Hugging Face data set as save_to_disk writes it: {path} has no "
                "state.json; give a file, or save the data set again."
            )
        table = read_saved(path)
    elif not path.is_file():
        raise ValueError(f"{what} must be in a file or a folder: {path} does not exist; check the path.")
    elif path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{what} must be in a file {', '.join(SUFFIXES)}: got {path}; save it as one of these.")
    elif path.suffix.lower() == ".parquet":
        file = open_parquet(path)
        with read_errors(path, "parquet"):
            table = file.read()
    elif path.suffix.lower() in JSON_LINES:
        check_regular(path, what)
        with read_errors(path, "JSON lines"):
            table = pa.json.read_json(path, read_options=pa.json.ReadOptions(use_threads=False))
    else:
        csv = CsvTable.read(path)
        _check(path, csv.table)
        return DataTable(path, csv.table, csv.source(_numbers(csv.table)))
    _check(path, table)
    columns = [field.name for field in table.schema if is_readable(field.type)]
    source = EmbeddingSource(_numbers(table), columns, lambda name: arrow_column(path, name, table.column(name)))
    return DataTable(path, table, source)


def _check(path: Path, table: pa.Table) -> None:
    check_columns(path, table.column_names)
    if table.num_rows == 0:
        raise ValueError(f"{path} must hold at least one row: it has none; add some.")


def _numbers(table: pa.Table) -> npt.NDArray[np.float64]:
    return np.arange(table.num_rows, dtype=np.float64)[:, None]


def read_texts(
    path: Path,
    *,
    text: str = TEXT,
    levels: Sequence[str] | None = None,
    split: str | None = None,
    others: bool = False,
) -> Vectors:
    """Read texts with their labels: csv with a line that names the columns, parquet, JSON lines, Hugging Face on disk.

    Args:
        text: the column that holds the texts; all others are as in `trivet.io.read_embeddings.read_vectors`.
        levels, split, others: as in `trivet.io.read_embeddings.read_vectors`.

    Returns:
        What is known of each row, its text among it; the embeddings are `(N, 0)`, as none are made yet.

    Raises:
        ValueError: if the file is broken or empty, a row has no text, or as `read_vectors`.
    """
    source = open_rows(path, "texts").source
    if text not in source.columns:
        guess, _, _ = nearest(text, source.columns).partition("Allowed")
        raise ValueError(
            f"a file of texts must have a column {text!r}: {path} has {', '.join(map(repr, source.columns))}; {guess}"
            "name the one that holds the texts with --text, or for trivet train with --set data.text=COLUMN."
        )
    if text in (levels or ()):
        raise ValueError(
            f"a label level must be a different column from the texts: got {text!r} for both; choose another."
        )
    column = source.column(text)
    if column.values.dtype.kind not in "UO":
        raise ValueError(f"the column {text!r} of {path} must hold texts: it holds numbers; name another.")
    columns = [name for name in source.columns if name != text]
    vectors = select_rows(path, source._replace(columns=columns), levels, split, others=others)
    texts = display_texts(column, vectors.rows)
    check_complete(path, vectors.rows, [not value.strip() for value in texts], "text")
    return replace(vectors, embeddings=np.empty((len(texts), 0), np.float32), texts=texts)
