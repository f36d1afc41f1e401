"""The record of `trivet compare`: runs side by side."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.shared_records import Ends, ItemRecord, Measures, NeighbourRecord


class Finding(TypedDict):
    """A verdict or an event in short: what it is, how grave, and the rule."""

    kind: str
    severity: str | None
    rule: str


class RunDiagnosis(TypedDict):
    """Diagnosis of a run on a split."""

    verdicts: list[Finding]
    relative_spread: float | None
    effective_rank: float | None
    class_spread: float | None


class TrainingSeries(TypedDict):
    """Log of the training of a run: steps, and series over them by name."""

    step: list[int]
    series: dict[str, list[float | None]]
    validation_step: list[int]
    recall: dict[str, list[float | None]]


class ComparedRun(TypedDict):
    """A run: what was trained, how it ended, and what is known of it beside its measures.

    `helped` are the sentences on whether training helped; `chosen_by` is the measure by which its step was chosen, None
    where none was; `training` is None where it was left out.
    """

    name: str
    path: str
    side: str
    seed: int | None
    fold: int | None
    status: str
    level: str
    step: int | None
    seconds: dict[str, float]
    parameters: int | None
    helped: list[str]
    chosen_by: str | None
    diagnosis: dict[str, RunDiagnosis]
    events: list[Finding]
    training: TrainingSeries | None


class SideRecord(TypedDict):
    """Runs that differ in nothing but the seed or the fold."""

    name: str
    runs: list[str]


class DifferingSetting(TypedDict):
    """A setting, or a fact, that is not the same in all sides: its values in each, one for each that occurs."""

    name: str
    values: list[list[str]]


class Row(TypedDict):
    """A run on a split at a level: measures, 95 % intervals, and recall@1 of what it is compared with, by name.

    An interval is over classes, or over queries where there are fewer than five classes.
    """

    run: str
    measures: Measures
    intervals: dict[str, Ends]
    references: dict[str, float | None]


class Mean(TypedDict):
    """A measure of the runs of a side: mean and standard deviation."""

    side: str
    measure: str
    mean: float | None
    deviation: float | None


class PairDifference(TypedDict):
    """A measure of a run less that of its partner, on the same queries."""

    of: str
    less: str
    difference: float | None


class SideDifference(TypedDict):
    """A measure of a side less that of the first, on the same queries, with its interval.

    `outcome` is "better", "worse" or "open": no clear difference.
    """

    of: str
    less: str
    measure: str
    value: float | None
    reference: float | None
    difference: float | None
    interval: Ends | None
    outcome: str
    pairs: list[PairDifference]


class LevelTable(TypedDict):
    """Measures of all runs on a split at a level; `chance` is that of recall@1."""

    split: str
    level: str
    queries: int | None
    classes: int | None
    chance: float | None
    rows: list[Row]
    means: list[Mean]
    differences: list[SideDifference]


class RunNeighbours(TypedDict):
    """Neighbours of a query in a run, nearest first."""

    run: str
    neighbours: list[NeighbourRecord]


class SharedQuery(ItemRecord):
    """A query with what each run finds; `why` it was chosen, a sentence."""

    why: str
    runs: list[RunNeighbours]


class SharedGallery(TypedDict):
    """Queries of a split, judged at a label level."""

    split: str
    level: str
    queries: list[SharedQuery]


class CompareRecord(TypedDict):
    """Contents of the page of `trivet compare`.

    `confidence` is that of each interval of a difference, so that all `comparisons` hold together in 95 %: those by
    recall@1, and by each measure that the step of a run was chosen by.
    """

    runs: list[ComparedRun]
    sides: list[SideRecord]
    comparisons: int | None
    confidence: float | None
    tables: list[LevelTable]
    settings: list[DifferingSetting]
    notes: list[str]
    gallery: SharedGallery | None
    command: str
    created: str
    trivet: str
