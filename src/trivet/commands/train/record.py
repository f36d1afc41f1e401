"""The record of a cross-validation: `folds.json`, and the `--json` of `trivet train --folds`."""

from __future__ import annotations

from typing import Literal

from trivet.runtime.record import Number, Record


class OverFolds(Record):
    """A measure over the folds: its mean with the Student-t interval at 95 %, and its value on each."""

    mean: Number
    interval: list[Number] | None
    values: list[Number]


class CrossValidation(Record):
    """Runs of a cross-validation, and level -> measure -> what they say together, where all have finished.

    `stopped_by` is the event by which a guard stopped the last of the runs.
    """

    folds: int
    runs: list[str]
    status: Literal["finished", "interrupted", "stopped"]
    stopped_by: str = ""
    evaluation: dict[str, dict[str, OverFolds]] = {}
