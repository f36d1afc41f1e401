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
from trivet.io.label_columns import (
    CAMERA,
    ID,
    PROTOCOL_COLUMNS,
    SPLIT,
    TRUTH,
    is_index,
    label_levels,
    label_values,
    nearly_distinct,
    odd_labels,
    split_column,
    split_names,
)
from trivet.io.query_gallery import QueryGallery
from trivet.io.table import LONGEST, ColumnValues, DataTable, listed
from trivet.io.tag_cells import CellRule
from trivet.io.vector_columns import EMBEDDING
from trivet.runtime.arrays import Integers

Names = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Embeddings made anywhere, with what is known of each row.

    Attributes:
        name: of the file, or "RUN (split)".
        embeddings: `(N, d)` floating point; of an npy file, a read-only memory map. Those of arrays may be NaN.
        labels: level -> `(N,)` class name of each row, of a level of tags these joined by ";"; may be empty.
        ids: `(N,)` different texts, or None.
        splits: `(N,)` the split each row belongs to, or None.
        cameras: `(N,)` the camera each row was seen by, or None.
        protocol: which rows are queries and which are retrieved, by the columns `is_query`, `is_gallery` and, where
            there is one, `is_junk`; None without the first two, or where none of the rows is a query.
        rows: `(N,)` the numbers of the rows in their file, from 0.
        columns: the names of all columns of the file.
        texts: the column that was asked for as texts, or None.
        passed_over: columns that were not taken for label levels -> why, as in "it holds dates".
        notes: what is odd about the levels that were named, in sentences.
        others: the values of the columns that are none of these, `(N,)` texts each; only where they were asked for.
        tags: the levels of tags or pairs -> which items belong together, see `trivet.Tags`.
        cells: the values `(N,)` of all columns as bools, integers, floats or texts, null where there is none; only
            where they were asked for.
        nested: the columns of the file that are lists, objects or bytes.
    """

    name: str
    embeddings: npt.NDArray[Any]
    labels: Mapping[str, Names]
    rows: Integers
    ids: Names | None = None
    splits: Names | None = None
    cameras: Names | None = None
    protocol: QueryGallery | None = None
    columns: tuple[str, ...] = ()
    texts: Sequence[str] | None = None
    passed_over: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tags: Mapping[str, CellRule] = field(default_factory=dict)
    cells: Mapping[str, pa.Array] = field(default_factory=dict)
    nested: tuple[str, ...] = ()

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
        return f" ({listed([*self.passed_over.values()])})" if self.passed_over else ""

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
            cells={name: values.take(pa.array(np.arange(len(self))[rows])) for name, values in self.cells.items()},
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


def class_labels(vectors: Vectors) -> tuple[dict[str, Integers], dict[str, tuple[str, ...]]]:
    """Class numbers `(N,)` and names of each level."""
    labels, names = {}, {}
    for level, column in vectors.labels.items():
        (labels[level],), names[level] = class_numbers(column)
    return labels, names


def select_rows(
    table: DataTable,
    levels: Sequence[str] | None,
    split: str | None,
    *,
    text: str | None = None,
    needs: Mapping[str, str] | None = None,
    name: str | None = None,
    others: bool = False,
    cells: bool = False,
    skip_empty: bool | None = None,
) -> Vectors:
    """The rows of an open file that are asked for, with their columns; without embeddings these are `(N, 0)`.

    Args:
        needs: columns that each row must have a value in, such as texts -> what that is; they are no label levels.
        skip_empty: leave out the rows that lack a label, an id or another value that each must have; None, as False,
            where this cannot be asked for, so that the error does not offer it.
    """
    path = table.path
    _check_shapes(table, levels)
    divided = split_column(table, [*(levels or ()), *([] if text is None else [text]), *(needs or ())])
    splits = None if divided is None else table.values(divided)
    rows: Integers = np.arange(table.count)
    if split is not None:
        rows = _rows_of(path, splits, split)
    for wanted in [*(levels or ()), *([] if text is None else [text])]:
        if wanted not in (table.types if wanted in (levels or ()) else table.columns):
            kind = "each label level" if wanted in (levels or ()) else "the texts"
            raise ValueError(f"{kind} must be a column: {path} has no {wanted!r}; {_nearest(wanted, table)}")
    passed_over: dict[str, str] = {}
    notes: list[str] = []
    if divided is not None and divided not in SPLIT:
        notes.append(f"The column {divided!r} says which rows are trained on: it holds such words alone.")
    if levels is None:
        chosen, passed_over = label_levels(table.without(needs or ()))
    else:
        chosen = {level: label_values(table, level) for level in levels}
        for level, column in chosen.items():
            if nearly_distinct(column) and not table.tags.get(level):
                notes.append(
                    f"Nearly every row has a value of its own in the column {level!r}, which is taken for a label "
                    "level because it was named."
                )
    ids, cameras = _known(table, ID), _known(table, CAMERA)
    needed = {f"class name of level {level!r}": column for level, column in chosen.items()}
    known = {"id": ids, "split": splits, "camera": cameras}
    needed |= {role: column for role, column in known.items() if column is not None}
    needed |= {column: table.values(column) for column in PROTOCOL_COLUMNS if column in table.columns}
    items = {column: table.values(column) for column in needs or {}}
    needed |= {what: items[column] for column, what in (needs or {}).items()}
    if table.lacking is not None:
        needed["complete embedding"] = ColumnValues(table.lacking, table.lacking, False)
    rows = _complete_rows(table, rows, needed, skip_empty, notes)
    id_texts, camera_texts, split_texts = (
        None if column is None else _texts(path, column, rows, role)
        for column, role in ((ids, "id"), (cameras, "camera"), (splits, "split"))
    )
    if id_texts is not None:
        _check_different(table, id_texts, rows)
    if split_texts is not None:
        split_texts = _called(split_texts)
    protocol = _protocol(table, rows, camera_texts)
    used = {
        *chosen,
        *([] if divided is None else [divided]),
        *([] if text is None else [text]),
        *(CAMERA if protocol is not None else ()),
    }
    labels = {level: _texts(path, column, rows, f"class name of level {level!r}") for level, column in chosen.items()}
    notes += [
        note
        for level, names in labels.items()
        if not table.tags.get(level)
        for note in odd_labels(level, counted_names(names))
    ]
    vectors = np.empty((table.count, 0), np.float32) if table.vectors is None else table.vectors
    return Vectors(
        name=name or path.name,
        embeddings=vectors[_joined(rows)],
        labels=labels,
        ids=id_texts,
        splits=split_texts,
        cameras=camera_texts,
        protocol=protocol,
        rows=rows,
        columns=tuple(table.columns),
        texts=None if text is None else display_texts(items.get(text) or table.values(text), rows),
        passed_over=passed_over,
        notes=tuple(notes),
        others=_other_columns(table, rows, used) if others else {},
        tags={level: match for level in chosen if (match := table.tags.get(level))},
        cells={name: _cells(table.values(name), rows) for name in table.columns} if cells else {},
        nested=tuple(name for name in table.types if name not in table.columns),
    )


def _cells(column: ColumnValues, rows: Integers) -> pa.Array:
    """Values of some rows with their type."""
    return pa.array(column.values[rows], mask=column.missing[rows])


def _nearest(name: str, table: DataTable) -> str:
    """The column that is nearest to a name, and what other columns hold where none can be taken."""
    if table.columns:
        return nearest(name, table.columns)
    if not table.types:
        return "it has no other columns; add one."
    types = [f"{other!r} ({kind})" for other, kind in table.types.items()]
    return f"it has {listed(types)}; add a column of texts or numbers."


def counted_names(names: Names) -> dict[str, int]:
    counts = pa.array(names, pa.large_string()).value_counts()
    return dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))


def _complete_rows(
    table: DataTable, rows: Integers, needed: Mapping[str, ColumnValues], skip_empty: bool | None, notes: list[str]
) -> Integers:
    """The rows that have all they need; ValueError that names all others, unless they are to be left out."""
    lacking = {what: np.array(_empty(column, rows)) for what, column in needed.items()}
    lacking = {what: empty for what, empty in lacking.items() if empty.any()}
    if not lacking:
        return rows
    left: Integers = rows[~np.any(list(lacking.values()), axis=0)]
    some = len(lacking) > 1 or (skip_empty and len(left))
    gaps = "; ".join(
        f"{empty.sum():,} of {len(rows):,} have {f'no {what}' if some else 'none'}, {table.where(rows[empty])}"
        for what, empty in lacking.items()
    )
    if skip_empty and len(left):
        if len(lacking) == 1:
            gaps = f"they have{gaps.partition(' have')[2]}"
        notes.append(f"{len(rows) - len(left):,} of {len(rows):,} rows of {table.path.name} were left out: {gaps}.")
        return left
    remedy = "or leave out these rows" + ("" if "text" in lacking else " or this column")
    if skip_empty is not None and len(left):
        remedy = "or go on without these rows: --skip-empty, or data.skip_empty = true in settings"
    whats = " and ".join(f"{'an' if what[0] in 'aeiou' else 'a'} {what}" for what in lacking)
    raise ValueError(f"every row of {table.path} must have {whats}: {gaps}; fill them in, {remedy}.")


def _empty(column: ColumnValues, rows: Integers) -> npt.NDArray[np.bool_]:
    """Mask of the rows without a value, or with nothing but white space."""
    missing, values = column.missing[rows], column.values[_joined(rows)]
    if values.dtype.kind not in "UO":
        return missing
    blank = pc.equal(pc.utf8_trim_whitespace(pa.array(values, pa.large_string())), "")
    empty: npt.NDArray[np.bool_] = missing | blank.to_numpy(zero_copy_only=False)
    return empty


def _check_shapes(table: DataTable, levels: Sequence[str] | None) -> None:
    """ValueError if an array was meant as a column, and does not have a value for each row."""
    per_row = [*ID, *SPLIT, *CAMERA, *(levels or ())]
    if levels is None and not any(name not in per_row for name in table.columns):
        per_row += [name for name, shape in table.shapes.items() if len(shape) == 1]  # one was meant as the labels
    for name in per_row:
        if name in table.shapes:
            width = None if table.vectors is None else table.vectors.shape[1:]
            or_turned = ", or the embeddings with .T, as they seem transposed" if table.shapes[name] == width else ""
            raise ValueError(
                f"{table.path} must hold one {name!r} per embedding: got shape {table.shapes[name]} for {table.count} "
                f"embeddings; save it with shape ({table.count},){or_turned}."
            )


def _other_columns(source: DataTable, rows: Integers, known: Collection[str]) -> dict[str, list[str]]:
    """The values of the chosen rows in all columns that have a name, but for the known ones and those of every table.

    Texts of any length; what is missing is empty.
    """
    used = {*ID, *SPLIT, *PROTOCOL_COLUMNS, EMBEDDING, *known}
    left = [name for name in source.columns if not is_index(name) and name not in used]
    return {name: display_texts(source.values(name), rows) for name in left}


def display_texts(column: ColumnValues, rows: Integers) -> list[str]:
    """The values as texts of any length; what is missing is empty."""
    values, missing = column.values[_joined(rows)], column.missing[_joined(rows)]
    texts = values.tolist() if values.dtype.kind == "O" else _names(values).tolist()
    return ["" if lacks else text for text, lacks in zip(texts, missing.tolist(), strict=True)]


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
    values = _names(splits.values[there])
    (numbers,), names = class_numbers(values if split in values else _called(values))
    called = split if split in names else split_names([split])[split]
    if called not in names:
        raise ValueError(f"{path} has no row of the split {split!r}; {nearest(split, names)}")
    rows: Integers = there[numbers == names.index(called)]
    return rows


def _called(splits: Names) -> Names:
    """The splits by the names of `split_names`."""
    (numbers,), names = class_numbers(splits)
    called = split_names(names)
    return np.array([called[name] for name in names], np.str_)[numbers]


def _texts(path: Path, column: ColumnValues, rows: Integers, role: str) -> Names:
    """The texts of the chosen rows, none of which is missing."""
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
        return values
    different, inverse = np.unique(values, return_inverse=True)
    texts = different.astype(np.str_).tolist()
    if values.dtype.kind == "b":
        texts = [text.lower() for text in texts]
    elif values.dtype.kind == "f":
        texts = [str(int(value)) if value.is_integer() else text for value, text in zip(different, texts, strict=True)]
    return np.array(texts, np.str_)[inverse]


def _check_different(table: DataTable, ids: Names, rows: Integers) -> None:
    if pc.count_distinct(pa.array(ids, pa.large_string())).as_py() == len(ids):
        return
    (numbers,), _ = class_numbers(ids)
    first = np.unique(numbers, return_index=True)[1]
    repeated = np.setdiff1d(np.arange(len(ids)), first)
    again = int(repeated[0])
    raise ValueError(
        f"the ids of {table.path} must be unique: {table.where(rows[[first[numbers[again]], again]])} both have "
        f"{str(ids[again])!r}, and {len(repeated)} of {len(ids)} ids are repeated; give each row its own."
    )
