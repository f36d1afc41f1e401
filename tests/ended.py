"""Work in a process that ends before its n-th change of a file, by a kill, a signal or a full disk, or at a line.

"signalled": Ctrl-C arrives at the n-th line of `trivet.io.atomic_files` that is run.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Literal

End = Literal["killed", "interrupted", "disk full", "signalled"]
CHANGES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")  # audit events; the first three take space
REACHED = 7


def ended_at(moment: int, end: End, work: Callable[[], None]) -> bool:
    """Do the work in a process that ends at its n-th change of a file; returns whether it got that far."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, REACHED)
        return status != 0
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        reads = event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if event not in (CHANGES if end != "disk full" else CHANGES[:3]) or reads:
            return
        seen += 1
        if seen != moment:
            return
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyboardInterrupt if end == "interrupted" else OSError(errno.ENOSPC, "No space left on device")

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        nonlocal seen
        if not frame.f_code.co_filename.endswith("atomic_files.py"):
            return None
        if event == "line":
            seen += 1
            if seen == moment:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # of the child, which ends at once
    if end == "signalled":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(trace)
    else:
        sys.addaudithook(hook)
    try:
        work()
    except BaseException as error:  # it is told by the exit code
        sys.settrace(None)
        error.__traceback__ = None  # which holds what was to be closed
        os._exit(REACHED)
    os._exit(REACHED if seen >= moment else 0)


def every_moment(end: End, work: Callable[[], None], prepare: Callable[[], None], *, each: int = 1) -> Iterator[int]:
    """Prepare, end the work at its first, second, ... change, and let the caller look, until it is no longer ended.

    With `each`, at the first and at each so many further.
    """
    for moment in range(1, 2000, each):
        prepare()
        if not ended_at(moment, end, work):
            return
        yield moment
    raise AssertionError("the work never ended by itself")
