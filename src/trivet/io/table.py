"""An open table: what the reader of every format gives, and the checks that all share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trivet.config.base import nearest
from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.lazy import lazy
from trivet.runtime.safe_read import check_expanded

LONGEST = 1000  # characters of a text: numpy gives every row the room of the longest
BATCH = 16384  # rows that are decoded at once
VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}  # many values may be one and the same part


class ColumnValues(NamedTuple):
    """A column of a file.

    Attributes:
        values: `(N,)` bool, integer, float or text; Python texts where one has more than 1,000 characters.
        missing: `(N,)` where there is no value.
        plain: whether it is a label level where none is named.
    """

    values: npt.NDArray[Any]
    missing: Booleans
    plain: bool


@dataclass(frozen=True, eq=False)
class DataTable:
    """The rows of an open file or folder, of which a column is read when it is asked for.

    Attributes:
        path: which errors name.
        types: the columns in order, and their types.
        count: N, the number of rows.
        read: the name of a column -> its values, as they are stored.
        batches: names of columns -> their values, some thousand rows at a time.
        values: the name of a column that has texts -> its values.
        levels: the columns that are label levels, where the file says so.
        vectors: `(N, d)` numbers beside the columns; see `trivet.io.vector_columns.with_vectors` for those in them.
        lacking: `(N,)` which rows have no vector, where some have none.
        shapes: name -> the shape of an array that is no column, as it does not have N values.
        tags: label levels of which is known what a cell of several labels is: how tags match; None for one class.
        lines: gives the number of the line, from 1, that each row of a text file begins in, `(N,)`; None for others.
    """

    path: Path
    types: Mapping[str, pa.DataType]
    count: int
    read: Callable[[str], pa.ChunkedArray]
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]]
    values: Callable[[str], ColumnValues]
    levels: Sequence[str] = ()
    tags: Mapping[str, Literal["any", "all", "pairs"] | float | None] = field(default_factory=dict)
    vectors: npt.NDArray[Any] | None = None
    lacking: Booleans | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lines: Callable[[], Integers] | None = None

    @property
    def names(self) -> list[str]:
        """All columns."""
        return list(self.types)

    @lazy
    def columns(self) -> list[str]:
        """The columns that have texts: all but nested and binary ones."""
        return [name for name, kind in self.types.items() if is_readable(kind)]

    def without(self, names: Collection[str]) -> DataTable:
        """The table without some of its columns."""
        return replace(self, types={name: kind for name, kind in self.types.items() if name not in names})

    def take(self, rows: Integers) -> DataTable:
        """The table of some of its rows, by their numbers."""

        def values(name: str) -> ColumnValues:
            column = self.values(name)
            return column._replace(values=column.values[rows], missing=column.missing[rows])

        lines = self.lines
        return replace(
            self,
            count=len(rows),
            read=lambda name: self.read(name).take(rows),
            batches=lambda names: iter(
                pa.table({name: self.read(name).take(rows) for name in names}).to_batches(BATCH)
            ),
            values=values,
            vectors=None if self.vectors is None else self.vectors[rows],
            lacking=None if self.lacking is None else self.lacking[rows],
            lines=None if lines is None else lambda: lines()[rows],
        )

    def where(self, rows: Integers) -> str:
        """Numbers of the first of some rows, as their file counts: "lines 3, 7", or "rows 1, 5 counted from 0"."""
        lines = None if self.lines is None else self.lines()
        known = lines is not None and rows.max(initial=0) < len(lines)  # not where the file breaks off
        numbers = lines[rows] if lines is not None and known else rows
        first = listed([str(number) for number in numbers[:9].tolist()])
        kind = "line" if known else "row"
        return f"{kind if len(rows) == 1 else f'{kind}s'} {first}{'' if known else ' counted from 0'}"

    def column(self, name: str, kind: str) -> pa.ChunkedArray:
        """A column as it is stored; ValueError that names the nearest if there is none.

        Args:
            kind: what it is for, as in "the paths".
        """
        if name not in self.types:
            raise ValueError(f"{kind} must be a column: {self.path} has no {name!r}; {nearest(name, self.names)}")
        return _plain(self.path, self.read(name))


def arrow_table(
    path: Path,
    table: pa.Table,
    values: Callable[[Path, str, pa.ChunkedArray], ColumnValues] | None = None,
    lines: Callable[[], Integers] | None = None,
) -> DataTable:
    """A table in memory, or mapped.

    Args:
        values: makes those of a column; `arrow_column`, if not given.
        lines: as in `DataTable`.
    """
    check_columns(path, table.column_names)
    check_expanded(path, 8 * table.num_rows * table.num_columns)  # some types take no room for any number of rows
    convert = values or arrow_column
    return DataTable(
        path,
        dict(zip(table.column_names, table.schema.types, strict=True)),
        table.num_rows,
        table.column,
        lambda names: iter(table.select(names).to_batches(BATCH)),
        lambda name: convert(path, name, table.column(name)),
        lines=lines,
    )


def concatenated(path: Path, tables: Sequence[DataTable]) -> DataTable:
    """The rows of several tables of the same columns, one after the other."""
    filled = [table for table in tables if table.count] or tables[:1]

    def values(name: str) -> ColumnValues:
        column, missing, plain = zip(*(table.values(name) for table in filled), strict=True)
        return ColumnValues(np.concatenate(column), np.concatenate(missing), all(plain))

    return replace(
        tables[0],
        path=path,
        count=sum(table.count for table in tables),
        read=lambda name: pa.chunked_array([chunk for table in filled for chunk in table.read(name).chunks]),
        batches=lambda names: (batch for table in filled for batch in table.batches(names)),
        values=values,
    )


def check_embeddings(what: str, shape: Sequence[int]) -> None:
    """ValueError unless they are `(N, d)` with N, d >= 1; `what` says of what they are."""
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"{what} must have shape (N, d) with N, d >= 1: got {tuple(shape)}; write one row for each item."
        )


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """ValueError if two columns have one name."""
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if list(columns).count(column) > 1)
        raise ValueError(f"the columns of {path} must have different names: {twice!r} occurs twice; rename one.")


@contextmanager
def read_errors(path: Path, kind: str) -> Iterator[None]:
    """Say in one sentence that a file cannot be read, whatever the library that reads it raises."""
    try:
        yield
    except MemoryError:  # the file is whole: say what it is, not that it should be written again
        raise ValueError(
            f"{path} must fit into memory, and does not; use an .npy file, which is memory-mapped."
        ) from None
    except Exception as error:  # broken bytes make numpy, zipfile and pyarrow raise anything, TokenError to KeyError
        reason = re.split(r"\.? *\n|\.(?: |$)", str(error), maxsplit=1)[0] or type(error).__name__
        raise ValueError(f"{path} must be a complete {kind} file: {reason[:300]}; write it again.") from None


def integral(values: npt.NDArray[Any]) -> bool:
    """Test whether there are numbers, and all are integers."""
    numbers = values[~np.isnan(values)]
    return bool(len(numbers) and (np.isfinite(numbers) & (numbers == np.floor(numbers))).all())


def listed(names: Sequence[str]) -> str:
    """The first eight names, and whether there are more."""
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"


def arrow_column(path: Path, name: str, column: pa.ChunkedArray) -> ColumnValues:
    """A column of any type that has texts."""
    column = _plain(path, column)
    kind = column.type
    missing = column.is_null().to_numpy()
    if pa.types.is_floating(kind):
        values = column.to_numpy()
        return ColumnValues(values, np.isnan(values), integral(values))
    if pa.types.is_boolean(kind):
        return ColumnValues(column.fill_null(False).to_numpy(), missing, True)
    if pa.types.is_integer(kind):
        return ColumnValues(column.fill_null(0).to_numpy(), missing, True)
    with read_errors(path, path.suffix[1:]):  # texts that are not UTF-8
        texts = column.cast(pa.large_string()).fill_null("")
        longest = pc.max(pc.utf8_length(texts)).as_py() or 0
        values = texts.to_numpy()
    short = longest <= LONGEST
    if short:
        check_expanded(path, 4 * len(values) * longest)
    return ColumnValues(values.astype(np.str_) if short else values, missing, short and is_text(kind))


def _plain(path: Path, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values themselves, where they are stored as numbers of different ones or as places in a text of all."""
    with read_errors(path, path.suffix[1:]):
        if pa.types.is_dictionary(column.type):
            kind = column.type.value_type
            lengths = [_lengths(chunk.dictionary).take(chunk.indices.drop_null()) for chunk in column.chunks]
        elif kind := VIEWS.get(str(column.type)):
            lengths = [_lengths(chunk) for chunk in column.chunks]
        else:
            return column
    check_expanded(path, sum(pc.sum(chunk).as_py() or 0 for chunk in lengths))
    return column.cast(kind)


def _lengths(values: pa.Array) -> pa.Array:
    """Bytes of each of some values; of nested ones at most."""
    kind = values.type
    if pa.types.is_nested(kind):
        return pa.repeat(values.nbytes, len(values))
    if str(kind) in VIEWS:  # 16 bytes each, of which the first four are the length
        lengths = np.frombuffer(values.buffers()[1], np.int32)[::4][values.offset :][: len(values)]
        return pa.array(lengths, mask=values.is_null().to_numpy(zero_copy_only=False))
    return pc.fill_null(pc.binary_length(values.cast(pa.large_string()) if is_readable(kind) else values), 0)


def is_text(kind: pa.DataType) -> bool:
    """Test whether the values are texts already, also those that are stored as numbers of different texts."""
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind) in ("string", "large_string", "string_view")


def is_list(kind: pa.DataType) -> bool:
    """Test whether each value is a list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_readable(kind: pa.DataType) -> bool:
    """Test whether the values have texts."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    dated = pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return bool(is_text(kind) or numeric or dated or pa.types.is_boolean(kind) or pa.types.is_null(kind))
