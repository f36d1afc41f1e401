"""Windows as a library meets it, pretended on POSIX for every process that has this folder on PYTHONPATH.

Modules of Trivet import `os` and `signal` without what only POSIX has, `sys` with another platform, no `fcntl`, and a
`kernel32` whose locks are those of `flock`. For everybody, files behave as there: what is open or mapped cannot be
removed, replaced or renamed (but for what was opened to be), a rename replaces nothing, names are those that Windows
allows, two that differ in case are one, a text is written with CRLF and in Windows-1252 unless it says otherwise, a
link needs a privilege. Processes are spawned. Not pretended: paths with backslashes and drives, a console.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import multiprocessing
import os
import re
import shutil
import signal
import sys
import types
from collections.abc import Callable
from ctypes.wintypes import HANDLE
from typing import Any

POSIX_ALONE = set(
    """
    WNOHANG chown chroot fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid
    getpgrp getpriority getresuid getsid getuid initgroups killpg lchown mkfifo mknod nice openpty pathconf
    pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev readv register_at_fork
    sched_getaffinity sched_yield sendfile setegid seteuid setgid setpgid setsid setuid statvfs sync sysconf
    tcgetpgrp ttyname uname wait wait3 wait4 writev O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK
    O_SYNC
    """.split()  # noqa: SIM905  # a list of so many lines
)
SIGNALS = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
CALLS = {"signal", "getsignal", "raise_signal", "default_int_handler", "Signals", "Handlers", "strsignal"}
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
ILLEGAL = re.compile(r'[<>:"|?*\\\x00-\x1f]|[ .]$')
EXEMPT = ("/proc/", "/dev/", "/sys/")

CHANGES = ("open", "stat", "lstat", "rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "symlink")
real = types.SimpleNamespace(**{name: getattr(os, name) for name in CHANGES})
real.file, real.imported = io.open, builtins.__import__
giving_way: set[int] = set()  # descriptors of files that others may rename and remove


def _in_use(path: Any, *, inside: bool = False) -> bool:
    """Whether this process has a file open or mapped, or, of a folder, one inside it."""
    text = os.path.realpath(os.fsdecode(path))

    def meant(used: str) -> bool:
        return used == text or (inside and used.startswith(f"{text}/"))

    for number in os.listdir("/proc/self/fd"):
        try:
            if meant(os.readlink(f"/proc/self/fd/{number}")) and (inside or int(number) not in giving_way):
                return True
        except OSError:  # it was that of the listing
            giving_way.discard(int(number))
    with real.file("/proc/self/maps", encoding="utf-8") as maps:
        return any(meant(line.rstrip("\n").split(maxsplit=5)[-1]) for line in maps)


def _refuse(path: Any, why: str, code: type[OSError] = PermissionError, winerror: int = 32) -> None:
    error = code(errno.EACCES if code is PermissionError else errno.EINVAL, why, os.fspath(path))
    error.winerror = winerror  # type: ignore[attr-defined]
    raise error


def _check_name(path: Any, *, new: bool) -> None:
    """OSError if Windows has no such name, or a new one differs from another in case alone."""
    if isinstance(path, int):
        return
    text = os.fsdecode(path)
    if text.startswith(EXEMPT):
        return
    for part in text.split("/"):
        if part not in ("", ".", "..") and (ILLEGAL.search(part) or (new and RESERVED.match(part))):
            _refuse(path, f"The filename, directory name, or volume label syntax is incorrect: {part}", OSError, 123)
    folder, name = os.path.split(text)
    if new and not os.path.lexists(text) and os.path.isdir(folder or "."):
        for other in os.listdir(folder or "."):
            if other.lower() == name.lower():
                _refuse(path, f"on Windows this would be {other}", FileExistsError, 183)


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    _check_name(path, new=bool(flags & os.O_CREAT))
    if os.path.isdir(path) and not os.fsdecode(path).startswith(EXEMPT):
        _refuse(path, "Permission denied", winerror=5)
    return real.open(path, flags, mode, dir_fd=dir_fd)


def _file(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    if not isinstance(file, int):
        _check_name(file, new="r" not in mode)
        if os.path.isdir(file):
            _refuse(file, "Permission denied", winerror=5)
        if "w" in mode and _mapped(file):
            _refuse(file, "a file with a user-mapped section open", OSError, 1224)
    if "b" not in mode:
        encoding = "cp1252" if encoding in (None, "locale") else encoding
        newline = "\r\n" if newline is None and not set(mode) & {"r", "+"} else newline
    return real.file(file, mode, buffering, encoding, errors, newline, closefd, opener)


def _mapped(path: Any) -> bool:
    text = os.path.realpath(os.fsdecode(path))
    with real.file("/proc/self/maps", encoding="utf-8") as maps:
        return os.path.exists(text) and any(line.rstrip("\n").endswith(f" {text}") for line in maps)


def _stat(path: Any, **options: Any) -> os.stat_result:
    _check_name(path, new=False)
    return real.stat(path, **options)


def _lstat(path: Any, **options: Any) -> os.stat_result:
    _check_name(path, new=False)
    return real.lstat(path, **options)


def _mkdir(path: Any, mode: int = 0o777, **options: Any) -> None:
    _check_name(path, new=True)
    real.mkdir(path, mode, **options)


def _moved(source: Any, target: Any, change: Callable[..., None], **options: Any) -> None:
    _check_name(target, new=os.fsdecode(target).lower() != os.fsdecode(source).lower())
    if _in_use(source, inside=os.path.isdir(source)) or (os.path.lexists(target) and _in_use(target)):
        _refuse(source, "The process cannot access the file because it is being used by another process")
    change(source, target, **options)


def _rename(source: Any, target: Any, **options: Any) -> None:
    if os.path.lexists(target):
        _refuse(target, "Cannot create a file when that file already exists", FileExistsError, 183)
    _moved(source, target, real.rename, **options)


def _replace(source: Any, target: Any, **options: Any) -> None:
    if os.path.isdir(target):
        _refuse(target, "Access is denied", winerror=5)
    _moved(source, target, real.replace, **options)


def _unlink(path: Any, **options: Any) -> None:
    if not options and os.path.lexists(path) and _in_use(path):
        _refuse(path, "The process cannot access the file because it is being used by another process")
    real.unlink(path, **options)


def _fsync(handle: Any) -> None:
    number = handle if isinstance(handle, int) else handle.fileno()
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    real.fsync(handle)


def _symlink(source: Any, target: Any, *_: Any, **__: Any) -> None:
    _refuse(target, "A required privilege is not held by the client", OSError, 1314)


class _Kernel:
    """The functions of kernel32 that locks need."""

    error = 0

    @staticmethod
    def create(path: str, access: int, share: int, _: None, how: int, flags: int, __: None) -> int | None:
        try:
            handle = _open(path, os.O_RDWR | (os.O_CREAT if how == 4 else 0), 0o666)
        except FileNotFoundError:
            _Kernel.error = 2
        except OSError as error:
            _Kernel.error = getattr(error, "winerror", 5)
        else:
            giving_way.difference_update({handle} if not share & 4 else ())
            giving_way.update({handle} if share & 4 else ())
            return handle
        return HANDLE(-1).value

    @staticmethod
    def lock(handle: int, flags: int, *_: Any) -> int:
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if flags & 2 else fcntl.LOCK_SH) | (fcntl.LOCK_NB if flags & 1 else 0))
        except BlockingIOError:
            _Kernel.error = 33
            return 0
        return 1

    @staticmethod
    def unlock(handle: int, *_: Any) -> int:
        fcntl.flock(handle, fcntl.LOCK_UN)
        return 1


def _kernel(name: str, **_: Any) -> types.SimpleNamespace:
    assert name == "kernel32"
    functions = {"CreateFileW": _Kernel.create, "LockFileEx": _Kernel.lock, "UnlockFileEx": _Kernel.unlock}
    return types.SimpleNamespace(**{key: lambda *a, call=call: call(*a) for key, call in functions.items()})


def _copy(module: types.ModuleType, keep: Callable[[str], bool], **more: Any) -> types.ModuleType:
    """A module that has some names of another, as they are now and will be."""

    class Part(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name in more:
                return more[name]
            if keep(name):
                return getattr(module, name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} on Windows")

        def __setattr__(self, name: str, value: Any) -> None:  # such as by a test
            setattr(module, name, value)

    return Part(module.__name__)


def _winerror(code: int) -> OSError:
    error = OSError(errno.EINVAL, f"error {code} of Windows")
    error.winerror = code  # type: ignore[attr-defined]
    return error


SEEN_BY_TRIVET = {
    "os": _copy(os, lambda name: name not in POSIX_ALONE, name="nt", linesep="\r\n", O_BINARY=0, startfile=None),
    "sys": _copy(sys, lambda name: True, platform="win32"),
    "signal": _copy(signal, lambda name: name in SIGNALS | CALLS, SIGBREAK=signal.SIGUSR2),
    "ctypes": _copy(
        ctypes,
        lambda name: True,
        WinDLL=_kernel,
        get_last_error=lambda: _Kernel.error,
        FormatError=lambda code: f"error {code} of Windows",
        WinError=_winerror,
    ),
    "msvcrt": types.SimpleNamespace(open_osfhandle=lambda handle, flags: handle, get_osfhandle=lambda number: number),
}


def _imported(name: str, names: Any = None, local: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    importer = (names or {}).get("__name__", "")
    if level == 0 and (importer == "trivet" or importer.startswith(("trivet.", "trivet_papers"))):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        if name in SEEN_BY_TRIVET:
            return SEEN_BY_TRIVET[name]
    return real.imported(name, names, local, fromlist, level)


def begin() -> None:
    """Let this process, and those that it starts, believe that it is on Windows."""
    builtins.__import__ = _imported  # type: ignore[assignment]
    builtins.open = io.open = _file  # type: ignore[assignment]
    os.open, os.stat, os.lstat, os.mkdir, os.symlink = _open, _stat, _lstat, _mkdir, _symlink  # type: ignore[assignment]
    os.rename, os.replace, os.unlink, os.remove, os.fsync = _rename, _replace, _unlink, _unlink, _fsync  # type: ignore[assignment]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # folders cannot be opened there
    multiprocessing.set_start_method("spawn", force=True)


if sys.platform != "win32":
    begin()
