"""A checkable statement of a paper, and the result of its check."""

from __future__ import annotations

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

    def below(self, name: str, statement: str, difference: float, bound: float = 1e-12, where: str = "") -> Check:
        """A difference that must be below a bound; `where` says of what, such as " at all distances"."""
        expected = f"difference below {bound:g}{where}".replace("e-0", "e-")
        return self(name, statement, expected, f"{difference:.1e}", difference < bound)
