"""Items of a record as the pages show them: an embedding map, a triplet scatter, queries with their neighbours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from trivet.reports.page import Pictures, same_length
from trivet.reports.shared_records import Item, PlaneMap, Query, TripletScatter

MOST_DOTS = 2000
MOST_PICTURES = 1_500_000  # characters of the pictures of all maps of a page; that of every dot would weigh too much


def is_number(value: object) -> TypeGuard[float]:
    """Whether it can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def thin(count: int, most: int) -> list[int]:
    """At most `most` indices, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def unseen_first(splits: Iterable[str]) -> list[str]:
    """Splits in the order of what they say of new classes: the unseen, then the others, the training items last."""
    return sorted(splits, key=lambda split: (split != "unseen") + (split == "train"))


def embedding_maps(maps: Mapping[str, PlaneMap], pictures: Pictures) -> dict[str, dict[str, Any]]:
    """The maps that plots.js draws; their thumbnails share the room that there is on a page.

    Raises:
        ValueError: if the parts of one differ in length.
    """
    return {split: _embedding_map(split, part, pictures, MOST_PICTURES // len(maps)) for split, part in maps.items()}


def _embedding_map(split: str, part: PlaneMap, pictures: Pictures, most: int) -> dict[str, Any]:
    lengths = {f"{name} coordinates": len(places) for name, places in part["coordinates"].items()}
    lengths |= {f"{level} labels": len(names) for level, names in part["labels"].items()}
    lengths |= {
        name: len(series) for name, series in (("ids", part["ids"]), ("thumbnails", part["thumbnails"])) if series
    }
    same_length(f"the parts of the map of {split}", lengths)
    count = next(iter(lengths.values()), 0)
    return {
        "coordinates": part["coordinates"],
        "levels": {level: _classes(names) for level, names in part["labels"].items()},
        "ids": part["ids"] or [str(i) for i in range(count)],
        "thumbnails": pictures.some(part["thumbnails"], most) or [None] * count,
    }


def _classes(labels: Sequence[str]) -> dict[str, Any]:
    """Class names in reading order ("2" before "10"), and the class of each point."""
    names = sorted(set(labels), key=_reading_order)
    place = {name: c for c, name in enumerate(names)}
    return {"names": names, "classes": [place[label] for label in labels]}


def _reading_order(name: str) -> list[tuple[int, str]]:
    return [(len(part.lstrip("0")) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]


def triplet_dots(where: str, part: TripletScatter) -> dict[str, Any]:
    """At most `MOST_DOTS` marks of a triplet scatter, and counts of all.

    Raises:
        ValueError: if its series differ in length.
    """
    s_ap, s_an = part["s_ap"], part["s_an"]
    ids = part["ids"] or [str(i) for i in range(len(s_ap))]
    same_length(f"the triplet scatter of {where}", {"s_ap": len(s_ap), "s_an": len(s_an), "ids": len(ids)})
    whole = [(ap, an, id) for ap, an, id in zip(s_ap, s_an, ids, strict=True) if is_number(ap) and is_number(an)]
    shown = [whole[k] for k in thin(len(whole), MOST_DOTS)]
    return {
        **{name: [one[column] for one in shown] for column, name in enumerate(("s_ap", "s_an", "ids"))},
        "items": len(whole),
        "without": len(ids) - len(whole),
        "wrong": sum(an > ap for ap, an, _ in whole),
    }


def gallery(level: str, queries: Sequence[Query], pictures: Pictures) -> list[dict[str, Any]]:
    """The queries, with each neighbour judged by the class of its query at a level."""

    def item(one: Item) -> dict[str, Any]:
        return {**one, "picture": pictures.place(one["thumbnail"])}

    return [
        item(query)
        | {
            "neighbours": [
                item(near)
                | {
                    "right": near["labels"].get(level) == query["labels"].get(level),
                    "names": [(at, name, name == query["labels"].get(at)) for at, name in near["labels"].items()],
                }
                for near in query["neighbours"]
            ]
        }
        for query in queries
    ]
