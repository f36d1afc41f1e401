"""The page of a training that was watched as a guest: how held-out items ended, their curve, and the events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trivet.reports.items import is_number
from trivet.reports.monitor_record import ProbeRecord, WatchRecord
from trivet.reports.monitor_view import batch_curves, event_marks, event_section, probe_curve, series_steps
from trivet.reports.page import number, percent, points, write_page

_LEVELS = {"recall": "by the labels", "fine_recall": "by the finer classes"}
_UNJUDGED = "Held-out items were not judged after the start."


@dataclass(frozen=True)
class LevelEnd:
    """Recall@1 at a level at the end, the start and the best call: the first, and bars of all."""

    title: str
    share: float
    bars: list[tuple[str, float]]


def write_watch_report(record: WatchRecord, path: Path) -> None:
    """Write the page of a watched training; a part that the record lacks is left out."""
    monitor = record.monitor
    probe, marks = monitor.probe, event_marks(monitor.events)
    title = "Recall@1 and relative spread of the held-out items"
    curves = [*batch_curves(monitor, marks)]
    if (first := probe_curve(probe, title, marks)) is not None:
        curves.insert(0, first)
    tone = _tone(probe)
    if tone == "good" and any(not event.suspected for event in monitor.events):
        tone = "calm"
    sentences = [(tone, monitor.closing or _UNJUDGED)]
    if record.restored is not None:
        sentences.append(("calm", record.restored))
    context = {
        "record": record,
        "sentences": sentences,
        "steps": series_steps(probe.series)[-1] if probe is not None and probe.series.get("step") else 0,
        "levels": [] if probe is None else _levels(probe),
        "events": [event_section(monitor.events)] if monitor.events else [],
        "quiet": _quiet(record),
        "curves": curves,
        "calls": [] if probe is None else _calls(probe),
    }
    write_page("watch.html", path, context, {"curves": curves})


def _tone(probe: ProbeRecord | None) -> str:
    """Tone of an end that is above the start, below it or, as far as can be told, neither."""
    lows, highs = ([] if probe is None else probe.series.get(name, []) for name in ("gain_low", "gain_high"))
    if len(lows) < 2 or lows[-1] is None or highs[-1] is None:
        return "warn"
    return "bad" if highs[-1] < 0 else "good" if lows[-1] > 0 else "calm"


def _levels(probe: ProbeRecord) -> list[LevelEnd]:
    steps, levels = series_steps(probe.series), []
    for name, title in _LEVELS.items():
        values = [value for value in probe.series.get(name, []) if is_number(value)]
        if len(values) < 2:
            continue
        best = max(range(len(values)), key=lambda call: values[call])
        bars = [(f"end (step {number(steps[-1])})", values[-1]), (f"start (step {number(steps[0])})", values[0])]
        if 0 < best < len(values) - 1:
            bars.append((f"best (step {number(steps[best])})", values[best]))
        levels.append(LevelEnd(title, values[-1], bars))
    return levels


def _quiet(record: WatchRecord) -> str:
    """Sentences on what was asked, and how often."""
    monitor, sentences = record.monitor, []
    if (probe := monitor.probe) is not None:
        calls = len(series_steps(probe.series))
        cost = "" if not probe.cost else f", an estimated {percent(probe.cost)}\u00a0% of the cost of the steps"
        sentences.append(f"{number(probe.items)} held-out items were embedded {number(calls)} times{cost}.")
    if checks := series_steps(monitor.series):
        sentences.append(f"Batches were looked at {number(len(checks))} times, the last at step {number(checks[-1])}.")
    if not monitor.events and probe is not None:
        sentences.append("There was no event.")
    return " ".join(sentences)


def _calls(probe: ProbeRecord) -> list[tuple[str, list[str]]]:
    """A row of texts for each call."""
    columns: list[Sequence[float | None]] = [
        probe.series.get(name, []) for name in ("recall", "fine_recall", "gain_low", "gain_high", "relative_spread")
    ]
    rows: list[tuple[str, list[str]]] = []
    for step, recall, fine, low, high, spread in zip(series_steps(probe.series), *columns, strict=True):
        gain = "–" if not rows else f"{points(low)} to {points(high)}"
        rows.append((number(step), [percent(recall), percent(fine), gain, f"{spread or 0:.3g}"]))
    return rows
