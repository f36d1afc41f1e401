"""What a run shows while it trains: one line on standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Display:
    """Progress bars on standard error, one after the other; nothing when it is not a terminal or not wanted."""

    def __init__(self, *, show: bool = True) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            disable=not show,
        )
        self._titles: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, title: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` parts of the work `title` are done."""
        if title not in self._titles:
            self._titles[title] = self._bar.add_task(title, total=total, note=note)
        self._bar.update(self._bar.tasks[self._titles[title]].id, completed=done, total=total, note=note)
