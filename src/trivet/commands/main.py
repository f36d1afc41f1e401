"""The command line: runs one command and answers wrong usage; `trivet.commands.registry` lists them all."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import namedtuple
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from types import FrameType

from trivet.commands.call_options import explained
from trivet.runtime.caller import command_line
from trivet.runtime.extras import missing
from trivet.runtime.safe_read import panics
from trivet.runtime.signals import LostError, ending_signals, send_to_itself
from trivet.runtime.terminal import message, prepared

MINED = "stopped; chunks that were mined are kept, and the same trivet mine goes on from them."
RUN = "stopped; a run folder keeps its checkpoints, and trivet train --resume continues from them."


def main() -> None:
    """Run a command: exit code 0, 2 for a mistake the user can mend (one sentence on standard error), 1 otherwise."""
    received: list[int] = []  # signals that asked this command to end

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if _loads_extension(frame):
            again = threading.Timer(0.05, send_to_itself, (number,))
            again.daemon = True
            again.start()
            return
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in ending_signals()}
    try:
        with prepared(), command_line():
            code = _run(sys.argv[1:] or ["--help"], received)
    except KeyboardInterrupt:  # or while it was said
        code = _print_error("stopped, at the very beginning or end of the command.", 1)
    for number, handler in before.items():  # what comes now ends the process at once, and says nothing more
        signal.signal(number, signal.SIG_DFL if received else handler)
    if received:
        # Python keeps in mind that a signal came within a text that it was running, such as those of `dataclass`, and
        # `python -m trivet` would end by SIGINT in spite of its exit code. The text in `namedtuple` takes that back.
        namedtuple("Forgotten", ())
    sys.exit(code)


def _loads_extension(frame: FrameType | None) -> bool:
    """Test whether compiled code is being loaded: some of it aborts the process where Python raises an error
    meanwhile."""
    while frame is not None:
        loads = frame.f_code.co_name in ("create_module", "exec_module")
        if loads and isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False


def _run(arguments: list[str], received: list[int]) -> int:
    named = NamedPaths(arguments)
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):  # bytes that are no UTF-8
            return _print_error(f"names must be in UTF-8: got {argument!r}; rename it.", 2)
    try:
        import typer

        from trivet.commands.group import app

        try:
            with panics():
                code = app(arguments, prog_name="trivet", standalone_mode=False)
        except typer.TyperException as error:
            return _print_error(f"{explained(error)} See trivet --help.", error.exit_code)
        except typer.Abort:
            code = 130
    except KeyboardInterrupt:
        code = 130
    except SystemExit:  # what Lightning makes of a signal
        if not received:
            raise
        code = 130
    except Exception as error:  # whatever it is, it is said in one sentence
        if received and not isinstance(error, LostError):  # what a library that was interrupted makes of it
            return _print_error(named.stopped(), 1)
        if os.environ.get("TRIVET_TRACEBACK"):
            raise
        return _print_error(*_explained(error))
    if code == 130:  # what typer makes of Ctrl-C
        return _print_error(named.stopped(), 1)
    return code if isinstance(code, int) else 0


def _explained(error: Exception) -> tuple[str, int]:
    """A sentence on what went wrong, and the exit code."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("trivet"):
        return missing(error.name), 2
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"{error.filename} must be readable and writable: {error.strerror}; free disk space, change the "
            "permissions or choose another place (files written before are kept)."
        ), 2
    text = str(error)
    if isinstance(error, LostError):
        return text, 1
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in text):
        return f"what is asked must fit into memory, and does not: {text}; ask for less, or give smaller files.", 2
    if isinstance(error, RuntimeError) and text.startswith("Symlink loop"):  # up to Python 3.12
        return f"a link must lead to a file or a folder, not to itself: {text}; remove it.", 2
    if isinstance(error, OverflowError):
        return f"numbers must be of a usual size: {text}; give a smaller one.", 2
    if isinstance(error, ValueError | OSError):
        return text, 2
    return f"unexpected {type(error).__name__}: {text} (set TRIVET_TRACEBACK=1 to see where)", 1


def _print_error(sentence: str, code: int) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"trivet: {message(sentence)}", file=sys.stderr)
    return code


class NamedPaths:
    """The files and folders that a command names, as they were when it began."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._before = self._states()

    def stopped(self) -> str:
        """A sentence on what was written."""
        if self._arguments[:1] == ["train"]:
            return RUN
        if self._arguments[:1] == ["mine"]:
            return MINED
        written = [name for name, state in self._states().items() if self._before.get(name) != state]
        if not written:
            return "stopped; nothing that the command names was written or changed."
        return f"stopped; written before that: {', '.join(written)}. Nothing else that the command names was changed."

    def _states(self) -> dict[str, tuple[int, int]]:
        """Inode and time of change of each that exists."""
        states = {}
        for text in (argument.rpartition("=")[2] for argument in self._arguments):
            try:
                state = os.stat(text)
            except (OSError, ValueError):  # no path at all, or nothing there
                continue
            states[text] = (state.st_ino, state.st_mtime_ns)
        return states
