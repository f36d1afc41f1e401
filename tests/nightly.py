"""Tests of many cases, of which few run each time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Cases of `pytest.mark.parametrize`: each `every`-th runs always, the others nightly."""
    chosen: list[Any] = []
    for number, case in enumerate(cases):
        values, name = (case.values, case.id) if hasattr(case, "values") and hasattr(case, "marks") else ((case,), None)
        chosen.append(pytest.param(*values, id=name, marks=[pytest.mark.nightly] * (number % every > 0)))
    return chosen
