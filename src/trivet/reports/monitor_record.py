"""The monitor part of a run's record: what the monitor detected and what the guard did."""

from __future__ import annotations

from typing import TypedDict


class Event(TypedDict):
    """See `trivet.collapse.monitor.Event`."""

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


class Probe(TypedDict):
    """What a probe of so many held-out items showed, and what it cost; see `trivet.collapse.probe.ProbeTracker`."""

    items: int
    cost: float | None
    start: dict[str, float | None]
    series: dict[str, list[float | None]]


class Attempt(TypedDict):
    """What was seen up to a repair or to the end: measure -> its value at each look."""

    series: dict[str, list[float | None]]
    events: list[Event]
    forecast: Ahead | None
    probe: Probe | None


class Monitor(TypedDict):
    """The attempts, of which each but the last ended in a repair."""

    attempts: list[Attempt]


class Repair(TypedDict):
    """A return to a checkpoint; setting -> its old and its new value, None for one that is absent."""

    step: int
    returned_to: int
    kind: str
    changes: dict[str, list[object]]
    why: str


class Unrepaired(TypedDict):
    """An event that was to be repaired and was not."""

    step: int
    kind: str
    why: str


class Kept(TypedDict):
    """The attempt and the step whose network is the result, as the last one ended worse."""

    attempt: int
    step: int


class Guard(TypedDict):
    """What was done; `settings` are those that repairs changed, `stopped_by` the event that ended the training."""

    action: str
    repairs: list[Repair]
    settings: dict[str, object]
    not_repaired: list[Unrepaired]
    kept: Kept | None
    stopped_by: str | None
