"""Embeddings and labels in memory, of numpy, torch, pandas, polars or plain lists, as those of a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from torch import Tensor

from trivet.datasets.frames import check_dimensions, check_order, is_frame, without_columns
from trivet.datasets.judged_pairs import paired_cells
from trivet.datasets.pairs_config import LEVEL as PAIR
from trivet.io.embedding_table import Vectors, select_rows
from trivet.io.table import arrow_table, check_embeddings, listed
from trivet.io.tag_cells import LIST, PAIRS, TagCells, TagMatch, with_tags
from trivet.mining import Classes, Relation
from trivet.mining.pairs import Pairs
from trivet.mining.tags import Tags
from trivet.runtime.arrays import how_to_align
from trivet.runtime.text import abbreviated, rows_hold

LEVEL = "label"  # the name of labels without one


def read_arrays(
    embeddings: Any,
    labels: Any,
    *,
    ids: Any = None,
    texts: Any = None,
    separator: str | None = None,
    match: TagMatch = "any",
    name: str = "the arrays",
    unnamed: str = LEVEL,
    variables: tuple[str, str] = ("embeddings", "labels"),
) -> Vectors:
    """Read embeddings with the labels of their rows, as `read_vectors` reads those of a file.

    Args:
        embeddings: `(N, d)` floating point: an array, a tensor, a sparse matrix, a list of rows, a series of lists, or
            a data frame whose columns are the dimensions. Of pairs those of the left side, then those of the right one,
            or a tuple of both.
        labels: N classes, integers or texts, in any one-dimensional form; several levels as a dict or a data frame of
            columns, an empty dict for none. Where one is a list, all are lists of tags; `trivet.Tags` are such lists.
            `trivet.Pairs` say what belongs together in place of classes; of rows of equal content the first is read.
        ids: N different names of the rows.
        texts: N texts that are shown of the rows.
        separator: the mark between the tags of a text; "none" where each text is one class, whatever it holds.
        match: which tags belong together, see `trivet.Tags`, whose own counts.
        name: of the embeddings, for errors and results.
        unnamed: the level of labels without a name.
        variables: what the caller calls embeddings and labels, for the code in errors.

    Raises:
        ValueError: if these are not `(N, d)` finite floating point with N labels, ids and texts in the same order, a
            row has none, or a column of a data frame is no dimension.
    """
    check_not_a_column(embeddings, labels, variables)
    named = {PAIR: paired_cells(labels)} if isinstance(labels, Pairs) else labels
    levels, tags = label_columns(named, unnamed, variables=variables)
    check_order({variables[0]: embeddings, **label_variables(labels, variables[1]), "ids": ids, "texts": texts})
    if isinstance(labels, Pairs) and isinstance(embeddings, tuple):
        matrix = _above_each_other(embeddings, name, variables[0])
    else:
        matrix = as_matrix(embeddings, name, variables[0])
    check_rows(matrix.shape, levels, variables, sides=isinstance(labels, Pairs) and not isinstance(embeddings, tuple))
    columns = {level: cells(values, variables[1], len(matrix), level=level) for level, values in levels.items()}
    if ids is not None:
        columns["id"] = cells(ids, "ids", len(matrix))
    if texts is not None:
        columns["text"] = cells(texts, "texts", len(matrix))
    table = replace(arrow_table(Path(name), pa.table(columns)), count=len(matrix), vectors=matrix)
    several = [level for level in levels if separator or pa.types.is_list(columns[level].type)]
    if several:
        table = with_tags(table, TagCells(separator or LIST, match if tags is None else tags.match), several)
    if isinstance(labels, Pairs):
        table = replace(table, tags=dict.fromkeys(levels, PAIRS))
    vectors = select_rows(table, list(levels), None, text=None if texts is None else "text", name=name)
    check_dimensions(embeddings, matrix, {level: columns[level] for level in levels}, variables)
    if isinstance(labels, Pairs):  # rows of equal content are one item
        return vectors.select(np.sort(np.unique(labels.items.numpy(), return_index=True)[1]))
    return vectors


def check_not_a_column(embeddings: Any, labels: Any, variables: tuple[str, str]) -> None:
    """ValueError if labels are the name of a column of a data frame, or a list of a few, in place of its values."""
    names = [labels] if isinstance(labels, str) else labels
    if not is_frame(embeddings) or not isinstance(names, list) or not 0 < len(names) < max(2, embeddings.shape[0]):
        return
    if all(isinstance(name, str) and name in [*embeddings.columns] for name in names):
        raise ValueError(
            f"{variables[1]} must be one for each row: got {labels!r}, a name of columns; pass "
            f"{without_columns(embeddings, names, variables[0])}, {variables[0]}[{labels!r}]."
        )


def check_rows(
    shape: tuple[int, ...], levels: Mapping[str, Any], variables: tuple[str, str], *, sides: bool = False
) -> None:
    """ValueError if labels are as many as the numbers of an embedding, or those of pairs as the items of both sides.

    Args:
        shape: `(N, d)` of the embeddings.
        levels: label level -> labels, in any form.
        sides: whether these are of pairs, and the embeddings no tuple of both sides.
    """
    for values in levels.values():
        count = len(values) if hasattr(values, "__len__") and not isinstance(values, str) else shape[0]
        if count != shape[0] and sides:
            raise ValueError(
                f"{variables[0]} of pairs must be those of both sides: got {shape[0]} rows for {count} items; pass "
                "both in a tuple, (left, right)."
            )
        if count == shape[1] != shape[0]:
            raise ValueError(
                f"{variables[0]} must have a row for each label: got shape {shape} for {count} labels; they seem "
                f"transposed, pass np.transpose(np.asarray({variables[0]}))."
            )


def _above_each_other(sides: tuple[Any, ...], name: str, variable: str) -> npt.NDArray[Any]:
    """Embeddings of both sides of pairs, the left ones first."""
    if len(sides) != 2:
        raise ValueError(
            f"{variable} of pairs must be a left and a right side: got {len(sides)}; pass both in a tuple."
        )
    left, right = (as_matrix(side, name, f"{variable}[{number}]") for number, side in enumerate(sides))
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            f"{variable} of both sides must have one length to be compared: got {left.shape[1]} and {right.shape[1]}; "
            "pass those of one space."
        )
    return np.concatenate([left, right])


def as_matrix(values: Any, name: str = "the arrays", variable: str = "embeddings") -> npt.NDArray[Any]:
    """Embeddings `(N, d)` of any form that `read_arrays` takes; ValueError if they are not finite floating point.

    Args:
        name: of the embeddings, for errors.
        variable: what the caller calls them, for the code in errors.
    """
    what = name if name == variable else f"the embeddings of {name}"
    convert = f"np.asarray({variable}, np.float32)"
    columns = list(values.columns) if is_frame(values) else []
    if is_frame(values):
        convert = f"{variable}.astype('float32')" if hasattr(values, "iloc") else convert
        values = _frame_matrix(values, what, variable)
    elif isinstance(values, Tensor):
        values = _numpy(values)
    elif hasattr(values, "toarray"):  # of scipy
        values = values.toarray()
    elif isinstance(values, np.ma.MaskedArray) and values.dtype.kind == "f":
        values = values.filled(np.nan)
    if not (isinstance(values, Iterable) or hasattr(values, "__array__")) or isinstance(values, str | bytes):
        raise ValueError(f"{what} must be an array (N, d): got {values!r}; pass rows of numbers.")
    rows = np.asarray(values) if hasattr(values, "__array__") else _joined(list(values), what)
    if rows.dtype.kind == "O" and rows.ndim == 1:
        rows = _joined(rows.tolist(), what)
    check_embeddings(what, rows.shape)
    if rows.dtype.kind != "f":
        measured = f"if these are measurements, convert them with {convert}"
        remedy = measured if rows.dtype.kind in "biu" else "pass rows of numbers"
        raise ValueError(f"{what} must be floating point: got {rows.dtype}; {remedy}.")
    finite = np.isfinite(rows)
    if not finite.all():
        columns = columns if len(columns) == rows.shape[1] else list(range(rows.shape[1]))
        broken = [repr(columns[number]) for number in np.flatnonzero(~finite.all(axis=0))]
        raise ValueError(
            f"{what} must be finite: {rows_hold(np.flatnonzero(~finite.all(axis=1)).tolist(), 'NaN or infinity')}, in "
            f"{'column' if len(broken) == 1 else 'columns'} {abbreviated(broken, 8)}; leave these rows out of all that "
            "is passed, or these columns, or embed the rows again."
        )
    return rows


def label_columns(
    labels: Any, unnamed: str = LEVEL, *, variables: tuple[str, str] = ("embeddings", "labels")
) -> tuple[dict[str, Any], Tags | None]:
    """Label level -> its values, and what says which of them belong together if they are `trivet.Tags`.

    Args:
        unnamed: the level of labels without a name.
        variables: what the caller calls embeddings and labels, for the code in errors.

    Raises:
        ValueError: if labels are pairs or grades, or numbers that are not integers, as embeddings are.
    """
    if isinstance(labels, Tags):
        sets = labels.rows(labels.items)[:, : len(labels.names)].tocsr()
        return {unnamed: [labels.names[row].tolist() for row in np.split(sets.indices, sets.indptr[1:-1])]}, labels
    if isinstance(labels, Classes):
        labels = labels.items
    if isinstance(labels, Relation):
        raise ValueError(
            f"labels must be classes or tags here: got {type(labels).__name__}; trivet.metrics.evaluate and "
            "trivet.collapse.diagnose take such relations."
        )
    if isinstance(labels, Mapping) or is_frame(labels):
        levels = {name: labels[name] for name in (labels if isinstance(labels, Mapping) else labels.columns)}
        codes = {name: f"{variables[1]}[{name!r}]" for name in levels}
    else:
        name = getattr(labels, "name", None)
        levels = {name if isinstance(name, str) and name else unnamed: labels}
        codes = dict.fromkeys(levels, variables[1])
    for name, values in levels.items():
        if (fraction := _fraction(values)) is not None:
            raise ValueError(
                f"{variables[1]} of {str(name)!r} must be classes, integers or texts: got {fraction:g}; the "
                f"{variables[0]} come first and the labels second, and numbers that do name classes become texts with "
                f"list(map(str, {codes[name]})){_after_leaving_out(values)}."
            )
    return {str(name): values for name, values in levels.items()}, None


def label_variables(labels: Any, variable: str) -> dict[str, Any]:
    """The code of the labels, or of each level of a dict -> the values."""
    if not isinstance(labels, Mapping):
        return {variable: labels}
    return {f"{variable}[{level!r}]": values for level, values in labels.items()}


def _fraction(values: Any) -> float | None:
    """The first number that is not whole; None without one."""
    if isinstance(values, Tensor):
        values = _numpy(values)
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        if values.dtype.kind != "f":
            return None
        broken = values[~np.isnan(values) & (np.isinf(values) | (values != np.round(values)))]
        return float(broken[0]) if broken.size else None
    if isinstance(values, str | bytes) or not (isinstance(values, Iterable) and hasattr(values, "__len__")):
        return None
    for entry in values:
        if isinstance(entry, float | np.floating) and not (np.isnan(entry) or float(entry).is_integer()):
            return float(entry)
        if isinstance(entry, list | tuple | np.ndarray | Tensor) and (fraction := _fraction(entry)) is not None:
            return fraction
    return None


def cells(values: Any, name: str, count: int, *, level: str | None = None) -> pa.Array:
    """Values of N rows, missing ones null.

    Args:
        name: of the parameter, for errors.
        count: N.
        level: that labels are of.

    Raises:
        ValueError: if there are not N, they are not one for each row, or not all of a kind.
    """
    what = name if level is None else f"{name} of {level!r}"
    if isinstance(values, str | bytes) or not (isinstance(values, Iterable) or hasattr(values, "__array__")):
        raise ValueError(f"{what} must be one for each of the {count} embeddings: got {values!r}; pass a list of them.")
    shape = tuple(getattr(values, "shape", (count,)))
    if len(shape) != 1:
        raise ValueError(
            f"{what} must be one for each embedding, (N,): got shape {shape}; {how_to_align(values, name, count)}."
        )
    entries = _listed(values)
    if len(entries) != count:
        raise ValueError(
            f"{what} must be one for each embedding: got {len(entries)} for {count}; pass both in the same order."
        )
    if any(isinstance(entry, list | tuple | set | frozenset | np.ndarray) for entry in entries):
        entries = [entry if entry is None else _listed(entry) for entry in entries]
    try:
        return pa.array(entries, from_pandas=True)
    except pa.ArrowException:  # of a kind for each mixture of texts, numbers and lists
        kinds = sorted({type(entry).__name__ for entry in entries if entry is not None})
        raise ValueError(
            f"{what} must be integers, texts or lists of these, all of one kind: got {listed(kinds)}; convert them "
            f"with list(map(str, {name})){_after_leaving_out(entries)}."
        ) from None


def _after_leaving_out(values: Any) -> str:
    """Condition of a conversion of labels into texts: rows that have none would be a class."""
    lacking = [
        row
        for row, value in enumerate(_listed(values))
        if value is None or (isinstance(value, float) and math.isnan(value))
    ]
    return (
        f", once rows without one are left out of all that is passed: {rows_hold(lacking, 'none')}" if lacking else ""
    )


def _listed(values: Any) -> list[Any]:
    """The values of an array, a series, a tensor, a set or a list as Python has them."""
    values = values.detach().cpu() if isinstance(values, Tensor) else values
    convert = getattr(values, "tolist", None) or getattr(values, "to_list", None)
    entries = list(convert()) if convert else sorted(values) if isinstance(values, set | frozenset) else list(values)
    return [entry.item() if isinstance(entry, np.generic | Tensor) and entry.ndim == 0 else entry for entry in entries]


def _frame_matrix(frame: Any, what: str, variable: str) -> npt.NDArray[Any]:
    """The columns of a data frame side by side; a single column of lists as rows."""
    names = list(frame.columns)
    columns = [np.asarray(frame[column]) for column in names]
    if len(names) == 1 and columns[0].dtype.kind == "O":
        return _joined(columns[0].tolist(), what)
    wrong = [column for column, values in zip(names, columns, strict=True) if values.dtype.kind not in "biuf"]
    if wrong:
        first = {column: next(iter(values.tolist()), None) for column, values in zip(names, columns, strict=True)}
        lists = [column for column in wrong if isinstance(first[column], list | tuple | np.ndarray)]
        code = f"{variable}[{lists[0]!r}]" if lists else without_columns(frame, wrong, variable)
        raise ValueError(
            f"{what} must be columns of numbers: got others in {listed(list(map(repr, wrong)))}; pass {code}."
        )
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))


def _numpy(values: Tensor) -> npt.NDArray[Any]:
    """The values of a tensor, in float32 of a type that numpy lacks."""
    values = values.detach().to_dense().cpu()
    try:
        return values.numpy()
    except TypeError:
        return values.float().numpy()


def _joined(rows: list[Any], what: str) -> npt.NDArray[Any]:
    """Rows of one length as a matrix."""
    arrays = [_numpy(row) if isinstance(row, Tensor) else np.asarray(row) for row in rows]
    lengths = [row.shape for row in arrays]
    wrong = next((number for number, shape in enumerate(lengths) if len(shape) != 1 or shape != lengths[0]), None)
    if wrong is not None and len(lengths[wrong]) == len(lengths[0]) == 1:
        raise ValueError(
            f"{what} must have the same length: row {wrong} has {lengths[wrong][0]} values, the "
            f"first row has {lengths[0][0]}; embed all rows with one model."
        )
    if any(len(shape) > 1 for shape in lengths):
        raise ValueError(
            f"{what} must be rows of numbers: got {len(arrays)} arrays of shapes {listed([*map(str, lengths[:2])])}; "
            "join batches with np.concatenate, pass labels as a second value, and two sides with trivet.Pairs."
        )
    return np.stack(arrays) if wrong is None and arrays else np.asarray(rows)
