"""The page of a training run: first whether training helped, then what it did, then all details."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.collapse.significance import UNTRAINED, ZERO_SHOT
from trivet.commands.diagnose.page import SCRIPTS, diagnosis_content, history_content, tone_down
from trivet.commands.forecast.page import forecast_context
from trivet.commands.train.outcome import (
    choice_line,
    decides,
    evaluated_rows,
    how_to_go_on,
    merged_rows,
    result_lines,
    share_of,
    size_line,
    split_result,
)
from trivet.commands.train.tolerance import SKEWS, cells, noise_curve, noise_lines
from trivet.reports.items import (
    MOST_DOTS,
    Curve,
    Limits,
    Mark,
    curve,
    embedding_maps,
    grouped_queries,
    triplet_dots,
    unseen_first,
)
from trivet.reports.ladder_record import LadderRecord
from trivet.reports.ladder_view import (
    COLUMNS,
    CandidateRow,
    ladder_caption,
    ladder_notes,
    ladder_rows,
)
from trivet.reports.measures import EVALUATION, best_text, named, short_name
from trivet.reports.monitor_record import MonitorRecord, Series
from trivet.reports.monitor_view import event_marks, event_section, probe_curve, series_steps
from trivet.reports.page import Pictures, number, percent, write_page
from trivet.reports.run_record import Evaluated, RunData, RunRecord, Validation

_MOST_SKIPPED = 200
_CLASS_ROWS = 10  # of a table of classes, before the others are asked for


def write_run_report(record: RunRecord, path: Path) -> None:
    """Write the page of a run; a part that the record lacks is left out."""
    pictures, diagnosed = Pictures(), record.diagnosis
    diagnosis, plots = diagnosis_content(diagnosed, compare=False, most_rows=_CLASS_ROWS)
    previews = {split: (section.level, section.queries) for split, section in diagnosed.items()}
    queries = {  # before the maps: their pictures are placed first
        split: groups
        for split in unseen_first(previews)
        if (groups := grouped_queries(*previews[split], pictures)) is not None
    }
    planes = {split: plane for split, section in diagnosed.items() if (plane := section.map)} | record.maps
    maps = embedding_maps({split: planes[split] for split in unseen_first(planes)}, pictures)
    scatters = {
        split: {section.level: dots} for split, section in diagnosed.items() if (dots := section.scatter)
    } | record.scatter
    scatter = {
        split: {level: triplet_dots(f"{split}, {level}", content) for level, content in scatters[split].items()}
        for split in unseen_first(scatters)
    }
    curves, skew = _curves(record), noise_curve(record)
    results = {split: split_result(split, record) for split in record.evaluation}
    summary, bad = result_lines(record), tone_down(diagnosis.sections)
    if chosen := choice_line(record):
        summary.append(("calm", chosen))
    bad |= any(tone == "bad" for tone, _ in summary)
    context = {
        "record": record,
        "ladder": None if record.ladder is None else _ladder(record.ladder),
        "results": results,
        "chosen_by": choice.split if (choice := record.choosing) and decides(choice) else None,
        "sentences": [("calm" if bad and tone == "good" else tone, line) for tone, line in summary],
        "bad": bad,
        "next": how_to_go_on(record, path.parent),
        "tables": {split: _tables(evaluated_rows(record, split), record.data) for split in record.evaluation},
        "smallest": size_line(record.sizes),
        "events": _events(record),
        "curves": curves,
        "forecast": forecast_context(record.forecast),
        "noise": noise_lines(record, run=record.run or "RUN"),
        "skews": SKEWS,
        "cells": cells,
        "skewed": len(curves) if skew else None,
        "maps": maps,
        "scatter": scatter,
        "most_dots": MOST_DOTS,
        "queries": queries,
        "diagnosis": diagnosis,
        "history": history_content(record.history),
        "data_rows": [
            (split, content)
            for split, content in {"train": record.data.train, **record.data.evaluation}.items()
            if content is not None
        ],
        "skipped": record.data.skipped[:_MOST_SKIPPED],
    }
    plots |= {
        "curves": [*curves, *([skew] if skew else [])],
        "maps": maps,
        "scatter": scatter,
        "history": record.history,
    }
    write_page("run.html", path, context, plots, script=SCRIPTS, pictures=pictures)


@dataclass(frozen=True)
class LadderContext:
    """The candidates of a ladder as a table, and what is to be said of them."""

    caption: str
    columns: tuple[str, ...]
    rows: list[CandidateRow]
    notes: list[str]


def _ladder(ladder: LadderRecord) -> LadderContext:
    return LadderContext(ladder_caption(ladder), COLUMNS, ladder_rows(ladder), ladder_notes(ladder))


@dataclass(frozen=True)
class MeasuresTable:
    """A row per embedding at a level: shares as percent, and whether each is the best of its column."""

    level: str
    items: object
    classes: object
    unit: str
    chance: float | None
    columns: list[str]
    rows: list[tuple[str, list[tuple[str, bool]]]]


def _tables(rows: Sequence[Evaluated], data: RunData) -> list[MeasuresTable]:
    tables = []
    for level in dict.fromkeys(level for row in rows for level in row.levels):
        known = [row.levels[level] for row in rows if level in row.levels]
        recalls = {key for result in known for key in result if re.fullmatch(r"recall@\d+", key)}
        columns = [*sorted(recalls, key=lambda key: int(key[7:])), *EVALUATION]
        columns = [name for name in columns if any(name in result for result in known)]
        cells = {name: [percent(values.get(column)) for column in columns] for name, values in merged_rows(rows, level)}
        best = [best_text(column) for column in zip(*cells.values(), strict=True)]
        tables.append(
            MeasuresTable(
                level=level,
                items=known[0].get("items"),
                classes=known[0].get("classes"),
                unit=data.unit(level),
                chance=share_of({level: known[0]}, level, "chance_recall@1"),
                columns=list(map(short_name, columns)),
                rows=[
                    (name, [(text, text == most) for text, most in zip(texts, best, strict=True)])
                    for name, texts in cells.items()
                ],
            )
        )
    return tables


def _curves(record: RunRecord) -> list[Curve]:
    """The plots over steps that have anything to show."""
    training = record.curves
    dropped = training.dropped if any(training.dropped) else []
    wanted: list[tuple[str, list[int], Series, Limits]] = [
        ("Loss", training.step, {"loss": training.loss}, None),
        (
            "Active and hard triplets (share of the mined)",
            training.step,
            {"active (loss above 0)": training.active, "hard (negative nearer)": training.hard},
            (0, 1),
        ),
        (
            "Mean distance to the mined items",
            training.step,
            {"to the positive (d_ap)": training.d_ap, "to the negative (d_an)": training.d_an},
            None,
        ),
        (_validation_title(record.validation), *_validation_series(record), (0, 1)),
        ("Dropped anchors", training.step, {"dropped": dropped}, None),
    ]
    if choice := record.choosing:
        checks, measure = choice.checks, named(choice.measure)
        start = checks[0].value if checks else None
        chosen: Series = {
            "recall@1": [check.recall for check in checks],
            measure: [check.value for check in checks],
            "before training": [start for _ in checks],
            "at least (95 %, classes)": [
                None if start is None or check.low is None else start + check.low for check in checks
            ],
        }
        what = ", by which the step was chosen" if decides(choice) else ""
        among = f", among {number(choice.known)} training items" if choice.known else ""
        wanted.append((f"{measure} on {choice.split}{among}{what}", [check.step for check in checks], chosen, (0, 1)))
    marks = event_marks(record.monitor.events)
    if record.foreseen is not None and record.foreseen.sentence:
        marks.append(Mark(step=0, text="collapse foretold"))
    drawn = [curve(title, steps, series, limits, marks) for title, steps, series, limits in wanted]
    probe = record.monitor.probe
    title = "" if probe is None else f"{number(probe.items)} held-out items that the guard asked"
    return [plot for plot in (*drawn, probe_curve(probe, title, marks)) if plot is not None]


@dataclass(frozen=True)
class MonitorContext:
    """Events of a run, a section of cards for diagnosis_parts.html, or a sentence where there were none; and notes."""

    quiet: str | None
    verdicts: list[Any]
    notes: list[str]


def _events(record: RunRecord) -> MonitorContext | None:
    """The events of a run and what the guard did; None where nothing watched."""
    monitor, notes = record.monitor, _guard_notes(record)
    if not monitor.events:
        return MonitorContext(_quiet(monitor), [], notes) if monitor.series else None
    stop = ["The guard stopped the training here."] if record.guard.stopped_by else []
    return MonitorContext(None, [event_section(monitor.events, stop)], notes)


def _guard_notes(record: RunRecord) -> list[str]:
    """Sentences on what was foretold, on the result that the guard chose, and on the cost of its probe."""
    foreseen, snapshot, probe = record.foreseen, record.guard.snapshot, record.monitor.probe
    sentences = []
    if foreseen is not None:
        trial = foreseen.tried[0].sentence if foreseen.tried else None
        sentences.append(foreseen.sentence or f"Trial steps before the first: {trial or 'nothing could be foreseen.'}")
    if probe is not None and probe.cost is not None:
        times = number(len(series_steps(probe.series)))
        sentences.append(
            f"The guard asked {number(probe.items)} held-out items {times} times, an estimated "
            f"{percent(probe.cost)}\u00a0% of the cost of the steps."
        )
    if record.monitor.closing is not None:
        sentences.append(record.monitor.closing)
    if snapshot is not None:
        sentences.append(
            f"The result is the network of step {number(snapshot)}, as the last one was worse on these items."
        )
    return sentences


def _quiet(monitor: MonitorRecord) -> str:
    steps = monitor.series.get("step", [])
    text = f"The monitor detected no collapse in {number(len(steps))} checks"
    text += f", the last at step {number(round(steps[-1] or 0))}." if steps else "."
    return text


def _validation_series(record: RunRecord) -> tuple[list[int], Series]:
    """Steps and recall@1 by level; with step 0 and references where these are of the same items."""
    checks, counts = record.validation, record.data.evaluation.get(record.validation.split)
    rows = {row.name: row.levels for row in record.evaluation.get(checks.split, []) if row.name != "trained"}
    start = rows.get(UNTRAINED, rows.get(ZERO_SHOT))
    if start is None or counts is None or checks.items != counts.items:
        return checks.step, dict(checks.recall)
    series: Series = {level: [share_of(start, level), *values] for level, values in checks.recall.items()}
    level = record.level if record.level in series else next(iter(series), "")
    shares: dict[float | None, list[str]] = {}
    for name, levels in rows.items():
        shares.setdefault(share_of(levels, level), []).append("before training" if levels is start else name)
    for share, names in shares.items():
        by = f": {level}" if len(checks.recall) > 1 else ""
        series[f"{', '.join(names)}{by}"] = [share] * (1 + len(checks.step))
    return [0, *checks.step], series


def _validation_title(checks: Validation) -> str:
    """A sample holds fewer items of each class than the whole, so its recall is lower than the table's."""
    if checks.items is None:
        return "Recall@1 during training"
    return f"Recall@1 within {checks.items} of the {checks.split or 'evaluated'} items"
