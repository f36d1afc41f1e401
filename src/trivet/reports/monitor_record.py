"""The monitor part of a run's record: what the monitor detected and what the guard did."""

from __future__ import annotations

from typing import TypedDict


class EventRecord(TypedDict):
    """See `trivet.collapse.monitor.EventRecord`."""

    step: int
    kind: str
    evidence: dict[str, float | None]
    rule: str
    changes: list[str]
    forecast: float | None
    healthy: int | None


class Ahead(TypedDict):
    """See `trivet.collapse.forecast.Forecast`."""

    probability: float | None


class ProbeRecord(TypedDict):
    """Results of a probe of so many held-out items, and its cost; see `trivet.collapse.probe.ProbeTracker`."""

    items: int
    cost: float | None
    start: dict[str, float | None]
    series: dict[str, list[float | None]]


class MonitorRecord(TypedDict):
    """Measures of the monitor: name -> value at each check."""

    series: dict[str, list[float | None]]
    events: list[EventRecord]
    forecast: Ahead | None
    probe: ProbeRecord | None


class GuardRecord(TypedDict):
    """The action, the step of the network that is the result in place of the last, and what ended the training."""

    action: str
    snapshot: int | None
    stopped_by: str | None
