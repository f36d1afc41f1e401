"""Counts, numbers and names in sentences: one item, two items."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

BELOW = "The verdicts below say how it came to this."


def noun(count: object, one: str) -> str:
    """The noun, in the plural unless there is exactly one: 0 queries, 1 query, 2 queries.

    Example:
        >>> noun(1, "class"), noun(2, "class"), noun(0, "query")
        ('class', 'classes', 'queries')
    """
    if count == 1:
        return one
    if re.search("(s|x|ch|sh)$", one):
        return f"{one}es"
    return f"{one[:-1]}ies" if re.search("[^aeiou]y$", one) else f"{one}s"


def counted(count: object, one: str) -> str:
    """A number and what it counts: 1 item, 2 items."""
    return f"{count} {noun(count, one)}"


def rows_hold(rows: Sequence[int], what: str) -> str:
    """Which rows hold what they should not; of many, the first eight.

    Example:
        >>> rows_hold([5], "NaN"), rows_hold([5, 7], "NaN")
        ('row 5 holds NaN', 'rows 5, 7 hold NaN')
    """
    shown = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
    return f"row {shown} holds {what}" if len(rows) == 1 else f"rows {shown} hold {what}"


def digits(value: float | None) -> str:
    """A number to three digits, or more where it is a thousand or more."""
    return "–" if value is None else f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def names_apart(places: Sequence[Path]) -> list[str]:
    """The ends of the paths that tell them apart, as short as can be; they are all different."""
    for length in range(1, max(len(place.parts) for place in places) + 1):
        names = ["/".join(place.parts[-length:]) for place in places]
        if len({*names}) == len(names):
            return names
    raise AssertionError
