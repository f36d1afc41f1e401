"""Changes of measures: an embedding less another on the same queries, with intervals, by the rule of all judgements."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.collapse.significance import FLOOR, Comparison, compare_groups
from trivet.commands.migrate.record import MeasureChange
from trivet.metrics import Retrieval
from trivet.reports.page import percent, points

MEASURES = ("recall@1", "map@r")


def outcome_of(comparison: Comparison) -> str:
    """The outcome of a change: "better" or "worse" beyond doubt, "no gain" of a point, or "open"."""
    if comparison.better or comparison.worse:
        return "better" if comparison.better else "worse"
    return "no gain" if comparison.high <= FLOOR else "open"


def measure_changes(
    now: Sequence[Retrieval], others: Sequence[Retrieval], level: str, reference: str, *, known_classes: bool = False
) -> list[MeasureChange]:
    """Compare the measures of retrievals, each of other items, with those of a reference on the same queries.

    Args:
        known_classes: whether an embedding was trained on the classes.
    """
    changes = []
    for measure in MEASURES:
        groups = [([mine], [its]) for mine, its in zip(now, others, strict=True)]
        compared = compare_groups(
            groups, reference=reference, level=level, measure=measure, known_classes=known_classes
        )
        changes.append(
            MeasureChange(
                measure=measure,
                value=compared.score,
                reference=compared.reference_score,
                difference=compared.difference,
                interval=[compared.low, compared.high],
                outcome=outcome_of(compared),
            )
        )
    return changes


def change_words(change: MeasureChange) -> str:
    """The difference of a measure with its interval, in words."""
    return (
        f"{percent(change.value)}\u00a0% {change.measure} against {percent(change.reference)}\u00a0% "
        f"({difference_words(change)})"
    )


def difference_words(change: MeasureChange) -> str:
    """A difference in points with the ends of its interval."""
    low, high = change.interval
    return f"{points(change.difference)} points, {points(low)} to {points(high)}"
