"""The training history in a record: a fixed sample of items, measured at several steps."""

from __future__ import annotations

from typing import TypedDict

Moment = TypedDict(
    "Moment",
    {
        "step": int,
        "s_ap": list[float | None],
        "s_an": list[float | None],
        "mean_distance": float | None,
        "effective_rank": float | None,
        "recall@1": float | None,
        "class_spread": float | None,
        "within": list[float],
        "between": list[float],
    },
)
"""A look at the sample: similarities to the nearest positive and negative, measures, shares of distances by bin."""


class MotionRecord(TypedDict):
    """Predicted motion of triplets by a gradient step; rows of the changes by `s_an`."""

    loss: str
    s_ap: list[float]
    s_an: list[float]
    change_ap: list[list[float | None]]
    change_an: list[list[float | None]]
    gamma: float | None
    entanglement: float | None


class HistoryRecord(TypedDict):
    """All looks; the bins between `edges` are in units of the mean distance at the first."""

    level: str
    items: int | None
    moments: list[Moment]
    edges: list[float]
    field: MotionRecord | None
