"""An open file of embeddings: what every format provides, and the checks that all share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.safe_read import check_expanded

EMBEDDINGS = ("embeddings", "embedding", "features", "vectors")
LONGEST = 1000  # characters of a text: numpy gives every row the room of the longest


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


class EmbeddingSource(NamedTuple):
    """A file that is open: its embeddings, the names of its columns in order, and how to read one.

    `levels` are those of its columns that are label levels, where the file says so.
    """

    embeddings: npt.NDArray[Any]
    columns: Sequence[str]
    column: Callable[[str], ColumnValues]
    levels: Sequence[str] = ()


def check_embeddings(path: Path, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ValueError unless they are `(N, d)` floating point with N, d >= 1."""
    if dtype.kind != "f":
        raise ValueError(
            f"the embeddings of {path} must be floating point: got {dtype}; convert them with .astype(np.float32)."
        )
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"the embeddings of {path} must have shape (N, d) with N, d >= 1: got {tuple(shape)}; "
            "write one row for each item."
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


def check_complete(path: Path, rows: Integers, lacking: Sequence[bool] | Booleans, what: str) -> None:
    """ValueError if some of the rows lack something.

    Args:
        rows: `(N,)` their numbers in the file.
        lacking: `(N,)` which of them lack it.
        what: each row must have, such as "id".
    """
    missing = rows[np.asarray(lacking, np.bool_)]
    if len(missing):
        raise ValueError(
            f"every row of {path} must have a {what}: {len(missing)} of {len(rows)} have none, rows "
            f"{listed([str(row) for row in missing[:9]])} counted from 0; fill them in, or leave out these rows"
            f"{'' if what == 'text' else ' or this column'}."
        )


def arrow_column(path: Path, name: str, column: pa.ChunkedArray) -> ColumnValues:
    """A column of any type that has texts."""
    if pa.types.is_dictionary(column.type):
        check_expanded(path, sum(map(_decoded, column.chunks)))
        column = column.cast(column.type.value_type)
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


def _decoded(chunk: pa.DictionaryArray) -> float:
    """The bytes of the texts that a chunk names by numbers."""
    lengths = pc.fill_null(pc.binary_length(chunk.dictionary.cast(pa.large_string())), 0)
    return float(pc.sum(lengths.take(chunk.indices.drop_null())).as_py() or 0)


def is_text(kind: pa.DataType) -> bool:
    """Test whether the values are texts already."""
    return str(kind) in ("string", "large_string", "string_view")
