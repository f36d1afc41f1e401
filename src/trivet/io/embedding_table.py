"""Embeddings with the ids, labels and other columns of their rows, and what the columns of a file mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trivet.config.base import nearest
from trivet.io.query_gallery import QueryGallery
from trivet.io.table import LONGEST, ColumnValues, DataTable, check_complete, listed
from trivet.io.vector_columns import EMBEDDING
from trivet.runtime.arrays import Integers

Names = npt.NDArray[np.str_]

ID, SPLIT, CAMERA = ("id",), ("split",), ("camera", "cam", "camid")
PROTOCOL_COLUMNS = ("is_query", "is_gallery", "is_junk")  # the columns that make a protocol; the last may be missing
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
SHARED = 0.2  # of the rows of a label level: at least so many have the class of another row
FEWEST_ROWS = 20  # rows, of which that can be told


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
        protocol: which rows are queries and which are retrieved, by the columns `is_query`, `is_gallery` and, where
            there is one, `is_junk`; None without the first two, or where none of the rows is a query.
        rows: `(N,)` the numbers of the rows in their file, from 0.
        columns: the names of all columns of the file.
        texts: the column that was asked for as texts, or None.
        passed_over: columns that were not taken for label levels, as nearly every row has a value of its own.
        notes: what is odd about the levels that were named, in sentences.
        others: the values of the columns that are none of these, `(N,)` texts each; only where they were asked for.
    """

    name: str
    embeddings: npt.NDArray[Any]
    labels: Mapping[str, Names]
    ids: Names | None
    splits: Names | None
    cameras: Names | None
    protocol: QueryGallery | None
    rows: Integers
    columns: tuple[str, ...]
    texts: Sequence[str] | None = None
    passed_over: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.embeddings.ndim == 2
        columns = [*self.labels.values(), self.ids, self.splits, self.cameras, self.rows]
        assert all(column.shape == (len(self),) for column in columns if column is not None)

    def names(self) -> list[str]:
        """Names of the rows: the id, or the number of the row in the file."""
        return [str(row) for row in self.rows.tolist()] if self.ids is None else self.ids.tolist()

    def __len__(self) -> int:
        return len(self.embeddings)

    def why_none(self) -> str:
        """Remark, in brackets, on the columns that were passed over as label levels; else empty."""
        return f" (nearly every row has its own {listed(self.passed_over)})" if self.passed_over else ""

    def select(self, rows: slice | npt.NDArray[Any]) -> Vectors:
        """The rows of a slice, at different positions `(M,)`, or where a mask `(N,)` is true, in that order.

        Rows that follow one another in the file are not copied.
        """
        rows = _joined(np.arange(len(self))[rows])
        return replace(
            self,
            embeddings=self.embeddings[rows],
            labels={level: names[rows] for level, names in self.labels.items()},
            ids=None if self.ids is None else self.ids[rows],
            splits=None if self.splits is None else self.splits[rows],
            cameras=None if self.cameras is None else self.cameras[rows],
            protocol=None if self.protocol is None else self.protocol.subset(np.arange(len(self))[rows]),
            rows=self.rows[rows],
            texts=None if self.texts is None else np.array(self.texts, object)[rows].tolist(),
            others={name: np.array(values, object)[rows].tolist() for name, values in self.others.items()},
        )


def _joined(rows: npt.NDArray[Any]) -> slice | npt.NDArray[Any]:
    """A slice if the rows follow one another, which selects without a copy."""
    if len(rows) and (np.diff(rows.astype(np.int64)) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def class_numbers(*columns: Names) -> tuple[tuple[Integers, ...], tuple[str, ...]]:
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


def class_labels(vectors: Vectors, path: Path) -> tuple[dict[str, Integers], dict[str, tuple[str, ...]]]:
    """Class numbers `(N,)` and names of each level; ValueError, which names the path, if a class name is blank."""
    labels, names = {}, {}
    for level, column in vectors.labels.items():
        (labels[level],), names[level] = class_numbers(column)
        blank = [number for number, name in enumerate(names[level]) if not name.strip()]
        check_complete(path, vectors.rows, np.isin(labels[level], blank), f"class name of level {level!r}")
    return labels, names


def select_rows(
    table: DataTable,
    levels: Sequence[str] | None,
    split: str | None,
    *,
    text: str | None = None,
    name: str | None = None,
    others: bool = False,
) -> Vectors:
    """The rows of an open file that are asked for, with their columns; without embeddings these are `(N, 0)`."""
    path = table.path
    _check_shapes(table, levels)
    splits = _known(table, SPLIT)
    rows: Integers = np.arange(table.count)
    if split is not None:
        rows = _rows_of(path, splits, split)

    def texts(column: ColumnValues | None, role: str) -> Names | None:
        return None if column is None else _texts(path, column, rows, role)

    for wanted in [*(levels or ()), *([] if text is None else [text])]:
        if wanted not in table.columns:
            there = nearest(wanted, table.columns) if table.columns else "it has no columns; add one."
            kind = "each label level" if wanted in (levels or ()) else "the texts"
            raise ValueError(f"{kind} must be a column: {path} has no {wanted!r}; {there}")
    passed_over: list[str] = []
    notes: list[str] = []
    if levels is None:
        chosen, passed_over = plain_levels(table)
    else:
        chosen = {level: table.values(level) for level in levels}
        notes = [
            f"Nearly every row has a value of its own in the column {level!r}, which is taken for a label level "
            "because it was named."
            for level, column in chosen.items()
            if _nearly_distinct(column)
        ]
    ids = texts(_known(table, ID), "id")
    if ids is not None:
        _check_different(path, ids, rows)
    cameras = texts(_known(table, CAMERA), "camera")
    protocol = _protocol(table, rows, cameras)
    known = {*chosen, *([] if text is None else [text]), *(CAMERA if protocol is not None else ())}
    vectors = np.empty((table.count, 0), np.float32) if table.vectors is None else table.vectors
    return Vectors(
        name=name or path.name,
        embeddings=vectors[_joined(rows)],
        labels={
            level: _texts(path, column, rows, f"class name of level {level!r}") for level, column in chosen.items()
        },
        ids=ids,
        splits=texts(splits, "split"),
        cameras=cameras,
        protocol=protocol,
        rows=rows,
        columns=tuple(table.columns),
        texts=None if text is None else display_texts(table.values(text), rows),
        passed_over=tuple(passed_over),
        notes=tuple(notes),
        others=_other_columns(table, rows, known) if others else {},
    )


def _check_shapes(table: DataTable, levels: Sequence[str] | None) -> None:
    """ValueError if an array was meant as a column, and does not have a value for each row."""
    per_row = [*ID, *SPLIT, *CAMERA, *(levels or ())]
    if levels is None and not any(name not in per_row for name in table.columns):
        per_row += [name for name, shape in table.shapes.items() if len(shape) == 1]  # one was meant as the labels
    for name in per_row:
        if name in table.shapes:
            raise ValueError(
                f"{table.path} must hold one {name!r} per embedding: got shape {table.shapes[name]} for {table.count} "
                f"embeddings; save it with shape ({table.count},)."
            )


def plain_levels(source: DataTable) -> tuple[dict[str, ColumnValues], list[str]]:
    """The columns that are label levels where none is named, and those that are not, as nearly all values differ."""
    known = {*ID, *SPLIT, *CAMERA, *PROTOCOL_COLUMNS}
    levels, passed_over = {}, []
    for name in source.columns:
        if name in known or _index(name) or (source.levels and name not in source.levels):
            continue
        column = source.values(name)
        if _nearly_distinct(column):
            passed_over.append(name)
        elif column.plain:
            levels[name] = column
    return levels, passed_over


def _other_columns(source: DataTable, rows: Integers, known: Collection[str]) -> dict[str, list[str]]:
    """The values of the chosen rows in all columns that have a name, but for the known ones and those of every table.

    Texts of any length; what is missing is empty.
    """
    used = {*ID, *SPLIT, *PROTOCOL_COLUMNS, EMBEDDING, *known}
    left = [name for name in source.columns if not _index(name) and name not in used]
    return {name: display_texts(source.values(name), rows) for name in left}


def _nearly_distinct(column: ColumnValues) -> bool:
    """Test whether less than a fifth of 20 rows or more share their value with another, as among texts or file names.

    Where classes have two items each, all of them do; of the 13,233 faces of LFW, with 4,069 people seen once, 69 %.
    """
    values = column.values[~column.missing]
    counts = pa.array(values).value_counts().field("counts").to_numpy()
    return bool(len(values) >= FEWEST_ROWS and counts[counts > 1].sum() < SHARED * len(values))


def display_texts(column: ColumnValues, rows: Integers) -> list[str]:
    """The values as texts of any length; what is missing is empty."""
    values, missing = column.values[_joined(rows)], column.missing[_joined(rows)]
    texts = values.tolist() if values.dtype.kind == "O" else _names(values).tolist()
    return ["" if lacks else text for text, lacks in zip(texts, missing.tolist(), strict=True)]


def _index(column: str) -> bool:
    """Test whether pandas wrote the column to keep the numbers of the rows."""
    return column == "" or re.fullmatch("__index_level_[0-9]+__", column) is not None


def _known(source: DataTable, names: Sequence[str]) -> ColumnValues | None:
    present = [name for name in names if name in source.columns]
    if len(present) > 1:
        raise ValueError(
            f"{source.path} must have one column for the {names[0]}: it has {' and '.join(present)}; remove one."
        )
    return source.values(present[0]) if present else None


def _protocol(source: DataTable, rows: Integers, cameras: Names | None) -> QueryGallery | None:
    """Protocol of the chosen rows by their columns.

    Raises:
        ValueError: if one of `is_query` and `is_gallery` is missing, a value is neither true nor false, or there are
            queries and nothing to retrieve.
    """
    path, present = source.path, [name for name in PROTOCOL_COLUMNS if name in source.columns]
    if not present:
        return None
    if lacking := [name for name in PROTOCOL_COLUMNS[:2] if name not in present]:
        raise ValueError(f"the column {present[0]!r} of {path} needs a column {lacking[0]!r} beside it; add it.")
    masks = {name: np.zeros(len(rows), bool) for name in PROTOCOL_COLUMNS}
    for name in present:
        values, inverse = np.unique(_texts(path, source.values(name), rows, name), return_inverse=True)
        if wrong := [value for value in values.tolist() if value.lower() not in TRUTH]:
            raise ValueError(f"the column {name!r} of {path} must be true or false: got {wrong[0]!r}; write it so.")
        masks[name] = np.array([TRUTH[value.lower()] for value in values.tolist()])[inverse]
    if not masks[PROTOCOL_COLUMNS[0]].any():
        return None
    numbers = None if cameras is None else class_numbers(cameras)[0][0]
    query, gallery, junk = masks.values()
    return QueryGallery(query, gallery, junk, cameras=numbers)


def _rows_of(path: Path, splits: ColumnValues | None, split: str) -> Integers:
    if splits is None:
        raise ValueError(f"{path} must have a column 'split' to choose the split {split!r} from: it has none; add it.")
    there = np.flatnonzero(~splits.missing)
    (numbers,), names = class_numbers(_names(splits.values[there]))
    if split not in names:
        raise ValueError(f"{path} has no row of the split {split!r}; {nearest(split, names)}")
    rows: Integers = there[numbers == names.index(split)]
    return rows


def _texts(path: Path, column: ColumnValues, rows: Integers, role: str) -> Names:
    """The texts of the chosen rows; ValueError if one is missing."""
    check_complete(path, rows, column.missing[rows], role)
    if column.values.dtype.kind == "O":
        lengths = [len(column.values[row]) for row in rows]
        raise ValueError(
            f"a {role} must have at most {LONGEST} characters: that of row {rows[int(np.argmax(lengths))]} of {path} "
            f"has {max(lengths)}; shorten it, or leave out this column."
        )
    return _names(column.values[_joined(rows)])


def _names(values: npt.NDArray[Any]) -> Names:
    """The text of each value, which are few numbers many times, or texts."""
    if values.dtype.kind == "U":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    different, inverse = np.unique(values, return_inverse=True)
    texts = different.astype(np.str_).tolist()
    if values.dtype.kind == "b":
        texts = [text.lower() for text in texts]
    elif values.dtype.kind == "f":
        texts = [str(int(value)) if value.is_integer() else text for value, text in zip(different, texts, strict=True)]
    return np.array(texts, np.str_)[inverse]


def _check_different(path: Path, ids: Names, rows: Integers) -> None:
    if pc.count_distinct(pa.array(ids, pa.large_string())).as_py() == len(ids):
        return
    (numbers,), _ = class_numbers(ids)
    first = np.unique(numbers, return_index=True)[1]
    repeated = np.setdiff1d(np.arange(len(ids)), first)
    again = int(repeated[0])
    raise ValueError(
        f"the ids of {path} must be unique: rows {rows[first[numbers[again]]]} and {rows[again]} both have "
        f"{str(ids[again])!r}, and {len(repeated)} of {len(ids)} ids are repeated; give each row its own."
    )
