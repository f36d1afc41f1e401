"""Progress: a task reports how far it is; a command shows that on standard error. Silent where nobody shows it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from trivet.runtime.extras import installed
from trivet.runtime.terminal import printable

SILENT = 1.3  # seconds: what takes less says nothing
LOGGED = 10.0  # seconds between two lines where there is no terminal
REWRITTEN = 0.5  # seconds after which the line in a notebook is written anew

T = TypeVar("T")


@dataclass(eq=False)
class Work:
    """Something that takes time: `done` of `total` parts; without a total it is not counted.

    Attributes:
        began: when it began, at `first` parts done; those of a resumed run are not of this time.
        note: what else a line says of it.
        opened: whether a `with` ends it; otherwise its last part does, or the next work beside it.
    """

    title: str
    began: float
    done: float = 0
    total: float = 0
    first: float = 0
    note: str = ""
    opened: bool = False

    def line(self, now: float) -> str:
        """Progress, rate and time left as a line."""
        so_far, count = max(0.0, now - self.began), self.done - self.first
        if not self.total:
            text = f"{self.title}, {_span(so_far)} so far"
        elif count <= 0 or so_far <= 0:
            text = f"{self.title} {self.done:.0f}/{self.total:.0f}, {_span(so_far)} so far"
        else:
            rate = count / so_far
            left = _span((self.total - self.done) / rate)
            text = f"{self.title} {self.done:.0f}/{self.total:.0f}, {_rate(rate)}, {left} left"
        return f"{text}  {self.note}".rstrip()


class ProgressLine:
    """The works under way, each inside the one before, and the line that says how far they are.

    Args:
        clock: gives seconds.

    Attributes:
        width: characters of the line that stands in a notebook, which the next one covers.
    """

    width = 0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._process = clock, os.getpid()
        self._works: list[Work] = []

    @contextmanager
    def work(self, title: str, total: float = 0, done: float = 0) -> Iterator[None]:
        """Show a work until the block ends; `report` of its title says how far it is."""
        work = Work(title, self._clock(), done, total, first=done, opened=True)
        self._works.append(work)
        try:
            yield
        finally:
            if work in self._works:
                del self._works[self._works.index(work) :]

    def report(self, title: str, done: float, total: float, note: str = "") -> None:
        """Note how far a work is: one begun before, whose inner ones are over, or a new one in the last opened."""
        if os.getpid() != self._process:  # a worker that loads data has this object, too
            return
        index = next((index for index, work in enumerate(self._works) if work.title == title), None)
        if index is None:
            if self._works and not self._works[-1].opened:
                self._works.pop()
            self._works.append(Work(title, self._clock(), done, total, first=done))
        else:
            del self._works[index + 1 :]
        last = self._works[-1]
        if done < last.done:  # it goes on from an earlier part
            last.began, last.first = self._clock(), done
        last.done, last.total, last.note = done, total, note
        if done >= total and not last.opened:
            self._works.remove(last)

    def text(self) -> str:
        """The line of now; empty where nothing is under way."""
        works = list(self._works)  # another thread may end one
        if not works:
            return ""
        counted = [f"{work.title} {work.done:.0f}/{work.total:.0f}: " for work in works[:-1] if work.total]
        return printable("".join(counted) + works[-1].line(self._clock()))


_current: ContextVar[ProgressLine | None] = ContextVar("show_progress", default=None)


@contextmanager
def show_progress(title: str, *, show: bool = True) -> Iterator[None]:
    """Show on standard error what is reported inside, once it has taken 1.3 seconds: one line in a terminal or a
    notebook, elsewhere a line every ten seconds.

    Args:
        title: what is done, shown while no part of it is counted.
        show: whether to show anything.
    """
    if not show or _current.get() is not None:  # it is shown already
        with work(title) if show else nullcontext():
            yield
        return
    line, over = ProgressLine(), threading.Event()
    painter = threading.Thread(target=_paint, args=(line, over), name="progress", daemon=True)
    token = _current.set(line)
    with line.work(title):
        painter.start()
        try:
            yield
        finally:
            over.set()
            painter.join()
            _current.reset(token)


def _paint(line: ProgressLine, over: threading.Event) -> None:
    if over.wait(SILENT):
        return
    with suppress(OSError, ValueError):  # whoever read it has gone: no reason to end the work
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and installed("rich"):
            _paint_terminal(line, over)
            return
        if in_notebook():
            _paint_notebook(line, over)
            return
        while True:
            if text := line.text():
                print(text, file=sys.stderr, flush=True)
            if over.wait(LOGGED):
                return


def _paint_terminal(line: ProgressLine, over: threading.Event) -> None:
    """One line that is rewritten, below all messages, and gone in the end."""
    from rich.console import Console  # here: few commands take so long
    from rich.live import Live
    from rich.text import Text

    def render() -> Text:
        return Text(line.text(), no_wrap=True, overflow="crop")

    console = Console(stderr=True)
    with Live(get_renderable=render, console=console, refresh_per_second=5, transient=True, redirect_stdout=False):
        over.wait()


def _paint_notebook(line: ProgressLine, over: threading.Event) -> None:
    """One line that is written over, as its end goes back to its beginning, and blank in the end."""
    ended = False
    while not ended:
        text = line.text()
        print(text.ljust(line.width), end="\r", file=sys.stderr, flush=True)
        line.width = len(text)
        ended = over.wait(REWRITTEN)
    print(" " * line.width, end="\r", file=sys.stderr, flush=True)


def in_notebook() -> bool:
    """Test whether standard error is the output of a cell."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


def is_watched() -> bool:
    """Test whether somebody sees standard error while it is written: in a terminal or a notebook."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def report(title: str, done: float, total: float, note: str = "") -> None:
    """Say that `done` of `total` parts of a work are done; whoever shows it reckons the rate and the time left."""
    if (line := _current.get()) is not None:
        line.report(title, done, total, note)


def announce(text: str) -> None:
    """Write a line at once where progress is shown, unless it is empty."""
    if (line := _current.get()) is not None and text:
        with suppress(OSError, ValueError):
            print(printable(text).ljust(line.width), file=sys.stderr, flush=True)


def reporter(title: str) -> Callable[[int, int], None]:
    """`report` of one work, for what takes a function of the parts done and of all."""
    return partial(report, title)


def work(title: str, done: float = 0, total: float = 0) -> AbstractContextManager[None]:
    """A work that cannot be counted, or whose parts are works themselves: `with work("k-means"): ...`.

    Args:
        done, total: parts, where they are counted: `report` of the same title then says how far it is.
    """
    line = _current.get()
    return nullcontext() if line is None else line.work(title, total, done)


def steps(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """The items, each a part of a work that is done when the next is asked for; works inside are shown beside it.

    Args:
        total: how many there are; None where `len(items)` says so.
    """
    line = _current.get()
    if line is None:
        yield from items
        return
    count = total if total is not None else len(items) if isinstance(items, Sized) else 0
    with line.work(title, count):
        for number, item in enumerate(items, start=1):
            yield item
            line.report(title, number, count)


def _rate(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s" if rate >= 0.1 else f"{60 * rate:.2g}/min"


def _span(seconds: float) -> str:
    """A time, to the second below an hour and to the minute above."""
    total = round(min(seconds, 8.64e7))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"
