"""The record of `trivet forecast`: of one run, or of a grid."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.monitor_record import EventRecord


class Chance(TypedDict):
    """The probability of a network collapse, with its 90 % interval."""

    probability: float
    interval: list[float]
    evidence: dict[str, float | None]
    step: int | None


class Bound(TypedDict):
    """The diameter of a batch less twice the loss of its hardest triplet."""

    items: int
    diameter: float
    loss: float
    bound: float
    vacuous: bool
    sentence: str


class SeedRecord(TypedDict):
    """The first steps of a run with one seed."""

    seed: int
    forecast: Chance | None
    bound: Bound | None
    events: list[EventRecord]
    series: dict[str, list[float | None]]


class Cell(TypedDict):
    """One shape of batch and one dimension; `reason` why there is no forecast."""

    classes: int
    samples: int
    dim: int
    forecast: Chance | None
    outlook: str | None
    bound: Bound | None
    reason: str | None


class ForecastRecord(TypedDict):
    """Forecast of one run, without cells; or of a grid: `axes` and `here` say where its cells and the settings lie."""

    config: str
    steps: int | None
    of: int | None
    forecast: Chance | None
    outlook: str | None
    verdict: str
    changes: list[str]
    bound: Bound | None
    seeds: list[SeedRecord]
    axes: dict[str, list[int]]
    here: dict[str, int]
    cells: list[Cell]
    seconds: float | None
    command: str
    created: str
    trivet: str


class TrialSteps(TypedDict):
    """The first steps with the settings changed so; `recall` of held-out items before and after them."""

    changes: dict[str, list[object]]
    forecast: Chance | None
    outlook: str | None
    recall: list[float] | None
    foreseen: bool


class Foreseen(TypedDict):
    """Forecast of a run before its first step; see `trivet.commands.train.pre_run_forecast`."""

    steps: int
    sentence: str | None
    changes: dict[str, list[object]]
    tried: list[TrialSteps]
