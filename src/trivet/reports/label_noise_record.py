"""The label noise part of a run's record."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.shared_records import EstimateRecord


class Skew(TypedDict):
    """Unevenness of the picks, see `trivet.label_noise.SkewEstimate`."""

    picks: int | None
    active: int | None
    relative: list[float | None]
    skew: EstimateRecord | None
    easy_skew: EstimateRecord | None
    wrong_skew: EstimateRecord | None
    active_wrong_skew: EstimateRecord | None
    positive_skew: EstimateRecord | None
    negative_skew: EstimateRecord | None
    gamma: EstimateRecord | None


class ToleranceRecord(TypedDict):
    """The share of wrong labels that a strategy tolerates, `by` its skew or by gamma, and that of `uniform` picking."""

    by: str
    rate: EstimateRecord
    uniform: float


Phase = TypedDict(
    "Phase",
    {
        "from": int,
        "to": int,
        "picks": int | None,
        "active": int | None,
        "skew": EstimateRecord | None,
        "wrong_skew": EstimateRecord | None,
        "gamma": EstimateRecord | None,
        "tolerance": ToleranceRecord | None,
    },
)
"""A part of the training."""


class Picks(TypedDict):
    """Picks of the strategy of a run, or the `reason` why they are not known."""

    reason: str | None
    checks: int | None
    skew: Skew | None
    tolerance: ToleranceRecord | None
    along: list[Phase]


class LabelNoise(TypedDict):
    """Wrong labels that the strategy tolerates."""

    strategy: Picks


class CleaningCheck(TypedDict):
    """A look at the labels while training: the share of wrong ones, where it can be told, and the `least` it can be.

    Neither where no label was judged.
    """

    step: int
    suspects: int
    noise_rate: float | None
    least: float | None
    left_out: int
    relabelled: int
