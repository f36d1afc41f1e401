"""The outcome of post-processing beside the plain ranking, and the sentence that says whether one finds more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trivet.collapse.significance import LEVEL, Comparison, compare, comparison_json
from trivet.commands.evaluate.record import DifferenceRecord, EvaluationRecord
from trivet.metrics.intervals import Interval, Variance, interval_json, symmetrical_interval
from trivet.metrics.retrieval import Retrieval
from trivet.reports.page import points
from trivet.runtime.text import typed
from trivet.training.checkpoint_selection import RECALL

MEASURE = "map@r"  # decides, where it was measured; else recall@1 alone
NAMED = {"whitening": "whitening", "expansion": "query expansion", "reciprocal": "re-ranking"}


def judge_gain(
    row: DifferenceRecord, name: str, now: Retrieval, before: Retrieval, *, level: str, variance: Variance | None
) -> None:
    """Give a difference of a measure its outcome, and, of a re-ranked search, its interval.

    Args:
        now, before: the measures of each query, post-processed and plain.
        variance: of the differences where a search is re-ranked; then nothing is known of other classes.
    """
    if name not in now.measures or name not in before.measures:
        return
    if variance is None:
        compared = compare([now], [before], reference="", level=level, measure=name)
    else:
        both = now.counted & before.counted
        gained, reference = (
            float(each.values[both, each.measures.index(name)].mean()) if both.any() else 0.0 for each in (now, before)
        )
        of = float(variance.values[now.measures.index(name)])

        def interval(level: float) -> Interval:
            return symmetrical_interval(
                gained - reference, of, degrees=variance.degrees, units=variance.units, level=level
            )

        row.queries, row.classes = interval_json(interval(0.95)), None
        known = interval(LEVEL)
        low, high = (known.low, known.high) if row.queries else (-1.0, 1.0)
        compared = Comparison("", level, int(both.sum()), gained, reference, low, high)
    row.outcome = str(comparison_json(compared)["outcome"])


def postprocessing_line(
    records: Sequence[EvaluationRecord], differences: Mapping[str, Sequence[DifferenceRecord]], level: str
) -> str | None:
    """Sentence on what finds more than the plain ranking; None where that was not compared, or of several embeddings.

    It finds more if MAP@R is better beyond doubt, and recall@1 not a point lower, by the rule of comparisons.
    """
    plain, *others = records
    measure = MEASURE if MEASURE in differences else RECALL
    rows = differences.get(measure, ())
    several = sum(record.postprocessing == plain.postprocessing for record in records) > 1
    if not plain.postprocessing or len(rows) != len(others) or several:
        return None
    each = list(zip(others, rows, differences.get(RECALL, rows), strict=True))
    better = sorted((gain for gain in each if gain[1].outcome == "better"), key=lambda gain: -(gain[1].difference or 0))
    for gain in better:
        if gain[2].outcome in ("better", "equal"):
            record = gain[0]
            return (
                f"More is found by {NAMED[record.postprocessing]}: {_gains([gain], measure)}. An index "
                f"of trivet index --postprocess {typed(record.postprocessing)} is searched so."
            )
    names = [NAMED[record.postprocessing] for record in others]
    if better:
        name = NAMED[better[0][0].postprocessing]
        return f"With {name} more of the right items come early, but fewer first: {_gains(better[:1], measure)}."
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f"No more is found by {listed}, as far as can be told: {_gains(each, measure)}."


def _gains(rows: Sequence[tuple[EvaluationRecord, DifferenceRecord, DifferenceRecord]], measure: str) -> str:
    """The differences of each, such as "MAP@R +4.0 points (2.9 to 5.1), recall@1 +0.1 (-0.4 to 0.6)"."""
    texts = []
    for record, row, recall in rows:
        names = {"MAP@R" if measure == MEASURE else "recall@1": row, "recall@1": recall}
        values = [
            f"{name} {points(each.difference)}"
            + (f" ({' to '.join(map(points, each.queries))})" if each.queries else "")
            for name, each in names.items()
        ]
        texts.append((f"{NAMED[record.postprocessing]} " if len(rows) > 1 else "") + ", ".join(values))
    return "; ".join(texts) + " points"
