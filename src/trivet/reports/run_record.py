"""`record.json` of a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from trivet.reports.diagnosis_record import DiagnosisSection, RecallComparison
from trivet.reports.forecast_record import ForecastRecord, Foreseen
from trivet.reports.from_json import complete
from trivet.reports.history_record import HistoryRecord
from trivet.reports.label_noise_record import CleaningCheck, LabelNoise
from trivet.reports.monitor_record import GuardRecord, MonitorRecord
from trivet.reports.shared_records import Gallery, Intervals, Levels, PlaneMap, ScatterRecord
from trivet.runtime.safe_read import check_types


class ProtocolCounts(TypedDict):
    """Counts of a split with queries and a gallery, see `trivet.metrics.QueryGallery`: the gallery without junk."""

    queries: int | None
    gallery: int | None
    junk: int | None
    cameras: bool | None


class Counts(TypedDict):
    """Counts of a split: items, level -> classes, and queries and gallery where not each item is both.

    `trained_classes` says, level by level, how many classes of an evaluation split are trained on.
    """

    items: int | None
    classes: dict[str, int]
    protocol: ProtocolCounts | None
    trained_classes: dict[str, int]


class SkippedRecord(TypedDict):
    """An image that was not read."""

    id: str
    reason: str


class InjectedNoise(TypedDict):
    """Labels that are known to be wrong, see `trivet.datasets.label_noise.noise_summary`."""

    kind: str | None
    rate: float | None
    topline: bool | None


class CoverageRecord(TypedDict):
    """Shares of the data that one epoch trains on."""

    items: float
    classes: float


class RunData(TypedDict):
    """The data that were trained and evaluated on."""

    train: Counts | None
    evaluation: dict[str, Counts]
    skipped: list[SkippedRecord]
    noise: InjectedNoise | None
    decisions: dict[str, int] | None
    coverage: CoverageRecord | None


class Curves(TypedDict):
    """Steps that were logged, and series over them."""

    step: list[int]
    loss: list[float | None]
    active: list[float | None]
    hard: list[float | None]
    d_ap: list[float | None]
    d_an: list[float | None]
    dropped: list[float | None]


Validation = TypedDict(
    "Validation",
    {
        "split": str,
        "items": int | None,
        "step": list[int],
        "recall@1": dict[str, list[float | None]],
    },
)
"""Looks at a sample of the first split while training: level -> series."""


class Evaluated(TypedDict):
    """An embedding of a split: "trained", or what it is compared with."""

    name: str
    levels: Levels


class ChosenCompared(TypedDict):
    """A measure by which a step was chosen, beside that of a reference; the rest as in `RecallComparison`."""

    measure: str
    reference: str
    level: str
    queries: int | None
    value: float | None
    reference_value: float | None
    low: float | None
    high: float | None
    difference: float | None
    outcome: str


class AtPrefix(TypedDict):
    """The first so many numbers of each embedding, beside as many of what it is compared with; as of the whole."""

    prefix: int
    evaluated: list[Evaluated]
    comparisons: dict[str, list[RecallComparison]]


class CollapseIndex(TypedDict):
    """The distance of fine classes inside coarse ones, beside that of these."""

    coarse: str
    fine: str
    index: float | None


class ModelSize(TypedDict):
    """Size of the network."""

    parameters: int | None


SelectionCheck = TypedDict(
    "SelectionCheck",
    {"step": int, "value": float | None, "recall@1": float | None, "gain": float | None, "low": float | None},
)
"""A look at the items that a step is chosen by, see `trivet.training.checkpoint_selection.CheckpointSelection`."""


class Choice(TypedDict):
    """The best step, and the measure that chose it.

    `keep` says which model is measured, "last" or "best"; `known` counts the training items that are retrieved from as
    well; `step` is the best, and `ended` that at which patience ended
    the training before the last of the settings.
    """

    keep: str
    measure: str
    level: str
    split: str
    items: int | None
    classes: int | None
    known: int | None
    patience: int | None
    step: int | None
    ended: int | None
    checks: list[SelectionCheck]


class RunRecord(TypedDict):
    """Every number and series that the page of a run shows; splits are in the order of evaluation, the main first."""

    trivet: str
    created: str
    status: str
    run: str
    command: str
    level: str
    step: int | None
    settings: dict[str, dict[str, Any]]
    environment: dict[str, object]
    data: RunData
    model: ModelSize
    warnings: list[str]
    seconds: dict[str, float]
    curves: Curves
    validation: Validation
    history: HistoryRecord | None
    label_noise: LabelNoise
    guard: GuardRecord
    monitor: MonitorRecord
    cleaning: list[CleaningCheck]
    choosing: Choice | None
    evaluation: dict[str, list[Evaluated]]
    intervals: dict[str, dict[str, Intervals]]
    comparisons: dict[str, dict[str, list[RecallComparison]]]
    chosen_comparisons: dict[str, dict[str, list[ChosenCompared]]]
    prefixes: dict[str, list[AtPrefix]]
    collapse: dict[str, CollapseIndex]
    maps: dict[str, PlaneMap]
    scatter: dict[str, dict[str, ScatterRecord]]
    neighbours: dict[str, Gallery]
    diagnosis: dict[str, DiagnosisSection]
    forecast: ForecastRecord | None
    foreseen: Foreseen | None


def read_run(values: Mapping[str, Any]) -> RunRecord:
    """The record of a run, of whatever age; a part that it lacks is empty or None, and none is of another type.

    Args:
        values: the parsed `record.json`.

    Raises:
        ValueError: if it is broken, see `complete` and `trivet.runtime.safe_read.check_types`.
    """
    check_types(RunRecord, values)
    return complete(RunRecord, values)
