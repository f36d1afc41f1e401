"""The monitor part of a run's record: what the monitor detected and what the guard did."""

from __future__ import annotations

from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record

Series = dict[str, list[Number | None]]
"""Name -> value at each check."""


class EventRecord(Record):
    """See `trivet.collapse.monitor.Event`."""

    step: int
    kind: str = ""
    evidence: dict[str, Number | None] = {}
    rule: str = ""
    changes: list[str] = []
    forecast: Number | None = None
    healthy: int | None = None
    suspected: bool = False


class Chance(Record):
    """The shrinkage at the planned end, and the probability of a point; see `trivet.collapse.forecast.Forecast`."""

    probability: Number
    shrinkage: Number | None = None
    interval: list[Number] = []
    evidence: dict[str, Number | None] = {}
    step: int | None = None
    end: int | None = None
    until: int | None = None


class ProbeRecord(Record):
    """Results of a probe of so many held-out items, and its cost; see `trivet.collapse.probe.ProbeTracker`."""

    items: int
    cost: Number | None = None
    start: dict[str, Number | None] = {}
    series: Series = {}


class MonitorRecord(Record):
    """Measures of the monitor, and what follows from them."""

    series: Series = {}
    events: list[EventRecord] = []
    forecast: Chance | None = None
    probe: ProbeRecord | None = None
    closing: str | None = None  # how held-out items ended beside their start, a sentence


class GuardRecord(Record):
    """The action, the step of the network that is the result in place of the last, and what ended the training."""

    action: str = ""
    snapshot: int | None = None
    stopped_by: str | None = None


class WatchRecord(StampedRecord):
    """A training of another library or loop that was watched: the class of its network, and what `restore_best` did."""

    monitor: MonitorRecord
    network: str = ""
    restored: str | None = None
