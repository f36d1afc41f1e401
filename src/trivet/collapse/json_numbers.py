"""Numbers as JSON has them: None where one is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


def finite(value: float) -> float | None:
    """The number, or None."""
    return value if math.isfinite(value) else None


def number(value: float | None) -> float:
    """The number, or NaN."""
    return math.nan if value is None else value


def all_finite(values: Iterable[float]) -> list[float | None]:
    """Each number, or None."""
    return [finite(value) for value in values]


def all_numbers(values: Iterable[float | None]) -> list[float]:
    """Each number, or NaN."""
    return [number(value) for value in values]


def finite_series(series: Mapping[str, Sequence[float]]) -> dict[str, list[float | None]]:
    """Series by name, likewise."""
    return {name: all_finite(values) for name, values in series.items()}


def number_series(series: Mapping[str, Sequence[float | None]]) -> dict[str, list[float]]:
    """Read what `finite_series` gave."""
    return {name: all_numbers(values) for name, values in series.items()}
