"""The record of `trivet compare`: runs side by side."""

from __future__ import annotations

from trivet.reports.shared_records import Ends, ItemRecord, NeighbourRecord, StampedRecord
from trivet.runtime.record import Number, Record


class Finding(Record):
    """A verdict or an event in short: its kind, its severity, and the rule."""

    kind: str = ""
    severity: str | None = None
    rule: str = ""


class RunDiagnosis(Record):
    """Diagnosis of a run on a split."""

    verdicts: list[Finding] = []
    relative_spread: Number | None = None
    effective_rank: Number | None = None
    class_spread: Number | None = None


class TrainingSeries(Record):
    """Log of the training of a run: steps, and series over them by name."""

    step: list[int] = []
    series: dict[str, list[Number | None]] = {}
    validation_step: list[int] = []
    recall: dict[str, list[Number | None]] = {}


class ComparedRun(Record):
    """A run: its training, how it ended, and its diagnosis.

    `helped` are the sentences on whether training helped; `chosen_by` is the measure by which its step was chosen, None
    where none was; `training` is for the page only.
    """

    name: str = ""
    path: str = ""
    side: str = ""
    seed: int | None = None
    fold: int | None = None
    status: str = ""
    level: str = ""
    step: int | None = None
    seconds: dict[str, Number] = {}
    parameters: int | None = None
    helped: list[str] = []
    chosen_by: str | None = None
    diagnosis: dict[str, RunDiagnosis] = {}
    events: list[Finding] = []
    training: TrainingSeries | None = None


class SideRecord(Record):
    """Runs that differ in nothing but the seed or the fold."""

    name: str = ""
    runs: list[str] = []


class DifferingSetting(Record):
    """A setting, or a fact, that is not the same in all sides: its values in each, one for each that occurs."""

    name: str = ""
    values: list[list[str]] = []


class Row(Record):
    """A run on a split at a level: measures, 95 % intervals, and recall@1 of its references, by name.

    An interval is over classes, or over queries where there are fewer than five classes.
    """

    run: str = ""
    measures: dict[str, Number | None] = {}
    intervals: dict[str, Ends] = {}
    references: dict[str, Number | None] = {}


class Mean(Record):
    """A measure of the runs of a side: mean and standard deviation."""

    side: str = ""
    measure: str = ""
    mean: Number | None = None
    deviation: Number | None = None


class PairDifference(Record):
    """A measure of a run less that of its partner, on the same queries."""

    of: str = ""
    less: str = ""
    difference: Number | None = None


class SideDifference(Record):
    """A measure of a side less that of the first, on the same queries, with its interval.

    `outcome` is "better", "worse" or "open": no clear difference.
    """

    of: str = ""
    less: str = ""
    measure: str = ""
    value: Number | None = None
    reference: Number | None = None
    difference: Number | None = None
    interval: Ends | None = None
    known_classes: bool = False
    outcome: str = ""
    pairs: list[PairDifference] = []


class LevelTable(Record):
    """Measures of all runs on a split at a level; `chance` is that of recall@1."""

    split: str = ""
    level: str = ""
    queries: int | None = None
    classes: int | None = None
    chance: Number | None = None
    rows: list[Row] = []
    means: list[Mean] = []
    differences: list[SideDifference] = []

    def differences_of(self, measure: str) -> dict[str, SideDifference]:
        """Side -> its difference from the first by a measure."""
        return {change.of: change for change in self.differences if change.measure == measure}


class RunNeighbours(Record):
    """Neighbours of a query in a run, nearest first."""

    run: str = ""
    neighbours: list[NeighbourRecord] = []


class SharedQuery(ItemRecord):
    """A query with its neighbours in each run; `why` it was chosen, a sentence."""

    why: str = ""
    runs: list[RunNeighbours] = []


class SharedGallery(Record):
    """Queries of a split, judged at a label level."""

    split: str = ""
    level: str = ""
    queries: list[SharedQuery] = []


class CompareRecord(StampedRecord):
    """Contents of `--json` and of the page of `trivet compare`; `gallery` is for the page only.

    `confidence` is that of each interval of a difference.
    """

    runs: list[ComparedRun] = []
    sides: list[SideRecord] = []
    confidence: Number | None = None
    tables: list[LevelTable] = []
    settings: list[DifferingSetting] = []
    notes: list[str] = []
    gallery: SharedGallery | None = None
