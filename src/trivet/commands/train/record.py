"""The `--json` of `trivet train`: of a run, as `trivet evaluate RUN` prints it too, and of a cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from trivet.commands.evaluate.record import FoldsRecord
from trivet.reports.diagnosis_record import RecallComparison, VerdictRecord
from trivet.reports.label_noise_record import LabelNoise
from trivet.reports.ladder_record import LadderRecord
from trivet.reports.monitor_record import EventRecord, GuardRecord
from trivet.reports.run_record import AtPrefix, Choice, ChosenCompared, CollapseIndex, RunRecord
from trivet.reports.shared_records import Intervals, Levels
from trivet.runtime.record import Number, Record


class RunSummary(Record):
    """Results of a run: `evaluation` and `intervals` are of the first split, `splits` holds all."""

    run: str
    status: str
    split: str | None
    evaluation: Levels
    splits: dict[str, Levels]
    references: dict[str, dict[str, Levels]]
    comparisons: dict[str, dict[str, list[RecallComparison]]]
    chosen_comparisons: dict[str, dict[str, list[ChosenCompared]]]
    prefixes: dict[str, list[AtPrefix]]
    verdicts: dict[str, list[VerdictRecord]]
    intervals: dict[str, Intervals]
    collapse: dict[str, CollapseIndex]
    events: list[EventRecord]
    guard: GuardRecord
    choosing: Choice | None
    label_noise: LabelNoise
    ladder: LadderRecord | None
    seconds: dict[str, Number]
    warnings: list[str]
    report: str

    @classmethod
    def of(cls, record: RunRecord, folder: Path) -> Self:
        """The summary of the run in a folder."""
        splits = {split: {row.name: row.levels for row in rows} for split, rows in record.evaluation.items()}
        first = next(iter(splits), None)
        same = ("status", "comparisons", "chosen_comparisons", "prefixes", "collapse", "guard", "choosing",
                "label_noise", "ladder", "seconds", "warnings")  # fmt: skip
        return cls(
            **{name: getattr(record, name) for name in same},
            run=str(folder),
            split=first,
            evaluation=splits[first]["trained"] if first else {},
            splits={split: rows["trained"] for split, rows in splits.items()},
            references={
                split: {name: levels for name, levels in rows.items() if name != "trained"}
                for split, rows in splits.items()
            },
            verdicts={split: section.verdicts for split, section in record.diagnosis.items()},
            intervals={} if first is None else record.intervals.get(first, {}),
            events=record.monitor.events,
            report=str(folder / "report.html"),
        )


class CrossValidation(Record):
    """Runs of a cross-validation, and level -> measure -> what they say together, where all have finished.

    `stopped_by` is the event by which a guard stopped the last of the runs.
    """

    folds: int
    runs: list[str]
    status: Literal["finished", "interrupted", "stopped"]
    stopped_by: str = ""
    evaluation: dict[str, dict[str, FoldsRecord]] = {}
