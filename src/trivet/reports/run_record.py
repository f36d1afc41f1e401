"""`record.json` of a run folder."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trivet.reports.diagnosis_record import DiagnosisSection, RecallComparison, ReferenceComparison
from trivet.reports.forecast_record import ForecastRecord, Foreseen
from trivet.reports.history_record import HistoryRecord
from trivet.reports.label_noise_record import CleaningCheck, LabelNoise
from trivet.reports.ladder_record import LadderRecord
from trivet.reports.monitor_record import GuardRecord, MonitorRecord
from trivet.reports.shared_records import Intervals, Levels, PlaneMap, ScatterRecord, StampedRecord
from trivet.runtime.record import Number, Record


class ProtocolCounts(Record):
    """Counts of a split with queries and a gallery, see `trivet.metrics.QueryGallery`: the gallery without junk."""

    queries: int | None = None
    gallery: int | None = None
    junk: int | None = None
    cameras: bool | None = None


class Counts(Record):
    """Counts of a split: items, level -> classes, and queries and gallery where not each item is both.

    `trained_classes` says, level by level, how many classes of an evaluation split are trained on.
    """

    items: int | None = None
    classes: dict[str, int] = {}
    protocol: ProtocolCounts | None = None
    trained_classes: dict[str, int] = {}


class SkippedRecord(Record):
    """An image that was not read."""

    id: str = ""
    reason: str = ""


class InjectedNoise(Record):
    """Labels that are known to be wrong, see `trivet.datasets.label_noise.noise_summary`."""

    kind: str | None = None
    topline: bool | None = None
    items: int | None = None
    wrong: int | None = None
    rate: Number | None = None
    dropped: int | None = None


class CoverageRecord(Record):
    """Shares of the data that one epoch trains on."""

    items: Number
    classes: Number | None = None


class RunData(Record):
    """The data that were trained and evaluated on; `units`: level -> what an item has there, where
    that is no class: "tag" or "group"."""

    train: Counts | None = None
    evaluation: dict[str, Counts] = {}
    skipped: list[SkippedRecord] = []
    noise: InjectedNoise | None = None
    decisions: dict[str, int] | None = None
    coverage: CoverageRecord | None = None
    units: dict[str, str] = {}

    def unit(self, level: str) -> str:
        """The noun for what an item has at a level: "class", "tag" or "group"."""
        return self.units.get(level, "class")


class Curves(Record):
    """Steps that were logged, and series over them."""

    step: list[int] = []
    loss: list[Number | None] = []
    active: list[Number | None] = []
    hard: list[Number | None] = []
    d_ap: list[Number | None] = []
    d_an: list[Number | None] = []
    dropped: list[Number | None] = []


class Validation(Record):
    """Looks at a sample of the first split while training: level -> series."""

    split: str = ""
    items: int | None = None
    step: list[int] = []
    recall: dict[str, list[Number | None]] = Field({}, alias="recall@1")


class Evaluated(Record):
    """An embedding of a split: "trained", or what it is compared with."""

    name: str = ""
    levels: Levels = {}


class ChosenCompared(ReferenceComparison):
    """A measure by which a step was chosen, beside that of a reference; the outcome as in `RecallComparison`."""

    measure: str = ""
    value: Number | None = None
    reference_value: Number | None = None
    outcome: str = ""


class AtPrefix(Record):
    """The first so many numbers of each embedding, beside as many of what it is compared with; as of the whole."""

    prefix: int
    evaluated: list[Evaluated] = []
    comparisons: dict[str, list[RecallComparison]] = {}


class EmbeddingSize(Record):
    """Form of an embedding: how many numbers, stored as which kind, and recall@1 less that of all in float32."""

    numbers: int
    kind: str
    bytes: int
    recall: Number | None = Field(None, alias="recall@1")
    map_at_r: Number | None = Field(None, alias="map@r")
    difference: Number | None = None
    low: Number | None = None
    high: Number | None = None


def as_good(size: EmbeddingSize) -> bool:
    """True if less than half a point of recall@1 is lost."""
    return size.difference is not None and size.difference > -0.005


class EmbeddingSizes(Record):
    """Forms of the embeddings of a split, the longest first; `prefixes`: by their first numbers, not by PCA."""

    split: str = ""
    level: str = ""
    queries: int | None = None
    prefixes: bool = False
    sizes: list[EmbeddingSize] = []


class CollapseIndex(Record):
    """The distance of fine classes inside coarse ones, beside that of these."""

    coarse: str = ""
    fine: str = ""
    index: Number | None = None


class ModelSize(Record):
    """Size of the network."""

    parameters: int | None = None


class SelectionCheck(Record):
    """A look at the items that a step is chosen by, see `trivet.training.checkpoint_selection.CheckpointSelection`."""

    step: int
    value: Number
    recall: Number = Field(alias="recall@1")
    gain: Number
    low: Number | None = None


class Choice(Record):
    """The best step, and the measure that chose it.

    `keep` says which model is measured, "last" or "best"; `known` counts the training items that are retrieved from as
    well; `step` is the best, and `ended` that at which patience ended
    the training before the last of the settings.
    """

    keep: str = ""
    measure: str = ""
    level: str = ""
    split: str = ""
    items: int | None = None
    classes: int | None = None
    known: int | None = None
    patience: int | None = None
    step: int | None = None
    ended: int | None = None
    checks: list[SelectionCheck] = []


class RunRecord(StampedRecord):
    """Every number and series that the page of a run shows; splits are in the order of evaluation, the main first."""

    status: str = ""
    run: str = ""
    level: str = ""
    step: int | None = None
    settings: dict[str, dict[str, Any]] = {}
    environment: dict[str, str | int | None] = {}
    data: RunData = RunData()
    model: ModelSize = ModelSize()
    warnings: list[str] = []
    seconds: dict[str, Number] = {}
    curves: Curves = Curves()
    validation: Validation = Validation()
    history: HistoryRecord | None = None
    label_noise: LabelNoise = LabelNoise()
    guard: GuardRecord = GuardRecord()
    monitor: MonitorRecord = MonitorRecord()
    cleaning: list[CleaningCheck] = []
    choosing: Choice | None = None
    evaluation: dict[str, list[Evaluated]] = {}
    intervals: dict[str, dict[str, Intervals]] = {}
    comparisons: dict[str, dict[str, list[RecallComparison]]] = {}
    chosen_comparisons: dict[str, dict[str, list[ChosenCompared]]] = {}
    prefixes: dict[str, list[AtPrefix]] = {}
    sizes: EmbeddingSizes | None = None
    collapse: dict[str, CollapseIndex] = {}
    maps: dict[str, PlaneMap] = {}
    scatter: dict[str, dict[str, ScatterRecord]] = {}
    diagnosis: dict[str, DiagnosisSection] = {}
    forecast: ForecastRecord | None = None
    foreseen: Foreseen | None = None
    ladder: LadderRecord | None = None
