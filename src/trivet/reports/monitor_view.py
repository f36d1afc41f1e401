"""Contents of a page on what a monitor saw: events as cards, curves of held-out items and of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trivet.reports.diagnosis_record import VerdictRecord
from trivet.reports.items import Curve, Limits, Mark, curve
from trivet.reports.monitor_record import EventRecord, MonitorRecord, ProbeRecord, Series
from trivet.reports.page import number
from trivet.reports.verdict_view import verdict

INTERVAL = "99 % interval of what changed since the start"
_BATCHES: tuple[tuple[str, dict[str, str], Limits], ...] = (
    ("Loss of the batches", {"loss": "loss"}, None),
    (
        "Recall@1 and hard anchors within batches, and the risk of a network collapse by them alone",
        {"recall": "recall@1", "hard": "hard", "risk": "risk"},
        (0, 1),
    ),
    ("Relative spread of the batches", {"relative_spread": "relative spread"}, (0, 1)),
)


def event_section(events: Sequence[EventRecord], notes: Sequence[str] = ()) -> dict[str, Any]:
    """A section of cards for diagnosis_parts.html, one for each event."""
    verdicts = []
    for event in events:
        evidence = dict(event.evidence)
        if event.forecast is not None:
            evidence["forecast_of_a_point"] = event.forecast
        suspected = "suspected " if event.suspected else ""
        rule = f"{suspected}at step {number(event.step)}: {event.rule}"
        verdicts.append(verdict(VerdictRecord(kind=event.kind, rule=rule, evidence=evidence, changes=event.changes)))
    return {"label": "", "facts": [], "rank": 0, "verdicts": verdicts, "notes": list(notes)}


def event_marks(events: Sequence[EventRecord]) -> list[Mark]:
    """The vertical marks of the curves: the events of each step."""
    marks: dict[int, list[str]] = {}
    for event in events:
        marks.setdefault(event.step, []).append(event.kind.replace("-", " "))
    return [Mark(step=step, text=", ".join(words)) for step, words in marks.items()]


def series_steps(series: Mapping[str, Sequence[float | None]]) -> list[int]:
    """The steps of a series of a monitor or its probe."""
    return [round(step or 0) for step in series.get("step", [])]


def probe_curve(probe: ProbeRecord | None, title: str, marks: Sequence[Mark]) -> Curve | None:
    """Recall@1 and spread of held-out items; None where there are none.

    The recall that counts has a band: its start, and the ends of the interval of what it gained since.
    """
    if probe is None:
        return None
    names = {"recall@1": "recall", "recall@1 by finer classes": "fine_recall", "relative spread": "relative_spread"}
    series: Series = {title: probe.series.get(name, []) for title, name in names.items()}
    start = probe.start.get("fine_recall")
    start = probe.start.get("recall") if start is None else start
    gains = [probe.series.get(name, []) for name in ("gain_low", "gain_high")]
    band: Series = {}
    if start is not None and all(gains):
        ends = [[None if gain is None else min(1.0, max(0.0, start + gain)) for gain in side] for side in gains]
        band = {"low": ends[0], "high": ends[1]}
    return curve(title, series_steps(probe.series), series, (0, 1), marks, band=band, band_title=INTERVAL)


def batch_curves(monitor: MonitorRecord, marks: Sequence[Mark]) -> list[Curve]:
    """The measures of the batches that the monitor saw."""
    steps = series_steps(monitor.series)
    drawn = (
        curve(title, steps, {text: monitor.series.get(name, []) for name, text in names.items()}, limits, marks)
        for title, names, limits in _BATCHES
    )
    return [plot for plot in drawn if plot is not None]
