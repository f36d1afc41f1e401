"""A checkable statement of a paper, and the result of its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One row of `trivet simulate --check`.

    Attributes:
        id: paper and statement, such as "xuan2020-entanglement-q".
        statement: what the paper claims, or what is wrong with what it prints, in one sentence of our own.
        expected: the value or relation, with its tolerance, as text.
        found: what was measured, as text.
        holds: whether what was found is what is expected; for an error of a paper, whether the error shows.
    """

    id: str
    statement: str
    expected: str
    found: str
    holds: bool


def checker(paper: str) -> Callable[[str, str, str, str, object], Check]:
    """Make the checks of a paper: `(name, statement, expected, found, holds)`, the name without that of the paper."""
    return lambda name, statement, expected, found, holds: Check(
        f"{paper}-{name}", statement, expected, found, bool(holds)
    )
