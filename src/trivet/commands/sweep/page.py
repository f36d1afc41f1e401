"""The page of `trivet sweep`: what the best settings came to on the test classes, then how they were found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.commands.sweep.record import SweepRecord, SweepTrial, VariedSetting, setting_text
from trivet.reports.measures import NAMES
from trivet.reports.page import MISSING, number, percent, write_page
from trivet.runtime.text import counted

_MOST_ROWS = 100  # of the table of trials
_MOST_LINES = 300  # of the parallel coordinates: of more, none can be told from the next
_LONGEST = 40  # characters of a value of a setting in a plot
_TONES = {"complete": "calm", "pruned": "warn", "failed": "bad", "running": "calm", "waiting": "calm"}


def write_sweep_report(record: SweepRecord, path: Path) -> None:
    """Write the page of a sweep; a part that the record lacks is left out.

    Raises:
        OSError: if the file cannot be written.
    """
    names = [setting.name for setting in record.vary]
    having = record.ranked
    others = [trial for trial in record.trials if trial.value is None]
    best = next((trial for trial in having if trial.number == record.best), None)
    parallel = _parallel(record.vary, having, record.best, _named(record.measure))
    history = _history(record.trials, _named(record.measure))
    context = {
        "record": record,
        "measure": _named(record.measure),
        "counts": _counts(record),
        "names": names,
        "several": any(trial.interval for trial in having),
        "best": None if best is None else [(name, _text(best.settings.get(name))) for name in names],
        "best_value": None if best is None else _row(best, names),
        "tested": _tested(record.tested),
        "rows": [_row(trial, names) for trial in having[:_MOST_ROWS]],
        "more": max(0, len(having) - _MOST_ROWS),
        "others": [_row(trial, names) for trial in others[:_MOST_ROWS]],
        "more_others": max(0, len(others) - _MOST_ROWS),
        "importance": list((record.importance or {}).items()),
        "parallel": parallel is not None,
        "history": history is not None,
    }
    write_page(
        "sweep.html",
        path,
        context,
        {"parallel": parallel, "history": history},
        script=("dots.js", "plots.js", "sweep.js"),
    )


def _counts(record: SweepRecord) -> list[str]:
    """Counts of trials and runs, for the head of the page."""
    states = [trial.state for trial in record.trials]
    ended = [f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed") if state in states]
    runs = record.runs_per_trial
    facts = [f"{', '.join(ended) or 'none'} of {counted(record.requested, 'trial')}", f"sampler {record.sampler}"]
    over = [counted(len(record.seeds), "seed")] if len(record.seeds) > 1 else []
    over += [counted(len(record.folds), "fold")] if len(record.folds) > 1 else []
    return [*facts, *([f"{runs} runs each: {' on '.join(over)}"] if runs > 1 else ["1 run each"])]


def _row(trial: SweepTrial, names: Sequence[str]) -> dict[str, Any]:
    return {
        "number": number(trial.number),
        "state": trial.state,
        "tone": _TONES.get(trial.state, "calm"),
        "value": percent(trial.value),
        "ends": f"{percent(trial.interval[0])} to {percent(trial.interval[1])}" if trial.interval else "",
        "start": percent(trial.start),
        "level": bool(trial.level_with_best),
        "settings": [_text(trial.settings.get(name)) for name in names],
        "why": trial.why or "",
        "attempts": trial.attempts or 0,
    }


def _tested(tested: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> dict[str, Any]:
    """The measures of the best settings on each split and level, and those of what they are compared with."""
    entries = [
        (split, level, name, values)
        for split, levels in tested.items()
        for level, networks in levels.items()
        for name, values in networks.items()
    ]
    measured = {name for *_, values in entries for name in values}
    recalls = sorted((name for name in measured if name.startswith("recall@")), key=lambda name: int(name[7:]))
    displayed = [*recalls, *(name for name in NAMES if name in measured)]
    return {
        "columns": [_named(name) for name in displayed],
        "rows": [(*entry, [percent(values.get(name)) for name in displayed]) for *entry, values in entries],
    }


def _named(measure: str) -> str:
    return NAMES.get(measure, measure.replace("recall@", "R@"))


def _text(value: object) -> str:
    return MISSING if value is None else setting_text(value, digits=4)


def _parallel(
    vary: Sequence[VariedSetting], trials: Sequence[SweepTrial], best: int | None, measure: str
) -> dict[str, Any] | None:
    """An axis for each setting and one for the measure, from 0 to 1, and a line for each trial; the best comes last."""
    trials = trials[:_MOST_LINES]
    if len(trials) < 2:
        return None
    values = [trial.value or 0.0 for trial in trials]
    low, high = min(values), max(values)
    spread = high - low or 1.0
    axes = [{"name": setting.name, "ticks": _ticks(setting)} for setting in vary]
    axes.append(
        {"name": measure, "ticks": [[0.0, percent(low)], [1.0, percent(high)]] if high > low else [[0.5, percent(low)]]}
    )
    lines = []
    for trial, value in reversed(list(zip(trials, values, strict=True))):
        height = (value - low) / spread if high > low else 0.5
        lines.append(
            {
                "trial": trial.number,
                "value": percent(value),
                "best": trial.number == best,
                "height": height,
                "y": [*(_height(setting, trial.settings.get(setting.name)) for setting in vary), height],
                "texts": [_short(trial.settings.get(setting.name)) for setting in vary],
            }
        )
    return {"axes": axes, "lines": lines}


def _ticks(setting: VariedSetting) -> list[list[Any]]:
    if setting.choices:
        last = max(1, len(setting.choices) - 1)
        return [[index / last, _cut(text)] for index, text in enumerate(setting.choices)]
    return [[0.0, _short(setting.low)], [1.0, _short(setting.high)]]


def _height(setting: VariedSetting, value: Any) -> float | None:
    """Position of a value on the axis of its setting, from 0 to 1."""
    if setting.choices:
        positions = {text: position for position, text in enumerate(setting.choices)}
        position = positions.get(setting_text(value))
        return None if position is None else position / max(1, len(setting.choices) - 1)
    low, high = setting.low, setting.high
    if not isinstance(value, int | float) or low is None or high is None:
        return None
    if setting.log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return (value - low) / (high - low)


def _short(value: Any) -> str:
    return _cut(_text(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _history(trials: Sequence[SweepTrial], measure: str) -> dict[str, Any] | None:
    """The value of each trial in the order in which they ended, and the best so far."""
    ended = sorted((trial for trial in trials if trial.order is not None), key=lambda trial: trial.order or 0)
    having = [(position, trial) for position, trial in enumerate(ended, start=1) if trial.value is not None]
    if len(having) < 2:
        return None
    best, so_far = -math.inf, []
    for _, trial in having:
        best = max(best, trial.value or 0.0)
        so_far.append(best)
    pruned = [
        (position, trial.number, trial.measurements[-1].value)
        for position, trial in enumerate(ended, start=1)
        if trial.state == "pruned" and trial.measurements
    ]
    return {
        "measure": measure,
        "x": [position for position, _ in having],
        "y": [100 * (trial.value or 0.0) for _, trial in having],
        "trial": [trial.number for _, trial in having],
        "best": [100 * value for value in so_far],
        "pruned": {
            "x": [position for position, *_ in pruned],
            "trial": [name for _, name, _ in pruned],
            "y": [None if value is None else 100 * value for *_, value in pruned],
        },
    }
