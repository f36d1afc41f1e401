"""Embeddings made anywhere: npz, npy with csv, parquet, or the folder of a run."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from trivet.config import nearest

Names = npt.NDArray[np.str_]

EMBEDDINGS = ("embeddings", "embedding", "features", "vectors")
ID, SPLIT, CAMERA = ("id",), ("split",), ("camera", "cam", "camid")
LONGEST = 1000  # characters of a text: numpy gives every row the room of the longest
BATCH = 16384  # rows of a parquet file that are decoded at once


@dataclass(frozen=True, eq=False)
class Vectors:
    """Embeddings made anywhere, with what is known of each row.

    Attributes:
        name: of the file, or "RUN (split)".
        embeddings: `(N, d)` floating point, not checked for NaN; of an npy file, a read-only memory map.
        labels: level -> `(N,)` class name of each row; may be empty.
        ids: `(N,)` different texts, or None.
        splits: `(N,)` the split each row belongs to, or None.
        cameras: `(N,)` the camera each row was seen by, or None.
    """

    name: str
    embeddings: npt.NDArray[Any]
    labels: Mapping[str, Names]
    ids: Names | None
    splits: Names | None
    cameras: Names | None

    def __post_init__(self) -> None:
        assert self.embeddings.ndim == 2
        columns = [*self.labels.values(), self.ids, self.splits, self.cameras]
        assert all(column.shape == (len(self),) for column in columns if column is not None)

    def __len__(self) -> int:
        return len(self.embeddings)

    def select(self, rows: slice | npt.NDArray[Any]) -> Vectors:
        """The rows of a slice, at the positions `(M,)`, or where a mask `(N,)` is true, in that order.

        Rows that follow one another in the file are not copied.

        Raises:
            ValueError: if a mask is not of length N, or the positions are not different integers from 0 to N - 1.
        """
        if not isinstance(rows, slice):
            rows = _joined(_positions(rows, len(self)))
        return replace(
            self,
            embeddings=self.embeddings[rows],
            labels={level: names[rows] for level, names in self.labels.items()},
            ids=None if self.ids is None else self.ids[rows],
            splits=None if self.splits is None else self.splits[rows],
            cameras=None if self.cameras is None else self.cameras[rows],
        )


def read_vectors(
    path: Path, *, levels: Sequence[str] | None = None, table: Path | None = None, split: str | None = None
) -> Vectors:
    """Read embeddings and what is known of each row.

    * `.npz`: the embeddings are the array "embeddings", "embedding", "features" or "vectors", else the only
      two-dimensional floating-point one; every one-dimensional array of length N is a column.
    * `.npy`: the embeddings; the columns are in a csv file with a header and N rows. A csv holds texts, kept as
      written; an empty field is a missing value, and so is "nan" in a column of numbers.
    * `.parquet`: the embeddings are a list column of one of the names above, else floating-point columns with one
      prefix, numbered from 0 or 1 (e0, e1, ...); all others that are not nested or binary are columns.
    * the folder of a run: its `embeddings/SPLIT.parquet`.

    The column "id" names the rows, "split" their split, "camera" ("cam", "camid") their camera. The others are label
    levels, apart from the row numbers pandas writes (a csv column without a name, `__index_level_0__`).
    Class names are texts: integers "7", also where stored as 7.0; bools "false" and "true".

    Args:
        path: the file or folder.
        levels: the columns that are label levels, in this order, of any type; by default those that hold texts,
            integers, bools or floats that are all integral, in the order of the file.
        table: the csv file of an npy file; by default the one beside it of the same stem.
        split: the rows of that split only; in a run, the split whose embeddings are read, by default the main one.

    Raises:
        ValueError: if a file is missing, broken or of another kind; if embeddings are not `(N, d)` floating point with
            N, d >= 1, or lengths disagree; if a level or split is not there; if one of the rows read has no class name,
            id, split or camera, or the id of another.
    """
    if table is not None and path.suffix.lower() != ".npy":
        raise ValueError(f"only an npy file has a table beside it: got {path} and the table {table}; leave it out.")
    if path.is_dir():
        file = _run_file(path, split)
        return _read(file, f"{path.resolve().name} ({file.stem})", levels, table, None)
    if not path.is_file():
        raise ValueError(f"embeddings must be read from a file or a run folder: {path} does not exist; check the path.")
    return _read(path, path.name, levels, table, split)


def class_numbers(*columns: Names) -> tuple[tuple[npt.NDArray[np.int64], ...], tuple[str, ...]]:
    """Class numbers that several columns of class names share, such as those of query and gallery.

    Args:
        columns: `(N,)` texts each, of any lengths.

    Returns:
        For each column its numbers `(N,)` in 0 .. C - 1, and the C names that occur: in the order of the integers if
        all are integers, else of their letters.
    """
    texts = pa.chunked_array([pa.array(column, pa.large_string()) for column in columns], pa.large_string())
    coded = texts.combine_chunks().dictionary_encode()
    names = coded.dictionary.to_pylist()
    integers = all(re.fullmatch("-?[0-9]+", name) for name in names)
    order = sorted(range(len(names)), key=lambda i: (int(names[i]) if integers else 0, names[i]))
    number = np.empty(len(names), np.int64)
    number[order] = np.arange(len(names))
    numbers = number[coded.indices.to_numpy()]
    ends = np.cumsum([len(column) for column in columns])
    return tuple(np.split(numbers, ends)[:-1]), tuple(names[i] for i in order)


def _positions(rows: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    if rows.dtype.kind == "b":
        if rows.shape != (count,):
            raise ValueError(f"a mask must hold a truth value for each of the {count} rows: got shape {rows.shape}.")
        return np.flatnonzero(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise ValueError(
            f"rows must be a slice, a mask or positions of shape (M,): got {rows.dtype} of shape {rows.shape}."
        )
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise ValueError(f"rows must lie in 0 to {count - 1}: got {rows.min()} to {rows.max()}.")
    if len(rows) and np.bincount(rows.astype(np.int64)).max() > 1:
        raise ValueError("rows must be different, or an item would retrieve itself: one occurs twice; remove it.")
    return rows


def _joined(rows: npt.NDArray[Any]) -> slice | npt.NDArray[Any]:
    """A slice if the rows follow one another, which selects without a copy."""
    if len(rows) and (np.diff(rows.astype(np.int64)) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


class Column(NamedTuple):
    """A column of a file.

    Attributes:
        values: `(N,)` bool, integer, float or text.
        missing: `(N,)` where there is no value.
        plain: whether it is a label level where none is named.
    """

    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]
    plain: bool


class Source(NamedTuple):
    """A file that is open: its embeddings, the names of its columns in order, and how to read one."""

    embeddings: npt.NDArray[Any]
    columns: Sequence[str]
    column: Callable[[str], Column]


def _read(path: Path, name: str, levels: Sequence[str] | None, table: Path | None, split: str | None) -> Vectors:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        source = _npz(path, levels)
    elif suffix == ".npy":
        path, source = _npy(path, table or path.with_suffix(".csv"))
    elif suffix == ".parquet":
        source = _parquet(path)
    else:
        raise ValueError(
            f"embeddings must be a .npz, .npy or .parquet file or a run folder: got {path}; save them as one of these."
        )
    return select_rows(path, source, levels, split, name=name)


def select_rows(
    path: Path, source: Source, levels: Sequence[str] | None, split: str | None, *, name: str | None = None
) -> Vectors:
    """The rows of an open file that are asked for, with their columns; errors name the path."""
    check_columns(path, source.columns)
    splits = _known(path, source, SPLIT)
    rows: npt.NDArray[np.int64] = np.arange(len(source.embeddings))
    if split is not None:
        rows = _rows_of(path, splits, split)

    def texts(column: Column | None, role: str) -> Names | None:
        return None if column is None else _texts(path, column, rows, role)

    if levels is None:
        known = {*ID, *SPLIT, *CAMERA}
        read = {level: source.column(level) for level in source.columns if level not in known and not _index(level)}
        chosen = {level: column for level, column in read.items() if column.plain}
    else:
        for level in levels:
            if level not in source.columns:
                there = nearest(level, source.columns) if source.columns else "it has no columns; add one."
                raise ValueError(f"each label level must be a column: {path} has no {level!r}; {there}")
        chosen = {level: source.column(level) for level in levels}
    ids = texts(_known(path, source, ID), "id")
    if ids is not None:
        _check_different(path, ids, rows)
    return Vectors(
        name=name or path.name,
        embeddings=source.embeddings[_joined(rows)],
        labels={
            level: _texts(path, column, rows, f"class name of level {level!r}") for level, column in chosen.items()
        },
        ids=ids,
        splits=texts(splits, "split"),
        cameras=texts(_known(path, source, CAMERA), "camera"),
    )


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """ValueError if two columns have one name."""
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if list(columns).count(column) > 1)
        raise ValueError(f"the columns of {path} must have different names: {twice!r} occurs twice; rename one.")


def _index(column: str) -> bool:
    """Whether pandas wrote the column to keep the numbers of the rows."""
    return column == "" or re.fullmatch("__index_level_[0-9]+__", column) is not None


def _known(path: Path, source: Source, names: Sequence[str]) -> Column | None:
    found = [name for name in names if name in source.columns]
    if len(found) > 1:
        raise ValueError(f"{path} must say once what the {names[0]} is: it has {' and '.join(found)}; remove one.")
    return source.column(found[0]) if found else None


def _rows_of(path: Path, splits: Column | None, split: str) -> npt.NDArray[np.int64]:
    if splits is None:
        raise ValueError(f"{path} must have a column 'split' to choose the split {split!r} from: it has none; add it.")
    there = np.flatnonzero(~splits.missing)
    (numbers,), names = class_numbers(_names(splits.values[there]))
    if split not in names:
        raise ValueError(f"{path} has no row of the split {split!r}; {nearest(split, names)}")
    rows: npt.NDArray[np.int64] = there[numbers == names.index(split)]
    return rows


def _texts(path: Path, column: Column, rows: npt.NDArray[np.int64], role: str) -> Names:
    """The texts of the chosen rows; ValueError if one is missing."""
    missing = rows[column.missing[rows]]
    if len(missing):
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        raise ValueError(
            f"every row of {path} must have a {role}: {len(missing)} of {len(rows)} have none, rows {shown} counted "
            "from 0; fill them in, or leave out these rows or this column."
        )
    return _names(column.values[_joined(rows)])


def _names(values: npt.NDArray[Any]) -> Names:
    """The text of each value, which are few numbers many times, or texts."""
    if values.dtype.kind == "U":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    different, place = np.unique(values, return_inverse=True)
    texts = different.astype(np.str_).tolist()
    if values.dtype.kind == "b":
        texts = [text.lower() for text in texts]
    elif values.dtype.kind == "f":
        texts = [str(int(value)) if value.is_integer() else text for value, text in zip(different, texts, strict=True)]
    return np.array(texts, np.str_)[place]


def _check_different(path: Path, ids: Names, rows: npt.NDArray[np.int64]) -> None:
    if pc.count_distinct(pa.array(ids, pa.large_string())).as_py() == len(ids):
        return
    (numbers,), _ = class_numbers(ids)
    first = np.unique(numbers, return_index=True)[1]
    repeated = np.setdiff1d(np.arange(len(ids)), first)
    again = int(repeated[0])
    raise ValueError(
        f"the ids of {path} must be different: {str(ids[again])!r} is that of rows {rows[first[numbers[again]]]} and "
        f"{rows[again]}, and {len(repeated)} of {len(ids)} ids stood before; give each row its own."
    )


def _check_embeddings(path: Path, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f":
        raise ValueError(
            f"the embeddings of {path} must be floating point: got {dtype}; convert them with .astype(np.float32)."
        )
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"the embeddings of {path} must have shape (N, d) with N, d >= 1: got {tuple(shape)}; "
            "write one row for each item."
        )


@contextmanager
def _whole(path: Path, kind: str) -> Iterator[None]:
    """Say in one sentence that a file cannot be read, whatever the library that reads it raises."""
    try:
        yield
    except MemoryError:  # the file is whole: say what it is, not that it should be written again
        raise ValueError(
            f"{path} must fit into memory: it does not; give an .npy file, which is read as needed."
        ) from None
    except Exception as error:  # broken bytes make numpy, zipfile and pyarrow raise anything, TokenError to KeyError
        reason = re.split(r"\.? *\n|\.(?: |$)", str(error), maxsplit=1)[0] or type(error).__name__
        raise ValueError(f"{path} must be a whole {kind} file: {reason[:300]}; write it again.") from None


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an npy file, which tell objects before anything is unpickled."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _check_no_objects(path: Path, what: str, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise ValueError(
            f"{path} must hold numbers and texts only: {what} holds Python objects, which are never loaded; "
            "save texts with .astype(str)."
        )


def _npz(path: Path, levels: Sequence[str] | None) -> Source:
    headers = {}
    with _whole(path, "npz"), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _header(file)

    def load(name: str) -> npt.NDArray[Any]:
        _check_no_objects(path, repr(name), headers[name][1])
        with _whole(path, "npz"), np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])

    key = next((name for name in EMBEDDINGS if name in headers), None)
    if key is None:
        found = [name for name, (shape, dtype) in headers.items() if len(shape) == 2 and dtype.kind == "f"]
        if len(found) != 1:
            raise ValueError(
                f"{path} must hold the embeddings as 'embeddings', or as its only (N, d) floating-point array: it has "
                f"{_listed(found)} of that kind among {_listed(list(headers))}; name one 'embeddings'."
            )
        key = found[0]
    _check_no_objects(path, repr(key), headers[key][1])
    _check_embeddings(path, *headers[key])
    count = headers[key][0][0]

    others = {name: shape for name, (shape, dtype) in headers.items() if name != key and dtype.kind in "biufUSMmO"}
    columns = [name for name, shape in others.items() if shape == (count,)]
    asked = [*ID, *SPLIT, *CAMERA, *(levels or ())]
    if levels is None and not any(name not in asked for name in columns):
        asked += [name for name, shape in others.items() if len(shape) == 1]  # one of them was meant as the labels
    for name in asked:
        if name in others and name not in columns:
            raise ValueError(
                f"{path} must hold one {name!r} per embedding: got shape {others[name]} for {count} embeddings; "
                f"save it with shape ({count},)."
            )

    def column(name: str) -> Column:
        values = load(name)
        missing: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        plain = True
        if values.dtype.kind == "S":
            with _whole(path, "npz"):  # bytes that are not UTF-8
                values = np.char.decode(values, "utf-8")
        elif values.dtype.kind in "Mm":
            missing, plain, values = np.isnat(values), False, values.astype(np.str_)
        elif values.dtype.kind == "f":
            missing = np.isnan(values)
            plain = _integral(values)
        return Column(values, missing, plain)

    return Source(load(key), columns, column)


def _npy(path: Path, table: Path) -> tuple[Path, Source]:
    """The file that errors about columns name, and the source."""
    with _whole(path, "npy"), path.open("rb") as file:
        shape, dtype = _header(file)
    _check_no_objects(path, "it", dtype)
    _check_embeddings(path, shape, dtype)
    with _whole(path, "npy"):
        embeddings = np.lib.format.open_memmap(path, mode="r")
    if not table.is_file():
        raise ValueError(
            f"an npy file must have a csv file beside it that says what its rows are: {table} does not exist; "
            "write it with a header and one row per embedding, or name another table."
        )
    columns = CsvTable.read(table)
    if len(columns) != len(embeddings):
        raise ValueError(
            f"{table} must hold one row per embedding: it has {len(columns)} rows below its header and {path} "
            f"{len(embeddings)}; write both from the same items."
        )
    return table, columns.source(embeddings)


@dataclass(frozen=True, eq=False)
class CsvTable:
    """A csv file with a header; every column as text, where an empty field is null."""

    path: Path
    table: pa.Table

    @classmethod
    def read(cls, path: Path) -> CsvTable:
        read = pa.csv.ReadOptions(use_threads=False)  # with threads, errors do not number the rows
        parse = pa.csv.ParseOptions(newlines_in_values=True)
        with _whole(path, "csv"):
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
    column = _arrow_column(path, name, texts)
    try:
        numbers = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # not a column of numbers
        return column
    return column._replace(missing=np.isnan(numbers), plain=_integral(numbers))


def _parquet(path: Path) -> Source:
    with _whole(path, "parquet"):
        file = pa.parquet.ParquetFile(path, memory_map=True)
        schema = file.schema_arrow
    key = next((name for name in EMBEDDINGS if name in schema.names and _is_list(schema.field(name).type)), None)
    own = [key] if key else _numbered(path, schema)
    embeddings = _fill_lists(path, file, key) if key else _fill_columns(path, file, own)
    columns = [field.name for field in schema if field.name not in own and _is_readable(field.type)]

    def column(name: str) -> Column:
        with _whole(path, "parquet"):
            values = file.read([name]).column(name)
            _check_count(file, len(values))
        return _arrow_column(path, name, values)

    return Source(embeddings, columns, column)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_readable(kind: pa.DataType) -> bool:
    """Whether the values have texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    dated = pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return bool(_is_text(kind) or numeric or dated or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _arrow_column(path: Path, name: str, column: pa.ChunkedArray) -> Column:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    missing = column.is_null().to_numpy()
    if pa.types.is_floating(kind):
        values = column.to_numpy()
        return Column(values, np.isnan(values), _integral(values))
    if pa.types.is_boolean(kind):
        return Column(column.fill_null(False).to_numpy(), missing, True)
    if pa.types.is_integer(kind):
        return Column(column.fill_null(0).to_numpy(), missing, True)
    with _whole(path, path.suffix[1:]):  # texts that are not UTF-8
        texts = column.cast(pa.large_string()).fill_null("")
        lengths = pc.utf8_length(texts).to_numpy()
        values = texts.to_numpy().astype(np.str_) if lengths.max(initial=0) <= LONGEST else None
    if values is None:
        raise ValueError(
            f"a label must have at most {LONGEST} characters: that of column {name!r} of {path} in row "
            f"{lengths.argmax()} has {lengths.max()}; shorten it, or name the columns that are label levels."
        )
    return Column(values, missing, _is_text(kind))


def _integral(values: npt.NDArray[Any]) -> bool:
    """Whether there are numbers, and all are integers."""
    numbers = values[~np.isnan(values)]
    return bool(len(numbers) and (np.isfinite(numbers) & (numbers == np.floor(numbers))).all())


def _batches(path: Path, file: pa.parquet.ParquetFile, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The first row and the rows of parts of the file, as many in all as its footer says."""
    start = 0
    with _whole(path, "parquet"):
        for batch in file.iter_batches(BATCH, columns=columns):
            end = start + len(batch)
            if end <= file.metadata.num_rows:
                yield start, batch
            start = end
        _check_count(file, start)


def _check_count(file: pa.parquet.ParquetFile, count: int) -> None:
    if count != file.metadata.num_rows:
        raise ValueError(f"it holds {count} rows where its footer says {file.metadata.num_rows}")


def _fill_lists(path: Path, file: pa.parquet.ParquetFile, name: str) -> npt.NDArray[Any]:
    count = file.metadata.num_rows
    dtype = _dtype(file.schema_arrow.field(name).type.value_type)
    embeddings: npt.NDArray[Any] = np.empty((count, 0), dtype)
    for start, batch in _batches(path, file, [name]):
        lists = batch.column(name)
        _check_no_null(path, name, start, lists)
        lengths = pc.list_value_length(lists).to_numpy()
        if start == 0:
            _check_embeddings(path, (count, int(lengths[0])), dtype)
            embeddings = np.empty((count, lengths[0]), dtype)
        dimension = embeddings.shape[1]
        wrong = np.flatnonzero(lengths != dimension)
        if len(wrong):
            raise ValueError(
                f"the embeddings of {path} must be of one length: row {start + wrong[0]} has {lengths[wrong[0]]} "
                f"values, row 0 has {dimension}; embed all rows with one model."
            )
        values = lists.flatten()
        _check_no_null(path, name, start, values, per_row=dimension)
        embeddings[start : start + len(batch)] = values.to_numpy().reshape(-1, dimension)
    _check_embeddings(path, embeddings.shape, dtype)
    return embeddings


def _fill_columns(path: Path, file: pa.parquet.ParquetFile, names: list[str]) -> npt.NDArray[Any]:
    dtypes = [_dtype(file.schema_arrow.field(name).type) for name in names]
    for dtype in dtypes:
        _check_embeddings(path, (file.metadata.num_rows, len(names)), dtype)
    embeddings = np.empty((file.metadata.num_rows, len(names)), np.result_type(*dtypes))
    for start, batch in _batches(path, file, names):
        for place, name in enumerate(names):
            values = batch.column(name)
            _check_no_null(path, name, start, values)
            embeddings[start : start + len(batch), place] = values.to_numpy()
    return embeddings


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def _check_no_null(path: Path, name: str, start: int, values: pa.Array, *, per_row: int = 1) -> None:
    if values.null_count:
        row = start + values.is_null().to_numpy(zero_copy_only=False).argmax() // per_row
        raise ValueError(
            f"the embeddings of {path} must have a number in every place: row {row} (from 0) has none in column "
            f"{name!r}; leave out this row, or embed it again."
        )


def _numbered(path: Path, schema: pa.Schema) -> list[str]:
    """The columns that hold one dimension each, first dimension first."""
    found: dict[str, list[tuple[int, str]]] = {}
    floating = set()
    for field in schema:
        match = re.fullmatch("(.*?)([0-9]+)", field.name, re.DOTALL)
        if match and (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            found.setdefault(match[1], []).append((int(match[2]), field.name))
            if pa.types.is_floating(field.type):
                floating.add(match[1])
    families = {}
    for prefix, columns in found.items():
        numbers = [number for number, _ in sorted(columns)]
        if len(numbers) > 1 and numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1))):
            families[prefix] = [name for _, name in sorted(columns)]
    # Integer columns level1, level2 beside e0, e1, ... are labels; alone they are embeddings to be converted.
    families = {prefix: names for prefix, names in families.items() if prefix in floating} or families
    if len(families) != 1:
        got = f"it has {_listed([f'{names[0]} to {names[-1]}' for names in families.values()])} of that kind among "
        raise ValueError(
            f"{path} must hold the embeddings as a list column 'embedding', or as one set of columns e0, e1, ...: "
            f"{got}{_listed(schema.names)}; name the list column 'embedding'."
        )
    return next(iter(families.values()))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"


def _run_file(path: Path, split: str | None) -> Path:
    """The file of the embeddings of a split of a run."""
    if not (path / "config.toml").is_file():
        raise ValueError(
            f"a folder of embeddings must be a run, with a config.toml: {path} has none; give the folder "
            "`trivet train` made, or a .npz, .npy or .parquet file."
        )
    files = {file.stem: file for file in sorted((path / "embeddings").glob("*.parquet"))}
    if not files:
        raise ValueError(
            f"a run must hold embeddings: {path} has no embeddings/*.parquet; write them with `trivet evaluate {path}`."
        )
    if split is None:
        return files.get(_main_split(path), next(iter(files.values())))
    if split not in files:
        raise ValueError(f"the run {path} has no embeddings of the split {split!r}; {nearest(split, files)}")
    return files[split]


def _main_split(path: Path) -> str:
    """The first split of the record; empty where there is no record, or not one that can be read."""
    try:
        record = json.loads((path / "record.json").read_text(encoding="utf-8"))
        return str(next(iter(record["evaluation"])))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):  # missing, no JSON, or of another form
        return ""
