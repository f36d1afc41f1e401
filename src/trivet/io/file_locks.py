"""Locks of files by the kernel, which end with their process, and files that give way while others read them.

POSIX has `flock`, Windows `LockFileEx`. filelock has no lock of this kind that several processes share and one of them
turns into its own. All that locks does so here.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)  # of a file system that cannot lock
WAIT = 0.02  # seconds between two attempts


def lock(handle: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file, or share its lock, until it is closed; False if another process has it.

    A lock that this process has turns into the other kind. Another process may come between; where it does, this one
    has none any more.

    Args:
        handle: a descriptor that `open_lockable` returned.
        wait: until the other process ends or gives it up.
    """
    while not (locked := _lock(handle, shared)) and wait:
        time.sleep(WAIT)  # on Windows, waiting by the kernel is not ended by Ctrl-C
    return locked


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Let no other process into a block that locks the same file, which is made if needed, and stays.

    Raises:
        OSError: if the file cannot be opened, or is a link.
    """
    handle = open_lockable(path)
    try:
        lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes.wintypes import DWORD, HANDLE, LPCWSTR

    READ_WRITE, SHARE_ALL, OPEN_EXISTING, OPEN_ALWAYS = 0xC0000000, 0b111, 3, 4
    FAIL_AT_ONCE, EXCLUSIVE, TAKEN, CANNOT_LOCK = 1, 2, (33, 997), (1, 50)
    PATIENCE = 2.0  # seconds in which another process, such as one that looks for viruses, closes what it reads

    class Overlapped(ctypes.Structure):
        """The first byte that is locked: one that no file has, since others cannot read a byte that is locked."""

        _fields_ = (
            *((name, ctypes.c_void_p) for name in ("status", "transferred")),
            *((name, DWORD) for name in ("low", "high")),
            ("event", HANDLE),
        )

    def _function(name: str, result: type, *arguments: type) -> Any:
        function = getattr(ctypes.WinDLL("kernel32", use_last_error=True), name)
        function.restype, function.argtypes = result, arguments
        return function

    _create = _function("CreateFileW", HANDLE, LPCWSTR, DWORD, DWORD, ctypes.c_void_p, DWORD, DWORD, HANDLE)
    _lock_bytes = _function("LockFileEx", DWORD, HANDLE, *4 * [DWORD], ctypes.c_void_p)
    _unlock_bytes = _function("UnlockFileEx", DWORD, HANDLE, *3 * [DWORD], ctypes.c_void_p)

    def open_lockable(path: Path, *, create: bool = True) -> int:
        """Open a file, made if needed, so that it can be locked, renamed and removed meanwhile."""
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        how = OPEN_ALWAYS if create else OPEN_EXISTING
        handle = _create(str(path), READ_WRITE, SHARE_ALL, None, how, 0, None)
        if handle in (None, HANDLE(-1).value):
            code = ctypes.get_last_error()
            raise OSError(None, ctypes.FormatError(code), str(path), code)
        return msvcrt.open_osfhandle(handle, os.O_RDWR)

    def replace_file(source: Path, target: Path) -> None:
        """Let a file take the place of another, once nobody reads that."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(PermissionError):
                source.replace(target)
                return
            time.sleep(WAIT)  # Windows says to nobody when a file is closed
        source.replace(target)

    def _lock(descriptor: int, shared: bool) -> bool:
        handle, where = msvcrt.get_osfhandle(descriptor), Overlapped(high=0x7FFFFFFF)
        _unlock_bytes(handle, 0, 1, 0, ctypes.byref(where))  # what is locked cannot be locked again
        if _lock_bytes(handle, FAIL_AT_ONCE | (0 if shared else EXCLUSIVE), 0, 1, 0, ctypes.byref(where)):
            return True
        code = ctypes.get_last_error()
        if code in TAKEN:
            return False
        if code in CANNOT_LOCK:
            return True
        raise ctypes.WinError(code)

else:
    import fcntl

    def open_lockable(path: Path, *, create: bool = True) -> int:
        """Open a file, made if needed, so that it can be locked; not one that a link leads to."""
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o666)

    def replace_file(source: Path, target: Path) -> None:
        """Let a file take the place of another."""
        source.replace(target)

    def _lock(descriptor: int, shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        return True
