"""Items of a record as the pages show them: an embedding map, a triplet scatter, queries with their neighbours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from trivet.reports.page import Pictures, same_length
from trivet.reports.shared_records import ItemRecord, NeighbourRecord, PlaneMap, QueryRecord, ScatterRecord
from trivet.runtime.record import Number, Record

MOST_DOTS = MOST_STEPS = 2000
MOST_PICTURES = 1_500_000  # characters of the pictures of all maps of a page; that of every dot would weigh too much


def is_number(value: object) -> TypeGuard[float]:
    """True for a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def thin(count: int, most: int) -> list[int]:
    """Indices, at most `most`, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


class Mark(Record):
    """A vertical mark of a curve."""

    step: int
    text: str


class Curve(Record):
    """Series over steps, as plots.js draws them; `limits` of the values, where they are known, and "low" and "high" of
    an interval.
    """

    title: str
    step: list[int]
    series: dict[str, list[Number | None]]
    limits: list[Number] | None
    marks: list[Mark]
    thinned: bool
    band: dict[str, list[Number | None]]
    band_title: str


Limits = tuple[float, float] | None


def curve(
    title: str,
    step: Sequence[int],
    series: Mapping[str, Sequence[float | None]],
    limits: Limits,
    marks: Sequence[Mark] = (),
    *,
    band: Mapping[str, Sequence[float | None]] | None = None,
    band_title: str = "",
) -> Curve | None:
    """A plot of the series that have anything to show, of at most `MOST_STEPS` steps; None where there are none."""
    series = {name: values for name, values in series.items() if any(map(is_number, values))}
    if not series:
        return None
    band = band or {}
    lengths = {name: len(values) for name, values in (*series.items(), *band.items())}
    same_length(f"the curves {title!r}", {"steps": len(step)} | lengths)
    drawn = thin(len(step), MOST_STEPS)
    return Curve(
        title=title,
        step=[step[i] for i in drawn],
        series={name: [values[i] for i in drawn] for name, values in series.items()},
        limits=limits and list(limits),
        marks=list(marks),
        thinned=len(step) > MOST_STEPS,
        band={name: [values[i] for i in drawn] for name, values in band.items()},
        band_title=band_title,
    )


def unseen_first(splits: Iterable[str]) -> list[str]:
    """Splits in the order of what they say of new classes: the unseen, then the others, the training items last."""
    return sorted(splits, key=lambda split: (split != "unseen") + (split == "train"))


class MapClasses(Record):
    """Class names in reading order ("2" before "10"), and the class of each point."""

    names: list[str]
    classes: list[int]


class EmbeddingMap(Record):
    """A map as plots.js draws it: level -> classes; thumbnails by their number on the page."""

    coordinates: dict[str, list[list[Number]]]
    levels: dict[str, MapClasses]
    ids: list[str]
    thumbnails: list[int | None]


def embedding_maps(maps: Mapping[str, PlaneMap], pictures: Pictures) -> dict[str, EmbeddingMap]:
    """The maps of a page; their thumbnails share the room that there is on it."""
    return {
        split: _embedding_map(split, plane_map, pictures, MOST_PICTURES // len(maps))
        for split, plane_map in maps.items()
    }


def _embedding_map(split: str, plane_map: PlaneMap, pictures: Pictures, most: int) -> EmbeddingMap:
    lengths = {f"{name} coordinates": len(points) for name, points in plane_map.coordinates.items()}
    lengths |= {f"{level} labels": len(names) for level, names in plane_map.labels.items()}
    lengths |= {
        name: len(series) for name, series in (("ids", plane_map.ids), ("thumbnails", plane_map.thumbnails)) if series
    }
    same_length(f"the parts of the map of {split}", lengths)
    count = next(iter(lengths.values()), 0)
    return EmbeddingMap(
        coordinates=plane_map.coordinates,
        levels={level: _classes(names) for level, names in plane_map.labels.items()},
        ids=plane_map.ids or [str(i) for i in range(count)],
        thumbnails=pictures.some(plane_map.thumbnails, most) or [None] * count,
    )


def _classes(labels: Sequence[str]) -> MapClasses:
    names = sorted(set(labels), key=_reading_order)
    positions = {name: c for c, name in enumerate(names)}
    return MapClasses(names=names, classes=[positions[label] for label in labels])


def _reading_order(name: str) -> list[tuple[int, str]]:
    return [(len(chunk.lstrip("0")) if chunk.isdecimal() else 0, chunk) for chunk in re.split(r"(\d+)", name)]


class TripletDots(ScatterRecord):
    """Marks of a triplet scatter, at most `MOST_DOTS`, and counts of all items, of the wrong and of those left out."""

    items: int
    without: int
    wrong: int


def triplet_dots(where: str, scatter: ScatterRecord) -> TripletDots:
    """The marks of a triplet scatter."""
    s_ap, s_an = scatter.s_ap, scatter.s_an
    ids = scatter.ids or [str(i) for i in range(len(s_ap))]
    same_length(f"the triplet scatter of {where}", {"s_ap": len(s_ap), "s_an": len(s_an), "ids": len(ids)})
    complete = [(ap, an, id) for ap, an, id in zip(s_ap, s_an, ids, strict=True) if is_number(ap) and is_number(an)]
    drawn = [complete[k] for k in thin(len(complete), MOST_DOTS)]
    return TripletDots(
        s_ap=[ap for ap, _, _ in drawn],
        s_an=[an for _, an, _ in drawn],
        ids=[id for *_, id in drawn],
        items=len(complete),
        without=len(ids) - len(complete),
        wrong=sum(an > ap for ap, an, _ in complete),
    )


class JudgedNeighbour(NeighbourRecord):
    """A neighbour with the number of its picture, judged by the classes of its query: (level, name, whether the same);
    `right` says so of the level of the gallery.
    """

    picture: int | None
    right: bool
    names: list[tuple[str, str, bool]]


class JudgedQuery(ItemRecord):
    """A query with the number of its picture."""

    picture: int | None
    why: str
    neighbours: list[JudgedNeighbour]


class JudgedGroups(Record):
    """Groups of queries that hold one, and whether any item has a picture."""

    level: str
    groups: dict[str, list[JudgedQuery]]
    pictures: bool


def gallery(level: str, queries: Sequence[QueryRecord], pictures: Pictures) -> list[JudgedQuery]:
    """The queries, with each neighbour judged by the class of its query at a level."""

    def judged(query: QueryRecord) -> JudgedQuery:
        picture = pictures.number(query.thumbnail)
        neighbours = [
            JudgedNeighbour(
                **dict(near),
                picture=pictures.number(near.thumbnail),
                right=near.labels.get(level) == query.labels.get(level),
                names=[(at, name, name == query.labels.get(at)) for at, name in near.labels.items()],
            )
            for near in query.neighbours
        ]
        return JudgedQuery(**dict(query) | {"picture": picture, "neighbours": neighbours})

    return list(map(judged, queries))


def grouped_queries(level: str, groups: Mapping[str, Sequence[QueryRecord]], pictures: Pictures) -> JudgedGroups | None:
    """Groups of queries, judged at a level; None where there is no query."""
    judged = {group: gallery(level, queries, pictures) for group, queries in groups.items() if queries}
    numbers = [
        number
        for each in judged.values()
        for query in each
        for number in (query.picture, *(near.picture for near in query.neighbours))
    ]
    drawn = any(number is not None for number in numbers)
    return JudgedGroups(level=level, groups=judged, pictures=drawn) if judged else None
