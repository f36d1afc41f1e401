"""A checkable statement of a paper, and the result of its check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trivet.runtime.record import Record


class Check(Record):
    """One row of `trivet simulate --check`.

    Attributes:
        id: paper and statement, such as "xuan2020-entanglement-q".
        statement: what the paper claims, or what is wrong with what it prints, in one sentence of our own.
        expected: the value or relation, with its tolerance, as text.
        observed: what was measured, as text.
        holds: whether what was found is what is expected; for an error of a paper, whether the error shows.
    """

    id: str
    statement: str
    expected: str
    observed: str
    holds: bool


@dataclass(frozen=True)
class Checker:
    """Makes the checks of a paper, whose name begins that of each."""

    paper: str

    def __call__(self, name: str, statement: str, expected: str, observed: str, holds: object) -> Check:
        return Check(
            id=f"{self.paper}-{name}", statement=statement, expected=expected, observed=observed, holds=bool(holds)
        )

    def values(
        self,
        name: str,
        statement: str,
        expected: Sequence[float],
        measured: Sequence[float],
        tolerance: float = 1e-9,
        *,
        relative: bool = False,
        also: bool = True,
    ) -> Check:
        """Numbers that must agree one by one; `also`: something more that must hold."""
        pairs = zip(expected, measured, strict=True)
        near = all(abs(value - want) <= tolerance * (want if relative else 1) for want, value in pairs)
        bound = f"relative tolerance {tolerance:g}" if relative else f"to {tolerance:g}"
        wanted = as_text(expected, 11 if relative else 10)
        return self(name, statement, f"{wanted}, {bound}", as_text(measured, 10), near and also)

    def below(self, name: str, statement: str, difference: float, bound: float = 1e-12, where: str = "") -> Check:
        """A difference that must be below a bound; `where` says of what, such as " at all distances"."""
        expected = f"difference below {bound:g}{where}".replace("e-0", "e-")
        return self(name, statement, expected, f"{difference:.1e}", difference < bound)


def as_text(values: Sequence[float], digits: int = 11) -> str:
    """Numbers with so many significant digits."""
    return ", ".join(f"{value:.{digits}g}" for value in values)
