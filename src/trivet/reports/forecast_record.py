"""The record of `trivet forecast`: of one run, or of a grid."""

from __future__ import annotations

from typing import Any, Literal

from trivet.reports.monitor_record import Chance, EventRecord, Series
from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record

Outlook = Literal["likely", "unlikely", "open"]
Changes = dict[str, list[Any]]
"""Setting -> [its value, the new one], named section.key; None for absent."""


class Bound(Record):
    """The diameter of a batch less twice the loss of its hardest triplet."""

    items: int
    diameter: Number
    loss: Number
    bound: Number
    vacuous: bool
    sentence: str = ""


class SeedRecord(Record):
    """The first steps of a run with one seed."""

    seed: int
    forecast: Chance | None = None
    bound: Bound | None = None
    events: list[EventRecord] = []
    series: Series = {}


class Cell(Record):
    """One shape of batch and one dimension; `reason` why there is no forecast."""

    classes: int
    samples: int
    dim: int
    forecast: Chance | None = None
    outlook: Outlook | None = None
    bound: Bound | None = None
    reason: str | None = None


class GridAxes(Record):
    """Values along the axes of a grid, sorted."""

    classes: list[int] = []
    samples: list[int] = []
    dim: list[int] = []


class ForecastRecord(StampedRecord):
    """Forecast of one run, without cells; or of a grid: `axes` and `here` say where its cells and the settings lie.

    `changes` are proposed unless a point is unlikely; the numbers of `bound` are means over the seeds.
    """

    config: str = ""
    steps: int | None = None
    of: int | None = None
    forecast: Chance | None = None
    outlook: Outlook | None = None
    verdict: str = ""
    changes: list[str] = []
    bound: Bound | None = None
    seeds: list[SeedRecord] = []
    axes: GridAxes | None = None
    here: dict[str, int] = {}
    cells: list[Cell] = []
    seconds: Number | None = None


class TrialSteps(Record):
    """The first steps with the settings changed so; `recall` of held-out items before and after them."""

    changes: Changes = {}
    forecast: Chance | None = None
    sentence: str | None = None  # of the forecast
    outlook: Outlook | None = None
    recall: list[Number] | None = None
    foreseen: bool

    @property
    def probability(self) -> float:
        """The probability of a point; 1 where embeddings were not finite."""
        return 1.0 if self.forecast is None else self.forecast.probability


class Foreseen(Record):
    """Forecast of a run before its first step; see `trivet.commands.train.pre_run_forecast`.

    `sentence` is None where nothing is foreseen, `changes` are setting -> [old, new] of the proposal; the first of
    `tried` are the settings of the run.
    """

    steps: int
    sentence: str | None = None
    changes: Changes = {}
    tried: list[TrialSteps] = []
