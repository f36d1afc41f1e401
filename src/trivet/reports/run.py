"""The page of a training run: first whether training helped, then what it did, then all details."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.records import RunRecord
from trivet.records.diagnosis import Compared
from trivet.records.items import Levels
from trivet.records.monitor import Attempt, Event, Repair
from trivet.records.run import Choice, ChoosingLook, ChosenCompared, Curves, Evaluated, Validation
from trivet.reports.diagnosis import (
    RESULTS,
    SCRIPTS,
    calmed,
    diagnosis_parts,
    drawn_scatter,
    history_parts,
    shown_queries,
    verdict,
)
from trivet.reports.forecast import forecast_parts
from trivet.reports.items import MOST_DOTS, embedding_maps, is_number, thin, triplet_dots, unseen_first
from trivet.reports.measures import NAMES
from trivet.reports.page import MISSING, Pictures, number, percent, points, same_length, value, write_page
from trivet.reports.tolerance import cleaning_rows, noise_curve, noise_parts
from trivet.wording import counted

_MOST_STEPS = 2000
_MOST_SKIPPED = 200
_CLASS_ROWS = 10  # of a table of classes, before the others are asked for
_REFERENCES = {
    "untrained network": "the untrained network",
    "zero-shot backbone": "the zero-shot backbone",
    "raw inputs": "the raw inputs",
}
_BEGUN_AS = ("untrained network", "zero-shot backbone")
_HELPED, _NO_DIFFERENCE = "Training helped", "Training made no clear difference"
_WORSE, _PERHAPS_WORSE = "Training made it worse", "Training may have made it worse"
_RAW_BETTER = "The raw inputs do better"
_OF_TRAINING = (_HELPED, _NO_DIFFERENCE, _WORSE, _PERHAPS_WORSE, _RAW_BETTER)  # these hold by a measure
RECALL = "recall@1"


def write_run_report(record: RunRecord, path: Path) -> None:
    """Write the page of a run; a part that the record lacks is left out.

    Raises:
        ValueError: if series of the record that belong together differ in length.
        OSError: if the file cannot be written.
    """
    pictures, diagnosed = Pictures(), record["diagnosis"]
    parts, plots = diagnosis_parts(diagnosed, compare=False, most_rows=_CLASS_ROWS)
    shown = {split: (part["level"], {"random": part["queries"]}) for split, part in record["neighbours"].items()}
    shown |= {split: (section["level"], section["queries"]) for split, section in diagnosed.items()}
    queries = {  # before the maps: their pictures are placed first
        split: groups for split in unseen_first(shown) if (groups := shown_queries(*shown[split], pictures)) is not None
    }
    planes = {split: plane for split, section in diagnosed.items() if (plane := section["map"])} | record["maps"]
    maps = embedding_maps({split: planes[split] for split in unseen_first(planes)}, pictures)
    scatters = {
        split: {section["level"]: dots} for split, section in diagnosed.items() if (dots := section["scatter"])
    } | record["scatter"]
    scatter = {
        split: {level: triplet_dots(f"{split}, {level}", part) for level, part in scatters[split].items()}
        for split in unseen_first(scatters)
    }
    history, moments = history_parts(record["history"])
    curves, skew = _curves(record), noise_curve(record)
    results = [_result(split, record) for split in record["evaluation"]]
    said, bad = result_lines(record), calmed(parts["sections"])
    if not fell_back(record) and (chosen := choice_line(record)):
        said.append(("calm", chosen))
    bad |= any(tone == "bad" for tone, _ in said)
    context = {
        "record": record,
        "results": results,
        "chosen_by": choice["split"] if (choice := record["choosing"]) and decides(choice) else None,
        "said": [("calm" if bad and tone == "good" else tone, line) for tone, line in said],
        "bad": bad,
        "tables": {split: _tables(evaluated_rows(record, split)) for split in record["evaluation"]},
        "happened": _happened(record),
        "curves": curves,
        "forecast": forecast_parts(record["forecast"]),
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
            (split, part)
            for split, part in {"train": record["data"]["train"], **record["data"]["evaluation"]}.items()
            if part is not None
        ],
        "skipped": record["data"]["skipped"][:_MOST_SKIPPED],
    }
    plots |= {
        "curves": [*curves, *([skew] if skew else [])],
        "maps": maps,
        "scatter": drawn_scatter(scatter),
        "history": moments,
    }
    write_page("run.html", path, context, plots, script=SCRIPTS, pictures=pictures)


def _result(split: str, record: RunRecord) -> dict[str, Any]:
    """The main result of a split: recall@1 at the trained and the finest level, beside every reference."""
    by_name = {row["name"]: row["levels"] for row in record["evaluation"][split]}
    trained = by_name.pop("trained", {})
    asked = record["settings"].get("data", {}).get("level")
    main = next((level for level in (asked, record["level"]) if level in trained), next(iter(trained), ""))
    diagnosed = record["diagnosis"].get(split)
    kinds = [one["kind"] for one in diagnosed["verdicts"]] if diagnosed else []
    by_chance = diagnosed["level"] if diagnosed and "no-better-than-chance" in kinds else None
    shown = []
    cuts = record["prefixes"].get(split, [])
    chosen_level = (choice["level"] or record["level"]) if (choice := record["choosing"]) else None
    for level in dict.fromkeys([main, *list(trained)[-1:]]) if trained else ():
        references = {
            name: share for name, levels in by_name.items() if (share := _share(levels, level, "recall@1")) is not None
        }
        share, chance = (_share(trained, level, name) for name in ("recall@1", "chance_recall@1"))
        intervals = record["intervals"].get(split, {}).get(level, {}).get("recall@1", {})
        compared = record["comparisons"].get(split, {}).get(level, [])
        chosen = record["chosen_comparisons"].get(split, {}).get(level, []) if level == chosen_level else []
        bars = [("trained", share), *references.items(), ("chance", chance)]
        lengths = [*(number(cut["prefix"]) for cut in cuts), "all"]
        shares = [{row["name"]: _share(row["levels"], level, "recall@1") for row in cut["evaluated"]} for cut in cuts]
        roles = [role for role, of in (("level trained on", main), ("finest level", list(trained)[-1])) if of == level]
        shown.append(
            {
                "level": level,
                "role": ", ".join(roles),
                "items": trained[level].get("items"),
                "classes": trained[level].get("classes"),
                "share": share,
                "helped": _helped(share, chance, compared, by_chance=level == by_chance),
                "ends": [
                    f"{percent(ends[0])} to {percent(ends[1])} over {over}" for over, ends in intervals.items() if ends
                ],
                "bars": [bar for bar in bars if bar[1] is not None],
                "prefixes": {
                    "names": ["trained", *references],
                    "rows": [
                        (length, [found.get(name) for name in ("trained", *references)])
                        for length, found in zip(lengths, [*shares, {"trained": share, **references}], strict=True)
                    ],
                },
                "prefixes_helped": [
                    (cut["prefix"], helped)
                    for cut, found in zip(cuts, shares, strict=True)
                    if (helped := _helped(found.get("trained"), chance, cut["comparisons"].get(level, [])))
                ],
                "chosen": []
                if level == by_chance or not chosen
                else [(_name(chosen[0]["measure"]), *_by_choice(chosen))],
                "sentence": _sentence(level, share, references, chance),
            }
        )
    counts = record["data"]["evaluation"].get(split)
    return {"split": split, "levels": shown, "asked": bool(counts and counts["protocol"])}


def evaluated_rows(record: RunRecord, split: str) -> list[Evaluated]:
    """The embeddings of a split, then prefixes of them, which their names say."""
    rows = list(record["evaluation"][split])
    for cut in record["prefixes"].get(split, []):
        for row in cut["evaluated"]:
            rows.append({"name": f"{row['name']}, first {cut['prefix']}", "levels": row["levels"]})
    return rows


def result_lines(record: RunRecord) -> list[tuple[str, str]]:
    """Whether training helped, in sentences with their tone ("bad", "warn", "good"), the worst first.

    Where a step was chosen by another measure than recall@1, what is said by that one comes before.
    """
    places: dict[tuple[str, str], list[str]] = {}
    by_choice: dict[tuple[str, str], list[str]] = {}
    for split in record["evaluation"]:
        for level in _result(split, record)["levels"]:
            for measure, tone, words, numbers in level["chosen"]:
                said = f"{split} by {level['level']}{numbers}"
                by_choice.setdefault((tone, f"{words} by {measure}"), []).append(said)
            told: dict[tuple[str, str], dict[int | None, str]] = {}
            for prefix, helped in ((None, level["helped"]), *level["prefixes_helped"]):
                if helped is not None:
                    tone, words, numbers = helped
                    told.setdefault((tone, words), {})[prefix] = numbers
            for key, found in told.items():
                places.setdefault(key, []).append(_place(f"{split} by {level['level']}", found))
    if by_choice:
        places = {
            (tone, words + (f" by {RECALL}" if words in _OF_TRAINING else "")): v for (tone, words), v in places.items()
        }
    lines = []
    for said_of in (by_choice, places):
        sentences = [(tone, f"{words}: {', '.join(splits)}.") for (tone, words), splits in said_of.items()]
        lines += sorted(sentences, key=lambda line: ("bad", "warn", "good").index(line[0]))
    if not fell_back(record):
        return lines
    if record["choosing"] and record["choosing"]["keep"] != "last":  # the model is as it began: there is none
        lines = [line for line in lines if not line[1].startswith(_NO_DIFFERENCE)]
    return [("warn", choice_line(record) or ""), *lines]


def _place(where: str, found: Mapping[int | None, str]) -> str:
    """Where something holds: of whole embeddings, which the key None stands for, and of prefixes; each with numbers.

    Those of a prefix of which the same holds as of the whole stand in the table below.
    """
    cuts = [prefix for prefix in found if prefix is not None]
    if None not in found:
        return f"{where} with {_list([f'the first {prefix} numbers{found[prefix]}' for prefix in cuts])}"
    return f"{where}{found[None]}" + (f", also with the first {_list(list(map(str, cuts)))} numbers" if cuts else "")


def fell_back(record: RunRecord) -> bool:
    """Whether training did not help on the items by which a step is chosen.

    No step is better than the start, which is the model; or none even had a higher measure, where the model is that of
    the last step all the same.
    """
    choice = record["choosing"]
    if choice is None or len(choice["looks"]) < 2 or choice["step"] != 0 or _kept(record) is not None:
        return False
    return choice["keep"] != "last" or _highest(choice) is choice["looks"][0]


def choice_line(record: RunRecord) -> str | None:
    """Which model is measured, which step was the best, and why; None where there was nothing to choose by."""
    choice = record["choosing"]
    if choice is None or not choice["looks"]:
        return None
    first, *later = choice["looks"]
    last, reached = choice["keep"] == "last", record["step"]
    kept = _kept(record)
    model = f"the model is {kept or (f'that of the last step, {number(reached)}' if last else _begun(record))}"
    if not later:
        return None if last else f"{_capital(model)}: training ended before the first look at a trained one."
    measure = NAMES.get(choice["measure"], choice["measure"])
    start = None if first["value"] is None or first["gain"] is None else first["value"] - first["gain"]
    among = f", among {number(choice['known'])} training items" if choice["known"] else ""
    where = f"on {_held_out(record, choice)} ({choice['split']}, {choice['classes']} classes{among})"
    before = f"against {_percent(start)} before"
    best = next(look for look in choice["looks"] if look["step"] == choice["step"])
    if kept is not None:
        said = f"{_capital(model)}. The best of the last attempt {where} is that of step {number(best['step'])}: "
        said += f"{measure} {_percent(best['value'])}, {before} training."
    elif choice["step"] == 0:
        highest = _highest(choice)
        if highest is first:
            said = f"Training did not help {where}; {model}: no step had a higher {measure}."
        else:
            doubt = "fewer nearest neighbours were right" if (highest["low"] or 0) > 0 else "that may be chance"
            said = (
                f"{measure} was {_percent(highest['value'])} at step {number(highest['step'])}, {before}, but {doubt}."
            )
            said = f"{_capital(model)}; {where} {said}" if last else f"Training did not help {where}; {model}: {said}"
    elif not last:
        said = f"The model is that of step {number(best['step'])}, the best {where}"
        said += f": {measure} {_percent(best['value'])}, {before} training."
    elif best is later[-1]:
        said = f"{_capital(model)}, the best {where}: {measure} {_percent(best['value'])}, {before} training."
    else:
        said = f"{_capital(model)}: {measure} {_percent(later[-1]['value'])} {where}. The best is that of step "
        said += f"{number(best['step'])}: {_percent(best['value'])}, {before} training; it lies in model-best/."
    if choice["known"]:
        said += f" In the table of {choice['split']} its items are only among themselves."
    if choice["step"] == 0 and not last:
        said += " The row “trained” in the tables is this model."
    if choice["ended"] is not None:
        looks = counted(choice["patience"] or 0, "look")
        said += f" Training ended early, at step {number(choice['ended'])}, as {looks} found no higher {measure}."
    return said


def _kept(record: RunRecord) -> str | None:
    """Which network the guard kept as the result; None where that is the last, or the best step."""
    kept, choice = record["guard"]["kept"], record["choosing"]
    if kept is None or choice is None or choice["keep"] != "last":
        return None
    return f"that of step {number(kept['step'])} of attempt {kept['attempt']}, which the guard kept"


def decides(choice: Choice) -> bool:
    """Whether the result of the run depends on the choice."""
    return choice["keep"] != "last" or choice["ended"] is not None


def _highest(choice: Choice) -> ChoosingLook:
    return max(choice["looks"], key=lambda look: look["value"] or 0.0)


def _held_out(record: RunRecord, choice: Choice) -> str:
    """What a step is chosen by: classes that are not trained on, or only items of those that are."""
    counts = record["data"]["evaluation"].get(choice["split"])
    trained = counts["trained_classes"].get(choice["level"] or record["level"]) if counts else 0
    return "items held out" if trained else "classes held out"


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _begun(record: RunRecord) -> str:
    """What the network of a run is before its first step."""
    settings, parameters = record["settings"], record["model"]["parameters"]
    data, model = settings.get("data", {}), settings.get("model", {})
    if model.get("name") != "residual" or data.get("name") not in ("vectors", "texts"):
        return "the untrained network"
    width = model.get("embedding_dim", 1)
    return "the raw vectors" if parameters is None or parameters <= width**2 else "a projection of the raw vectors"


def cause_lines(record: RunRecord) -> list[str]:
    """The cause of a bad result and what to change, as the diagnosis of the first split that has one says it."""
    diagnosed = record["diagnosis"]
    for split in [*record["evaluation"], *diagnosed]:
        verdicts = diagnosed[split]["verdicts"] if split in diagnosed else []
        for told in verdicts:
            if told["kind"] in RESULTS:
                return [f"Cause: {told['cause']}", *(f"Change {n}: {one}" for n, one in enumerate(told["changes"], 1))]
    return []


def _helped(
    share: float | None, chance: float | None, compared: Sequence[Compared], *, by_chance: bool = False
) -> tuple[str, str, str] | None:
    """The tone, the words and the numbers of what training did, on the same items as each reference."""
    if share is None:
        return None
    if by_chance or (chance is not None and share <= chance):
        return "bad", "No better than chance", f" (recall@1 {_percent(share)}, {_percent(chance)} by chance)"
    if not compared:
        return None
    if lost := [one for one in compared if one["outcome"] == "worse"]:
        begun = any(one["reference"] in _BEGUN_AS for one in lost)
        return "bad", _WORSE if begun else _RAW_BETTER, _numbers(share, lost)
    begun_as = [one for one in compared if one["reference"] in _BEGUN_AS]
    if begun_as and all(one["outcome"] == "better" for one in begun_as):
        return "good", _HELPED, ""
    if open_ := [one for one in compared if one["outcome"] == "open"]:
        return "warn", _PERHAPS_WORSE, _numbers(share, open_)
    return "warn", _NO_DIFFERENCE, _numbers(share, begun_as)


def _by_choice(compared: Sequence[ChosenCompared]) -> tuple[str, str, str]:
    """The tone, the words and the numbers of what training did, by the measure that a step was chosen by."""
    outcomes = [one["outcome"] for one in compared]
    begun_as = [one for one in compared if one["reference"] in _BEGUN_AS]
    told = begun_as
    if "worse" in outcomes:
        told = [one for one in compared if one["outcome"] == "worse"]
        tone, words = "bad", _WORSE if any(one in begun_as for one in told) else _RAW_BETTER
    elif begun_as and all(one["outcome"] == "better" for one in begun_as):
        tone, words = "good", _HELPED
    elif "open" in outcomes:
        told = [one for one in compared if one["outcome"] == "open"]
        tone, words = "warn", _PERHAPS_WORSE
    else:
        tone, words = "warn", _NO_DIFFERENCE
    against = [
        f"{_percent(one['reference_value'])} of {_REFERENCES.get(one['reference'], one['reference'])}: "
        f"{points(one['difference'])} points, {points(one['low'])} to {points(one['high'])}"
        for one in told
    ]
    return tone, words, f" ({_percent(compared[0]['value'])}, against {'; '.join(against)})" if against else ""


def _name(measure: str) -> str:
    return NAMES.get(measure, measure)


def _percent(share: float | None) -> str:
    return f"{percent(share)}\u00a0%"


def _numbers(share: float, compared: Sequence[Compared]) -> str:
    against = [
        f"{_percent(one['reference_recall'])} of {_REFERENCES.get(one['reference'], one['reference'])}"
        for one in compared
    ]
    return f" (recall@1 {_percent(share)}, against {_list(against)})" if against else ""


def _sentence(level: str, share: float | None, references: Mapping[str, float], chance: float | None) -> str:
    if share is None:
        return f"Recall@1 by {level} was not measured."
    named = {_REFERENCES.get(name, name): recall for name, recall in references.items()}
    others = [f"{percent(recall)}\u00a0% with {name}" for name, recall in named.items()]
    if chance is not None:
        others.append(f"{percent(chance)}\u00a0% by chance")
    said = f"After training, the nearest neighbour has the same {level} for {percent(share)}\u00a0% of the items"
    said += f", against {_list(others)}." if others else "."
    # Compared as shown, so that a difference nobody can see is called none.
    shown = round(100 * share, 1)
    higher = [name for name, recall in named.items() if round(100 * recall, 1) > shown]
    equal = [name for name, recall in named.items() if round(100 * recall, 1) == shown]
    if chance is not None and shown <= round(100 * chance, 1):
        said += " That is no better than chance."
    for names, how in ((higher, "did better than the trained network"), (equal, "did equally well")):
        said += f" {_list(names)[:1].upper()}{_list(names)[1:]} {how}." if names else ""
    return said


def _list(parts: Sequence[str]) -> str:
    return " and ".join([part for part in (", ".join(parts[:-1]), *parts[-1:]) if part])


def _share(levels: Levels, level: str, key: str) -> float | None:
    share = levels.get(level, {}).get(key)
    return share if is_number(share) else None


def _tables(rows: Sequence[Evaluated]) -> list[dict[str, Any]]:
    """One table per level: a row per embedding, shares as percent, the best of each column marked."""
    tables = []
    for level in dict.fromkeys(level for row in rows for level in row["levels"]):
        measured = {row["name"]: row["levels"][level] for row in rows if level in row["levels"]}
        recalls = {key for result in measured.values() for key in result if re.fullmatch(r"recall@\d+", key)}
        columns = [*sorted(recalls, key=lambda key: int(key[7:])), *NAMES]
        columns = [name for name in columns if any(name in result for result in measured.values())]
        cells = {name: [percent(_share(measured, name, column)) for column in columns] for name in measured}
        best = [_best(column) for column in zip(*cells.values(), strict=True)]
        first = next(iter(measured.values()))
        tables.append(
            {
                "level": level,
                "items": first.get("items"),
                "classes": first.get("classes"),
                "chance": _share(measured, next(iter(measured)), "chance_recall@1"),
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
        seen: Validation = {
            "split": choice["split"],
            "items": choice["items"],
            "step": [look["step"] for look in choice["looks"]],
            "attempt": [],
            "recall@1": {},
        }
        measure = NAMES.get(choice["measure"], choice["measure"])
        values = {
            "mean": [look["gain"] for look in choice["looks"]],
            "lower end of its interval": [look["low"] for look in choice["looks"]],
        }
        what = ", by which the step was chosen" if decides(choice) else ""
        wanted.append((f"Gain of {measure} on {choice['split']}{what}", seen, values, None))
    wanted += _asked(record["monitor"]["attempts"])
    marks = _marks(record["monitor"]["attempts"])
    if record["foreseen"] is not None and record["foreseen"]["sentence"]:
        marks.append({"step": 0, "text": "collapse foretold", "past": False})
    curves = []
    for title, part, every, limits in wanted:
        steps = part["step"]
        attempts = part["attempt"] or [0] * len(steps)
        series = {name: values for name, values in every.items() if any(is_number(v) for v in values)}
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


def _asked(
    attempts: Sequence[Attempt],
) -> list[tuple[str, Validation, Mapping[str, Sequence[float | None]], list[float] | None]]:
    """The curve of what the guard's probe showed; none where it had none."""
    probes = [(place, probe) for place, attempt in enumerate(attempts) if (probe := attempt["probe"]) is not None]
    if not probes:
        return []
    shown = {"recall": "recall@1", "fine_recall": "recall@1 by finer classes", "relative_spread": "relative spread"}
    values = {title: [x for _, probe in probes for x in probe["series"].get(name, [])] for name, title in shown.items()}
    seen: Validation = {
        "split": "",
        "items": probes[-1][1]["items"],
        "step": [round(step or 0) for _, probe in probes for step in probe["series"].get("step", [])],
        "attempt": [place for place, probe in probes for _ in probe["series"].get("step", [])],
        "recall@1": {},
    }
    if not seen["step"]:
        return []
    return [(f"{number(probes[-1][1]['items'])} held-out items that the guard asked", seen, values, [0, 1])]


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
    for place, attempt in enumerate(attempts):
        for event in attempt["events"]:
            marks.setdefault((event["step"], place < len(attempts) - 1), []).append(_words(event["kind"]))
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
    seen = []
    for place, attempt in enumerate(attempts):
        if not attempt["events"]:
            continue
        notes = []
        if place == len(repairs):  # what was not repaired can only have been in the last attempt
            notes = [f"{_words(one['kind']).capitalize()} not repaired: {one['why']}." for one in guard["not_repaired"]]
            notes += ["The guard stopped the training here."] if guard["stopped_by"] else []
        else:
            repair = repairs[place]
            notes.append(f"Repair {place + 1}: back to step {number(repair['returned_to'])}. {repair['why']}")
        label = f"Attempt {place}" if len(attempts) > 1 else ""
        seen.append(
            {
                "label": label,
                "facts": [],
                "rank": 0,
                "verdicts": list(map(_as_verdict, attempt["events"])),
                "notes": notes,
            }
        )
    table = [_attempt_row(place, attempt, repairs) for place, attempt in enumerate(attempts)] if repairs else []
    return {"quiet": None, "seen": seen, "attempts": table, "notes": done}


def _foretold_and_spent(record: RunRecord) -> list[str]:
    """What was foretold, what the guard kept, and what its probe and its repairs cost, in sentences."""
    attempts, guard, foreseen = record["monitor"]["attempts"], record["guard"], record["foreseen"]
    said = []
    if foreseen is not None:
        trial = f"Before the first step, {number(foreseen['steps'])} trial steps foretold no collapse."
        said.append(foreseen["sentence"] or trial)
    probe = attempts[-1]["probe"]
    if probe is not None and probe["cost"] is not None:
        calls = sum(len(one["series"].get("step", [])) for attempt in attempts if (one := attempt["probe"]) is not None)
        said.append(
            f"The guard asked {number(probe['items'])} held-out items {number(calls)} times; in the last attempt that "
            f"cost {percent(probe['cost'])}\u00a0% of the steps."
        )
    if guard["repairs"]:
        lost = sum(repair["step"] + 1 - repair["returned_to"] for repair in guard["repairs"])
        said.append(f"Repairs threw {number(lost)} steps away.")
    if guard["kept"] is not None:
        said.append(
            f"The result is the network of step {number(guard['kept']['step'])} of attempt "
            f"{guard['kept']['attempt']}, as the last attempt ended worse on these items."
        )
    return said


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
    said = f"The monitor detected no collapse in {number(len(steps))} checks"
    said += f", the last at step {number(round(steps[-1] or 0))}." if steps else "."
    if attempt["forecast"] and attempt["forecast"]["probability"] is not None:
        said += f" Its last forecast of a network collapse: {percent(attempt['forecast']['probability'])}\u00a0%."
    return said


def _attempt_row(place: int, attempt: Attempt, repairs: Sequence[Repair]) -> dict[str, Any]:
    """A row of the table of attempts: what was changed before, and how it stood at its first event and at its end."""
    series, events = attempt["series"], attempt["events"]
    steps = [step or 0 for step in series.get("step", [])]
    seen = [k for k, step in enumerate(steps) if events and step <= events[0]["step"]]

    def at(look: int | None, name: str) -> float | None:
        values = series.get(name, [])
        return values[look] if look is not None and values and is_number(values[look]) else None

    return {
        "attempt": place,
        "steps": f"{number(round(steps[0]))} to {number(round(steps[-1]))}" if steps else MISSING,
        "changes": [
            f"{name}: {_setting(old)} → {_setting(new)}"
            for name, (old, new) in (repairs[place - 1]["changes"] if place else {}).items()
        ],
        "cells": [
            show(at(look, name))
            for look in (seen[-1] if seen else None, len(steps) - 1 if steps else None)
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
