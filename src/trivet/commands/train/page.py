"""The page of a training run: first whether training helped, then what it did, then all details."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.commands.diagnose.page import (
    SCRIPTS,
    diagnosis_content,
    grouped_queries,
    history_content,
    scatter_series,
    tone_down,
    verdict,
)
from trivet.commands.forecast.page import forecast_context
from trivet.commands.train.outcome import choice_line, decides, fell_back, result_lines, share_of, split_result
from trivet.commands.train.tolerance import cleaning_rows, noise_curve, noise_parts
from trivet.reports.items import MOST_DOTS, embedding_maps, is_number, thin, triplet_dots, unseen_first
from trivet.reports.measures import NAMES
from trivet.reports.monitor_record import Attempt, Event, Repair
from trivet.reports.page import MISSING, Pictures, number, percent, same_length, value, write_page
from trivet.reports.run_record import Curves, Evaluated, RunRecord, Validation

_MOST_STEPS = 2000
_MOST_SKIPPED = 200
_CLASS_ROWS = 10  # of a table of classes, before the others are asked for


def write_run_report(record: RunRecord, path: Path) -> None:
    """Write the page of a run; a part that the record lacks is left out.

    Raises:
        ValueError: if series of the record that belong together differ in length.
        OSError: if the file cannot be written.
    """
    pictures, diagnosed = Pictures(), record["diagnosis"]
    parts, plots = diagnosis_content(diagnosed, compare=False, most_rows=_CLASS_ROWS)
    previews = {
        split: (section_["level"], {"random": section_["queries"]}) for split, section_ in record["neighbours"].items()
    }
    previews |= {split: (section["level"], section["queries"]) for split, section in diagnosed.items()}
    queries = {  # before the maps: their pictures are placed first
        split: groups
        for split in unseen_first(previews)
        if (groups := grouped_queries(*previews[split], pictures)) is not None
    }
    planes = {split: plane for split, section in diagnosed.items() if (plane := section["map"])} | record["maps"]
    maps = embedding_maps({split: planes[split] for split in unseen_first(planes)}, pictures)
    scatters = {
        split: {section["level"]: dots} for split, section in diagnosed.items() if (dots := section["scatter"])
    } | record["scatter"]
    scatter = {
        split: {level: triplet_dots(f"{split}, {level}", section_) for level, section_ in scatters[split].items()}
        for split in unseen_first(scatters)
    }
    history, moments = history_content(record["history"])
    curves, skew = _curves(record), noise_curve(record)
    results = [split_result(split, record) for split in record["evaluation"]]
    summary, bad = result_lines(record), tone_down(parts["sections"])
    if not fell_back(record) and (chosen := choice_line(record)):
        summary.append(("calm", chosen))
    bad |= any(tone == "bad" for tone, _ in summary)
    context = {
        "record": record,
        "results": results,
        "chosen_by": choice["split"] if (choice := record["choosing"]) and decides(choice) else None,
        "said": [("calm" if bad and tone == "good" else tone, line) for tone, line in summary],
        "bad": bad,
        "tables": {split: _tables(evaluated_rows(record, split)) for split in record["evaluation"]},
        "happened": _happened(record),
        "curves": curves,
        "forecast": forecast_context(record["forecast"]),
        "noise": noise_parts(record),
        "cleaned": cleaning_rows(record),
        "skewed": len(curves) if skew else None,
        "maps": maps,
        "scatter": scatter,
        "most_dots": MOST_DOTS,
        "queries": queries,
        "diagnosis": parts,
        "history": history,
        "data_rows": [
            (split, section_)
            for split, section_ in {"train": record["data"]["train"], **record["data"]["evaluation"]}.items()
            if section_ is not None
        ],
        "skipped": record["data"]["skipped"][:_MOST_SKIPPED],
    }
    plots |= {
        "curves": [*curves, *([skew] if skew else [])],
        "maps": maps,
        "scatter": scatter_series(scatter),
        "history": moments,
    }
    write_page("run.html", path, context, plots, script=SCRIPTS, pictures=pictures)


def evaluated_rows(record: RunRecord, split: str) -> list[Evaluated]:
    """The embeddings of a split, then prefixes of them, which their names say."""
    rows = list(record["evaluation"][split])
    for cut in record["prefixes"].get(split, []):
        for row in cut["evaluated"]:
            rows.append({"name": f"{row['name']}, first {cut['prefix']}", "levels": row["levels"]})
    return rows


def _tables(rows: Sequence[Evaluated]) -> list[dict[str, Any]]:
    """One table per level: a row per embedding, shares as percent, the best of each column marked."""
    tables = []
    for level in dict.fromkeys(level for row in rows for level in row["levels"]):
        measured = {row["name"]: row["levels"][level] for row in rows if level in row["levels"]}
        recalls = {key for result in measured.values() for key in result if re.fullmatch(r"recall@\d+", key)}
        columns = [*sorted(recalls, key=lambda key: int(key[7:])), *NAMES]
        columns = [name for name in columns if any(name in result for result in measured.values())]
        cells = {name: [percent(share_of(measured, name, column)) for column in columns] for name in measured}
        best = [_best(column) for column in zip(*cells.values(), strict=True)]
        first = next(iter(measured.values()))
        tables.append(
            {
                "level": level,
                "items": first.get("items"),
                "classes": first.get("classes"),
                "chance": share_of(measured, next(iter(measured)), "chance_recall@1"),
                "columns": [NAMES.get(column, column.replace("recall@", "R@")) for column in columns],
                "rows": [
                    (name, [(text, text == most) for text, most in zip(texts, best, strict=True)])
                    for name, texts in cells.items()
                ],
            }
        )
    return tables


def _best(column: Sequence[str]) -> str | None:
    """The largest as shown; None where all are equal."""
    texts = {text for text in column if text != MISSING}
    return max(texts, key=float) if len(texts) > 1 else None


def _curves(record: RunRecord) -> list[dict[str, Any]]:
    """The plots over steps that have anything to show."""
    training, looks = record["curves"], record["validation"]
    wanted: list[tuple[str, Curves | Validation, Mapping[str, Sequence[float | None]], list[float] | None]] = [
        ("Loss", training, {"loss": training["loss"]}, None),
        (
            "Active and hard triplets (share of the mined)",
            training,
            {"active (loss above 0)": training["active"], "hard (negative nearer)": training["hard"]},
            [0, 1],
        ),
        (
            "Mean distance to the mined items",
            training,
            {"to the positive (d_ap)": training["d_ap"], "to the negative (d_an)": training["d_an"]},
            None,
        ),
        (_validation_title(looks), looks, looks["recall@1"], [0, 1]),
        ("Dropped anchors", training, {"dropped": training["dropped"] if any(training["dropped"]) else []}, None),
    ]
    if choice := record["choosing"]:
        chosen: Validation = {
            "split": choice["split"],
            "items": choice["items"],
            "step": [check["step"] for check in choice["looks"]],
            "attempt": [],
            "recall@1": {},
        }
        measure = NAMES.get(choice["measure"], choice["measure"])
        values = {
            "mean": [check["gain"] for check in choice["looks"]],
            "lower end of its interval": [check["low"] for check in choice["looks"]],
        }
        what = ", by which the step was chosen" if decides(choice) else ""
        wanted.append((f"Gain of {measure} on {choice['split']}{what}", chosen, values, None))
    wanted += _probe_curves(record["monitor"]["attempts"])
    marks = _marks(record["monitor"]["attempts"])
    if record["foreseen"] is not None and record["foreseen"]["sentence"]:
        marks.append({"step": 0, "text": "collapse foretold", "past": False})
    curves = []
    for title, section, every, limits in wanted:
        steps = section["step"]
        attempts = section["attempt"] or [0] * len(steps)
        series = {name: values for name, values in every.items() if any(is_number(v) for v in values)}
        if not series:
            continue
        lengths = {name: len(v) for name, v in series.items()}
        same_length(f"the curves {title!r}", {"steps": len(steps)} | lengths | {"attempts": len(attempts)})
        rows = {
            attempt: [i for i, number_ in enumerate(attempts) if number_ == attempt]
            for attempt in sorted(set(attempts))
        }
        *past, (_, last) = [(attempt, _thinned(steps, series, index)) for attempt, index in rows.items()]
        curves.append(
            {
                "title": title,
                **last,
                "limits": limits,
                "thinned": any(len(index) > _MOST_STEPS for index in rows.values()),
                "past": [{"attempt": attempt, **drawn} for attempt, drawn in past],
                "marks": marks,
            }
        )
    return curves


def _probe_curves(
    attempts: Sequence[Attempt],
) -> list[tuple[str, Validation, Mapping[str, Sequence[float | None]], list[float] | None]]:
    """The curve of what the guard's probe showed; none where it had none."""
    probes = [(index, probe) for index, attempt in enumerate(attempts) if (probe := attempt["probe"]) is not None]
    if not probes:
        return []
    titles = {"recall": "recall@1", "fine_recall": "recall@1 by finer classes", "relative_spread": "relative spread"}
    values = {
        title: [x for _, probe in probes for x in probe["series"].get(name, [])] for name, title in titles.items()
    }
    steps: Validation = {
        "split": "",
        "items": probes[-1][1]["items"],
        "step": [round(step or 0) for _, probe in probes for step in probe["series"].get("step", [])],
        "attempt": [index for index, probe in probes for _ in probe["series"].get("step", [])],
        "recall@1": {},
    }
    if not steps["step"]:
        return []
    return [(f"{number(probes[-1][1]['items'])} held-out items that the guard asked", steps, values, [0, 1])]


def _thinned(steps: Sequence[int], series: Mapping[str, Sequence[Any]], index: Sequence[int]) -> dict[str, Any]:
    keep = [index[k] for k in thin(len(index), _MOST_STEPS)]
    return {
        "step": [steps[i] for i in keep],
        "series": {name: [values[i] for i in keep] for name, values in series.items()},
    }


def _words(kind: str) -> str:
    return kind.replace("-", " ")


def _marks(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """The vertical marks of the curves: the events of each step, and whether they belong to an abandoned attempt."""
    marks: dict[tuple[int, bool], list[str]] = {}
    for index, attempt in enumerate(attempts):
        for event in attempt["events"]:
            marks.setdefault((event["step"], index < len(attempts) - 1), []).append(_words(event["kind"]))
    return [{"step": step, "text": ", ".join(words), "past": past} for (step, past), words in marks.items()]


def _happened(record: RunRecord) -> dict[str, Any] | None:
    """What the monitor saw and what the guard did; None where nothing watched."""
    attempts, guard = record["monitor"]["attempts"], record["guard"]
    repairs = guard["repairs"]
    if not attempts:
        return None
    done = _foretold_and_spent(record)
    if not any(attempt["events"] for attempt in attempts):
        return {"quiet": _quiet(attempts[-1]), "seen": [], "attempts": [], "notes": done}
    reports = []
    for index, attempt in enumerate(attempts):
        if not attempt["events"]:
            continue
        notes = []
        if index == len(repairs):  # what was not repaired can only have been in the last attempt
            notes = [
                f"{_words(event['kind']).capitalize()} not repaired: {event['why']}." for event in guard["not_repaired"]
            ]
            notes += ["The guard stopped the training here."] if guard["stopped_by"] else []
        else:
            repair = repairs[index]
            notes.append(f"Repair {index + 1}: back to step {number(repair['returned_to'])}. {repair['why']}")
        label = f"Attempt {index}" if len(attempts) > 1 else ""
        reports.append(
            {
                "label": label,
                "facts": [],
                "rank": 0,
                "verdicts": list(map(_as_verdict, attempt["events"])),
                "notes": notes,
            }
        )
    table = [_attempt_row(index, attempt, repairs) for index, attempt in enumerate(attempts)] if repairs else []
    return {"quiet": None, "seen": reports, "attempts": table, "notes": done}


def _foretold_and_spent(record: RunRecord) -> list[str]:
    """What was foretold, what the guard kept, and what its probe and its repairs cost, in sentences."""
    attempts, guard, foreseen = record["monitor"]["attempts"], record["guard"], record["foreseen"]
    sentences = []
    if foreseen is not None:
        trial = f"Before the first step, {number(foreseen['steps'])} trial steps foretold no collapse."
        sentences.append(foreseen["sentence"] or trial)
    probe = attempts[-1]["probe"]
    if probe is not None and probe["cost"] is not None:
        calls = sum(
            len(measured["series"].get("step", []))
            for attempt in attempts
            if (measured := attempt["probe"]) is not None
        )
        sentences.append(
            f"The guard asked {number(probe['items'])} held-out items {number(calls)} times; in the last attempt that "
            f"cost {percent(probe['cost'])}\u00a0% of the steps."
        )
    if guard["repairs"]:
        lost = sum(repair["step"] + 1 - repair["returned_to"] for repair in guard["repairs"])
        sentences.append(f"Repairs threw {number(lost)} steps away.")
    if guard["kept"] is not None:
        sentences.append(
            f"The result is the network of step {number(guard['kept']['step'])} of attempt "
            f"{guard['kept']['attempt']}, as the last attempt ended worse on these items."
        )
    return sentences


def _as_verdict(event: Event) -> dict[str, Any]:
    evidence = dict(event["evidence"])
    if event["forecast"] is not None:
        evidence["forecast_of_a_collapse_of_the_network"] = event["forecast"]
    return verdict(
        {
            "kind": event["kind"],
            "severity": None,
            "rule": f"at step {number(event['step'])}: {event['rule']}",
            "evidence": evidence,
            "cause": "",
            "changes": event["changes"],
        }
    )


def _quiet(attempt: Attempt) -> str:
    steps = attempt["series"].get("step", [])
    text = f"The monitor detected no collapse in {number(len(steps))} checks"
    text += f", the last at step {number(round(steps[-1] or 0))}." if steps else "."
    if attempt["forecast"] and attempt["forecast"]["probability"] is not None:
        text += f" Its last forecast of a network collapse: {percent(attempt['forecast']['probability'])}\u00a0%."
    return text


def _attempt_row(index: int, attempt: Attempt, repairs: Sequence[Repair]) -> dict[str, Any]:
    """A row of the table of attempts: what was changed before, and how it stood at its first event and at its end."""
    series, events = attempt["series"], attempt["events"]
    steps = [step or 0 for step in series.get("step", [])]
    before = [k for k, step in enumerate(steps) if events and step <= events[0]["step"]]

    def at(position: int | None, name: str) -> float | None:
        values = series.get(name, [])
        return values[position] if position is not None and values and is_number(values[position]) else None

    return {
        "attempt": index,
        "steps": f"{number(round(steps[0]))} to {number(round(steps[-1]))}" if steps else MISSING,
        "changes": [
            f"{name}: {_setting(old)} → {_setting(new)}"
            for name, (old, new) in (repairs[index - 1]["changes"] if index else {}).items()
        ],
        "cells": [
            show(at(position, name))
            for position in (before[-1] if before else None, len(steps) - 1 if steps else None)
            for name, show in (("recall", percent), ("relative_spread", _3))
        ],
    }


def _setting(setting: object) -> str:
    return "not set" if setting is None else value(setting)


def _3(spread: float | None) -> str:
    return MISSING if spread is None else f"{spread:.3g}"


def _validation_title(looks: Validation) -> str:
    """A sample holds fewer items of each class than the whole, so its recall is lower than the table's."""
    if looks["items"] is None:
        return "Recall@1 during training"
    return f"Recall@1 within {looks['items']} of the {looks['split'] or 'evaluated'} items"
