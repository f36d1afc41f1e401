"""The record of `trivet diagnose`; the record of a run contains parts of it."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.history_record import HistoryRecord
from trivet.reports.shared_records import PlaneMap, QueryRecord, ScatterRecord


class VerdictRecord(TypedDict):
    """A finding, see `trivet.collapse.Verdict`."""

    kind: str
    severity: str | None
    evidence: dict[str, float | None]
    rule: str
    cause: str
    changes: list[str]


class RecallComparison(TypedDict):
    """Recall@1 beside that of a reference, see `trivet.collapse.Comparison`: "better", "equal", "open" or "worse"."""

    reference: str
    level: str
    queries: int | None
    recall: float | None
    reference_recall: float | None
    low: float | None
    high: float | None
    difference: float | None
    outcome: str


class RankingComparison(TypedDict):
    """MAP@R beside that of a reference, see `trivet.collapse.Comparison`."""

    reference: str
    level: str
    queries: int | None
    map_at_r: float | None
    reference_map_at_r: float | None
    low: float | None
    high: float | None
    difference: float | None
    worse: bool


class LostClass(TypedDict):
    """A class that lost, see `trivet.collapse.measures.ClassLoss`."""

    number: int
    items: int
    recall: float
    reference_recall: float


class DiagnosisMeasures(TypedDict):
    """Measures of an embedding, see `trivet.collapse.measures.Measures`; None for what was not measured."""

    items: int | None
    dimension: int | None
    classes: int | None
    norm: float | None
    norm_tail: float | None
    diameter: float | None
    mean_distance: float | None
    median_distance: float | None
    relative_spread: float | None
    effective_rank: float | None
    uniformity: float | None
    alignment: float | None
    first_axis: float | None
    occupied: float | None
    occupied_widely: float | None
    effective_classes: float | None
    recall: float | None
    chance: float | None
    chance_high: float | None
    comparisons: list[RecallComparison]
    lost: list[LostClass]
    rankings: list[RankingComparison]
    copies: float | None
    class_spread: float | None
    modes: float | None
    nmi: float | None
    nmi_plus: float | None
    strangers: float | None
    reference_shrinkage: float | None
    reference_spread: float | None
    reference_class_spread: float | None
    reference_modes: float | None
    reference_split: float | None
    mode_index: float | None
    reference_mode_index: float | None
    reference_mode_sharing: float | None
    retention: float | None
    fine: dict[str, dict[str, float | None]]
    sampling: dict[str, float | None] | None


class DiagnosisSummary(TypedDict):
    """The verdicts on one embedding: all that `trivet diagnose --json` prints of it."""

    name: str
    split: str | None
    level: str
    distance: str
    items: int | None
    dimension: int | None
    reference: str | None
    verdicts: list[VerdictRecord]
    measures: DiagnosisMeasures
    notes: list[str]


class ThresholdRecord(TypedDict):
    """A threshold of a rule, see `trivet.collapse.Threshold`."""

    name: str
    value: float
    measure: str
    meaning: str
    origin: str


class Histograms(TypedDict):
    """Shares of the distances in the bins between the edges, each in units of the mean distance of its embedding."""

    edges: list[float]
    within: list[float] | None
    between: list[float] | None
    reference_within: list[float] | None
    reference_between: list[float] | None


class Spectrum(TypedDict):
    """Singular values as shares of their sum, largest first."""

    values: list[float]
    reference: list[float] | None


class ClassTable(TypedDict):
    """A row for each class."""

    columns: list[str]
    rows: list[list[str | float | None]]


class DiagnosisSection(DiagnosisSummary):
    """A diagnosis with all that a page shows of it."""

    thresholds: list[ThresholdRecord]
    histograms: Histograms | None
    spectrum: Spectrum | None
    classes: ClassTable | None
    scatter: ScatterRecord | None
    map: PlaneMap | None
    queries: dict[str, list[QueryRecord]]


class DiagnosisRecord(TypedDict):
    """Contents of the page of `trivet diagnose`."""

    sections: list[DiagnosisSection]
    warnings: list[str]
    history: HistoryRecord | None
    command: str
    created: str
    trivet: str
