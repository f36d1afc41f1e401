"""Applies decisions on labels to a file of embeddings or texts: the result is a new file of the same format."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_form, csv_table
from trivet.io.embedding_table import Vectors
from trivet.io.formats import holds_vectors
from trivet.io.json_files import json_lines_table, json_objects, label_cell
from trivet.io.label_decisions import DECISIONS, UNDECIDED, decide, read_decisions
from trivet.io.npz_files import arrays_of_rows
from trivet.io.overwrite_guard import CLEANED, EMBEDDED, Output, check_outputs, is_saved
from trivet.io.read_embeddings import TEXT, read_texts, read_vectors
from trivet.io.table import read_errors
from trivet.io.tag_cells import JOINED, LIST, TagCells
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.runtime.arrays import Integers


def write_cleaned(
    path: Path,
    decisions: Path,
    out: Path,
    *,
    level: str | None = None,
    text: str | None = None,
    choice: VectorChoice = NO_CHOICE,
    tags: TagCells | None = None,
) -> dict[str, int]:
    """Write the rows of a file as decisions have them: relabelled, or without those that are dropped.

    All other columns, the order of the rows and the types of the columns stay, and of a csv file every byte of the rows
    that are kept: line ends, quotes and byte order mark. Of an .npy file a csv file is written
    beside the new one too. Rows that an audit leaves out, as they lack a label or an id, stay. The file itself is not
    changed.

    Args:
        path: a file of texts or embeddings, see `WRITERS`.
        decisions: see `trivet.io.label_decisions.read_decisions`; the ids are those of the column "id", else numbers
            of rows, counted from 0.
        out: the new file, of the same format.
        level: the label level that was decided on; None for the first.
        text: of a csv file, the column of texts; None for "text".
        choice: of a file of embeddings, as it was audited.
        tags: what cells of several labels are, as they were audited; a new label is then a set of tags of the file.

    Returns:
        How many rows there were and are, "rows" and "left", and how many were decided to "keep", "relabel", "drop", or
        are "undecided".

    Raises:
        ValueError: if a file is broken or of another format, the output exists, nothing was decided, an id is no row's,
            or a label no class of the file or the one that the row has.
        OSError: if the output cannot be written.
    """
    _check_paths(path, decisions, out)
    vectors = _labels(path, level, text, choice, tags)
    level = level or next(iter(vectors.tags), None)
    level = level or next((name for name in vectors.labels if name != (text or TEXT)), None)
    if level is None:
        raise ValueError(
            f"decisions need a label for each row: {path} has no label column{vectors.why_none()}; name it with "
            "--level."
        )
    ids, labels, numbers = vectors.names(), vectors.labels[level].tolist(), vectors.rows
    classes = f"at level {level!r} of {path}"
    known = {tag for label in set(labels) for tag in label.split(JOINED)} if level in vectors.tags else None
    decided = decide(read_decisions(decisions), decisions, ids, labels, items="row", classes=classes, tags=known)
    counts = decided.counts
    if not any(counts[name] for name in DECISIONS):
        raise ValueError(
            f"decisions must decide on at least one item: {decisions} holds none; fill in its column decision with "
            "keep, relabel or drop."
        )
    # A new label is copied from a row that has it, so that it is of the type of the column, whatever that is.
    first = {label: int(numbers[row]) for row, label in reversed([*enumerate(labels)])}
    changed = {int(numbers[row]): label for row, label in decided.labels.items()}
    changes = _Changes(
        decisions,
        level,
        {row: first[label] for row, label in changed.items() if label in first},
        numbers[~decided.remaining],
        {row: label.split(JOINED) for row, label in changed.items() if label not in first},
        None if tags is None else tags.separator,
    )
    count = WRITERS[path.suffix.lower()](path, out, changes, choice)
    counts[UNDECIDED] = count - sum(counts[name] for name in DECISIONS)
    return {"rows": count, "left": count - len(changes.dropped), **counts}


class _Changes(NamedTuple):
    """Changes to the rows of a file, by their numbers.

    Attributes:
        decisions: the file that says so.
        level: the column of labels.
        taken: a row -> the row whose label it takes.
        dropped: `(M,)` the rows that are left out.
        sets: a row -> its tags, where no row has just these.
        separator: between tags; None of classes.
    """

    decisions: Path
    level: str
    taken: dict[int, int]
    dropped: Integers
    sets: dict[int, list[str]]
    separator: str | None

    def cell(self, row: int, instead: object) -> list[str] | str:
        """The tags of a row as its cell had them: a list, or a text; ValueError for objects."""
        if isinstance(instead, list) and all(isinstance(tag, str) for tag in instead):
            return self.sets[row]
        if not isinstance(instead, str):
            raise ValueError(
                f"a new set of tags must stand in a list or a text: row {row} has {type(instead).__name__} in "
                f"{self.level!r}; change it in the file, and remove its decision from {self.decisions}."
            )
        return json.dumps(self.sets[row]) if self.separator == LIST else str(self.separator).join(self.sets[row])

    def rows(self, count: int) -> tuple[Integers, Integers]:
        """The rows of a file of N that stay, and whose label each takes; ValueError if none stays."""
        rows, source = np.delete(np.arange(count), self.dropped), np.arange(count)
        if not len(rows):
            raise ValueError(f"decisions must leave a row: those of {self.decisions} drop all {count}; keep some.")
        source[list(self.taken)] = list(self.taken.values())
        return rows, source[rows]


def _check_paths(path: Path, decisions: Path, out: Path) -> None:
    suffix = path.suffix.lower()
    if path.is_dir() or suffix not in WRITERS:
        raise ValueError(
            f"decisions are applied to a file {', '.join(WRITERS)}: got {path}; "
            + (
                "for a run, use trivet train --labels."
                if path.is_dir() and not is_saved(path)
                else "save its rows as one of these."
            )
        )
    if out.suffix.lower() != suffix:
        raise ValueError(f"the output must be a {suffix} file, as {path} is: got {out}; choose another --output.")
    files = [out, out.with_suffix(".csv")] if suffix == ".npy" else [out]
    check_outputs([Output("--output", file) for file in files], [path, decisions])


def _labels(path: Path, level: str | None, text: str | None, choice: VectorChoice, tags: TagCells | None) -> Vectors:
    levels = None if level is None else [level]
    return (
        read_vectors(path, levels=levels, choice=choice, skip_empty=True, tags=tags)
        if holds_vectors(path, choice)
        else read_texts(path, text=text or TEXT, levels=levels, skip_empty=True, tags=tags)
    )


def _csv(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    """The cells are copied as they are written."""
    level = changes.level
    delimiter, encoding, skipped = form = csv_form(path)
    if encoding == "utf-16":
        raise ValueError(f"{path} must be in UTF-8 to be cleaned: it is in UTF-16; save it again.")
    table = csv_table(path, form)
    every = _records(path.read_bytes(), delimiter.encode())
    lines, records = every[: skipped + 1], every[skipped + 1 : skipped + 1 + table.count]
    names = [_text(field, delimiter, encoding) for field, _ in lines[-1]]
    if level not in names:
        raise ValueError(f"{path} must begin with a line of names to be corrected: it has no {level!r} there; add one.")
    position = names.index(level)
    labels = [
        None if position >= len(record) else _text(record[position][0], delimiter, encoding) for record in records
    ]
    if labels != [label or "" for label in table.read(level).to_pylist()]:
        raise ValueError(
            f"{path} must quote its fields as csv files do, each from the first to the last character; save it again."
        )
    for row, taken in zip(*(numbers.tolist() for numbers in changes.rows(table.count)), strict=True):
        line = records[row]
        if taken != row:
            line = [*line[:position], (records[taken][position][0], line[position][1]), *line[position + 1 :]]
        if row in changes.sets:
            field = _field(str(changes.cell(row, labels[row])), delimiter).encode(encoding)
            line = [*line[:position], (field, line[position][1]), *line[position + 1 :]]
        lines.append(line)
    write_atomic(out, b"".join(field + end for line in lines for field, end in line))
    return table.count


def _records(content: bytes, delimiter: bytes) -> list[list[tuple[bytes, bytes]]]:
    """The lines of a csv file, each as its fields as they are written, with what follows each; empty lines go along."""
    records: list[list[tuple[bytes, bytes]]] = [[]]
    separator = re.escape(delimiter)
    pattern = rb'((?:"(?:[^"]|"")*")?[^%b\r\n]*)(%b|\r\n|\r|\n|\Z)' % (separator, separator)
    for match in re.finditer(pattern, content):
        field, end = match.groups()
        if not records[-1] and not field and end != delimiter and len(records) > 1:
            last, ended = records[-2][-1]
            records[-2][-1] = (last, ended + end)
        else:
            records[-1].append((field, end))
            if end != delimiter:
                records.append([])
        if not end:
            break
    return [record for record in records if record]


def _text(field: bytes, delimiter: str, encoding: str) -> str:
    """Parse one field."""
    return (next(csv.reader([field.decode(encoding)], delimiter=delimiter), None) or [""])[0]


def _field(text: str, delimiter: str) -> str:
    """A field of these words, in quotes where it needs them."""
    sink = io.StringIO()
    csv.writer(sink, delimiter=delimiter, lineterminator="").writerow([text])
    return sink.getvalue()


def _npz(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    """Arrays that describe no rows of these embeddings stay as they are."""
    with read_errors(path, "npz"), np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    count = len(arrays[changes.level])
    rows, source = changes.rows(count)
    if changes.sets:
        cells = arrays[changes.level].astype(object)
        for row in changes.sets:
            cells[row] = changes.cell(row, str(cells[row]))
        arrays[changes.level] = cells.astype(str)
    for name in arrays_of_rows(path, choice):
        arrays[name] = arrays[name][source if name == changes.level else rows]
    _write_array(out, lambda sink: np.savez(sink, **arrays))
    return count


def _npy(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    with read_errors(path, "npy"):
        embeddings = np.lib.format.open_memmap(path, mode="r")
    _csv(choice.table or path.with_suffix(".csv"), out.with_suffix(".csv"), changes, choice)
    _write_array(out, lambda sink: np.save(sink, embeddings[changes.rows(len(embeddings))[0]]))
    return len(embeddings)


def _json(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    """The objects with a new label are written anew; of JSON lines all others stay as they are."""
    if path.suffix.lower() != ".json":
        lines = path.read_bytes().splitlines(keepends=True)
        table = json_lines_table(path)
        assert table.lines is not None
        numbers = (table.lines() - 1).tolist()
        for row, taken in zip(*(rows.tolist() for rows in changes.rows(table.count)), strict=True):
            if taken != row:
                line, taken_from = (json.loads(lines[numbers[number]]) for number in (row, taken))
                _copy_label(line, taken_from, changes.level)
                end = b"\n" if lines[numbers[row]].endswith(b"\n") else b""
                lines[numbers[row]] = json.dumps(line, ensure_ascii=False).encode() + end
        for row in changes.sets:
            line = json.loads(lines[numbers[row]])
            _set_label(line, changes, row)
            end = b"\n" if lines[numbers[row]].endswith(b"\n") else b""
            lines[numbers[row]] = json.dumps(line, ensure_ascii=False).encode() + end
        dropped = {numbers[row] for row in changes.dropped}
        write_atomic(out, b"".join(line for number, line in enumerate(lines) if number not in dropped))
        return table.count
    content, objects = json_objects(path)
    labels = copy.deepcopy(objects)
    for row, taken in changes.taken.items():
        _copy_label(objects[row], labels[taken], changes.level)
    for row in changes.sets:
        _set_label(objects[row], changes, row)
    count = len(objects)
    objects[:] = [objects[row] for row in changes.rows(count)[0]]
    write_atomic(out, json.dumps(content, ensure_ascii=False, indent=2).encode())
    return count


def _copy_label(row: dict[str, Any], other: dict[str, Any], level: str) -> None:
    (target, name), (source, key) = (label_cell(each, level) for each in (row, other))
    target[name] = source[key]


def _set_label(row: dict[str, Any], changes: _Changes, number: int) -> None:
    target, name = label_cell(row, changes.level)
    target[name] = changes.cell(number, target[name])


def _write_array(out: Path, write: Callable[[io.BytesIO], None]) -> None:
    sink = io.BytesIO()
    write(sink)
    write_atomic(out, sink.getvalue())


def _parquet(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    with read_errors(path, "parquet"):
        table = pa.parquet.read_table(path)
    rows, source = changes.rows(len(table))
    position = table.schema.get_field_index(changes.level)
    column = table.column(changes.level)
    if changes.sets:
        cells = column.to_pylist()
        for row in changes.sets:
            cells[row] = changes.cell(row, cells[row])
        column = pa.chunked_array([pa.array(cells, column.type)])
    relabelled = column.take(pa.array(source))
    left = table.take(pa.array(rows)).set_column(position, table.schema.field(position), relabelled)
    if EMBEDDED.encode() in (metadata := left.schema.metadata or {}):  # no longer what `trivet embed` wrote
        left = left.replace_schema_metadata({**metadata, CLEANED: "applied"})
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(left, sink)
    write_atomic(out, sink.getvalue().to_pybytes())
    return len(table)


WRITERS = {
    ".csv": _csv,
    ".tsv": _csv,
    ".txt": _csv,
    ".npz": _npz,
    ".npy": _npy,
    ".parquet": _parquet,
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
}
