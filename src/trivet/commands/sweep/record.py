"""`sweep.json` of a sweep: what was tried, what was best by validation, and what that came to on the test classes."""

from __future__ import annotations

from typing import Any, TypedDict

from trivet.reports.shared_records import Ends


class VariedSetting(TypedDict):
    """A setting that varies: its choices as texts, or a range from low to high."""

    name: str
    choices: list[str]
    low: float | None
    high: float | None
    log: bool | None
    step: float | None


class SweepRun(TypedDict):
    """A run of a complete trial: the measure on validation at the step that is kept, and before training."""

    seed: int | None
    fold: int | None
    value: float | None
    start: float | None
    step: int | None
    seconds: float | None


class SweepMeasurement(TypedDict):
    """A measurement on validation while a run of a trial trained."""

    run: int
    step: int
    value: float | None


class SweepTrial(TypedDict):
    """Settings that were tried.

    `state` is "complete", "pruned", "failed", "running" or "waiting". `value` is the mean over the runs, with its 95 %
    interval by Student's t where there are several, and `start` that before training. `level_with_best` says whether
    the best trial is not clearly better, run by run; None where there is one run. `order` counts the trials as they
    were told. `folder` lies in that of the sweep.
    """

    number: int
    state: str
    settings: dict[str, Any]
    value: float | None
    interval: Ends | None
    start: float | None
    level_with_best: bool | None
    runs: list[SweepRun]
    why: str | None
    attempts: int | None
    measurements: list[SweepMeasurement]
    order: int | None
    folder: str


class Sentence(TypedDict):
    """A sentence with its tone: "good", "warn" or "bad"."""

    tone: str
    text: str


class SweepRecord(TypedDict):
    """Content of the page of a sweep. Trials that have a value come first, the best first.

    `status` is "finished", "interrupted", "waiting" where another worker writes the result, or "failed" where no trial
    has a value. `importance` is that of each setting in the measure, by fANOVA; None with too few trials. `helped` says
    whether training with the best settings helped on the test classes, and `tested` is what that run measured there:
    split -> level -> "trained" or a reference, such as "raw inputs" -> measure -> value.
    """

    status: str
    study: str
    storage: str
    sampler: str
    pruning: bool | None
    measure: str
    requested: int | None
    seeds: list[int]
    folds: list[int]
    vary: list[VariedSetting]
    trials: list[SweepTrial]
    best: int | None
    best_settings: str
    importance: dict[str, float] | None
    helped: list[Sentence]
    tested: dict[str, dict[str, dict[str, dict[str, float]]]]
    notes: list[str]
    command: str
    created: str
    trivet: str
