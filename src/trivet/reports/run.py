"""The page of one training run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.reports.page import MISSING, images, percent, same_length, write_page

_MOST_STEPS = 2000
_MOST_DOTS = 2000
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
    maps = {split: _map(split, part) for split, part in (record.get("maps") or {}).items()}
    scatter = {
        split: {level: _dots(f"{split}, {level}", part) for level, part in levels.items()}
        for split, levels in (record.get("scatter") or {}).items()
    }
    curves = _curves(record)
    skipped = (record.get("data") or {}).get("skipped") or []
    context = {
        "record": record,
        "results": [
            _result(split, rows, _trained_level(record), intervals.get(split) or {})
            for split, rows in evaluation.items()
        ],
        "tables": {split: _tables(rows) for split, rows in evaluation.items()},
        "collapse": record.get("collapse") or {},
        "curves": curves,
        "thinned": any(curve["thinned"] for curve in curves),
        "maps": maps,
        "scatter": scatter,
        "most_dots": _MOST_DOTS,
        "galleries": {split: _gallery(part) for split, part in (record.get("neighbours") or {}).items()},
        "data_rows": _data_rows(record.get("data") or {}),
        "skipped": skipped[:_MOST_SKIPPED],
        "skipped_count": len(skipped),
    }
    drawn = {
        split: {level: {key: part[key] for key in ("s_ap", "s_an", "ids")} for level, part in levels.items()}
        for split, levels in scatter.items()
    }
    write_page("run.html", path, context, {"curves": curves, "maps": maps, "scatter": drawn})


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
    curves = []
    for title, part, series, limits in wanted:
        steps = part.get("step") or []
        series = {name: values for name, values in series.items() if values and any(_is_number(v) for v in values)}
        if not series:
            continue
        same_length(f"the curves {title!r}", {"steps": len(steps)} | {name: len(v) for name, v in series.items()})
        keep = _thin(len(steps), _MOST_STEPS)
        curves.append(
            {
                "title": title,
                "step": [steps[i] for i in keep],
                "series": {name: [values[i] for i in keep] for name, values in series.items()},
                "limits": limits,
                "thinned": len(keep) < len(steps),
            }
        )
    return curves


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _thin(count: int, most: int) -> list[int]:
    """At most `most` indices, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def _map(split: str, part: Mapping[str, Any]) -> dict[str, Any]:
    coordinates, labels = part.get("coordinates") or {}, part.get("labels") or {}
    ids, thumbnails = part.get("ids") or [], part.get("thumbnails") or []
    lengths = {f"{name} coordinates": len(places) for name, places in coordinates.items()}
    lengths |= {f"{level} labels": len(names) for level, names in labels.items()}
    lengths |= {"ids": len(ids)} if ids else {}
    lengths |= {"thumbnails": len(thumbnails)} if thumbnails else {}
    same_length(f"the parts of the map of {split}", lengths)
    count = next(iter(lengths.values()), 0)
    return {
        "coordinates": coordinates,
        "levels": {level: _classes(names) for level, names in labels.items()},
        "ids": ids or [str(i) for i in range(count)],
        "thumbnails": images(thumbnails, count),
    }


def _classes(labels: Sequence[str]) -> dict[str, Any]:
    """Class names in reading order ("2" before "10"), and the class of each point."""
    names = sorted(set(labels), key=_reading_order)
    place = {name: c for c, name in enumerate(names)}
    return {"names": names, "classes": [place[label] for label in labels]}


def _reading_order(name: str) -> list[tuple[int, str]]:
    return [(len(part.lstrip("0")) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]


def _dots(where: str, part: Mapping[str, Any]) -> dict[str, Any]:
    s_ap, s_an = part.get("s_ap") or [], part.get("s_an") or []
    ids = part.get("ids") or [str(i) for i in range(len(s_ap))]
    same_length(f"the triplet scatter of {where}", {"s_ap": len(s_ap), "s_an": len(s_an), "ids": len(ids)})
    whole = [i for i in range(len(ids)) if _is_number(s_ap[i]) and _is_number(s_an[i])]
    keep = [whole[k] for k in _thin(len(whole), _MOST_DOTS)]
    return {
        "s_ap": [s_ap[i] for i in keep],
        "s_an": [s_an[i] for i in keep],
        "ids": [ids[i] for i in keep],
        "items": len(whole),
        "without": len(ids) - len(whole),
        "wrong": sum(s_an[i] > s_ap[i] for i in whole),
    }


def _gallery(part: Mapping[str, Any]) -> dict[str, Any]:
    level = part.get("level")
    queries = []
    for query in part.get("queries") or []:
        names = query.get("labels") or {}
        neighbours = [
            {
                **neighbour,
                "right": (neighbour.get("labels") or {}).get(level) == names.get(level),
                "names": [(at, name, name == names.get(at)) for at, name in (neighbour.get("labels") or {}).items()],
            }
            for neighbour in query.get("neighbours") or []
        ]
        queries.append({**query, "names": names, "neighbours": neighbours})
    return {"level": level, "queries": queries}


def _data_rows(data: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    rows = [("train", data["train"])] if data.get("train") else []
    return rows + list((data.get("evaluation") or {}).items())


def _validation_title(validation: Mapping[str, Any]) -> str:
    """A sample holds fewer items of each class than the whole, so its recall is lower than the table's."""
    if "items" not in validation:
        return "Recall@1 during training"
    return f"Recall@1 within {validation['items']} of the {validation.get('split', 'evaluated')} items"
