"""Tables in JSON: one object a line, or a list of objects; also as annotation tools export them."""

from __future__ import annotations

import io
import json
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from trivet.io.table import DataTable, arrow_table, is_list, listed, read_errors
from trivet.runtime.arrays import Integers
from trivet.runtime.safe_read import check_regular, read_json

ANSWER, ACCEPT, LABEL = "answer", "accept", "label"  # columns that Prodigy writes
OBJECTS = (
    "metadata",
    "payload",
    "properties",
    "_source",
    "metadatas",
)  # in which stores of vectors keep what is known of each
ANSWERS = (ACCEPT, "reject", "ignore")

log = logging.getLogger("trivet")


def json_lines_table(path: Path) -> DataTable:
    """The columns of a file of one JSON object a line.

    Raises:
        ValueError: if the file is broken.
    """
    check_regular(path, "a table")
    with path.open("rb") as file:
        with read_errors(path, "JSON lines"):
            _check_objects(file)
        file.seek(0)
        table = _parsed(path, "JSON lines", file)
    accepted = _accepted(path, table)
    return arrow_table(path, _labelled(table.take(accepted)), lines=cache(lambda: _lines(path)[accepted]))


def json_table(path: Path) -> DataTable:
    """The columns of a file of JSON objects, see `json_objects`.

    Raises:
        ValueError: if the file is broken or has another form.
    """
    _, rows = json_objects(path)
    if rows and {"annotations", "data"} <= rows[0].keys():
        raise ValueError(
            f"{path} is the complete export of Label Studio, in which a row has many annotations: export it as "
            "JSON-MIN or CSV."
        )
    table = _parsed(path, "json", io.BytesIO("\n".join(map(json.dumps, rows)).encode()))
    return arrow_table(path, _labelled(table.take(_accepted(path, table))))


def json_objects(path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The content of a JSON file, and its rows: the list of objects that it is, or the only one within its objects.

    Raises:
        ValueError: if the file is broken or has another form; it says which lines of Python make rows of it.
    """
    try:
        content = read_json(path, "a table")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a complete json file: {error}; write it again.") from None
    if _are_objects(content):
        return content, content
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a list of objects, one a row: it is something else; write it so.")
    within = _within(content)
    lists = {key: (holder, values) for key, (holder, values) in within.items() if _are_objects(values) and values}
    if len(lists) == 1:
        ((key, (holder, rows)),) = lists.items()
        if not any(
            isinstance(values, list) and len(values) == len(rows) for values in holder.values() if values is not rows
        ):
            log.warning("The rows of %s are read from %s.", path, key)
            return content, rows
    what = f"may hold columns, {listed([*map(repr, content)])}"
    numbered = [key for key, (_, values) in {"": (None, content), **within}.items() if _is_of_rows(values)]
    if content.keys() == {"columns", "index", "data"}:
        made = "[dict(zip(a['columns'], row)) for row in a['data']]"
    elif len(lists) > 1:
        what, made = f"holds {listed(list(lists))}, of which one must be the rows", f"a{next(iter(lists))}"
    elif numbered and not lists:
        what, made = "names each row", f"list(a{numbered[0]}.values())"
    else:
        columns = [column for column in content.values() if isinstance(column, list | dict) and column]
        if not columns:
            raise ValueError(
                f"{path} must be a list of objects, one a row: it is one object; write its rows as a list."
            )
        values, rows = "v.values()" if isinstance(columns[0], dict) else "v", max(map(len, columns))
        full = f"k: {values} for k, v in a.items() if isinstance(v, {type(columns[0]).__name__}) and len(v) == {rows}"
        made = f"[dict(zip(c, row)) for c in [{{{full}}}] for row in zip(*c.values())]"
    raise ValueError(
        f"{path} must be a list of objects, one a row: it {what}; write rows.json: import json; a = "
        f"json.load(open({str(path)!r})); json.dump({made}, open('rows.json', 'w'))"
    )


def _are_objects(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(row, dict) for row in values)


def _is_of_rows(values: object) -> bool:
    """Test whether an object has more members than each of them, which are objects: these are rows, not columns."""
    rows = list(values.values()) if isinstance(values, dict) else []
    return len(rows) > 1 and all(isinstance(row, dict) and len(row) < len(rows) for row in rows)


def _within(content: dict[str, Any], above: str = "", depth: int = 3) -> dict[str, tuple[dict[str, Any], Any]]:
    """The values of an object and of those in it, each by its keys as Python writes them, with the object it is in."""
    values = {f"{above}[{key!r}]": (content, value) for key, value in content.items()}
    for key, (_, value) in list(values.items()):
        if isinstance(value, dict) and depth and not _is_of_rows(value):
            values |= _within(value, key, depth - 1)
    return values


def label_cell(row: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The object that holds the value of a column in a row, and its key there."""
    if name not in row:
        for outer in OBJECTS:
            inner, key = row.get(outer), name.removeprefix(f"{outer}.")
            if isinstance(inner, dict) and key in inner:
                return inner, key
    return row, ACCEPT if name == LABEL and LABEL not in row and ACCEPT in row else name


def _is_object(name: str, kind: pa.DataType) -> bool:
    """Test whether a column holds objects whose members are columns: what is known of a vector, or vectors by name."""
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return False
    return name in OBJECTS or all(
        is_list(member.type) and pa.types.is_floating(member.type.value_type) for member in kind
    )


def _parsed(path: Path, kind: str, file: BinaryIO) -> pa.Table:
    """The rows; what an object of `OBJECTS` holds is columns of its own."""
    mixed = None
    with read_errors(path, kind):
        try:
            table = pa.json.read_json(file, pa.json.ReadOptions(use_threads=False))
        except pa.ArrowInvalid as error:
            if (mixed := re.search(r"Column\(/(.*)\) changed from (\w+) to (\w+)", str(error))) is None:
                raise
    if mixed is not None:
        name, *kinds = mixed.groups()
        raise ValueError(
            f"each column of {path} must hold values of one kind: {name.replace('/', '.')!r} holds {kinds[0]} in some "
            f"rows and {kinds[1]} in others; write them alike, a label as one text."
        )
    for name in [name for name in table.column_names if _is_object(name, table[name].type)]:
        members = zip(table[name].type, table[name].flatten(), strict=True)
        table = table.drop_columns([name])
        for member, column in members:
            known = member.name in table.column_names
            table = table.append_column(
                f"{name}.{member.name}" if known or name not in OBJECTS else member.name, column
            )
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
