"""`sweep.json` of a sweep: what was tried, what was best by validation, and what that came to on the test classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record

State = Literal["complete", "pruned", "failed", "running", "waiting"]


class StudyDescription(Record):
    """A study's words on itself: the settings of its sweep as TOML, where it began, its trials and first seed."""

    sweep: str
    folder: str
    trials: int
    seed: int


class VariedSetting(Record):
    """A setting that varies: its choices as texts, or a range from low to high."""

    name: str
    choices: list[str] = []
    low: Number | None = None
    high: Number | None = None
    log: bool | None = None
    step: Number | None = None


class SweepRun(Record):
    """A run of a complete trial: the measure on validation at the step that is kept, and before training."""

    seed: int
    fold: int | None = None
    value: Number
    start: Number | None = None
    step: int | None = None
    seconds: Number | None = None


class SweepMeasurement(Record):
    """A measurement on validation while a run of a trial trained."""

    run: int
    step: int
    value: Number


class SweepTrial(Record):
    """Settings that were tried; none before a worker has claimed them.

    `why` says why it was pruned or failed, `attempts` counts the workers that have begun it.
    `value` is the mean over the runs, with its 95 %
    interval by Student's t where there are several, and `start` that before training. `level_with_best` says whether
    the best trial is not clearly better, run by run; None where there is one run. `order` counts the trials as they
    ended. `folder` lies in that of the sweep.
    """

    number: int
    state: State = "waiting"
    settings: dict[str, Any] = {}
    value: Number | None = None
    interval: list[Number] | None = None
    start: Number | None = None
    level_with_best: bool | None = None
    runs: list[SweepRun] = []
    why: str | None = None
    attempts: int | None = None
    measurements: list[SweepMeasurement] = []
    order: int | None = None
    folder: str = ""
    ended: float | None = Field(None, exclude=True)  # when it was told, in seconds since 1970


class Sentence(Record):
    """A sentence with its tone: "good", "warn" or "bad"."""

    tone: str = ""
    text: str = ""


class SweepRecord(StampedRecord):
    """Content of the page of a sweep. Trials that have a value come first, the best first.

    `status` is "finished", "interrupted", "waiting" where another worker writes the result, or "failed" where no trial
    has a value. `importance` is that of each setting in the measure, by fANOVA; None with too few trials. `helped` says
    whether training with the best settings helped on the test classes, and `tested` is what that run measured there:
    split -> level -> "trained" or a reference, such as "raw inputs" -> measure -> value.
    """

    status: str = ""
    study: str = ""
    storage: str = ""
    sampler: str = ""
    pruning: bool | None = None
    measure: str = ""
    requested: int | None = None
    seeds: list[int] = []
    folds: list[int] = []
    vary: list[VariedSetting] = []
    trials: list[SweepTrial] = []
    best: int | None = None
    best_settings: str = ""
    importance: dict[str, Number] | None = None
    helped: list[Sentence] = []
    tested: dict[str, dict[str, dict[str, dict[str, Number]]]] = {}
    notes: list[str] = []

    @property
    def ranked(self) -> list[SweepTrial]:
        """The trials that have a value, best first."""
        return [trial for trial in self.trials if trial.value is not None]

    @property
    def runs_per_trial(self) -> int:
        """The number of runs of a complete trial: seeds times folds."""
        return len(self.seeds) * max(1, len(self.folds))


def setting_text(value: object, *, digits: int | None = None) -> str:
    """A value of a setting in short: a section by its name, other values that are no texts as JSON.

    Args:
        digits: of a number with decimals; None for all it has.
    """
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        others = [f"{key} {setting_text(inner, digits=digits)}" for key, inner in value.items() if key != "name"]
        return ", ".join([value["name"], *others])
    if isinstance(value, float) and digits is not None:
        return f"{value:.{digits}g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
