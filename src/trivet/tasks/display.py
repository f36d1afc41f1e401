"""Progress on standard error: bars in a terminal, occasional lines in a log."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES = 10  # for each work in a log


class Display:
    """The progress of one work after the other.

    Args:
        show: whether to show anything.
    """

    def __init__(self, *, show: bool = True) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
        )
        self._on_terminal = show and console.is_terminal
        self._in_log = show and not console.is_terminal
        self._bars: dict[str, TaskID] = {}
        self._lines: dict[str, int] = {}

    def __enter__(self) -> Self:
        if self._on_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_terminal:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Show a line, unless it is empty."""
        if line and self._on_terminal:
            self._bar.console.print(line, markup=False, highlight=False)
        elif line and self._in_log:
            print(line, file=sys.stderr, flush=True)

    def update(self, title: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` parts of the work `title` are done."""
        if self._on_terminal:
            if title not in self._bars:
                self._bars[title] = self._bar.add_task(title, total=total, note=note)
            self._bar.update(self._bars[title], completed=done, total=total, note=note)
        elif self._in_log and done * LINES // total > self._lines.get(title, 0):
            self._lines[title] = done * LINES // total
            print(f"{title} {done}/{total} {note}".rstrip(), file=sys.stderr, flush=True)
