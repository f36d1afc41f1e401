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

import glob
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trivet.io.file_locks import WAIT, lock, open_lockable, replace_file
from trivet.runtime.signals import undisturbed

LOCK = ".lock"
REPLACED, EARLIER, MOVING, DROPPED = (f".trivet-{name}" for name in ("replaced", "earlier", "moving", "dropped"))
INSIDE = frozenset((LOCK, REPLACED, EARLIER, MOVING, DROPPED))
PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.trivet")
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
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        replace_file(partial, path)
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
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path` for the block, which is gone after it; InUseError if another process has one."""
    path = path.resolve()
    new, _, lock = _sibling_paths(path)
    with _locked(lock, f"only one process may make a folder: {path} is being made; wait for it to end.", remove=True):
        try:
            _recover_siblings(path)
            new.mkdir()
            yield new
        except OSError as error:  # such as of a full disk, which names no file
            if error.filename is not None or error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            _recover_siblings(path, logging.DEBUG)


@contextmanager
def atomic_folder(path: Path, names: frozenset[str], *, mark: str, what: str, force: bool) -> Iterator[Path]:
    """A folder for the block to fill, which takes the place of `path` if the block succeeds and is gone if it fails.

    An older folder of the same kind gives way with `force` only, and once the new one is whole. A folder is of the kind
    if it holds `mark` and nothing but `names`.

    Raises:
        ValueError: if the folder exists and may not be replaced, or another process is making it.
    """
    path = path.resolve()
    with scratch_folder(path) as new:
        _check_kind(path, names, mark=mark, what=what)
        if not force:
            _check_new(path, names, what)
        yield new
        if path.exists():
            path.rename(_sibling_paths(path)[1])
        new.rename(path)


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """A folder beside the file `path` for parts of it: what is in it stays if the block fails, and goes if it succeeds.

    Raises:
        InUseError: if another process is writing the file.
    """
    folder = path.resolve().with_name(f".{path.name}.trivet-parts")
    in_use = f"only one process may write a file: {path} is being written; wait for it to end."
    with _locked(folder / LOCK, in_use, made=True):
        yield folder
        _empty(folder)


@contextmanager
def filled_folder(
    path: Path, names: frozenset[str], *, mark: str, what: str, force: bool, ended: Callable[[], bool], go_on: str = ""
) -> Iterator[None]:
    """Hold `path`, an empty folder, for the block to fill in place; an older one gives way as in `atomic_folder`.

    The old content waits within the folder. However the block ends, it is put back, unless `commit_new` was called:
    then both are kept until the new content has `ended`.

    Args:
        what: the folder holds, such as "a run".
        ended: whether the folder holds something complete.
        go_on: how to continue what is there instead of replacing it, for the message.

    Raises:
        ValueError: if the folder exists and may not be replaced, or another process is writing it.
    """
    if path.is_symlink():
        raise ValueError(f"an output must be a folder and no link: {path} is one to {os.readlink(path)}; name that.")
    path = path.resolve()
    _check_kind(path, names, mark=mark, what=what)
    with locked_folder(path, names, what=what, ended=ended):
        if not force:
            _check_new(path, names, what, go_on)
        try:
            _set_aside(path)
            yield
        finally:
            _recover_within(path, names)
            if (path / EARLIER).exists() and not ended():
                log.warning(f"what {path} held before is kept in {path / EARLIER} until this has ended")


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
        InUseError: if another process is writing it.
    """
    with _locked(path / LOCK, f"only one process may write {what}: {path} is in use; wait for it to end."):
        _recover_within(path, names)
        folders = [path, *(path / name for name in sorted(names) if _is_folder(path / name))]
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

    def begin() -> tuple[int | None, bool]:
        path.mkdir(parents=True, exist_ok=True)
        handle = _lock(path / LOCK)
        return (_lock(path / LOCK, shared=True), False) if handle is None else (handle, True)

    def end(begun: tuple[int | None, bool]) -> None:
        handle = begun[0]
        unused = handle is not None and not _content(path) and lock(handle)
        _release(handle, *((path / LOCK, path) if unused else ()))

    while True:
        with undisturbed(begin, end) as (handle, alone):
            if handle is not None:
                if alone:
                    for left in path.glob(".*.trivet-lock"):  # of processes that were killed once their file was whole
                        with claimed(left.with_name(left.name[1:].removesuffix(".trivet-lock"))):
                            pass
                    prepare(True)
                    lock(handle, shared=True, wait=True)
                prepare(False)
                yield
                return
        time.sleep(WAIT)  # another process is at `prepare`, and may remove the file of the lock: it is opened anew


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Try to claim the file `path` for this process until the block ends, also by death; yields whether it did."""
    file = path.with_name(f".{path.name}.trivet-lock")
    with undisturbed(lambda: _lock(file), lambda handle: _release(handle, file)) as handle:
        yield handle is not None


def recover(path: Path, names: Iterable[str] = ()) -> None:
    """Put right what killed processes left of the output `path`, beside it and within it, and say so.

    What a living process has locked is left alone, and so is what this one may not change, and what may be of others.

    Args:
        names: patterns of what a folder that is filled in place holds.
    """
    path = path.resolve()
    try:
        if any(item.exists() for item in _sibling_paths(path)):
            with _locked(_sibling_paths(path)[2], "in use", remove=True):
                _recover_siblings(path)
        if any((path / name).exists() for name in (REPLACED, MOVING, DROPPED)):
            with _locked(path / LOCK, "in use"):
                _recover_within(path, names)
    except (ValueError, OSError):
        return


def _sibling_paths(path: Path) -> tuple[Path, Path, Path]:
    """Paths at which a folder is built and its predecessor waits, and of the lock of both."""
    new, old, lock = (path.with_name(f".{path.name}.trivet-{name}") for name in ("new", "old", "lock"))
    return new, old, lock


def _recover_siblings(path: Path, level: int = logging.WARNING) -> None:
    new, old, _ = _sibling_paths(path)
    if old.exists() and not path.exists():  # the end came while they changed places
        (new if new.exists() else old).rename(path)
        log.log(level, f"put {path} in its place, which a killed process had left undone")
    for left in (new, old):
        if left.exists():
            _remove(left)
            log.log(level, f"removed {left}, which a killed process had left behind")


def _recover_within(path: Path, names: Iterable[str]) -> None:
    _check_aside(path, tuple(names))
    if (path / REPLACED).exists() and not (path / MOVING).exists():
        _empty(path)
        (path / REPLACED).rename(path / MOVING)
    if (path / MOVING).exists():  # what is not in it has not been moved, or is back already
        for item in (path / MOVING).iterdir():
            item.rename(path / item.name)
        (path / MOVING).rmdir()
        log.warning(f"put back what {path} held before")
    _remove(path / DROPPED)


def _check_aside(path: Path, names: Sequence[str]) -> None:
    """ValueError if what would be moved back, or give way to it, may be of others, or a link leads to it."""
    doubtful = [folder for name in (REPLACED, EARLIER, MOVING) if (folder := path / name).is_symlink()]
    back = [folder for name in (REPLACED, MOVING) if (folder := path / name).is_dir()]
    for folder in (path, *back) if back else ():
        of_others = (name for name in _content(folder) if not any(fnmatch(name, pattern) for pattern in names))
        doubtful += [folder / name for name in of_others if not PARTIAL.fullmatch(name)]
    if doubtful:
        raise ValueError(
            f"{path} holds what a killed command set aside, and {doubtful[0]}, which may be of others and would be "
            "moved or removed: take it elsewhere, and start the command again."
        )


def _set_aside(path: Path) -> None:
    """Move the content of a folder aside; what is aside already stays, as what came after it never ended."""
    if (path / EARLIER).exists():
        (path / EARLIER).rename(path / REPLACED)
        _empty(path)
        log.warning(
            f"what {path} held first is kept until this has ended; what came after it, and did not end, is gone"
        )
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


def _is_folder(path: Path) -> bool:
    """Test whether a path is a folder itself, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _empty(path: Path) -> None:
    for name in _content(path):
        _remove(path / name)


def _remove(item: Path) -> None:
    if _is_folder(item):
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
    """Test whether a killed process was writing this file: it has locked it no longer."""
    if PARTIAL.fullmatch(file.name) is None or file.is_symlink() or not file.is_file():
        return False
    try:
        handle = _lock(file, create=False)
    except OSError:
        return False
    _release(handle)
    return handle is not None


@contextmanager
def _locked(path: Path, in_use: str, *, remove: bool = False, made: bool = False) -> Iterator[None]:
    """Hold a lock file, which is made if needed; InUseError `in_use` if another process holds it.

    Args:
        remove: the file goes with the lock, and not only with a folder that was made for it and holds nothing else.
        made: the folder is such a one, also where it is there already.
    """
    folder = path.parent
    made = made or not folder.exists()

    def begin() -> int | None:
        folder.mkdir(parents=True, exist_ok=True)
        return _lock(path)

    def end(handle: int | None) -> None:
        unused = made and folder.is_dir() and not _content(folder)
        _release(handle, *((path, folder) if unused else (path,) if remove else ()))

    with undisturbed(begin, end) as handle:
        if handle is None:
            raise InUseError(in_use)
        yield


def _lock(path: Path, *, shared: bool = False, create: bool = True) -> int | None:
    """Open a file and lock it until it is closed, also by death; None if it is locked already."""
    while True:
        handle = open_lockable(path, create=create)
        if not lock(handle, shared=shared):
            os.close(handle)
            return None
        if path.exists() and os.path.samestat(path.stat(), os.fstat(handle)):
            _handles.add(handle)
            return handle
        os.close(handle)  # its last holder has removed it


def _release(handle: int | None, file: Path | None = None, folder: Path | None = None) -> None:
    """Unlock a file; what is named goes with the lock: the file before others can lock it, and its folder if empty."""
    if handle not in _handles:
        return
    if file is not None:
        file.unlink(missing_ok=True)
    _handles.discard(handle)
    os.close(handle)
    if folder is not None:
        with suppress(OSError):  # another process has come
            folder.rmdir()


def _forget() -> None:
    """In a child, such as one that reads data: it holds no lock, so that it keeps none when its parent is killed."""
    for handle in _handles:
        os.close(handle)
    _handles.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
