"""Files that may be damaged or made to harm: regular ones only, JSON and TOML of bounded size, read through types."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict

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
        ValueError: if it is above 1 GiB and above 100 times the size of the file.
    """
    stored = path.stat().st_size
    if size > EXPANDED and size > RATIO * stored:
        raise ValueError(
            f"a file must not stand for far more than it holds: {path} has {stored} bytes and expands to {size:.3g}; "
            "save it without compression, or as an .npy file."
        )


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
    level = [values]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return values
    raise ValueError("it is nested too deeply")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


Wrong = tuple[str, str, Any]  # where, what must be there, and what is
Check = Callable[[Any], Wrong | None]


def check_types(kind: Any, value: Any) -> None:
    """Check a parsed JSON value against a type; keys of a TypedDict may be missing, and keys beside them are passed.

    Args:
        kind: a TypedDict, or of bool, int, float, str, None, Literal, list, dict and unions of these; Any and object
            are anything. An int is a float, but no bool is a number.

    Raises:
        ValueError: if a part of it is of another type; the sentence is without its end.
    """
    if wrong := _check(kind)(value):
        where, must, got = wrong
        text = repr(got)
        text = text if len(text) <= 80 else f"{text[:80]}…"
        raise ValueError(f"{where.lstrip('.') or 'it'} must be {must}: got {text}")


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "null"}


@cache
def _check(kind: Any) -> Check:
    if kind in (Any, object):
        return lambda value: None
    if is_typeddict(kind):
        return _typed(kind)
    if hasattr(kind, "model_validate"):  # a `Record` checks itself as it is read
        return lambda value: None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is Literal:
        must = f"one of {', '.join(map(repr, arguments))}"
        return lambda value: None if isinstance(value, str | int) and value in arguments else ("", must, value)
    if origin is list or kind is list:
        return _list(_check(arguments[0] if arguments else Any))
    if origin in (dict, Mapping) or kind is dict:
        return _dict(_check(arguments[1] if arguments else Any))
    assert kind in _NAMES, f"{kind} is no type of JSON"
    return _leaf(kind)


def _leaf(kind: Any) -> Check:
    allowed = (int, float) if kind is float else (kind,)

    def check(value: Any) -> Wrong | None:
        right = isinstance(value, allowed) and (kind is bool or not isinstance(value, bool))
        return None if right else ("", _NAMES[kind], value)

    return check


def _union(kinds: tuple[Any, ...]) -> Check:
    checks = [_check(kind) for kind in kinds if kind is not NoneType]
    optional = NoneType in kinds

    def check(value: Any) -> Wrong | None:
        if value is None and optional:
            return None
        wrongs = [inner(value) for inner in checks]
        if None in wrongs:
            return None
        return wrongs[0] if len(wrongs) == 1 else ("", " or ".join(wrong[1] for wrong in wrongs if wrong), value)

    return check


def _typed(kind: Any) -> Check:
    checks: dict[str, Check] = {}

    def check(value: Any) -> Wrong | None:
        if not checks:  # not before: a type may hold itself
            checks.update({key: _check(hint) for key, hint in get_type_hints(kind).items()})
        if not isinstance(value, Mapping):
            return "", "an object", value
        return next(
            (_at(key, wrong) for key, inner in checks.items() if key in value and (wrong := inner(value[key]))), None
        )

    return check


def _list(inner: Check) -> Check:
    def check(value: Any) -> Wrong | None:
        if not isinstance(value, list | tuple):
            return "", "a list", value
        return next((_at(str(i), wrong) for i, element in enumerate(value) if (wrong := inner(element))), None)

    return check


def _dict(inner: Check) -> Check:
    def check(value: Any) -> Wrong | None:
        if not isinstance(value, Mapping):
            return "", "an object", value
        return next((_at(key, wrong) for key, element in value.items() if (wrong := inner(element))), None)

    return check


def _at(key: str, wrong: Wrong) -> Wrong:
    return f".{key}{wrong[0]}", wrong[1], wrong[2]
