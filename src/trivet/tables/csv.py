"""CSV files: read as typed columns, written with correct quoting."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from trivet.tables.csv_form import csv_form
from trivet.tables.source import Column, Source, arrow_column, integral, whole


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """The text of a csv file, whose first row is its header: quoted where needed, each line ended by a newline."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_rows(path: Path) -> tuple[list[str], list[tuple[int, Mapping[str, str | None]]]]:
    """The column names of a csv file, and its rows as they are written, each with the number of its last line.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no csv file.
    """
    try:
        form = csv_form(path)
        with path.open(encoding=form.encoding, newline="") as file:
            reader = csv.DictReader(file, strict=True, delimiter=form.delimiter)
            return list(reader.fieldnames or []), [(reader.line_num, row) for row in reader]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} must be a csv file: {error}; save it again.") from None


@dataclass(frozen=True, eq=False)
class CsvTable:
    """A csv file with a header; every column as text, where an empty field is null."""

    path: Path
    table: pa.Table

    @classmethod
    def read(cls, path: Path) -> CsvTable:
        with whole(path, "csv"):
            form = csv_form(path)
            # With threads, errors do not number the rows.
            read = pa.csv.ReadOptions(use_threads=False, encoding=form.encoding.removesuffix("-sig"))
            parse = pa.csv.ParseOptions(newlines_in_values=True, delimiter=form.delimiter)
            with pa.csv.open_csv(path, read, parse) as start:
                names = start.schema.names
            convert = pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            )
            return cls(path, pa.csv.read_csv(path, read, parse, convert))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def texts(self, name: str) -> list[str | None]:
        return list(self.table.column(name).to_pylist())

    def source(self, embeddings: npt.NDArray[Any], *, without: str | None = None) -> Source:
        """The embeddings, with the columns of the file but one."""
        columns = [column for column in self.columns if column != without]
        return Source(embeddings, columns, lambda name: _csv_column(self.path, name, self.table.column(name)))


def _csv_column(path: Path, name: str, texts: pa.ChunkedArray) -> Column:
    column = arrow_column(path, name, texts)
    try:
        numbers = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # not a column of numbers
        return column
    return column._replace(missing=np.isnan(numbers), plain=integral(numbers))
