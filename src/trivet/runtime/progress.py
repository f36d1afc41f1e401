"""Progress: a task reports how far it is; a command shows that on standard error. Silent where nobody shows it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TextIO, TypeVar

from trivet.runtime.terminal import printable

SILENT = 1.3  # seconds: what takes less says nothing; two works in a row say something within three seconds
REWRITTEN, LOGGED = 0.2, 10.0  # seconds between two looks of the line of a terminal, and between two lines of a log
BEAT = 1.0  # seconds after which time goes on in the line though the work says nothing

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
    """One line in a terminal, rewritten; elsewhere a line every ten seconds. Nothing in the first 1.3 seconds.

    Args:
        stream: standard error.
        clock: gives seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._due = clock() + SILENT
        self._wide = 0  # characters in the line of the terminal
        self._works: list[Work] = []
        self._process, self._lock = os.getpid(), threading.Lock()

    def open(self, title: str, total: float = 0, done: float = 0) -> Work:
        """Begin a work that `close` ends."""
        work = Work(title, self._clock(), done, total, first=done, opened=True)
        self._works.append(work)
        self.update()
        return work

    def close(self, work: Work) -> None:
        """End a work, and those inside it."""
        if work in self._works:
            del self._works[self._works.index(work) :]

    def advance(self, work: Work) -> None:
        """A part of an opened work is done, and whatever was inside it is over."""
        if work in self._works:
            del self._works[self._works.index(work) + 1 :]
        work.done += 1
        self.update()

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
        self.update()
        if done >= total and not last.opened and last in self._works:
            self._works.remove(last)

    def update(self) -> None:
        """Write the line if it is time to."""
        now = self._clock()
        if now < self._due:
            return
        with self._lock:
            works = list(self._works)  # another thread may end one
            if now < self._due or not works:
                return
            counted = [f"{work.title} {work.done:.0f}/{work.total:.0f}: " for work in works[:-1] if work.total]
            self._write("".join(counted) + works[-1].line(now))
            self._due = now + (REWRITTEN if self._terminal else LOGGED)

    def clear(self) -> None:
        """Leave an empty line in the terminal."""
        with self._lock:
            if self._wide:
                self._put("\r" + " " * self._wide + "\r")
            self._wide = 0

    def announce(self, text: str) -> None:
        """Write a line above the one that is rewritten."""
        self.clear()
        with self._lock:
            self._put(printable(text) + "\n")

    def make_way(self, record: logging.LogRecord) -> bool:
        """Leave an empty line for a message, as a filter of the logger."""
        self.clear()
        return True

    def _write(self, text: str) -> None:
        text = printable(text)
        if not self._terminal:
            self._put(text + "\n")
            return
        text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        self._put("\r" + text.ljust(self._wide))
        self._wide = len(text)

    def _put(self, text: str) -> None:
        known = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(known, "replace").decode(known))
            self._stream.flush()
        except (OSError, ValueError):  # whoever read it has gone: no reason to end the work
            self._due = float("inf")


_current: ContextVar[ProgressLine | None] = ContextVar("show_progress", default=None)


@contextmanager
def show_progress(title: str, *, show: bool = True) -> Iterator[None]:
    """Show on standard error what is reported inside, once it has taken 1.3 seconds.

    Args:
        title: what is done, shown while no part of it is counted.
        show: whether to show anything.
    """
    if not show or _current.get() is not None:  # it is shown already
        with work(title) if show else nullcontext():
            yield
        return
    line, over = ProgressLine(sys.stderr), threading.Event()

    def beat() -> None:
        pause = SILENT
        while not over.wait(pause):
            line.update()
            pause = BEAT

    heart = threading.Thread(target=beat, name="progress", daemon=True)
    token = _current.set(line)
    logger = logging.getLogger("trivet")
    logger.addFilter(line.make_way)
    line.open(title)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
        _current.reset(token)
        logger.removeFilter(line.make_way)
        line.clear()


def report(title: str, done: float, total: float, note: str = "") -> None:
    """Say that `done` of `total` parts of a work are done; whoever shows it reckons the rate and the time left."""
    line = _current.get()
    if line is not None:
        line.report(title, done, total, note)


def announce(text: str) -> None:
    """Write a line at once where progress is shown, unless it is empty."""
    line = _current.get()
    if line is not None and text:
        line.announce(text)


def reporter(title: str) -> Callable[[int, int], None]:
    """`report` of one work, for what takes a function of the parts done and of all."""
    return partial(report, title)


def work(title: str, done: float = 0, total: float = 0) -> AbstractContextManager[object]:
    """A work that cannot be counted, or whose parts are works themselves: `with work("k-means"): ...`.

    Args:
        done, total: parts, where they are counted: `report` of the same title then says how far it is.
    """
    line = _current.get()
    return nullcontext() if line is None else _opened(line, title, total, done)


@contextmanager
def _opened(line: ProgressLine, title: str, total: float = 0, done: float = 0) -> Iterator[Work]:
    opened = line.open(title, total, done)
    try:
        yield opened
    finally:
        line.close(opened)


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
    with _opened(line, title, count) as opened:
        for item in items:
            yield item
            line.advance(opened)


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
