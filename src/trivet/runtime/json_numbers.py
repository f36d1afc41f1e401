"""Values as JSON has them: None where a number is not finite."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


def as_json(value: Any) -> Any:
    """The value with None for each number that is not finite, dataclasses as dicts, arrays and tuples as lists.

    Example:
        >>> as_json((np.array([1.0, math.nan]), np.array([2, 3]), math.inf))
        [[1.0, None], [2, 3], None]
    """
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return json_section(**value)
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind in "iub" or (value.dtype.kind == "f" and bool(np.isfinite(value).all()))
        return value.tolist() if finite else as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_section(**values: object) -> dict[str, Any]:
    """Values by name, each as JSON has it."""
    return {name: as_json(value) for name, value in values.items()}


def with_nan(value: Any) -> Any:
    """Read numbers that `as_json` wrote: NaN for each None, also inside dicts and lists."""
    if isinstance(value, dict):
        return {key: with_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_nan(item) for item in value]
    return math.nan if value is None else value
