"""Files that may be damaged or made to harm: regular ones only, JSON and TOML of bounded size."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 2**28  # bytes of a JSON file; a record with its pictures has some millions
LARGEST_SETTINGS = 2**16  # characters of TOML: the time for a key of n parts goes with n squared
DEEPEST = 50  # values within values
# A small file may stand for much more than its own size. What is up to the first is read anyway; beyond it a file that
# expands more than the second is refused, as compression alone seldom gets there with anything but zeros.
EXPANDED, RATIO = 2**30, 100


def check_regular(path: Path, what: str) -> None:
    """Check that reading a file ends.

    Raises:
        OSError: if it is not there.
        ValueError: if it is a folder, a device or a pipe.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise ValueError(f"{what} must be a file: {path} is {kind}; save it as a file.")


def check_expanded(path: Path, size: float) -> None:
    """Check the size that a file says it has in memory, before it is given that memory.

    Args:
        size: in bytes.

    Raises:
        ValueError: if it is above 1 GiB and above 100 times the size of the file, or of all files of the folder.
    """
    stored = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")))
    if size > EXPANDED and size > RATIO * stored:
        raise ValueError(
            f"a file must not stand for far more than it holds: {path} has {stored} bytes and expands to {size:.3g}; "
            "save it without compression."
        )


@contextmanager
def panics() -> Iterator[None]:
    """Raise ValueError where a library written in Rust panics, which else ends the process as no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from None


def read_text(path: Path, what: str, largest: int = LARGEST) -> str:
    """A text file in UTF-8.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is no regular file, larger than `largest` bytes, or not in UTF-8.
    """
    check_regular(path, what)
    if path.stat().st_size > largest:
        raise ValueError(f"{what} must have at most {largest} bytes: {path} has {path.stat().st_size}; check the path.")
    return path.read_text(encoding="utf-8")


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file; NaN and infinities are no JSON.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is no JSON, or nested too deeply.
    """
    return parse_json(read_text(path, what))


def parse_json(text: str) -> Any:
    """Parse a JSON text, or raise ValueError."""
    try:
        return _shallow(json.loads(text, parse_constant=_no_number))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text, or raise ValueError."""
    if len(text) > LARGEST_SETTINGS:
        raise ValueError(f"it has {len(text)} characters, more than {LARGEST_SETTINGS}")
    try:
        values: dict[str, Any] = _shallow(tomllib.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return values


def _shallow(values: Any) -> Any:
    """The values, or ValueError if they are nested deeper than anything of Trivet's: what reads them goes down, too."""
    nested = (dict, list)
    level = [values] if isinstance(values, nested) else []
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, nested)
        ]
        if not level:
            return values
    raise ValueError("it is nested too deeply")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
