"""Rows of a table as lines of text: tab-separated cells for TensorBoard and PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

ROWS = 4096  # that are made at once
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def vector_texts(vectors: pa.Array, separator: str) -> pa.Array:
    """The numbers of each row of a fixed-size list of float32, in the fewest digits that give them back, joined."""
    lists = pa.ListArray.from_arrays(
        pa.array(range(0, (len(vectors) + 1) * vectors.type.list_size, vectors.type.list_size), pa.int32()),
        vectors.flatten().cast(pa.string()),
    )
    return pc.binary_join(lists, separator)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table, some thousand at a time."""
    return iter(table.to_batches(max_chunksize=ROWS))


def plain_cell(value: object) -> str:
    """A value as one line without tabs, empty for null, for programs that know no escapes.

    Example:
        >>> plain_cell("two\\nlines")
        'two lines'
    """
    return "" if value is None else _BREAKS.sub(" ", _text(value))


def copy_cell(value: object) -> str:
    r"""A value as PostgreSQL's COPY reads it in its text format.

    Example:
        >>> print(copy_cell("a\tb"), copy_cell(None))
        a\tb \N
    """
    return r"\N" if value is None else _text(value).translate(_ESCAPES)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
