"""CSV files: their dialect is detected, columns are read with types, and cells written with correct quoting."""

from __future__ import annotations

import codecs
import contextlib
import csv
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from trivet.io.overwrite_guard import DECISION_FILE, PER_CLASS, SUSPECTS
from trivet.io.table import ColumnValues, DataTable, arrow_column, arrow_table, integral, read_errors
from trivet.io.vector_columns import is_listing
from trivet.runtime.arrays import Integers
from trivet.runtime.safe_read import check_regular
from trivet.runtime.text import counted

# What a spreadsheet takes for a formula, after any number of apostrophes; but a number is a number.
_FORMULA = re.compile("'*[=+\\-@＝＋－＠\t\r\n]", re.DOTALL)
_DECIMAL = re.compile(r"\s*[+-]?[0-9]*[.,][0-9]+([eE][+-]?[0-9]+)?\s*", re.ASCII)
_LISTS = re.compile(r"\[[^\[\]]*\]")
_SPACED = re.compile(
    r"([0-9]+ ([0-9]+) ?\r?\n)?[^\s,;]+((?: -?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?){4,}) ?\r?(?:\n|$)", re.ASCII
)
_NUMBER = re.compile(r"'*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
# The first columns of the csv files that Trivet writes: in these, and no others, `unguarded` is applied.
_GUARDED_HEADERS = (DECISION_FILE, SUSPECTS, PER_CLASS)

log = logging.getLogger("trivet")
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
SAMPLE = 1 << 18  # bytes that are looked at for the delimiter
ROWS = 200
WORD = "label"  # a column of words that has no name
SPACE = (
    " "  # between a word and the numbers of its vector, as GloVe, word2vec and fastText write them: nothing is quoted
)
SEPARATOR = re.compile(r'\ufeff?"?sep=(.)"?[,;]*\r?\n')  # the first line of a file that names its delimiter to Excel


class CsvForm(NamedTuple):
    """The form of a csv file.

    Attributes:
        delimiter: one of `DELIMITERS`, or `SPACE`.
        encoding: as Python calls it.
        skipped: lines before the header: 1 where Excel wrote `sep=;` there, or word2vec the numbers of words and
            dimensions; and those of comments, which begin with #.
    """

    delimiter: str
    encoding: str
    skipped: int = 0

    def rows(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """The rows of an open file, its header first, each with the number of the line that it begins in.

        Raises:
            csv.Error: if the file is broken.
        """
        for _ in range(self.skipped):
            next(file)
        quoting: Literal[0, 3] = csv.QUOTE_NONE if self.delimiter == SPACE else csv.QUOTE_MINIMAL
        reader = csv.reader(file, strict=True, delimiter=self.delimiter, quoting=quoting)
        begin = self.skipped + 1
        for row in reader:
            if row:
                yield begin, row
            begin = self.skipped + reader.line_num + 1


def csv_form(path: Path) -> CsvForm:
    """Detect the dialect of a csv file; any but commas in UTF-8 is logged, as it is a guess.

    The encoding is what the first bytes mark, else UTF-8 where the whole file is, else Windows-1252 or Latin-1. The
    delimiter is the one that gives the first line the most columns, and all others as many; a file of one column has
    none, which counts as commas. A first line of a word and four numbers and more is separated by spaces.

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
    if (spaced := _SPACED.match(text)) and spaced[2] in (None, str(spaced[3].count(SPACE))) and "." in spaced[3]:
        log.warning("%s is read as separated by spaces.", path)
        return CsvForm(SPACE, encoding, int(spaced[2] is not None))
    first = SEPARATOR.match(text)
    complete = len(start) < SAMPLE
    comments = 0 if first else _comments(text, complete)
    below = "".join(text.splitlines(keepends=True)[comments:])
    form = CsvForm(first[1] if first else _delimiter(below, complete=complete), encoding, comments or first is not None)
    guesses = [] if not comments else [f"from line {comments + 1}, as those above begin with #"]
    if form.delimiter not in (",", "\t" if path.suffix.lower() == ".tsv" else ",") and first is None:
        guesses.append(f"as separated by {DELIMITERS[form.delimiter]}")
    if encoding not in ("utf-8", "utf-8-sig"):
        guesses.append(f"as encoded in {encoding}" + ("" if encoding == "utf-16" else ", because it is not in UTF-8"))
    if guesses:
        log.warning("%s is read %s.", path, " and ".join(guesses))
    return form


def _unmarked(path: Path) -> str:
    """UTF-8 if every byte of the file fits, else an encoding of one byte per letter that has all its bytes."""
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError), path.open(encoding=encoding, newline="") as file:
            while file.read(1 << 20):
                pass
            return encoding
    return "latin-1"


def _delimiter(text: str, *, complete: bool) -> str:
    lines = _LISTS.sub("[]", text).splitlines(keepends=True)  # what is between brackets separates no columns
    if not complete:
        lines = lines[:-1] or lines  # the last one may be cut
    widths = {delimiter: _widths(lines, delimiter) for delimiter in DELIMITERS}
    first = {delimiter: rows[0] if rows else 0 for delimiter, rows in widths.items()}
    even = [delimiter for delimiter, rows in widths.items() if len(set(rows)) == 1 and rows[0] > 1]
    if not even:  # some line is broken: whoever parses it will say which
        even = [","] if first[","] > 1 else list(DELIMITERS)
    best = max(even, key=lambda delimiter: first[delimiter])  # the first of equals
    return best if first[best] > 1 else ","


def _comments(text: str, complete: bool) -> int:
    """The number of lines at the top that begin with # and have other fields than the line of names below them."""
    lines = text.splitlines(keepends=True)
    comments = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    if not comments:
        return 0
    delimiter = _delimiter("".join(lines[comments:]), complete=complete)
    (above,), below = _widths([lines[comments - 1]], delimiter) or [0], _widths(lines[comments:], delimiter)
    return 0 if not below or below[0] == 1 else comments - (above == below[0])


def _widths(lines: list[str], delimiter: str, *, trim: bool = False) -> list[int]:
    """The number of fields of the first rows that are not empty."""
    widths: list[int] = []
    try:
        for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=trim):
            if row:
                widths.append(len(row))
            if len(widths) == ROWS:
                break
    except csv.Error:  # a field that is not closed, or too long
        pass
    return widths


def guarded(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: one apostrophe more before what begins like one.

    These are texts that begin with = + - @ (also of full width), a tab or a line break, but for plain numbers; and, so
    that nothing is lost, such texts behind apostrophes. All others stay as they are.

    Example:
        >>> [guarded(text) for text in ("=1+2", "-7", "-x", "'-x", "'tis", "cat")]
        ["'=1+2", '-7', "'-x", "''-x", "'tis", 'cat']
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(cell: str) -> str:
    """The text that `guarded` made a cell of; for every text, `unguarded(guarded(text)) == text`."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def is_guarded(columns: Sequence[str]) -> bool:
    """Test whether Trivet writes csv files with these columns, whose cells are guarded; in others nothing is taken
    away."""
    return any(tuple(columns[: len(header)]) == header for header in _GUARDED_HEADERS)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """The text of a csv file, whose first row is its header: quoted where needed, each line ended by a newline.

    Its cells are `guarded`.
    """
    cells = ([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    lines: list[str] = []
    # The writer quotes a lone carriage return only if lines end with one.
    sink = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(sink, lineterminator="\r\n").writerows(cells)
    return "".join(lines)


def csv_rows(path: Path) -> tuple[list[str], list[tuple[int, Mapping[str, str | None]]]]:
    """The column names of a csv file, and its rows, each with the number of its first line; see `is_guarded`.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no csv file.
    """
    check_regular(path, "a csv file")
    try:
        form = csv_form(path)
        with path.open(encoding=form.encoding, newline="") as file:
            rows = form.rows(file)
            columns = next(rows, (0, list[str]()))[1]
            meant = unguarded if is_guarded(columns) else str
            cells: list[tuple[int, Mapping[str, str | None]]] = []
            for line, row in rows:
                if len(row) > len(columns):
                    raise ValueError(f"line {line} has more fields than the header")
                texts = [*map(meant, row), *[None] * (len(columns) - len(row))]
                cells.append((line, dict(zip(columns, texts, strict=True))))
            return columns, cells
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} must be a csv file: {error}; save it again.") from None


def csv_table(path: Path, form: CsvForm | None = None, *, names: bool = True) -> DataTable:
    """The columns of a csv file: texts as they are meant, see `unguarded`; an empty field is a missing value.

    Rows at the end whose fields are all empty are left out, which is logged, and so are columns without a name or a
    value: spreadsheets write them.

    A first line with a decimal number or a list of numbers is none of names: the columns are then called as `unnamed`
    says; where some of many fields are no numbers, these "label", or label0, label1, ...; one whose values all differ,
    "id".

    Args:
        form: detected, if not given.
        names: whether the first line may be one of names.

    Raises:
        ValueError: if the file is broken.
    """
    with read_errors(path, "csv"):
        form = form or csv_form(path)
    if form.delimiter != SPACE:
        _check_quotes(path, form)
    with read_errors(path, "csv"):
        # With threads, errors do not number the rows.
        read = pa.csv.ReadOptions(
            use_threads=False, encoding=form.encoding.removesuffix("-sig"), skip_rows=form.skipped
        )
        quotes = form.delimiter != SPACE
        parse = pa.csv.ParseOptions(newlines_in_values=quotes, delimiter=form.delimiter, quote_char=quotes and '"')
        with pa.csv.open_csv(path, read, parse) as start:
            header = start.schema.names
        named = names and not any(_DECIMAL.fullmatch(name) or is_listing(name) for name in header)
        words: list[int] = []
        if not named:
            if names:
                log.warning("%s is read as without a line of names, because its first line holds numbers.", path)
                words = [i for i, field in enumerate(header) if field and not _is_number(field)]
            header = _default_names(header, words) if 0 < len(words) < len(header) - 1 else unnamed(len(header))
            read.column_names = header
        convert = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
        )
        table = pa.csv.read_csv(path, read, parse, convert)
    if len(words) == 1 and WORD in header and pc.count_distinct(table[WORD]).as_py() == len(table):
        header = ["id" if name == WORD else name for name in header]
        table = table.rename_columns(header)
    blank = [not name and column.null_count == len(table) for name, column in zip(header, table.columns, strict=True)]
    if any(blank):
        table = table.select(np.flatnonzero(~np.array(blank)).tolist())
        header = table.column_names
    for position, column in enumerate(table.columns if is_guarded(header) else ()):
        if pc.any(pc.starts_with(column, "'")).as_py():
            texts = pa.array([cell and unguarded(cell) for cell in column.to_pylist()], pa.string())
            table = table.set_column(position, header[position], texts)
    count = len(table) - _empty_end(table)
    if count < len(table):
        log.warning("%s ends with %s, left out here.", path, counted(len(table) - count, "empty row"))
        table = table.slice(0, count)
    return arrow_table(path, table, _csv_column, cache(lambda: _lines(path, form)[int(named) :]))


def _is_number(field: str) -> bool:
    return bool(_NUMBER.fullmatch(field.strip()) or _DECIMAL.fullmatch(field))


def _default_names(first: list[str], words: list[int]) -> list[str]:
    """The names of columns that have none, some of which hold words; the last stays empty if lines end with a space."""
    names = dict(zip(words, [WORD] if len(words) == 1 else [f"{WORD}{n}" for n in range(len(words))], strict=True))
    end = [""] if first[-1] == "" else []
    numbers = (number for number in range(len(first) - len(end)) if number not in names)
    names |= {number: f"f{n}" for n, number in enumerate(numbers)}
    return [names[number] for number in sorted(names)] + end


def _check_quotes(path: Path, form: CsvForm) -> None:
    """ValueError if the first rows are of one length only without the spaces before the quotes of their cells."""
    with path.open(encoding=form.encoding, newline="", errors="replace") as file:
        lines = file.read(SAMPLE).splitlines(keepends=True)[form.skipped : form.skipped + ROWS]
    spaced = next((line for line in lines if re.search(rf'(^|{re.escape(form.delimiter)})[ \t]+"', line)), None)
    if spaced is None or len(set(_widths(lines, form.delimiter))) == 1:
        return
    if len(set(_widths(lines, form.delimiter, trim=True))) != 1:
        return
    clean = f"{path.stem}_clean{path.suffix}"
    raise ValueError(
        f"{path} must have no spaces between its delimiters and its quotes, which divide a cell: it has "
        f"{spaced.strip()[:40]!r}; write it without: import csv; csv.writer(open({clean!r}, 'w', newline=''), "
        f"delimiter={form.delimiter!r}).writerows([c.strip() for c in row] for row in csv.reader(open({str(path)!r}, "
        f"newline='', encoding={form.encoding!r}), delimiter={form.delimiter!r}, skipinitialspace=True))"
    )


def _empty_end(table: pa.Table) -> int:
    """The number of rows at the end that have nothing but white space; none of a single column, which may be empty."""
    empty = 0
    while table.num_columns > 1 and empty < len(table):
        row = table.slice(len(table) - 1 - empty, 1).to_pylist()[0]
        if any(cell is not None and cell.strip() for cell in row.values()):
            break
        empty += 1
    return empty


def _lines(path: Path, form: CsvForm) -> Integers:
    """The number of the line, from 1, that each row begins in, that of the header too."""
    lines: list[int] = []
    # A file that breaks off within quotes is read to its end; its last line has no number.
    with path.open(encoding=form.encoding, newline="") as file, contextlib.suppress(csv.Error):
        lines.extend(line for line, _ in form.rows(file))
    return np.array(lines, np.int64)


def unnamed(count: int) -> list[str]:
    """The names of columns that have none."""
    return [WORD] if count == 1 else [f"f{number}" for number in range(count)]


def _csv_column(path: Path, name: str, texts: pa.ChunkedArray) -> ColumnValues:
    column = arrow_column(path, name, texts)
    try:
        numbers = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # not a column of numbers
        return column
    return column._replace(missing=np.isnan(numbers), plain=integral(numbers))
