"""Items of a record as the pages show them: an embedding map, a triplet scatter, queries with their neighbours."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from trivet.reports.page import images, same_length

MOST_DOTS = 2000


def is_number(value: object) -> TypeGuard[float]:
    """Whether it can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def thin(count: int, most: int) -> list[int]:
    """At most `most` indices, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def embedding_map(split: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """The map that plots.js draws, of a map in a record.

    Raises:
        ValueError: if its parts differ in length.
    """
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


def triplet_dots(where: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """At most `MOST_DOTS` marks of a triplet scatter, and counts of all.

    Raises:
        ValueError: if its series differ in length.
    """
    s_ap, s_an = part.get("s_ap") or [], part.get("s_an") or []
    ids = part.get("ids") or [str(i) for i in range(len(s_ap))]
    same_length(f"the triplet scatter of {where}", {"s_ap": len(s_ap), "s_an": len(s_an), "ids": len(ids)})
    whole = [i for i in range(len(ids)) if is_number(s_ap[i]) and is_number(s_an[i])]
    keep = [whole[k] for k in thin(len(whole), MOST_DOTS)]
    return {
        "s_ap": [s_ap[i] for i in keep],
        "s_an": [s_an[i] for i in keep],
        "ids": [ids[i] for i in keep],
        "items": len(whole),
        "without": len(ids) - len(whole),
        "wrong": sum(s_an[i] > s_ap[i] for i in whole),
    }


def gallery(part: Mapping[str, Any]) -> dict[str, Any]:
    """The queries, with each neighbour judged by the class of its query at the gallery's level."""
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
