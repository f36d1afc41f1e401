"""The label noise part of a run's record."""

from __future__ import annotations

from pydantic import Field

from trivet.reports.shared_records import EstimateRecord
from trivet.runtime.record import Number, Record


class Skew(Record):
    """Unevenness of the picks, see `trivet.label_noise.SkewEstimate`."""

    batches: int | None = None
    picks: int | None = None
    active: int | None = None
    relative: list[Number | None] = []
    skew: EstimateRecord | None = None
    easy_skew: EstimateRecord | None = None
    wrong_skew: EstimateRecord | None = None
    active_wrong_skew: EstimateRecord | None = None
    positive_skew: EstimateRecord | None = None
    negative_skew: EstimateRecord | None = None
    gamma: EstimateRecord | None = None
    positive_bins: int | None = None
    negative_bins: int | None = None


class ToleranceRecord(Record):
    """The share of wrong labels that a strategy tolerates, `by` its skew or by gamma, and that of `uniform` picking."""

    by: str = ""
    skew: EstimateRecord = EstimateRecord()
    rate: EstimateRecord = EstimateRecord()
    uniform: Number


class Phase(Record):
    """A part of the training."""

    start: int = Field(alias="from")
    end: int = Field(alias="to")
    picks: int | None = None
    active: int | None = None
    skew: EstimateRecord | None = None
    wrong_skew: EstimateRecord | None = None
    gamma: EstimateRecord | None = None
    tolerance: ToleranceRecord | None = None


class Picks(Record):
    """Picks of the strategy of a run, or the `reason` why they are not known."""

    reason: str | None = None
    checks: int | None = None
    skew: Skew | None = None
    tolerance: ToleranceRecord | None = None
    along: list[Phase] = []


class LabelNoise(Record):
    """Wrong labels that the strategy tolerates."""

    strategy: Picks = Picks()


class CleaningCheck(Record):
    """A look at the labels while training: the share of wrong ones, where it can be told, and the `least` it can be.

    Neither where no label was judged.
    """

    step: int
    suspects: int
    noise_rate: Number | None = None
    least: Number | None = None
    left_out: int
    relabelled: int
