"""Files and folders that are written whole or not at all, by one process at a time, also where one is killed.

The names that a killed process may leave, which only this file knows:

    .NAME.PROCESS.trivet      beside a file NAME: what was being written
    .NAME.trivet-new          beside a folder NAME: what was being built to take its place, or to be moved into it
    .NAME.trivet-old          beside it: what it takes the place of, until that is done
    .NAME.trivet-parts        beside a file NAME: finished parts of it, which the next command of the kind goes on from
    .NAME.trivet-lock         beside it, or beside a file that one of many processes writes: locked by that process
    .lock                     in a folder that is filled in place: locked by the process that fills it, or shared by all
    .trivet-replaced          in it: what was there before, to be put back
    .trivet-earlier           in it: the same, once what came after is worth keeping until it has ended
    .trivet-moving            in it: what is on its way to `.trivet-replaced`, or back
    .trivet-dropped           in it: what is being removed

Locks end with their process: what nobody has locked is a leftover, and the next command puts it right.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCK = ".lock"
REPLACED, EARLIER, MOVING, DROPPED = (f".trivet-{name}" for name in ("replaced", "earlier", "moving", "dropped"))
INSIDE = frozenset((LOCK, REPLACED, EARLIER, MOVING, DROPPED))
PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.trivet")
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)  # of a file system that cannot lock
log = logging.getLogger("trivet")
_handles: set[int] = set()  # of the files that this process has locked


class InUseError(ValueError):
    """Another process is writing what this one was to write."""


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader finds the old content or the new, never a part."""
    with atomic_file(path) as partial:
        partial.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write JSON; NaN is refused, because readers differ on it."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A file for the block to write, which takes the place of `path` if the block succeeds and is gone if it fails.

    Raises:
        OSError: of `path`, whatever could not be written.
    """
    handle: int | None = None
    partial = path.with_name(f".{path.name}.{os.getpid()}.trivet")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_left(path)
        handle = _lock(partial)
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)
        _release(handle)


def clear_left(path: Path) -> None:
    """Remove what killed processes left beside a file that they were writing."""
    _clear(Path(left) for left in glob.glob(f"{glob.escape(str(path.parent))}/.{glob.escape(path.name)}.*.trivet"))


@contextmanager
def atomic_folder(path: Path, names: frozenset[str], *, mark: str, what: str, force: bool) -> Iterator[Path]:
    """A folder for the block to fill, which takes the place of `path` if the block succeeds and is gone if it fails.

    An older folder of the same kind gives way with `force` only, and once the new one is whole. A folder is of the kind
    if it holds `mark` and nothing but `names`.

    Raises:
        ValueError: if the folder exists and may not be replaced, or another process is making it.
    """
    path = path.resolve()
    with _work_folder(path, f"only one process may make a folder: {path} is being made; wait for it to end.") as new:
        _check_kind(path, names, mark=mark, what=what)
        if not force:
            _check_new(path, names, what)
        new.mkdir()
        yield new
        if path.exists():
            path.rename(_work_paths(path)[1])
        new.rename(path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path` for the block, which is gone after it; ValueError if another process has one."""
    path = path.resolve()
    with _work_folder(path, f"only one process may write a folder: {path} is in use; wait for it to end.") as new:
        new.mkdir()
        yield new


@contextmanager
def _work_folder(path: Path, in_use: str) -> Iterator[Path]:
    """The path beside `path` at which a folder may be built; nothing is there before or after the block."""
    new, _, lock = _work_paths(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(lock, in_use):
        try:
            _warn_all(_recover_replacement(path))
            yield new
        finally:
            _recover_replacement(path)
            lock.unlink()


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """A folder beside the file `path` for parts of it: what is in it is kept if the block fails, gone if it succeeds.

    Raises:
        ValueError: if another process is writing the file.
    """
    folder = path.resolve().with_name(f".{path.name}.trivet-parts")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / LOCK, f"only one process may write a file: {path} is being written; wait for it to end."):
        try:
            yield folder
        except BaseException:
            if not _content(folder):
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


@contextmanager
def filled_folder(
    path: Path,
    names: frozenset[str],
    *,
    mark: str,
    what: str,
    force: bool,
    ended: Callable[[], bool],
    go_on: str = "",
) -> Iterator[None]:
    """Hold `path`, an empty folder, for the block to fill in place; an older one of the same kind gives way with
    `force` only.

    The lock is taken before anything is moved. The old content then waits within the folder. However the block ends, it
    is put back, unless `commit_new` was called: then both are kept until the new content has `ended`.

    Args:
        names, mark: of the kind, as in `atomic_folder`.
        what: the folder holds, such as "a run".
        ended: whether the folder holds something complete.
        go_on: how to continue what is there instead of replacing it, for the message.

    Raises:
        ValueError: if the folder exists and may not be replaced, or another process is writing it.
    """
    path = path.resolve()
    _check_kind(path, names, mark=mark, what=what)
    made = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with locked_folder(path, names, what=what, ended=ended):
        if not force:
            _check_new(path, names, what, go_on)
        try:
            _set_aside(path)
            yield
        finally:
            _recover_within(path)
            if (path / EARLIER).exists() and not ended():
                log.warning(f"what {path} held before is kept in {path / EARLIER} until this has ended")
            if made and not _content(path):
                shutil.rmtree(path)


def commit_new(path: Path) -> None:
    """Commit the new content of a folder that is filled in place: the old one is not put back any more."""
    if (path / REPLACED).exists():
        (path / REPLACED).rename(path / EARLIER)


@contextmanager
def locked_folder(path: Path, names: frozenset[str], *, what: str, ended: Callable[[], bool]) -> Iterator[None]:
    """Keep other processes from writing a folder meanwhile; what killed ones left of it is put right first.

    Args:
        names, what, ended: as in `filled_folder`.

    Raises:
        ValueError: if another process is writing it.
    """
    with _locked(path / LOCK, f"only one process may write {what}: {path} is in use; wait for it to end."):
        _recover_within(path)
        folders = [path, *(path / name for name in sorted(names) if (path / name).is_dir())]
        _clear(left for folder in folders for left in sorted(folder.iterdir()))
        if ended():
            _drop_old(path)
        yield
        if ended():
            _drop_old(path)


@contextmanager
def shared_folder(path: Path, prepare: Callable[[bool], None]) -> Iterator[None]:
    """Hold a folder that several processes fill at once, each with files of its own, see `claimed`.

    Args:
        prepare: called with whether this process is alone in the folder, which alone may change what is there; and then
            with False in any case, once others may come. It raises if the folder cannot be shared.
    """
    path = path.resolve()
    path.mkdir(parents=True, exist_ok=True)
    handle = None
    try:
        while handle is None:
            if (handle := _lock(path / LOCK)) is not None:
                prepare(True)
                _share(handle)
            elif (handle := _lock(path / LOCK, share=True)) is None:
                time.sleep(0.02)  # another is at `prepare`
        prepare(False)
        yield
    finally:
        _release(handle)


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Try to claim the file `path` for this process until the block ends, also by death; yields whether it did."""
    lock = path.with_name(f".{path.name}.trivet-lock")
    handle = _lock(lock)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            lock.unlink(missing_ok=True)
        _release(handle)


def recover(path: Path) -> None:
    """Put right what killed processes left of the output `path`, beside it and within it, and say so.

    What a living process has locked is left alone, and so is what this one may not change.
    """
    path = path.resolve()
    try:
        *_, lock = paths = _work_paths(path)
        if any(item.exists() for item in paths):
            with _locked(lock, "in use"):
                _warn_all(_recover_replacement(path))
                lock.unlink()
        if any((path / name).exists() for name in (REPLACED, MOVING, DROPPED)):
            with _locked(path / LOCK, "in use"):
                _recover_within(path)
    except (ValueError, OSError):
        return


def _work_paths(path: Path) -> tuple[Path, Path, Path]:
    """Paths at which a folder is built and its predecessor waits, and of the lock of both."""
    new, old, lock = (path.with_name(f".{path.name}.trivet-{name}") for name in ("new", "old", "lock"))
    return new, old, lock


def _recover_replacement(path: Path) -> list[str]:
    """Leave nothing beside a folder; returns what was done."""
    new, old, _ = _work_paths(path)
    actions = []
    if old.exists() and not path.exists():  # the end came while they changed places
        (new if new.exists() else old).rename(path)
        actions.append(f"put {path} in its place, which a killed process had left undone")
    for left in (new, old):
        if left.exists():
            _remove(left)
            actions.append(f"removed {left}, which a killed process had left behind")
    return actions


def _recover_within(path: Path) -> None:
    if (path / MOVING).exists():  # what is not in it has not been moved, or is back already
        _back(path)
    elif (path / REPLACED).exists():
        _empty(path)
        (path / REPLACED).rename(path / MOVING)
        _back(path)
    _remove(path / DROPPED)


def _warn_all(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        log.warning(sentence)


def _back(path: Path) -> None:
    for item in (path / MOVING).iterdir():
        item.rename(path / item.name)
    (path / MOVING).rmdir()
    log.warning(f"put back what {path} held before")


def _set_aside(path: Path) -> None:
    """Move the content of a folder aside; what is aside already stays, as what came after it never ended."""
    if (path / EARLIER).exists():
        (path / EARLIER).rename(path / REPLACED)
        _empty(path)
    elif there := _content(path):
        (path / MOVING).mkdir()
        for name in there:
            (path / name).rename(path / MOVING / name)
        (path / MOVING).rename(path / REPLACED)


def _drop_old(path: Path) -> None:
    for aside in (path / EARLIER, path / REPLACED):
        if aside.exists():
            aside.rename(path / DROPPED)  # at once: from here on there is nothing to go back to
            _remove(path / DROPPED)


def _empty(path: Path) -> None:
    for name in _content(path):
        _remove(path / name)


def _remove(item: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        shutil.rmtree(item)
    else:
        item.unlink(missing_ok=True)


def _content(path: Path) -> list[str]:
    """The names of what a folder holds, but for those of this file."""
    return sorted(item.name for item in path.iterdir() if item.name not in INSIDE)


def _check_kind(path: Path, names: frozenset[str], *, mark: str, what: str) -> None:
    """ValueError if `path` is there and is not of the kind: this is never replaced."""
    if not path.exists():
        return
    there = _content(path) if path.is_dir() else [path.name]
    others = [name for name in there if name not in names and not _is_left(path / name)]
    known = [name for name in there if name in names]
    if others or (known and mark not in known):
        raise ValueError(
            f"the output folder must be new: {path} is not just {what}, it holds {(others or known)[0]}; choose "
            "another --output."
        )


def _check_new(path: Path, names: frozenset[str], what: str, go_on: str = "") -> None:
    if path.exists() and names.intersection(_content(path)):
        raise ValueError(
            f"the output folder must be new: {path} holds {what}; choose another --output, or add --force{go_on}."
        )


def _clear(files: Iterable[Path]) -> None:
    """Remove those files that a killed process was writing."""
    for file in files:
        if _is_left(file):
            file.unlink(missing_ok=True)
            log.warning(f"removed {file}, which a killed process had left unfinished")


def _is_left(file: Path) -> bool:
    """Test whether a killed process was writing this file."""
    match = PARTIAL.fullmatch(file.name)
    if match is None or file.is_symlink() or not file.is_file():
        return False
    if int(match["process"]) != os.getpid() and _alive(int(match["process"])):
        return False
    try:
        handle = _lock(file, make=False)
    except OSError:
        return False
    _release(handle)
    return handle is not None


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _locked(path: Path, in_use: str) -> Iterator[None]:
    """Hold a lock file, which is made if needed; InUseError `in_use` if another process holds it."""
    handle = _lock(path)
    if handle is None:
        raise InUseError(in_use)
    try:
        yield
    finally:
        _release(handle)


def _lock(path: Path, *, make: bool = True, share: bool = False) -> int | None:
    """Open a file and lock it until it is closed, also by death; None if it is locked already.

    Args:
        share: with all who lock it so.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if make else 0), 0o666)
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(handle)
                if isinstance(error, BlockingIOError | PermissionError):
                    return None
                raise
        if path.exists() and os.path.samestat(path.stat(), os.fstat(handle)):
            _handles.add(handle)
            return handle
        os.close(handle)  # its last holder has removed it


def _share(handle: int) -> None:
    """Let others share a lock that this process has alone."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _release(handle: int | None) -> None:
    if handle in _handles:
        _handles.discard(handle)
        os.close(handle)


def _forget() -> None:
    """In a child, such as one that reads data: it holds no lock, so that it keeps none when its parent is killed."""
    for handle in _handles:
        os.close(handle)
    _handles.clear()


os.register_at_fork(after_in_child=_forget)
