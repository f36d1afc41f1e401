"""Data frames as embeddings: whether their rows are in the order of the labels, and their columns are dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trivet.io.table import listed

FIRST_ROWS = 1000  # which most columns are dismissed by
ROW_NUMBERS = "the numbers of the rows"


def is_frame(values: Any) -> bool:
    """Test whether it is a data frame, of whatever library."""
    return hasattr(values, "columns") and hasattr(values, "shape") and len(values.shape) == 2


def without_columns(frame: Any, columns: list[Any], variable: str) -> str:
    """The code of a frame without some columns."""
    return f"{variable}.drop(columns={columns!r})" if hasattr(frame, "iloc") else f"{variable}.drop({columns!r})"


def check_order(values: Mapping[str, Any]) -> None:
    """ValueError if two have an index, as pandas has it, of the same entries in another order.

    Args:
        values: code of the caller -> values in any form.
    """
    indexed = {code: list(each.index) for code, each in values.items() if hasattr(each, "iloc")}
    first, entries = next(iter(indexed.items()), ("", []))
    for code, index in indexed.items():
        if index == entries or len(index) != len(entries) or set(index) != set(entries):
            continue
        row, pair = next((row, pair) for row, pair in enumerate(zip(index, entries, strict=True)) if pair[0] != pair[1])
        aligned = f"pass {code}.loc[{first}.index], or " if len(set(index)) == len(index) else ""
        raise ValueError(
            f"{code} must be in the order of {first}: got an index with the same entries in another order, such as "
            f"{pair[0]} in place of {pair[1]} at row {row}; {aligned}if the rows do belong together as they are, "
            f"{code}.set_axis({first}.index)."
        )


def check_dimensions(
    embeddings: Any, matrix: npt.NDArray[Any], labels: Mapping[str, pa.Array], variables: tuple[str, str]
) -> None:
    """Check that no column was left in that is no dimension: labels, or numbers of the rows.

    Args:
        embeddings: of any form.
        matrix: its columns `(N, d)`.
        labels: label level -> N values, or lists of them.
        variables: what the caller calls embeddings and labels.

    Raises:
        ValueError: if a column counts the rows from 0 or 1, or equals a level of at least three integers; of a data
            frame also if it has the name of a label level or divides the rows exactly as it does, or holds the numbers
            of the rows in any order; while others do not.
    """
    what = dict.fromkeys(_counting(matrix), ROW_NUMBERS)
    for level, values in labels.items():
        what |= dict.fromkeys(_equal(matrix, values), f"the {variables[1]} of {level!r}")
    certain, names = {*what}, list(embeddings.columns) if is_frame(embeddings) else []
    rows = variables[0]
    if len(names) == 1 != matrix.shape[1]:  # a column of lists
        rows, names = f"{variables[0]}[{names[0]!r}]", []
    for level, values in labels.items() if names else ():
        same = [column for column, name in enumerate(names) if name == level and not level.isdigit()]
        single = not pa.types.is_list(values.type)
        for column in [*same, *(_same_classes(matrix, values) if single else [])]:
            what.setdefault(column, f"the {variables[1]} of {level!r}")
    if names:
        for column in _row_numbers(matrix, embeddings.index if hasattr(embeddings, "iloc") else ()):
            what.setdefault(column, ROW_NUMBERS)
    if not 0 < len(what) < matrix.shape[1]:
        return
    wrong = sorted(what)
    columns = listed([f"{repr(names[column]) if names else column}, {what[column]}" for column in wrong])
    dropped = f"np.delete(np.stack({rows}), {wrong}, axis=1)"
    if names:
        dropped = without_columns(embeddings, [names[column] for column in wrong], variables[0])
    if certain:
        raise ValueError(f"the columns of {variables[0]} must be dimensions: got {columns}; pass {dropped}.")
    raise ValueError(
        f"the columns of {variables[0]} must be dimensions: got {columns}; pass {variables[0]}.to_numpy() if they are "
        f"dimensions, and else {dropped}."
    )


def _counting(matrix: npt.NDArray[Any]) -> list[int]:
    """The columns that count the rows, from 0 or 1."""
    count = len(matrix)
    if count < 3:
        return []
    first = matrix[0]
    alike = np.flatnonzero(((first == 0) | (first == 1)) & (matrix[-1] - first == count - 1)).tolist()
    return [column for column in alike if (matrix[:, column] == np.arange(count) + first[column]).all()]


def _equal(matrix: npt.NDArray[Any], labels: pa.Array) -> list[int]:
    """The columns that equal labels which are at least three integers: fewer may be a feature of zeros and ones."""
    if not pa.types.is_integer(labels.type) or labels.null_count or len(labels.unique()) < 3:
        return []
    numbers = labels.to_numpy()
    columns = np.flatnonzero((matrix[:FIRST_ROWS] == numbers[:FIRST_ROWS, None]).all(axis=0)).tolist()
    return [column for column in columns if (matrix[:, column] == numbers).all()]


def _same_classes(matrix: npt.NDArray[Any], labels: pa.Array) -> list[int]:
    """The columns that have one value for each class, and another for each."""
    codes = labels.dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    if not 1 < len(first) < len(codes):
        return []
    columns = np.arange(matrix.shape[1])
    for rows in (slice(FIRST_ROWS), slice(None)):
        constant = matrix[rows][:, columns] == matrix[first[codes[rows]]][:, columns]
        columns = columns[constant.all(axis=0)]
    return [column for column in columns.tolist() if len(np.unique(matrix[first, column])) == len(first)]


def _row_numbers(matrix: npt.NDArray[Any], index: Any) -> list[int]:
    """The columns that hold the numbers of the rows, from 0 or 1 and in any order, or the index."""
    count = len(matrix)
    if count < 3:
        return []
    low = matrix.min(axis=0)
    columns = np.flatnonzero(((low == 0) | (low == 1)) & (matrix.max(axis=0) - low == count - 1)).tolist()
    numbered = {column for column in columns if (np.sort(matrix[:, column]) == np.arange(count) + low[column]).all()}
    numbers = np.asarray(index)
    if numbers.shape == (count,) and numbers.dtype.kind in "iuf":
        alike = np.flatnonzero(matrix[0] == numbers[0]).tolist()
        numbered |= {column for column in alike if (matrix[:, column] == numbers).all()}
    return sorted(numbered)
