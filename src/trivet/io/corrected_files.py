"""Applies decisions on labels to a file of embeddings or texts: the result is a new file of the same format."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_form, csv_table
from trivet.io.embedding_table import Names, Vectors
from trivet.io.formats import holds_vectors
from trivet.io.json_files import json_lines_table, json_objects, label_cell
from trivet.io.label_columns import ID
from trivet.io.label_decisions import UNDECIDED, decide, read_decisions
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
    pairs: bool = False,
) -> dict[str, int]:
    """Write the rows of a file as decisions have them: relabelled, without those that are dropped, with added pairs.

    An added pair follows the row that the decision names, as a copy of it with another right side, and with an id of
    its own where the file has ids.

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
        pairs: whether rows are pairs of the text and the level.

    Returns:
        How many rows there were and are, "rows" and "left"; how many decisions "keep", "relabel", "drop" and "add"; and
        how many rows are "undecided".

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
    made, lefts = read_decisions(decisions), vectors.texts if pairs else None
    decided = decide(made, decisions, ids, labels, items="row", classes=classes, tags=known, lefts=lefts)
    counts, decided_on = decided.counts, {row.id for row in made if row.decision != UNDECIDED}
    if not decided_on:
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
        [(int(numbers[row]), first[label]) for row, label in decided.added],
        _new_ids(vectors.ids, [row for row, _ in decided.added]),
        None if tags is None else tags.separator,
    )
    count = WRITERS[path.suffix.lower()](path, out, changes, choice)
    counts[UNDECIDED] = count - len(decided_on)
    return {"rows": count, "left": count - len(changes.dropped) + len(changes.added), **counts}


def _new_ids(ids: Names | None, rows: Sequence[int]) -> list[str | None]:
    """Ids of copies of some rows: the next numbers, or where ids are texts, those of the rows with a number."""
    if ids is None:
        return [None] * len(rows)
    if all(re.fullmatch("[0-9]+", id) for id in ids):
        largest = max(map(int, ids))
        return [str(largest + number) for number in range(1, len(rows) + 1)]
    known, new = set(ids.tolist()), list[str | None]()
    for row in rows:
        new.append(next(id for number in itertools.count(2) if (id := f"{ids[row]}-{number}") not in known))
        known.add(new[-1])
    return new


class _Changes(NamedTuple):
    """Changes to the rows of a file, by their numbers.

    Attributes:
        decisions: the file that says so.
        level: the column of labels.
        taken: a row -> the row whose label it takes.
        dropped: `(M,)` the rows that are left out.
        sets: a row -> its tags, where no row has just these.
        added: rows that are copied, and for each copy the row whose label it takes.
        ids: of the copies; None where rows have none.
        separator: between tags; None of classes.
    """

    decisions: Path
    level: str
    taken: dict[int, int]
    dropped: Integers
    sets: dict[int, list[str]]
    added: list[tuple[int, int]]
    ids: list[str | None]
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

    def concern(self, row: int, taken: int) -> bool:
        """Test whether a row that takes the label of another, or of itself, differs from the old one."""
        return taken != row or row in self.sets

    def rows(self, count: int) -> _NewRows:
        """The rows that a file of N becomes; ValueError if there is none."""
        rows, source = np.delete(np.arange(count), self.dropped), np.arange(count)
        source[list(self.taken)] = list(self.taken.values())
        copied, labels = np.array(self.added, np.int64).reshape(-1, 2).T
        ids = [None] * len(rows) + self.ids
        rows, source = np.concatenate([rows, copied]), np.concatenate([source[rows], labels])
        if not len(rows):
            raise ValueError(f"decisions must leave a row: those of {self.decisions} drop all {count}; keep some.")
        order = np.argsort(rows, kind="stable")
        return _NewRows(rows[order], source[order], [ids[position] for position in order.tolist()])


class _NewRows(NamedTuple):
    """The rows of a new file: the row of the old one that each is, the one whose label it takes, and a new id."""

    rows: Integers
    labels: Integers
    ids: list[str | None]

    def each(self) -> Iterator[tuple[int, int, str | None]]:
        """The rows one by one."""
        return zip(self.rows.tolist(), self.labels.tolist(), self.ids, strict=True)


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
        read_vectors(path, levels=levels, choice=choice, skip_empty=True, tags=tags, text=text)
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
    _, newline = lines[-1][-1]
    for row, taken, new_id in changes.rows(table.count).each():
        if not lines[-1][-1][1]:  # the last line of the file, which a copy follows
            lines[-1] = [*lines[-1][:-1], (lines[-1][-1][0], newline)]
        line = [*records[row]]
        if taken != row:
            line[position] = records[taken][position][0], line[position][1]
        if row in changes.sets:
            line[position] = _field(str(changes.cell(row, labels[row])), delimiter).encode(encoding), line[position][1]
        if new_id is not None:
            of_id = names.index(ID[0])
            line[of_id] = _field(new_id, delimiter).encode(encoding), line[of_id][1]
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
    rows, source, _ = changes.rows(count)
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
    _write_array(out, lambda sink: np.save(sink, embeddings[changes.rows(len(embeddings)).rows]))
    return len(embeddings)


def _json(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    """The objects with a new label are written anew; of JSON lines all others stay as they are."""
    if path.suffix.lower() != ".json":
        lines = path.read_bytes().splitlines(keepends=True)
        table = json_lines_table(path)
        assert table.lines is not None
        numbers = (table.lines() - 1).tolist()
        written = [[line] for line in lines]
        for number in numbers:
            written[number] = []
        for row, taken, new_id in changes.rows(table.count).each():
            line = lines[numbers[row]]
            if changes.concern(row, taken):
                new = _changed(json.loads(line), json.loads(lines[numbers[taken]]), changes, row, new_id)
                line = json.dumps(new, ensure_ascii=False).encode() + (b"\n" if line.endswith(b"\n") else b"")
            if written[numbers[row]] and not written[numbers[row]][-1].endswith(b"\n"):
                written[numbers[row]][-1] += b"\n"  # the last line of the file, which a copy follows
            written[numbers[row]].append(line)
        write_atomic(out, b"".join(line for of_line in written for line in of_line))
        return table.count
    content, objects = json_objects(path)
    labels = copy.deepcopy(objects)
    objects[:] = [
        _changed(copy.deepcopy(labels[row]), labels[taken], changes, row, new_id)
        if changes.concern(row, taken)
        else labels[row]
        for row, taken, new_id in changes.rows(len(labels)).each()
    ]
    write_atomic(out, json.dumps(content, ensure_ascii=False, indent=2).encode())
    return len(labels)


def _changed(
    row: dict[str, Any], other: dict[str, Any], changes: _Changes, number: int, new_id: str | None
) -> dict[str, Any]:
    """A row with the label of another one or a set of its own, and with a new id."""
    (target, name), (source, key) = (label_cell(each, changes.level) for each in (row, other))
    target[name] = changes.cell(number, source[key]) if number in changes.sets else source[key]
    if new_id is not None:
        target, name = label_cell(row, ID[0])
        target[name] = type(target[name])(new_id)
    return row


def _write_array(out: Path, write: Callable[[io.BytesIO], None]) -> None:
    sink = io.BytesIO()
    write(sink)
    write_atomic(out, sink.getvalue())


def _parquet(path: Path, out: Path, changes: _Changes, choice: VectorChoice) -> int:
    with read_errors(path, "parquet"):
        table = pa.parquet.read_table(path)
    rows, source, ids = changes.rows(len(table))
    position = table.schema.get_field_index(changes.level)
    column = table.column(changes.level)
    if changes.sets:
        cells = column.to_pylist()
        for row in changes.sets:
            cells[row] = changes.cell(row, cells[row])
        column = pa.chunked_array([pa.array(cells, column.type)])
    relabelled = column.take(pa.array(source))
    left = table.take(pa.array(rows)).set_column(position, table.schema.field(position), relabelled)
    if any(ids):
        position_of_id = left.schema.get_field_index(ID[0])
        old = left.column(position_of_id)
        new = pc.coalesce(pa.array(ids, pa.string()), old.cast(pa.string()))
        left = left.set_column(position_of_id, left.schema.field(position_of_id), new.cast(old.type))
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
