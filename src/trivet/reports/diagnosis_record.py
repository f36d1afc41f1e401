"""The record of `trivet diagnose`; the record of a run contains sections of it."""

from __future__ import annotations

from trivet.reports.history_record import HistoryRecord
from trivet.reports.shared_records import PlaneMap, QueryRecord, ScatterRecord, StampedRecord
from trivet.runtime.record import Number, Record


class VerdictRecord(Record):
    """A finding, see `trivet.collapse.Verdict`."""

    kind: str = ""
    severity: str | None = None
    evidence: dict[str, Number | None] = {}
    rule: str = ""
    cause: str = ""
    changes: list[str] = []


class RankBiasedComparison(Record):
    """Rank-biased precision beside that of a reference, where recall@1 was lower and left open whether by chance."""

    value: Number
    reference_value: Number
    difference: Number
    low: Number
    high: Number


class ReferenceComparison(Record):
    """A comparison with a reference, see `trivet.collapse.Comparison`; the measure of both is in the classes below."""

    reference: str = ""
    level: str = ""
    queries: int | None = None
    low: Number | None = None
    high: Number | None = None
    difference: Number | None = None
    known_classes: bool = False


class RecallComparison(ReferenceComparison):
    """Recall@1 and that of a reference: "better", "equal", "open" or "worse"."""

    recall: Number | None = None
    reference_recall: Number | None = None
    outcome: str = ""
    rank_biased: RankBiasedComparison | None = None


class RankingComparison(ReferenceComparison):
    """MAP@R and that of a reference."""

    map_at_r: Number | None = None
    reference_map_at_r: Number | None = None
    worse: bool = False


class GradingComparison(ReferenceComparison):
    """NDCG@10 and that of a reference."""

    ndcg_at_10: Number | None = None
    reference_ndcg_at_10: Number | None = None
    worse: bool = False


class LostClass(Record):
    """A class that lost, see `trivet.collapse.class_loss.ClassLoss`."""

    number: int
    items: int
    recall: Number
    reference_recall: Number


class DiagnosisMeasures(Record):
    """Measures of an embedding, see `trivet.collapse.measures.Measures`; None for what was not measured."""

    items: int | None = None
    dimension: int | None = None
    classes: int | None = None
    norm: Number | None = None
    norm_tail: Number | None = None
    diameter: Number | None = None
    mean_distance: Number | None = None
    median_distance: Number | None = None
    relative_spread: Number | None = None
    precision: Number | None = None
    rounding_loss: Number | None = None
    effective_rank: Number | None = None
    uniformity: Number | None = None
    alignment: Number | None = None
    first_axis: Number | None = None
    occupied: Number | None = None
    occupied_widely: Number | None = None
    effective_classes: Number | None = None
    recall: Number | None = None
    chance: Number | None = None
    chance_high: Number | None = None
    centred_recall: Number | None = None
    copies: Number | None = None
    class_spread: Number | None = None
    modes: Number | None = None
    nmi: Number | None = None
    nmi_plus: Number | None = None
    strangers: Number | None = None
    hubness: Number | None = None
    unfound: Number | None = None
    reference_hubness: Number | None = None
    reference_unfound: Number | None = None
    displaced: Number | None = None
    displaced_rows: list[int] = []
    reference_rounding_loss: Number | None = None
    reference_shrinkage: Number | None = None
    reference_spread: Number | None = None
    reference_class_spread: Number | None = None
    reference_modes: Number | None = None
    reference_split: Number | None = None
    mode_index: Number | None = None
    reference_mode_index: Number | None = None
    reference_mode_sharing: Number | None = None
    retention: Number | None = None
    lost_inside: list[int] = []
    structure: Number | None = None
    reference_structure: Number | None = None
    comparisons: list[RecallComparison] = []
    lost: list[LostClass] = []
    rankings: list[RankingComparison] = []
    gradings: list[GradingComparison] = []
    fine: dict[str, dict[str, Number | None]] = {}
    sampling: dict[str, Number | None] | None = None


class DiagnosisSummary(Record):
    """The verdicts on one embedding: all that `trivet diagnose --json` prints of it.

    `num_classes` counts what items have at the level, whose noun is `unit`: "class", "tag", or of pairs "group".
    """

    verdicts: list[VerdictRecord] = []
    measures: DiagnosisMeasures = DiagnosisMeasures()
    notes: list[str] = []
    name: str = ""
    split: str | None = None
    level: str = ""
    distance: str = ""
    items: int | None = None
    dimension: int | None = None
    num_classes: int | None = None
    unit: str = "class"
    reference: str | None = None


class DiagnosesRecord(Record):
    """The verdicts on several embeddings, and why they cannot be compared if they cannot."""

    results: list[DiagnosisSummary] = []
    warnings: list[str] = []


class ThresholdRecord(Record):
    """A threshold of a rule, see `trivet.collapse.Threshold`."""

    name: str = ""
    value: Number
    measure: str = ""
    meaning: str = ""
    origin: str = ""


class Histograms(Record):
    """Shares of the distances in the bins between the edges, each in units of the mean distance of its embedding."""

    edges: list[Number] = []
    within: list[Number] | None = None
    between: list[Number] | None = None
    reference_within: list[Number] | None = None
    reference_between: list[Number] | None = None


class Spectrum(Record):
    """Singular values as shares of their sum, largest first."""

    values: list[Number] = []
    reference: list[Number] | None = None


class ClassTable(Record):
    """A row for each class."""

    columns: list[str] = []
    rows: list[list[str | Number | None]] = []


class SectionScatter(ScatterRecord):
    """A triplet scatter with the class of each item."""

    labels: list[str] = []


class DiagnosisSection(DiagnosisSummary):
    """A diagnosis with all contents of a page."""

    thresholds: list[ThresholdRecord] = []
    histograms: Histograms | None = None
    spectrum: Spectrum | None = None
    classes: ClassTable | None = None
    scatter: SectionScatter | None = None
    map: PlaneMap | None = None
    queries: dict[str, list[QueryRecord]] = {}


class DiagnosisRecord(StampedRecord):
    """Contents of the page of `trivet diagnose`."""

    sections: list[DiagnosisSection] = []
    warnings: list[str] = []
    history: HistoryRecord | None = None
