"""Results of commands as objects: printed in a terminal, shown in a notebook, a data frame, a figure, and a page."""

from __future__ import annotations

import html
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trivet.io.overwrite_guard import Output, check_outputs, page
from trivet.runtime.extras import load
from trivet.runtime.terminal import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trivet.runtime.record import Record

LINES = 8  # of a result in an interactive session
LONGEST = 300  # characters of a line there
ROWS = 12  # of a table in a notebook


@dataclass(frozen=True)
class Paragraph:
    """A paragraph that a command prints; the answer is bold."""

    text: str
    bold: bool = False
    indent: int = 0


@dataclass(frozen=True)
class TextTable:
    """A table that a command prints.

    Attributes:
        title: above it.
        words, numbers: heads of the columns, those of words first.
        rows: a text for each column.
        named_by: so many columns of words tell the rows apart, and are repeated where the table is divided; None for
            all.
        leads: numbers of the rows that come first where there is room for a few.
    """

    title: str | None
    words: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Sequence[str]]
    named_by: int | None = None
    leads: Sequence[int] = ()

    def lines(self, most: int | None = None) -> Iterator[str]:
        """The title, the heads and the rows, a line each; of more than `most` of these those that lead.

        Args:
            most: lines, the title and the heads among them; None for all.
        """
        order = [*self.leads, *(number for number in range(len(self.rows)) if number not in self.leads)]
        room = None if most is None else most - 1 - (self.title is not None)
        if room is not None and room < min(1, len(order)):  # heads alone say nothing
            return
        chosen = sorted(order[:room]) if room is not None and room < len(order) else range(len(order))
        rows = [[*self.words, *self.numbers], *(self.rows[number] for number in chosen)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        yield from [] if self.title is None else [printable(self.title)]
        for row in rows:
            cells = [
                cell.ljust(width) if column < len(self.words) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield printable("  ".join(["", *cells]).rstrip())

    def as_html(self) -> str:
        """The table as html; of many rows those that lead, and how many more there are."""
        rows = [*(self.rows[number] for number in self.leads)] if len(self.rows) > ROWS and self.leads else self.rows
        heads = "".join(f'<th style="text-align:left">{html.escape(head)}</th>' for head in self.words)
        heads += "".join(f'<th style="text-align:right">{html.escape(head)}</th>' for head in self.numbers)
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in rows[:ROWS])
        left = len(self.rows) - min(len(rows), ROWS)
        more = f"<caption style='caption-side:bottom;text-align:left'>and {left} more rows</caption>" if left else ""
        title = "" if self.title is None else f"<p><b>{html.escape(self.title)}</b></p>"
        return f"{title}<table>{more}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self, row: Sequence[str]) -> str:
        return "".join(
            f'<td style="text-align:{"left" if column < len(self.words) else "right"}">{html.escape(cell)}</td>'
            for column, cell in enumerate(row)
        )


Contents = Iterable[Paragraph | TextTable]


class Result(ABC):
    """Outcome of a command, which prints itself as the command does: the answer first.

    Attributes:
        kind: of its page, the name of the template.
        command: what was typed, for the page; empty for a call of a function.
    """

    kind: ClassVar[str]
    command: str = ""

    @property
    @abstractmethod
    def record(self) -> Record:
        """All numbers and sentences, as `--json` of the command prints them."""

    @abstractmethod
    def contents(self) -> Contents:
        """Paragraphs and tables that the command prints, in order."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `to_frame`: column -> value."""

    @abstractmethod
    def figure(self) -> Figure:
        """The main plot of the page, drawn by matplotlib."""

    @abstractmethod
    def write_page(self, path: Path) -> None:
        """Write the page, whatever is there."""

    def save(self, path: Path | str) -> Path:
        """Write the page of the command to a file, and return its path.

        Raises:
            ValueError: if its name does not end in .html, there is a file that is no such page, or its folder does not
                exist.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"save writes a page of HTML: got {path}; name it {path.with_suffix('.html').name}.")
        check_outputs([Output("save", path, page(self.kind))], [])
        self.write_page(path)
        return path

    def to_frame(self) -> Any:
        """The numbers as a `pandas.DataFrame`.

        Raises:
            ModuleNotFoundError: if pandas is not installed.
        """
        return load("pandas").DataFrame(self.rows())

    def __str__(self) -> str:
        return "\n".join(line for content in self.contents() for line in _lines(content))

    def __repr__(self) -> str:
        lines: list[str] = []
        for content in self.contents():
            if room := LINES - len(lines):
                some = content.lines(room) if isinstance(content, TextTable) else _folded(content)
                lines += [line if len(line) <= LONGEST else f"{line[: LONGEST - 2]} …" for line in islice(some, room)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        contents = [
            content.as_html() if isinstance(content, TextTable) else _paragraph(content) for content in self.contents()
        ]
        return f'<div style="max-width:60rem">{"".join(contents)}</div>'


def _lines(content: Paragraph | TextTable) -> Iterator[str]:
    if isinstance(content, TextTable):
        yield from content.lines()
    else:
        yield " " * content.indent + printable(content.text)


def _folded(paragraph: Paragraph) -> list[str]:
    """The lines of a paragraph, of which an answer is shown to its end."""
    (line,) = _lines(paragraph)
    width = LONGEST if paragraph.bold else len(line) + 1
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


def _paragraph(paragraph: Paragraph) -> str:
    text = html.escape(paragraph.text)
    text = f"<b>{text}</b>" if paragraph.bold else text
    return f'<p style="margin:.3em 0 .3em {paragraph.indent / 2}em">{text}</p>'
