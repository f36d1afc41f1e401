"""Records from JSON: missing keys are filled in here, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

from trivet.runtime.record import Record

T = TypeVar("T")
Fill = Callable[[Any], Any]


def complete(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record of this type with all its keys; the values that are there, and keys that the type lacks, stay.

    A key that is missing gets what its type has for "absent": None if it may be None, "" for a text, an empty list or
    dict, and for a record a complete one.

    Args:
        kind: a TypedDict of `trivet.records`.
        values: parsed JSON.

    Raises:
        ValueError: if a number is missing, or a part is no object where the type has one.

    Example:
        >>> from trivet.reports.monitor_record import GuardRecord
        >>> complete(GuardRecord, {"action": "warn"})["snapshot"] is None
        True
    """
    hashable: Any = kind
    completed: T = _record(hashable)(values)
    return completed


@cache
def _record(kind: Any) -> Fill:
    hints = get_type_hints(kind)
    fills = {key: fill for key, hint in hints.items() if (fill := _fill(hint)) is not None}

    def fill_in(values: Any) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise ValueError(f"{_named(kind)} in a record must be an object: got {values!r}; write the record anew.")
        missing = {key: _absent(kind, key, hint) for key, hint in hints.items() if key not in values}
        return {**values, **{key: fill(values[key]) for key, fill in fills.items() if key in values}, **missing}

    return fill_in


def _fill(hint: Any) -> Fill | None:
    """Completion of values of this type; None where they hold no record and stay as they are."""
    if is_typeddict(hint):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, Record):
        return lambda values: values if isinstance(values, hint) else hint.read(values)
    arguments = get_args(hint)
    if NoneType in arguments:
        inner = next((fill for argument in arguments if (fill := _fill(argument)) is not None), None)
        return inner and (lambda value: None if value is None else inner(value))
    fill = _fill(arguments[-1]) if get_origin(hint) in (list, dict) else None
    if fill is None:
        return None
    if get_origin(hint) is list:
        return lambda values: [fill(value) for value in values]
    return lambda values: {key: fill(value) for key, value in values.items()}


def _absent(kind: type[Any], key: str, hint: Any) -> Any:
    if NoneType in get_args(hint):
        return None
    if is_typeddict(hint):
        return _record(hint)({})
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint()
    if hint is str or get_origin(hint) in (list, dict):
        return (get_origin(hint) or hint)()
    raise ValueError(f"{_named(kind)} in a record must have {key!r}: it is missing; write the record anew.")


def _named(kind: type[Any]) -> str:
    return f"a{'n' if kind.__name__[0] in 'AEIOU' else ''} {kind.__name__}"
