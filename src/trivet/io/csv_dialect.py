"""Dialect of a csv file: the delimiter of its fields and its encoding."""

from __future__ import annotations

import codecs
import csv
import logging
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("trivet")

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
SAMPLE = 1 << 18  # bytes that are looked at for the delimiter
ROWS = 200


class CsvForm(NamedTuple):
    """The form of a csv file.

    Attributes:
        delimiter: one of `DELIMITERS`.
        encoding: as Python calls it.
    """

    delimiter: str
    encoding: str


def csv_form(path: Path) -> CsvForm:
    """Detect the dialect of a csv file; any but commas in UTF-8 is logged, as it is a guess.

    The encoding is what the first bytes mark, else UTF-8 where the whole file is, else Windows-1252 or Latin-1. The
    delimiter is the one that gives the first line the most columns, and all others as many; a file of one column has
    none, which counts as commas.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no text.
    """
    with path.open("rb") as file:
        start = file.read(SAMPLE)
    encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    if encoding is None and b"\0" in start:
        raise ValueError("it holds a zero byte, which no text in UTF-8 does")
    encoding = encoding or _unmarked(path)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start, final=False)
    form = CsvForm(_delimiter(text, complete=len(start) < SAMPLE), encoding)
    guesses = []
    if form.delimiter != ",":
        guesses.append(f"as separated by {DELIMITERS[form.delimiter]}")
    if encoding not in ("utf-8", "utf-8-sig"):
        guesses.append(f"as encoded in {encoding}" + ("" if encoding == "utf-16" else ", because it is not in UTF-8"))
    if guesses:
        log.warning("%s is read %s.", path, " and ".join(guesses))
    return form


def _unmarked(path: Path) -> str:
    """UTF-8 if every byte of the file fits, else an encoding of one byte per letter that has all its bytes."""
    for encoding in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    decoder.decode(block)
                decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _delimiter(text: str, *, complete: bool) -> str:
    lines = text.splitlines(keepends=True)
    if not complete:
        lines = lines[:-1] or lines  # the last one may be cut
    widths = {delimiter: _widths(lines, delimiter) for delimiter in DELIMITERS}
    first = {delimiter: rows[0] if rows else 0 for delimiter, rows in widths.items()}
    even = [delimiter for delimiter, rows in widths.items() if len(set(rows)) == 1 and rows[0] > 1]
    if not even:  # some line is broken: whoever parses it will say which
        even = [","] if first[","] > 1 else list(DELIMITERS)
    best = max(even, key=lambda delimiter: first[delimiter])  # the first of equals
    return best if first[best] > 1 else ","


def _widths(lines: list[str], delimiter: str) -> list[int]:
    """The number of fields of the first rows that are not empty."""
    widths: list[int] = []
    try:
        for row in csv.reader(lines, delimiter=delimiter):
            if row:
                widths.append(len(row))
            if len(widths) == ROWS:
                break
    except csv.Error:  # a field that is not closed, or too long
        pass
    return widths
