"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader finds the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON; NaN is refused, because readers differ on it."""
    write_whole(path, json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


@contextmanager
def new_folder(
    path: Path, names: frozenset[str], *, mark: str, what: str, force: bool, worth_keeping: Callable[[], bool]
) -> Iterator[None]:
    """Make `path` an empty folder for the block; an older one of the same kind gives way with `force` only.

    A folder is of the kind if it holds `mark` and nothing but `names`. The old one is kept aside until the block ends,
    and put back if the block fails before there is anything `worth_keeping`.

    Raises:
        ValueError: if the folder exists and may not be replaced.
    """
    path = path.resolve()
    aside: Path | None = None
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        held = {item.name for item in path.iterdir()} if path.is_dir() else {path.name}
        if mark not in held or not held <= names:
            other = sorted(held - names or held)[0]
            raise ValueError(
                f"the output folder must be new: {path} is not just {what}, it holds {other}; choose another --output."
            )
        if not force:
            raise ValueError(
                f"the output folder must be new: {path} holds {what}; choose another --output, or add --force."
            )
        aside = path.with_name(f".{path.name}.replaced-{os.getpid()}")
        path.rename(aside)
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        if aside is not None and not worth_keeping():
            shutil.rmtree(path, ignore_errors=True)
            aside.rename(path)
        elif aside is not None:
            shutil.rmtree(aside)
        raise
    if aside is not None:
        shutil.rmtree(aside)
