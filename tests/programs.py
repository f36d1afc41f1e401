"""Programs that need a process of their own: each is forked from one that waits for it.

A program that is started anew takes three seconds to load torch. One that is forked from the tests, once they are
collected and before they run, has it: torch has no threads yet, and no test has changed anything. A program that needs
little, and forks a hundred processes itself, had better be small: a fork takes 1 ms before torch is loaded, 40 after.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any


class Programs:
    """A process as this one is now, that programs are forked from."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = os.fork()
        if self._process == 0:
            try:
                _serve(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def run(
        self,
        function: str,
        *arguments: Any,
        folder: Path,
        environment: dict[str, str] | None = None,
        timeout: int = 250,
    ) -> subprocess.CompletedProcess[bytes]:
        """Calls `module:function` with what JSON can carry, in the folder, and with the environment of the tests."""
        with tempfile.TemporaryDirectory() as streams:
            request = {
                "function": function,
                "arguments": arguments,
                "folder": str(folder),
                "environment": {**os.environ, **(environment or {})},
                "streams": streams,
                "timeout": timeout,
            }
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            code = int(self._socket.makefile("r").readline())
            printed, errors = ((Path(streams) / name).read_bytes() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([function], code, printed, errors)

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._process, 0)


def forget(*packages: str) -> None:
    """Has this process import these anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def _serve(link: socket.socket) -> None:
    """Runs the programs that are asked for, one after another, until the tests end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.disable()  # writes into a file of the tests
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.closerange(3, link.fileno())
    os.closerange(link.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()
    for line in link.makefile("r"):
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            link.close()
            _become(request)
        link.sendall(f"{_ended(child)}\n".encode())


def _ended(child: int) -> int:
    """The exit code, negative where a signal ended it; processes that it left end, too."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return code


def _become(request: dict[str, Any]) -> None:
    """The program, which ends the process."""
    code = 1
    try:
        os.setsid()
        signal.alarm(request["timeout"])
        warnings.resetwarnings()  # to those of Python
        for plain in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", plain)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(f"{request['streams']}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, stream)
            os.close(file)
        faulthandler.enable(2)
        os.fsync = lambda _: None  # as in the tests: none cuts the power
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
        sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)
        random.seed()
        module, _, name = request["function"].partition(":")
        getattr(import_module(module), name)(*request["arguments"])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
