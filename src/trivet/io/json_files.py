"""Tables in JSON: one object a line, or a list of objects; also as annotation tools export them."""

from __future__ import annotations

import io
import json
import logging
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from trivet.io.table import DataTable, arrow_table, is_list, read_errors
from trivet.runtime.arrays import Integers
from trivet.runtime.safe_read import check_regular, read_json

ANSWER, ACCEPT, LABEL = "answer", "accept", "label"  # columns that Prodigy writes
OBJECTS = ("metadata", "payload", "properties")  # in which stores of vectors keep what is known of each
ANSWERS = (ACCEPT, "reject", "ignore")

log = logging.getLogger("trivet")


def json_lines_table(path: Path) -> DataTable:
    """The columns of a file of one JSON object a line.

    Raises:
        ValueError: if the file is broken.
    """
    check_regular(path, "a table")
    with read_errors(path, "JSON lines"), path.open("rb") as file:
        _check_objects(file)
        file.seek(0)
        table = _parsed(file)
    accepted = _accepted(path, table)
    return arrow_table(path, _labelled(table.take(accepted)), lines=cache(lambda: _lines(path)[accepted]))


def json_table(path: Path) -> DataTable:
    """The columns of a file of a list of JSON objects.

    Raises:
        ValueError: if the file is broken or has another form.
    """
    try:
        rows = read_json(path, "a table")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a complete json file: {error}; write it again.") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        what = f"an object of {', '.join(map(repr, list(rows)[:3]))}" if isinstance(rows, dict) else "something else"
        raise ValueError(
            f"{path} must be a list of objects, one a row: it is {what}; write it so, with pandas by "
            'to_json(..., orient="records"), or as JSON lines.'
        )
    if rows and {"annotations", "data"} <= rows[0].keys():
        raise ValueError(
            f"{path} is the complete export of Label Studio, in which a row has many annotations: export it as "
            "JSON-MIN or CSV."
        )
    with read_errors(path, "json"):
        table = _parsed(io.BytesIO("\n".join(map(json.dumps, rows)).encode()))
    return arrow_table(path, _labelled(table.take(_accepted(path, table))))


def _parsed(file: BinaryIO) -> pa.Table:
    """The rows; what an object of `OBJECTS` holds is columns of its own."""
    table = pa.json.read_json(file, pa.json.ReadOptions(use_threads=False))
    for name in [name for name in table.column_names if name in OBJECTS and pa.types.is_struct(table[name].type)]:
        members = zip(table[name].type, table[name].flatten(), strict=True)
        table = table.drop_columns([name])
        for member, column in members:
            known = member.name in table.column_names
            table = table.append_column(f"{name}.{member.name}" if known else member.name, column)
    return table


def _check_objects(file: BinaryIO) -> None:
    """ValueError unless each line begins an object: pyarrow ends the process over some other values."""
    for number, line in enumerate(file, start=1):
        if line.strip() and not line.lstrip().startswith(b"{"):
            raise ValueError(f"line {number} is no object in braces")


def _accepted(path: Path, table: pa.Table) -> Integers:
    """The rows `(N,)` that count: all, but of Prodigy's those with the answer accept."""
    names = table.column_names
    rows = np.arange(len(table))
    if ANSWER not in names or not {ACCEPT, LABEL} & set(names) or not pa.types.is_string(table[ANSWER].type):
        return rows
    if not set(table[ANSWER].unique().to_pylist()) <= {*ANSWERS, None}:
        return rows
    accepted = np.flatnonzero(pc.fill_null(pc.equal(table[ANSWER], ACCEPT), False).to_numpy())
    if len(accepted) < len(rows):
        log.warning(
            "%s: %d of %d rows are left out, as their answer is not %r.",
            path,
            len(rows) - len(accepted),
            len(rows),
            ACCEPT,
        )
    return accepted


def _labelled(table: pa.Table) -> pa.Table:
    """The table with the chosen options of Prodigy as the column label."""
    names = table.column_names
    if ANSWER not in names or ACCEPT not in names or LABEL in names or not is_list(table[ACCEPT].type):
        return table
    return table.drop_columns([ANSWER]).rename_columns([LABEL if n == ACCEPT else n for n in names if n != ANSWER])


def _lines(path: Path) -> Integers:
    """The number of the line, from 1, of each row."""
    with path.open("rb") as file:
        return np.array([number for number, line in enumerate(file, start=1) if line.strip()], np.int64)
