"""Output of commands: one JSON object, or sentences and tables for people; progress goes to standard error."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trivet.reports.result import Contents, Paragraph, Result
from trivet.runtime.terminal import json_text, printable, without_passwords
from trivet.runtime.text import typed

if TYPE_CHECKING:
    from trivet.runtime.record import Record

NOTHING: Mapping[str, Any] = {}
FRAME, HEAD = 3, 16  # characters: a column's padding and border; the most of a head that makes a column wider


def command_line() -> str:
    """Command line as it was typed, for the record, but for the addresses of databases."""
    return " ".join(["trivet", *(typed(without_passwords(argument)) for argument in sys.argv[1:])])


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    from pydantic_core import to_jsonable_python  # here: `--help` needs none

    print(json_text(to_jsonable_python(value, by_alias=True)))


def print_result(result: Result, *, json: bool, report: Path | None, more: Mapping[str, Any] = NOTHING) -> None:
    """A result, as one JSON object if asked for, and where its page was written if it was.

    Args:
        more: keys of that object.
    """
    if json:
        print_json({**result.record.as_json(unset=False), **more, **({"report": str(report)} if report else {})})
        return
    print_contents(result.contents())
    if report is not None:
        echo(f"Report: {report}")


def print_contents(contents: Contents) -> None:
    """Paragraphs and tables, in order."""
    for content in contents:
        if isinstance(content, Paragraph):
            print_text(content.text, bold=content.bold, indent=content.indent)
        else:
            print_table(content.title, content.words, content.numbers, content.rows, named_by=content.named_by)


def print_record(record: Record, for_people: Callable[[], None], *, json: bool, report: Path | None) -> None:
    """A record, as one JSON object without pictures if asked for, and where its page was written if it was.

    Args:
        for_people: prints it as text.
    """
    if json:
        print_json(_without_pictures(record.as_json()) | ({} if report is None else {"report": str(report)}))
        return
    for_people()
    if report is not None:
        echo(f"Report: {report}")


def _without_pictures(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_pictures(each) for key, each in value.items() if not key.endswith("thumbnail")}
    return [_without_pictures(each) for each in value] if isinstance(value, list) else value


def echo(text: str = "", *, err: bool = False) -> None:
    """A line that is not broken, such as one with a path; on standard error if asked for."""
    typer.echo(printable(text), err=err)


def print_text(text: str, *, bold: bool = False, indent: int = 0) -> None:
    """A paragraph; a terminal breaks it between words and never inside one, so that numbers and paths stay whole."""
    margin, text = " " * indent, printable(text.replace("\n", " "))
    columns = shutil.get_terminal_size((0, 0)).columns or len(margin + text)
    lines = textwrap.wrap(
        text,
        columns,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.secho("\n".join(lines), bold=bold)


def print_table(
    title: str | None,
    words: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    named_by: int | None = None,
) -> None:
    """A table that cuts no number, however narrow the terminal is.

    Columns of words fold, between words if they can: also after the signs in card_payment_fee or a/b. Columns of
    numbers that do not fit follow in a further table.

    Args:
        words, numbers: heads of the columns, those of words first.
        rows: a text for each column.
        named_by: so many columns of words tell the rows apart, and are repeated in a further table; None for all.
    """
    from rich.cells import cell_len  # here: `--help` needs no tables
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, rows = Console(), [[printable(cell) for cell in row] for row in rows]
    words, numbers = ([printable(head) for head in heads] for heads in (words, numbers))
    title = None if title is None else printable(title)
    columns = [[head, *(row[index] for row in rows)] for index, head in enumerate((*words, *numbers))]
    widest = [max(map(cell_len, column)) for column in columns]
    room = max(6, (2 * console.width // 3 - 1) // max(1, len(words)) - FRAME)
    widths = [min(width, room) for width in widest[: len(words)]]
    repeated = widths[:named_by]
    left, later = (console.width - 1 - sum(width + FRAME for width in group) for group in (widths, repeated))
    for head, *cells in columns[len(words) :]:
        longest = max(map(cell_len, head.split()), default=1)  # a head folds, between words if it can
        widths.append(min(left - FRAME, max(min(longest, HEAD), *map(cell_len, cells), 1)))
    pieces: list[list[int]] = [[]]
    for index in range(len(words), len(columns)):
        room = later if len(pieces) > 1 else left
        if pieces[-1] and sum(widths[i] + FRAME for i in [*pieces[-1], index]) > room:
            pieces.append([])
        pieces[-1].append(index)
    for number, piece in enumerate(pieces):
        named = range(len(repeated) if number else len(words))
        spare = (later if number else left) - sum(widths[index] + FRAME for index in piece)
        folded = []
        table = Table(title=None if title is None or number else Text(title), title_justify="left")
        for index in named:
            width = min(widest[index], widths[index] + spare)
            spare -= width - widths[index]
            folded.append([_folded(row[index], width) for row in rows])
            table.add_column(Text(columns[index][0]), width=width, overflow="fold")
        for index in piece:
            table.add_column(Text(columns[index][0]), width=widths[index], overflow="fold", justify="right")
        for at, row in enumerate(rows):
            table.add_row(*(Text(column[at]) for column in folded), *(Text(row[index]) for index in piece))
        console.print(table)


def _folded(text: str, width: int) -> str:
    """A text with line breaks after spaces, or signs that part words; a word wider than the column stays whole."""
    from rich.cells import cell_len

    lines = [""]
    for word in re.split(r"(?<=[\s_/.:;,|+-])(?=[\w(])", text):
        if lines[-1] and cell_len((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


def per_cent(value: float | str | Sequence[float] | None) -> str:
    """A share or an interval of shares, in per cent with a decimal; a text, such as why there is none, as it is."""
    if value is None or isinstance(value, str):
        return value or "–"
    if isinstance(value, Sequence):
        return f"{100 * value[0]:.1f} … {100 * value[1]:.1f}"
    return f"{100 * value:.1f}"
