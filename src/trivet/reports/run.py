"""The page of one training run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.reports.diagnosis import SCRIPTS, diagnosis_parts, drawn_scatter, history_parts, item_parts
from trivet.reports.forecast import forecast_parts
from trivet.reports.items import MOST_DOTS, embedding_map, gallery, is_number, thin, triplet_dots
from trivet.reports.page import MISSING, number, percent, same_length, value, write_page
from trivet.reports.tolerance import cleaning_rows, noise_curve, noise_parts

_MOST_STEPS = 2000
_MOST_SKIPPED = 200
_REFERENCES = {"untrained network": "the untrained network", "raw inputs": "the raw inputs"}


def write_run_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page of a run record (`record.json` of the run folder); a part that is absent is said to be absent.

    Raises:
        ValueError: if series of the record that belong together differ in length.
        OSError: if the file cannot be written.
    """
    evaluation = record.get("evaluation") or {}
    intervals = record.get("intervals") or {}
    maps = {split: embedding_map(split, part) for split, part in (record.get("maps") or {}).items()}
    scatter = {
        split: {level: triplet_dots(f"{split}, {level}", part) for level, part in levels.items()}
        for split, levels in (record.get("scatter") or {}).items()
    }
    diagnosed = record.get("diagnosis") or {}
    parts, plots = diagnosis_parts(diagnosed, compare=False)
    items, _ = item_parts(diagnosed)
    maps |= {split: part for split, part in items["maps"].items() if split not in maps}
    scatter |= {split: levels for split, levels in items["scatter"].items() if split not in scatter}
    neighbours = {
        split: part for split, part in (record.get("neighbours") or {}).items() if split not in items["queries"]
    }
    history, moments = history_parts(record.get("history"))
    curves, skew = _curves(record), noise_curve(record)
    skipped = (record.get("data") or {}).get("skipped") or []
    context = {
        "record": record,
        "results": [
            _result(split, rows, _trained_level(record), intervals.get(split) or {})
            for split, rows in evaluation.items()
        ],
        "tables": {split: _tables(rows) for split, rows in evaluation.items()},
        "collapse": record.get("collapse") or {},
        "happened": _happened(record),
        "curves": curves,
        "forecast": forecast_parts(record.get("forecast")),
        "noise": noise_parts(record),
        "cleaned": cleaning_rows(record),
        "skewed": len(curves) if skew else None,
        "abandoned": any(curve["past"] for curve in curves),
        "thinned": any(curve["thinned"] for curve in curves),
        "maps": maps,
        "scatter": scatter,
        "most_dots": MOST_DOTS,
        "queries": items["queries"],
        "galleries": {split: gallery(part) for split, part in neighbours.items()},
        "diagnosis": parts,
        "history": history,
        "data_rows": _data_rows(record.get("data") or {}),
        "skipped": skipped[:_MOST_SKIPPED],
        "skipped_count": len(skipped),
    }
    plots |= {
        "curves": [*curves, *([skew] if skew else [])],
        "maps": maps,
        "scatter": drawn_scatter(scatter),
        "history": moments,
    }
    write_page("run.html", path, context, plots, script=SCRIPTS)


def _trained_level(record: Mapping[str, Any]) -> str | None:
    return ((record.get("settings") or {}).get("data") or {}).get("level")


def _result(
    split: str, rows: Sequence[Mapping[str, Any]], trained_level: str | None, intervals: Mapping[str, Any]
) -> dict[str, Any]:
    """The main result of a split: recall@1 at the trained and the finest level, beside every reference."""
    by_name = {row["name"]: row["levels"] for row in rows}
    trained = by_name.pop("trained", None)
    if not trained:
        return {"split": split, "levels": []}
    coarsest, finest = next(iter(trained)), list(trained)[-1]
    main = trained_level if trained_level in trained else coarsest
    shown = []
    for level in dict.fromkeys([main, finest]):
        result = trained[level]
        references = {
            name: share for name, levels in by_name.items() if (share := _number(levels, level, "recall@1")) is not None
        }
        chance = _number(trained, level, "chance_recall@1")
        share = _number(trained, level, "recall@1")
        bars = [("trained", share), *references.items(), ("chance", chance)]
        shown.append(
            {
                "level": level,
                "role": ", ".join(
                    role
                    for role, level_of in (("level trained on", main), ("finest level", finest))
                    if level_of == level
                ),
                "items": result.get("items"),
                "classes": result.get("classes"),
                "share": share,
                "ends": [
                    f"{percent(ends[0])} to {percent(ends[1])} over {over}"
                    for over, ends in ((intervals.get(level) or {}).get("recall@1") or {}).items()
                    if ends
                ],
                "bars": [bar for bar in bars if bar[1] is not None],
                "sentence": _sentence(level, share, references, chance),
            }
        )
    return {"split": split, "levels": shown}


def _sentence(level: str, share: float | None, references: Mapping[str, float], chance: float | None) -> str:
    if share is None:
        return f"Recall@1 by {level} was not measured."
    named = {_REFERENCES.get(name, name): value for name, value in references.items()}
    others = [f"{percent(value)}\u00a0% with {name}" for name, value in named.items()]
    if chance is not None:
        others.append(f"{percent(chance)}\u00a0% by chance")
    against = f", against {_list(others)}" if others else ""
    said = (
        f"After training, the nearest neighbour has the same {level} for {percent(share)}\u00a0% of the items{against}."
    )
    # Compared as shown, so that a difference nobody can see is called none.
    shown = round(100 * share, 1)
    higher = [name for name, value in named.items() if round(100 * value, 1) > shown]
    equal = [name for name, value in named.items() if round(100 * value, 1) == shown]
    if chance is not None and shown <= round(100 * chance, 1):
        said += " That is no better than chance."
    if higher:
        said += f" {_list(higher, start=True)} did better than the trained network."
    if equal:
        said += f" {_list(equal, start=True)} did equally well."
    return said


def _list(parts: Sequence[str], *, start: bool = False) -> str:
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return text[:1].upper() + text[1:] if start else text


def _number(levels: Mapping[str, Any], level: str, key: str) -> float | None:
    value = (levels.get(level) or {}).get(key)
    return value if value is not None and math.isfinite(value) else None


def _tables(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One table per level: a row per embedding, shares as percent, the best of each column marked."""
    tables = []
    for level in dict.fromkeys(level for row in rows for level in row["levels"]):
        found = {row["name"]: row["levels"][level] for row in rows if level in row["levels"]}
        recalls = {key for result in found.values() for key in result if re.fullmatch(r"recall@\d+", key)}
        columns = [
            *sorted(recalls, key=lambda key: int(key[7:])),
            "r-precision",
            "map@r",
            "map",
            "mrr",
            "nmi",
            "ami",
            "nmi+",
        ]
        columns = [name for name in columns if any(name in result for result in found.values())]
        cells = {name: [percent(_number(found, name, column)) for column in columns] for name in found}
        best = [_best(column) for column in zip(*cells.values(), strict=True)]
        first = next(iter(found.values()))
        tables.append(
            {
                "level": level,
                "items": first.get("items"),
                "classes": first.get("classes"),
                "chance": _number({level: first}, level, "chance_recall@1"),
                "columns": [_NAMES.get(column, column.replace("recall@", "R@")) for column in columns],
                "rows": [
                    (name, [(text, text == most) for text, most in zip(texts, best, strict=True)])
                    for name, texts in cells.items()
                ],
            }
        )
    return tables


_NAMES = {
    "r-precision": "R-precision",
    "map@r": "MAP@R",
    "map": "mAP",
    "mrr": "MRR",
    "nmi": "NMI",
    "ami": "AMI",
    "nmi+": "NMI+",
}


def _best(column: Sequence[str]) -> str | None:
    """The largest as shown; None where all are equal and none stands out."""
    found = {text for text in column if text != MISSING}
    return max(found, key=float) if len(found) > 1 else None


def _curves(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The plots over steps that have anything to show."""
    training = record.get("curves") or {}
    validation = record.get("validation") or {}
    wanted: list[tuple[str, Mapping[str, Any], Mapping[str, Any], list[float] | None]] = [
        ("Loss", training, {"loss": training.get("loss")}, None),
        (
            "Active and hard triplets (share of the mined)",
            training,
            {"active (loss above 0)": training.get("active"), "hard (negative nearer)": training.get("hard")},
            [0, 1],
        ),
        (
            "Mean distance to the mined items",
            training,
            {"to the positive (d_ap)": training.get("d_ap"), "to the negative (d_an)": training.get("d_an")},
            None,
        ),
        (_validation_title(validation), validation, validation.get("recall@1") or {}, [0, 1]),
    ]
    if any(training.get("dropped") or []):
        wanted.append(("Dropped anchors", training, {"dropped": training["dropped"]}, None))
    marks = _marks(record)
    curves = []
    for title, part, series, limits in wanted:
        steps = part.get("step") or []
        attempts = part.get("attempt") or [0] * len(steps)
        series = {name: values for name, values in series.items() if values and any(is_number(v) for v in values)}
        if not series:
            continue
        lengths = {name: len(v) for name, v in series.items()}
        same_length(f"the curves {title!r}", {"steps": len(steps)} | lengths | {"attempts": len(attempts)})
        rows = {attempt: [i for i, one in enumerate(attempts) if one == attempt] for attempt in sorted(set(attempts))}
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


def _thinned(steps: Sequence[Any], series: Mapping[str, Any], index: Sequence[int]) -> dict[str, Any]:
    keep = [index[k] for k in thin(len(index), _MOST_STEPS)]
    return {
        "step": [steps[i] for i in keep],
        "series": {name: [values[i] for i in keep] for name, values in series.items()},
    }


def _attempts(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (record.get("monitor") or {}).get("attempts") or []


def _words(kind: object) -> str:
    return str(kind).replace("-", " ")


def _marks(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The vertical marks of the curves: the events of each step, and whether they belong to an abandoned attempt."""
    attempts = _attempts(record)
    found: dict[tuple[Any, bool], list[str]] = {}
    for place, attempt in enumerate(attempts):
        for event in attempt.get("events") or []:
            found.setdefault((event.get("step"), place < len(attempts) - 1), []).append(_words(event.get("kind")))
    return [{"step": step, "text": ", ".join(words), "past": past} for (step, past), words in found.items()]


def _happened(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the monitor saw and what the guard did; None where the record does not say."""
    attempts, guard = _attempts(record), record.get("guard") or {}
    if not attempts:
        return None
    if not any(attempt.get("events") for attempt in attempts):
        return {"quiet": _quiet(attempts[-1]), "seen": None, "attempts": []}
    repairs = guard.get("repairs") or []
    sections = {}
    for place, attempt in enumerate(attempts):
        events = attempt.get("events") or []
        if not events:
            continue
        notes = [
            f"{_words(left.get('kind')).capitalize()} not repaired: {left.get('why')}." for left in _left(guard, place)
        ]
        if place < len(repairs):
            repair = repairs[place]
            notes.append(f"Repair {place + 1}: back to step {number(repair.get('returned_to'))}. {repair.get('why')}")
        elif guard.get("stopped_by"):
            notes.append("The guard stopped the training here.")
        label = f"Attempt {place}" if len(attempts) > 1 else "Events"
        sections[label] = {"verdicts": [_as_verdict(event) for event in events], "notes": notes}
    table = [_attempt_row(place, attempt, repairs) for place, attempt in enumerate(attempts)] if repairs else []
    return {"quiet": None, "seen": diagnosis_parts(sections, compare=False)[0], "attempts": table}


def _left(guard: Mapping[str, Any], place: int) -> list[Mapping[str, Any]]:
    """What was not repaired, which can only have been in the last attempt."""
    return (guard.get("not_repaired") or []) if place == len(guard.get("repairs") or []) else []


def _as_verdict(event: Mapping[str, Any]) -> dict[str, Any]:
    evidence = dict(event.get("evidence") or {})
    if event.get("forecast") is not None:
        evidence["forecast_of_a_collapse_of_the_network"] = event["forecast"]
    return {
        "kind": event.get("kind"),
        "rule": f"at step {number(event.get('step'))}: {event.get('rule')}",
        "evidence": evidence,
        "changes": event.get("changes"),
    }


def _quiet(attempt: Mapping[str, Any]) -> str:
    steps = (attempt.get("series") or {}).get("step") or []
    said = f"The monitor saw no collapse: {number(len(steps))} looks at the batches"
    said += f", the last at step {number(round(steps[-1]))}." if steps else "."
    probability = (attempt.get("forecast") or {}).get("probability")
    if probability is not None:
        said += f" Its last forecast of a collapse of the network: {percent(probability)}\u00a0%."
    return said


def _attempt_row(place: int, attempt: Mapping[str, Any], repairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A row of the table of attempts: what was changed before, and how it stood at its first event and at its end."""
    series, events = attempt.get("series") or {}, attempt.get("events") or []
    steps = series.get("step") or []
    seen = [k for k, step in enumerate(steps) if events and step <= events[0].get("step")]

    def at(look: int | None, name: str) -> float | None:
        values = series.get(name) or []
        return values[look] if look is not None and values and is_number(values[look]) else None

    changes = repairs[place - 1].get("changes") or {} if place else {}
    looks = {"event": seen[-1] if seen else None, "end": len(steps) - 1 if steps else None}
    return {
        "attempt": place,
        "steps": f"{number(round(steps[0]))} to {number(round(steps[-1]))}" if steps else MISSING,
        "changes": [f"{name}: {_setting(old)} → {_setting(new)}" for name, (old, new) in changes.items()],
        "cells": [
            show(at(look, name))
            for look in looks.values()
            for name, show in (("recall", percent), ("relative_spread", _3))
        ],
    }


def _setting(found: object) -> str:
    return "none" if found is None else value(found)


def _3(spread: float | None) -> str:
    return MISSING if spread is None else f"{spread:.3g}"


def _data_rows(data: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    rows = [("train", data["train"])] if data.get("train") else []
    return rows + list((data.get("evaluation") or {}).items())


def _validation_title(validation: Mapping[str, Any]) -> str:
    """A sample holds fewer items of each class than the whole, so its recall is lower than the table's."""
    if "items" not in validation:
        return "Recall@1 during training"
    return f"Recall@1 within {validation['items']} of the {validation.get('split', 'evaluated')} items"
