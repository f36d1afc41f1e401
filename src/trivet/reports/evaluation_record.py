"""The record of `trivet evaluate` for embeddings in files."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.shared_records import Ends, Intervals, Levels


class Approximation(TypedDict):
    """An approximate search and how much it finds of the exact one."""

    kind: str
    parameters: dict[str, float]
    neighbours: int | None
    recall: float | None
    recall_at: int | None
    recall_queries: int | None


class ProtocolRecord(TypedDict):
    """Queries, gallery and exclusions: `kind` is "self-retrieval" or "query-gallery"."""

    kind: str
    queries: int | None
    gallery: int | None
    queries_in_gallery: int | None
    without_positive: str
    same_camera_left_out: bool | None
    junk: int | None
    approximate: Approximation | None


class ClusteringRecord(TypedDict):
    """The k-means behind NMI and AMI."""

    clusters: int | None
    clusters_in_use: int | None
    inertia: float | None
    restarts: int | None
    seconds: float | None


class FoldsRecord(TypedDict):
    """A measure in parts that share no class: the mean with its Student-t interval, and the values."""

    mean: float | None
    interval: Ends | None
    values: list[float]


class RejectionRecord(TypedDict):
    """Detection of queries of no known class."""

    auroc: float | None
    fpr_at_95_tpr: float | None
    in_scope: int | None
    out_of_scope: int | None
    macro: dict[str, float | None]
    intervals: Intervals
    macro_intervals: Intervals


class EvaluationRecord(TypedDict):
    """Evaluation of one embedding; everything by label level but the rejection."""

    trivet: str
    created: str
    warnings: list[str]
    embeddings: str
    items: int | None
    dimension: int | None
    distance: str
    protocol: ProtocolRecord
    resamples: int | None
    seed: int | None
    evaluation: Levels
    macro: dict[str, dict[str, float | None]]
    intervals: dict[str, Intervals]
    macro_intervals: dict[str, Intervals]
    clustering: dict[str, ClusteringRecord]
    folds: dict[str, dict[str, FoldsRecord]]
    folds_missing: dict[str, str]
    rejection: RejectionRecord | None
    seconds: float | None


class DifferenceRecord(TypedDict):
    """An embedding less the first, on the same queries, with paired intervals."""

    of: str
    less: str
    difference: float | None
    queries: Ends | None
    classes: Ends | None


ClassRow = dict[str, float | str | None]
"""The "class", the number of its "queries", and its measures."""


class ComparisonRecord(TypedDict):
    """One embedding, or several side by side: level -> measure -> a row for each but the first."""

    results: list[EvaluationRecord]
    differences: dict[str, dict[str, list[DifferenceRecord]]]
    per_class: list[dict[str, list[ClassRow]]]
    command: str
