"""Several embeddings of the same items in `trivet evaluate`: pairs their queries, and collects the differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.record import DifferenceRecord, Differences
from trivet.commands.evaluate.run import Evaluation
from trivet.commands.evaluate.same_items import same_queries
from trivet.metrics.intervals import Difference, Over, interval_json, paired_difference
from trivet.reports.measures import OVERS, finite


def compare(evaluations: Sequence[Evaluation], request: EvaluateOptions) -> Differences:
    """Level -> measure -> for each embedding after the first, its mean less that of the first, with intervals.

    The same queries are drawn for both ("paired"), so what they find equally hard cancels; `evaluate_files` has checked
    that all embeddings are of the same items.
    """
    first, resamples = evaluations[0], request.resamples
    differences: Differences = {}
    for other in evaluations[1:]:
        for level in first.levels.keys() & other.levels.keys():
            rows = differences.setdefault(level, {})
            for name, by_over in _compared(first, other, level, resamples or 1, request.seed).items():
                rows.setdefault(name, []).append(_difference(first, other, by_over, with_intervals=bool(resamples)))
    return {level: differences[level] for level in first.levels if differences.get(level)}


def _compared(
    first: Evaluation, other: Evaluation, level: str, resamples: int, seed: int
) -> dict[str, dict[Over, Difference]]:
    """Measure -> over -> the mean of the other less that of the first, under the same draws; at least one."""
    differences: dict[str, dict[Over, Difference]] = {}

    def pair(names: Sequence[str], a: np.ndarray, b: np.ndarray, classes: np.ndarray, over: Over) -> None:
        paired = paired_difference(b, a, classes, over=over, average="micro", resamples=resamples, seed=seed)
        for name, result_of in zip(names, paired, strict=True):
            differences.setdefault(name, {})[over] = result_of

    if level in first.retrieval and level in other.retrieval:
        a, b = first.retrieval[level], other.retrieval[level]
        rows = same_queries(_names(first, other), first.ids, other.ids, (len(a.classes), len(b.classes)))
        names = [name for name in a.measures if name in b.measures]
        columns = [[result_of.measures.index(name) for name in names] for result_of in (a, b)]
        for over in OVERS:
            pair(names, a.values[:, columns[0]], b.values[rows][:, columns[1]], a.classes, over)
    results = first.levels[level], other.levels[level]
    if not any(result.clustering or result.clustering_plus or result.verification for result in results):
        return differences
    rows = same_queries(_names(first, other), first.item_ids, other.item_ids, (results[0].items, results[1].items))
    agreed, others = (result.agreement_values() for result in results)
    for name in agreed.keys() & others.keys():
        values, classes = agreed[name]
        for over in OVERS:
            pair([name], values, others[name][0][rows], classes, over)
    pairs = [result.verification.pairs for result in results if result.verification is not None]
    if len(pairs) == 2 and pairs[0] is not None and pairs[1] is not None:
        pairs_of_first, its = pairs[0], pairs[1]
        for over in OVERS:
            mine, theirs = pairs_of_first.values(over, "micro"), its.values(over, "micro")
            for name in mine.keys() & theirs.keys():
                if over == "queries":
                    classes = pairs_of_first.in_order(pairs_of_first.classes)
                    pair([name], pairs_of_first.in_order(mine[name]), its.in_order(theirs[name])[rows], classes, over)
                else:
                    pair([name], mine[name], theirs[name], np.arange(len(pairs_of_first.sizes)), over)
            rates = pairs_of_first.rate_differences(its, rows, over, resamples=resamples, level=0.95, seed=seed)
            for name, result_of in rates.items():
                differences.setdefault(name, {})[over] = result_of
    return {name: differences[name] for name in results[0].mean() if name in differences}


def _names(first: Evaluation, other: Evaluation) -> tuple[str, str]:
    return first.record.embeddings, other.record.embeddings


def _difference(
    first: Evaluation, other: Evaluation, by_over: Mapping[Over, Difference], *, with_intervals: bool
) -> DifferenceRecord:
    queries, classes = (
        interval_json(by_over[over].interval) if with_intervals and over in by_over else None for over in OVERS
    )
    difference = finite(next(iter(by_over.values())).value)
    names = {"of": other.record.embeddings, "less": first.record.embeddings}
    return DifferenceRecord(**names, difference=difference, queries=queries, classes=classes)
