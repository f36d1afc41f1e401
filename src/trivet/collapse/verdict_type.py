"""The type of a verdict: what was found of an embedding, on what evidence, why, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trivet.collapse.formatting import verdict_lines, verdict_title

Kind = Literal[
    "no-better-than-chance",
    "worse-than-reference",
    "network-collapse",
    "class-collapse",
    "dead-sampler",
    "exploding-norm",
    "noisy-labels",
    "spread-out",
    "healthy",
]
Severity = Literal["full", "partial"]


@dataclass(frozen=True, repr=False)
class Verdict:
    """One finding; `print` shows it as `trivet diagnose` does.

    Attributes:
        kind: what was found.
        severity: "full" or "partial" for a collapse, else None.
        evidence: measure -> value, those the verdict rests on.
        rule: the comparison that decided, in words with its numbers.
        cause: the likely cause, a sentence.
        changes: one to three things to change, the most effective first; none for an embedding that is spread out.
    """

    kind: Kind
    severity: Severity | None
    evidence: dict[str, float]
    rule: str
    cause: str
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = vars(self)
        return "\n  ".join([verdict_title(values), *verdict_lines(values)])

    def __repr__(self) -> str:
        return f"Verdict({self.kind!r}, {self.severity!r})"
