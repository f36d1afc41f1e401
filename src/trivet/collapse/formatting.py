"""Verdicts in words, as the command line and Python print them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trivet.runtime.text import digits

_NAMES = {
    "recall": "recall@1",
    "chance": "recall@1 by chance",
    "recall_of_lost": "recall@1 of the classes that lost",
    "reference_recall_of_lost": "recall@1 of these in the reference",
    "map_at_r": "map@r",
    "reference_map_at_r": "map@r of the reference",
    "occupied": "occupied spots",
    "nmi_plus": "nmi+",
}


def measure_words(measure: str) -> str:
    """A measure of a diagnosis, as people read it; the name of a reference stays as it is."""
    name, of, reference = measure.partition(" of ")
    return _NAMES.get(measure, name.replace("_", " ") + of + reference)


def verdict_title(verdict: Mapping[str, Any]) -> str:
    """Title of a verdict: its kind, how bad it is, and the rule that decided."""
    severity = f", {verdict['severity']}" if verdict["severity"] else ""
    return f"{verdict['kind'].replace('-', ' ')}{severity}: {verdict['rule']}"


def verdict_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """The evidence, the cause and what to change, a line each; the title comes before.

    Args:
        verdict: the fields of a `Verdict`.
    """
    evidence = (f"{measure_words(key)} {digits(value)}" for key, value in verdict["evidence"].items())
    yield f"Evidence: {', '.join(evidence)}"
    yield f"Cause: {verdict['cause']}" if verdict["changes"] else verdict["cause"]
    yield from (f"Change {number}: {change}" for number, change in enumerate(verdict["changes"], 1))
