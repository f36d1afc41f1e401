"""The page of `trivet sweep`: what the best settings came to on the test classes, then how they were found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from trivet.commands.sweep.record import SweepRecord, SweepTrial, VariedSetting, setting_text
from trivet.reports.measures import in_order, short_name
from trivet.reports.page import MISSING, percent, write_page
from trivet.runtime.record import Record
from trivet.runtime.text import counted

_MOST_ROWS = 100  # of the table of trials
_MOST_LINES = 300  # of the parallel coordinates: of more, none can be told from the next
_LONGEST = 40  # characters of a value of a setting in a plot


def write_sweep_report(record: SweepRecord, path: Path) -> None:
    """Write the page of a sweep; a part that the record lacks is left out."""
    having = record.ranked
    others = [trial for trial in record.trials if trial.value is None]
    best = next((trial for trial in having if trial.number == record.best), None)
    parallel = _parallel(record.vary, having, record.best, short_name(record.measure))
    history = _history(record.trials, short_name(record.measure))
    context = {
        "record": record,
        "measure": short_name(record.measure),
        "counts": _counts(record),
        "names": [setting.name for setting in record.vary],
        "text": _text,
        "best": best,
        "tested": _tested(record.tested),
        "rows": having[:_MOST_ROWS],
        "more": max(0, len(having) - _MOST_ROWS),
        "others": others[:_MOST_ROWS],
        "more_others": max(0, len(others) - _MOST_ROWS),
        "parallel": parallel is not None,
        "history": history is not None,
    }
    plots = {"parallel": parallel, "history": history}
    write_page("sweep.html", path, context, plots, script=("dots.js", "plots.js", "sweep.js"))


def _counts(record: SweepRecord) -> list[str]:
    """Counts of trials and runs, for the head of the page."""
    states = [trial.state for trial in record.trials]
    ended = [f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed") if state in states]
    runs = record.runs_per_trial
    facts = [f"{', '.join(ended) or 'none'} of {counted(record.requested, 'trial')}", f"sampler {record.sampler}"]
    over = [counted(len(record.seeds), "seed")] if len(record.seeds) > 1 else []
    over += [counted(len(record.folds), "fold")] if len(record.folds) > 1 else []
    return [*facts, *([f"{runs} runs each: {' on '.join(over)}"] if runs > 1 else ["1 run each"])]


@dataclass(frozen=True)
class TestedTable:
    """Measures of the best settings, and of what they are compared with: (split, level, network, cells)."""

    columns: list[str]
    rows: list[tuple[str, str, str, list[str]]]


def _tested(tested: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> TestedTable:
    entries = [
        (split, level, name, values)
        for split, levels in tested.items()
        for level, networks in levels.items()
        for name, values in networks.items()
    ]
    displayed = in_order(name for *_, values in entries for name in values)
    rows = [
        (split, level, network, [percent(values.get(name)) for name in displayed])
        for split, level, network, values in entries
    ]
    return TestedTable([short_name(name) for name in displayed], rows)


def _text(value: object) -> str:
    return MISSING if value is None else setting_text(value, digits=4)


class ParallelAxis(Record):
    """An axis for a setting, or for the measure; its ticks lie from 0 to 1."""

    name: str
    ticks: list[tuple[float, str]]


class ParallelLine(Record):
    """A trial: its place on each axis and the texts of its settings."""

    trial: int
    value: str
    best: bool
    height: float
    y: list[float | None]
    texts: list[str]


class ParallelPlot(Record):
    """Parallel coordinates, as sweep.js draws them; the best line comes last."""

    axes: list[ParallelAxis]
    lines: list[ParallelLine]


def _parallel(
    vary: Sequence[VariedSetting], trials: Sequence[SweepTrial], best: int | None, measure: str
) -> ParallelPlot | None:
    trials = trials[:_MOST_LINES]
    if len(trials) < 2:
        return None
    values = [trial.value or 0.0 for trial in trials]
    low, high = min(values), max(values)
    axes = [ParallelAxis(name=setting.name, ticks=_ticks(setting)) for setting in vary]
    ends = [(0.0, percent(low)), (1.0, percent(high))] if high > low else [(0.5, percent(low))]
    axes.append(ParallelAxis(name=measure, ticks=ends))
    lines = []
    for trial, value in reversed(list(zip(trials, values, strict=True))):
        height = (value - low) / (high - low) if high > low else 0.5
        settings = [(setting, trial.settings.get(setting.name)) for setting in vary]
        lines.append(
            ParallelLine(
                trial=trial.number,
                value=percent(value),
                best=trial.number == best,
                height=height,
                y=[*(_height(*setting) for setting in settings), height],
                texts=[_short(chosen) for _, chosen in settings],
            )
        )
    return ParallelPlot(axes=axes, lines=lines)


def _ticks(setting: VariedSetting) -> list[tuple[float, str]]:
    if setting.choices:
        last = max(1, len(setting.choices) - 1)
        return [(index / last, _cut(text)) for index, text in enumerate(setting.choices)]
    return [(0.0, _short(setting.low)), (1.0, _short(setting.high))]


def _height(setting: VariedSetting, value: object) -> float | None:
    """Position of a value on the axis of its setting, from 0 to 1."""
    if setting.choices:
        text = setting_text(value)
        return setting.choices.index(text) / max(1, len(setting.choices) - 1) if text in setting.choices else None
    low, high = setting.low, setting.high
    if not isinstance(value, int | float) or low is None or high is None:
        return None
    if setting.log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return (value - low) / (high - low)


def _short(value: object) -> str:
    return _cut(_text(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


class ValuePoints(Record):
    """Values of trials, in per cent, by the count of trials that had ended."""

    x: list[int]
    y: list[float | None]
    trial: list[int]


class HistoryPlot(ValuePoints):
    """Value of each complete trial in the order in which they ended, and the best so far, as sweep.js draws them."""

    measure: str
    best: list[float]
    pruned: ValuePoints


def _history(trials: Sequence[SweepTrial], measure: str) -> HistoryPlot | None:
    ended = list(enumerate(sorted((t for t in trials if t.order is not None), key=lambda t: t.order or 0), start=1))
    having = [(x, trial.number, trial.value) for x, trial in ended if trial.value is not None]
    if len(having) < 2:
        return None
    pruned = [
        (x, trial.number, trial.measurements[-1].value)
        for x, trial in ended
        if trial.state == "pruned" and trial.measurements
    ]
    best = [100 * value for value in accumulate((value for *_, value in having), max)]
    return HistoryPlot(**dict(_points(having)), measure=measure, best=best, pruned=_points(pruned))


def _points(values: Sequence[tuple[int, int, float]]) -> ValuePoints:
    return ValuePoints(
        x=[x for x, *_ in values], y=[100 * value for *_, value in values], trial=[number for _, number, _ in values]
    )
