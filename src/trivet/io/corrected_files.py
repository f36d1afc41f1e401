"""Applies decisions on labels to a file of embeddings or texts: the result is a new file of the same format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_form, csv_table
from trivet.io.embedding_table import Vectors
from trivet.io.formats import holds_vectors
from trivet.io.label_decisions import DECISIONS, UNDECIDED, decide, read_decisions
from trivet.io.overwrite_guard import CLEANED, EMBEDDED, Output, check_outputs
from trivet.io.read_embeddings import TEXT, read_texts, read_vectors
from trivet.io.table import read_errors
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
) -> dict[str, int]:
    """Write the rows of a file as decisions have them: relabelled, or without those that are dropped.

    All other columns, the order of the rows and the types of the columns stay, and of a csv file every byte of the rows
    that are kept: line ends, quotes and byte order mark. Of an .npy file a csv file is written
    beside the new one too. The file itself is not changed.

    Args:
        path: a file of texts or embeddings: .csv, .tsv, .npz, .npy or .parquet.
        decisions: see `trivet.io.label_decisions.read_decisions`; the ids are those of the column "id", else numbers
            of rows, counted from 0.
        out: the new file, of the same format.
        level: the label level that was decided on; None for the first.
        text: of a csv file, the column of texts; None for "text".
        choice: of a file of embeddings, as it was audited.

    Returns:
        How many rows there were and are, "rows" and "left", and how many were decided to "keep", "relabel", "drop", or
        are "undecided".

    Raises:
        ValueError: if a file is broken or of another format, the output exists, nothing was decided, an id is no row's,
            or a label no class of the file or the one that the row has.
        OSError: if the output cannot be written.
    """
    _check_paths(path, decisions, out)
    vectors = _labels(path, level, text, choice)
    level = level or next((name for name in vectors.labels if name != (text or TEXT)), None)
    if level is None:
        raise ValueError(
            f"decisions need a label for each row: {path} has no label column{vectors.why_none()}; name it with "
            "--level."
        )
    ids, labels = vectors.names(), vectors.labels[level].tolist()
    classes = f"at level {level!r} of {path}"
    decided = decide(read_decisions(decisions), decisions, ids, labels, items="row", classes=classes)
    counts, rows = decided.counts, np.flatnonzero(decided.remaining)
    if not any(counts[name] for name in DECISIONS):
        raise ValueError(
            f"decisions must decide on at least one item: {decisions} holds none; fill in its column decision with "
            "keep, relabel or drop."
        )
    if not len(rows):
        raise ValueError(f"decisions must leave a row: those of {decisions} drop all {len(ids)}; keep some.")
    # A new label is copied from a row that has it, so that it is of the type of the column, whatever that is.
    source = np.arange(len(ids))
    for row, label in decided.labels.items():
        source[row] = labels.index(label)
    WRITERS[path.suffix.lower()](path, out, level, source[rows], rows)
    counts[UNDECIDED] = len(ids) - sum(counts[name] for name in DECISIONS)
    return {"rows": len(ids), "left": len(rows), **counts}


def _check_paths(path: Path, decisions: Path, out: Path) -> None:
    suffix = path.suffix.lower()
    if path.is_dir() or suffix not in WRITERS:
        raise ValueError(
            f"decisions are applied to a file {', '.join(WRITERS)}: got {path}; for a run, use trivet train --labels."
        )
    if out.suffix.lower() != suffix:
        raise ValueError(f"the output must be a {suffix} file, as {path} is: got {out}; choose another --output.")
    files = [out, out.with_suffix(".csv")] if suffix == ".npy" else [out]
    check_outputs([Output("--output", file) for file in files], [path, decisions])


def _labels(path: Path, level: str | None, text: str | None, choice: VectorChoice) -> Vectors:
    levels = None if level is None else [level]
    return (
        read_vectors(path, levels=levels, choice=choice)
        if holds_vectors(path, choice)
        else read_texts(path, text=text or TEXT, levels=levels)
    )


def _csv(path: Path, out: Path, level: str, source: Integers, rows: Integers) -> None:
    """The cells are copied as they are written."""
    delimiter, encoding, skipped = form = csv_form(path)
    if encoding == "utf-16":
        raise ValueError(f"{path} must be in UTF-8 to be cleaned: it is in UTF-16; save it again.")
    table = csv_table(path, form)
    every = _records(path.read_bytes(), delimiter.encode())
    lines, records = every[: skipped + 1], every[skipped + 1 : skipped + 1 + table.count]
    position = [_text(field, delimiter, encoding) for field, _ in lines[-1]].index(level)
    labels = [
        None if position >= len(record) else _text(record[position][0], delimiter, encoding) for record in records
    ]
    if labels != [label or "" for label in table.read(level).to_pylist()]:
        raise ValueError(
            f"{path} must quote its fields as csv files do, each from the first to the last character; save it again."
        )
    for row, taken in zip(rows.tolist(), source.tolist(), strict=True):
        line = records[row]
        lines.append([*line[:position], (records[taken][position][0], line[position][1]), *line[position + 1 :]])
    write_atomic(out, b"".join(field + end for line in lines for field, end in line))


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


def _npz(path: Path, out: Path, level: str, source: Integers, rows: Integers) -> None:
    """Arrays of another length than the embeddings, which describe no rows, stay as they are."""
    with read_errors(path, "npz"), np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    count = len(arrays[level])
    for name, array in arrays.items():
        if array.ndim and len(array) == count:
            arrays[name] = array[source if name == level else rows]
    _write_array(out, lambda sink: np.savez(sink, **arrays))


def _npy(path: Path, out: Path, level: str, source: Integers, rows: Integers) -> None:
    with read_errors(path, "npy"):
        embeddings = np.lib.format.open_memmap(path, mode="r")
    _csv(path.with_suffix(".csv"), out.with_suffix(".csv"), level, source, rows)
    _write_array(out, lambda sink: np.save(sink, embeddings[rows]))


def _write_array(out: Path, write: Callable[[io.BytesIO], None]) -> None:
    sink = io.BytesIO()
    write(sink)
    write_atomic(out, sink.getvalue())


def _parquet(path: Path, out: Path, level: str, source: Integers, rows: Integers) -> None:
    with read_errors(path, "parquet"):
        table = pa.parquet.read_table(path)
    position = table.schema.get_field_index(level)
    relabelled = table.column(level).take(pa.array(source))
    left = table.take(pa.array(rows)).set_column(position, table.schema.field(position), relabelled)
    if EMBEDDED.encode() in (metadata := left.schema.metadata or {}):  # no longer what `trivet embed` wrote
        left = left.replace_schema_metadata({**metadata, CLEANED: "applied"})
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(left, sink)
    write_atomic(out, sink.getvalue().to_pybytes())


WRITERS = {".csv": _csv, ".tsv": _csv, ".npz": _npz, ".npy": _npy, ".parquet": _parquet}
