"""The training history in a record: a fixed sample of items, measured at several steps."""

from __future__ import annotations

from pydantic import Field

from trivet.runtime.record import Number, Record


class Moment(Record):
    """Measurement of the sample: similarities to the nearest positive and negative, measures, shares of distances by
    bin.
    """

    step: int
    s_ap: list[Number | None] = []
    s_an: list[Number | None] = []
    mean_distance: Number | None = None
    effective_rank: Number | None = None
    recall: Number | None = Field(None, alias="recall@1")
    class_spread: Number | None = None
    within: list[Number] = []
    between: list[Number] = []


class MotionRecord(Record):
    """Predicted motion of triplets by a gradient step; rows of the changes by `s_an`."""

    loss: str = ""
    s_ap: list[Number] = []
    s_an: list[Number] = []
    change_ap: list[list[Number | None]] = []
    change_an: list[list[Number | None]] = []
    gamma: Number | None = None
    entanglement: Number | None = None


class HistoryRecord(Record):
    """Measurements at all steps; the bins between `edges` are in units of the mean distance at the first."""

    level: str = ""
    items: int | None = None
    moments: list[Moment] = []
    edges: list[Number] = []
    field: MotionRecord | None = None
