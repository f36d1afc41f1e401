"""Helpers that the checks of this paper share."""

from __future__ import annotations

from collections.abc import Sequence

from trivet_papers.checks import Check, Checker

check = Checker("xu2024")


def check_values(
    name: str, statement: str, wanted: Sequence[float], values: Sequence[float], tolerance: float = 1e-9
) -> Check:
    holds = all(abs(value - want) <= tolerance * want for value, want in zip(values, wanted, strict=True))
    return check(
        name, statement, f"{as_text(wanted)}, relative tolerance {tolerance:g}", as_text(values, digits=10), holds
    )


def as_text(values: Sequence[float], digits: int = 11) -> str:
    return ", ".join(f"{value:.{digits}g}" for value in values)
