"""Options that people type, and what to say when one cannot be used."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The part of an error sentence that helps with an unknown name: the closest allowed one, then all of them."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}Allowed: {', '.join(names)}."


def check_name(value: str, allowed: Iterable[str], *, name: str) -> None:
    """Raise ValueError, with the nearest allowed value, unless `value` is one of them."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{name} = {value!r} is not known; {nearest(value, allowed)}")


def check_at_least(low: float, value: float, *, name: str) -> float:
    """The value, or ValueError if it is below `low` or not finite."""
    if not math.isfinite(value) or value < low:
        raise ValueError(f"{name} must be a finite number of at least {low:g}: got {value}.")
    return value


def check_above_zero(value: float, *, name: str) -> float:
    """The value, or ValueError if it is not a finite number above 0."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number above 0: got {value}.")
    return value


def check_count(value: int, *, name: str) -> int:
    """The value, or ValueError if it is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1: got {value}.")
    return value


# Metadata of a field: how `check_options` checks its value.
ABOVE_ZERO: Mapping[str, Any] = {"check": check_above_zero}
AT_LEAST_ZERO: Mapping[str, Any] = {"check": partial(check_at_least, 0)}
COUNT: Mapping[str, Any] = {"check": check_count}


def check_options(options: Any) -> None:
    """Raise ValueError if a field whose metadata says how to check it has a wrong value; None is always right."""
    for field in fields(options):
        check = field.metadata.get("check")
        if check is not None and (value := getattr(options, field.name)) is not None:
            check(value, name=field.name)
