"""A verdict: what was found of an embedding, on what evidence, why, and what to change; and how it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trivet.runtime.text import digits

Kind = Literal[
    "no-better-than-chance",
    "worse-than-reference",
    "network-collapse",
    "class-collapse",
    "displaced-items",
    "dead-sampler",
    "exploding-norm",
    "noisy-labels",
    "spread-out",
    "healthy",
]
Severity = Literal["full", "partial"]

_NAMES = {
    "recall": "recall@1",
    "chance": "recall@1 by chance",
    "centred_recall": "recall@1, sides centred",
    "rank_biased_precision": "rank-biased precision",
    "reference_rank_biased_precision": "rank-biased precision of the reference",
    "recall_of_lost": "recall@1 of the classes that lost",
    "reference_recall_of_lost": "recall@1 of these in the reference",
    "map_at_r": "map@r",
    "reference_map_at_r": "map@r of the reference",
    "ndcg_at_10": "ndcg@10",
    "reference_ndcg_at_10": "ndcg@10 of the reference",
    "occupied": "occupied spots",
    "nmi_plus": "nmi+",
}


def measure_words(measure: str) -> str:
    """A measure of a diagnosis, as people read it; the name of a reference stays as it is."""
    name, of, reference = measure.partition(" of ")
    return _NAMES.get(measure, name.replace("_", " ") + of + reference)


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

    @property
    def title(self) -> str:
        """Its kind, how bad it is, and the rule that decided."""
        return f"{self.kind.replace('-', ' ')}{f', {self.severity}' if self.severity else ''}: {self.rule}"

    def lines(self) -> Iterator[str]:
        """The evidence, the cause and what to change, a line each; the title comes before."""
        evidence = (f"{measure_words(key)} {digits(value)}" for key, value in self.evidence.items())
        yield f"Evidence: {', '.join(evidence)}"
        yield f"Cause: {self.cause}" if self.changes else self.cause
        yield from (f"Change {number}: {change}" for number, change in enumerate(self.changes, 1))

    def __str__(self) -> str:
        return "\n  ".join([self.title, *self.lines()])

    def __repr__(self) -> str:
        return f"Verdict({self.title})"
