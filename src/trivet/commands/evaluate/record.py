"""The record of `trivet evaluate` for embeddings in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from trivet.metrics.intervals import Over, across_folds, clipped, interval_json
from trivet.reports.measures import (
    CLUSTERING,
    EVALUATION,
    OVERS,
    SAMPLED,
    SAMPLED_PAIRS,
    VERIFICATION,
    finite,
    interval,
    measure_key,
)
from trivet.reports.shared_records import Ends, Intervals, Levels, StampedRecord
from trivet.runtime.record import Number, Record


class Approximation(Record):
    """An approximate search and its recall of the exact one."""

    kind: str = ""
    parameters: dict[str, Number] = {}
    neighbours: int | None = None
    recall: Number | None = None
    recall_at: int | None = None
    recall_queries: int | None = None


class ProtocolRecord(Record):
    """Queries, gallery and exclusions: `kind` is "self-retrieval", "query-gallery", or of pairs "both-ways".

    Of `queries_in_gallery` none finds itself; `ids_alike` have the id of a gallery item, but were taken for others.
    """

    kind: str = ""
    queries: int | None = None
    gallery: int | None = None
    without_positive: str = ""
    same_camera_left_out: bool | None = None
    queries_in_gallery: int | None = None
    ids_alike: int | None = None
    junk: int | None = None
    approximate: Approximation | None = None


class ClusteringRecord(Record):
    """The k-means behind NMI and AMI."""

    clusters: int | None = None
    clusters_in_use: int | None = None
    inertia: Number | None = None
    restarts: int | None = None
    seconds: Number | None = None


class FoldsRecord(Record):
    """A measure in folds that share no class: the mean with its Student-t interval, and the values."""

    mean: Number | None = None
    interval: Ends | None = None
    values: list[Number] = []

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The mean of some shares, with its interval, within 0 and 1."""
        mean, ends = across_folds(values)
        return cls(mean=mean, interval=interval_json(clipped(ends, 0, 1)), values=list(values))


class RejectionRecord(Record):
    """Detection of queries of no known class."""

    auroc: Number | None = None
    fpr_at_95_tpr: Number | None = None
    in_scope: int | None = None
    out_of_scope: int | None = None
    macro: dict[str, Number | None] = {}
    intervals: Intervals = {}
    macro_intervals: Intervals = {}

    def ends(self, name: str, over: str) -> Ends | None:
        """The 95 % interval over "queries" or "classes"."""
        return self.intervals.get(name, {}).get(over)

    def macro_ends(self, name: str) -> Ends | None:
        """The interval of the mean of the classes."""
        return self.macro_intervals.get(name, {}).get("classes")


class EvaluationRecord(Record):
    """Evaluation of one embedding; all by label level but the rejection.

    `units` has "tag" for levels of tags, and for pairs "group". `prefix` is the number of numbers that are left of
    each embedding, where it was cut. Where prefixes are compared, or forms in which embeddings are stored, `form` is
    that of this one, and `bytes` are those of an item in memory. Where post-processing is compared, `postprocessing` is
    "none", "whitening", "expansion" or "reciprocal".
    """

    warnings: list[str] = []
    trivet: str = ""
    created: str = ""
    embeddings: str = ""
    items: int | None = None
    dimension: int | None = None
    distance: str = ""
    protocol: ProtocolRecord = ProtocolRecord()
    seed: int | None = None
    evaluation: Levels = {}
    macro: dict[str, dict[str, Number | None]] = {}
    intervals: dict[str, Intervals] = {}
    macro_intervals: dict[str, Intervals] = {}
    clustering: dict[str, ClusteringRecord] = {}
    folds: dict[str, dict[str, FoldsRecord]] = {}
    folds_missing: dict[str, str] = {}
    rejection: RejectionRecord | None = None
    seconds: Number | None = None
    units: dict[str, str] = {}
    prefix: int | None = None
    form: str = ""
    bytes: int | None = None
    postprocessing: str = ""


class DifferenceRecord(Record):
    """A measure of an embedding less that of the first, on the same queries, with paired intervals.

    Where post-processing is compared, `outcome` is "better", "worse", "equal" or "open" by the rule of comparisons.
    """

    of: str = ""
    less: str = ""
    difference: Number | None = None
    queries: Ends | None = None
    classes: Ends | None = None
    outcome: str = ""

    def over(self, over: Over) -> Sequence[float] | None:
        """The ends of the interval over "queries" or "classes"."""
        return interval(self.queries if over == "queries" else self.classes)


ClassRow = dict[str, Number | str | None]
"""The "class", the number of its "queries", and its measures."""

Differences = dict[str, dict[str, list[DifferenceRecord]]]
"""Label level -> measure -> a row for each embedding but the first."""


class ComparisonRecord(StampedRecord):
    """One embedding, or several side by side."""

    results: list[EvaluationRecord] = []
    differences: Differences = {}
    per_class: list[dict[str, list[ClassRow]]] = []


class Shares:
    """The measures of one embedding at one level; its number and its label tell it from the others."""

    def __init__(self, result: EvaluationRecord, level: str, number: int = 0, label: str = "") -> None:
        self.result, self.number, self.label = result, number, label
        self.values = result.evaluation[level]
        self.unit = result.units.get(level, "class")  # of what an item has at the level
        # What an interval is for.
        self.sampled = SAMPLED_PAIRS if self.unit == "group" else SAMPLED
        self.clustering = result.clustering.get(level, ClusteringRecord())
        self.folds = result.folds.get(level, {})
        self.foldless = result.folds_missing.get(level)
        self._macro = result.macro.get(level, {})
        self._intervals = result.intervals.get(level, {})
        self._macro_intervals = result.macro_intervals.get(level, {})
        self.retrieval = [
            name
            for name in self.values
            if (f"chance_{name}" in self.values or name in self._macro)
            and name not in CLUSTERING
            and measure_key(name) not in VERIFICATION
        ]
        self.missing = {
            name.removesuffix("_missing"): str(why) for name, why in self.values.items() if name.endswith("_missing")
        }  # measure -> why it was not measured

    def value(self, name: str) -> float | None:
        """The share, if it was measured."""
        return finite(self.values.get(name))

    def count(self, name: str) -> int | None:
        """A count, if it is known."""
        return None if (value := self.value(name)) is None else round(value)

    def chance(self, name: str) -> float | None:
        """Score of an embedding that maps everything to one point."""
        if name.startswith("tar@far="):
            return float(name.removeprefix("tar@far="))
        known = EVALUATION.get(name)
        return finite(self.values.get(f"chance_{name}", known and known.chance))

    def macro(self, name: str) -> float | None:
        """The mean of the classes."""
        return finite(self._macro.get(name))

    def interval(self, name: str, over: str) -> Sequence[float] | None:
        """The ends of the 95 % interval over "queries" or "classes"."""
        return interval(self._intervals.get(name, {}).get(over))

    def macro_interval(self, name: str) -> Sequence[float] | None:
        """The interval of the mean of the classes."""
        return interval(self._macro_intervals.get(name, {}).get("classes"))

    def widest(self, name: str) -> tuple[str, Sequence[float]] | None:
        """The interval over classes, or over queries where there is none, and which of them."""
        return next(((over, ends) for over in OVERS[::-1] if (ends := self.interval(name, over)) is not None), None)


@dataclass(frozen=True)
class ClassShares:
    """One measure of each class: the embedding and its (name, queries, share), the worst first."""

    measure: str
    rows: Sequence[tuple[Shares, Sequence[tuple[str, str, float]]]]
    chance: float | None

    @property
    def count(self) -> int:
        """Classes of the embedding that has most."""
        return max(len(rows) for _, rows in self.rows)
