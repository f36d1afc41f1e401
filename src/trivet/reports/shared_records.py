"""Parts that several records share: numbers with intervals, items, neighbours, maps and scatters."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.record import Number

Ends = list[Number]
"""The low and the high end of an interval."""

Measures = dict[str, bool | Number | str | None]
"""The measures of one label level, by name; "chance_NAME" beside each and "NAME_missing", why there is none."""

Intervals = dict[str, dict[str, Ends | None]]
"""Measure -> "queries" or "classes" -> the ends of its 95 % interval; None where there is none."""

Levels = dict[str, Measures]
"""Label level -> its measures."""


class EstimateRecord(TypedDict):
    """A number with its 95 % interval; None for what is not finite."""

    value: float | None
    interval: list[float | None]


class ItemRecord(TypedDict):
    """An item that is shown, by its thumbnail, a data URI, or its text; its labels are level -> class name."""

    id: str
    thumbnail: str | None
    text: str | None
    labels: dict[str, str]


class NeighbourRecord(ItemRecord):
    """An item near a query, by cosine similarity."""

    similarity: float | None


class QueryRecord(ItemRecord):
    """An item with its neighbours, nearest first; `why` it was chosen, a sentence."""

    why: str
    neighbours: list[NeighbourRecord]


class Gallery(TypedDict):
    """Queries, judged at a label level."""

    level: str
    queries: list[QueryRecord]


class PlaneMap(TypedDict):
    """Items in the plane: way of drawing -> the place of each; level -> the class name of each."""

    coordinates: dict[str, list[list[float]]]
    labels: dict[str, list[str]]
    ids: list[str]
    thumbnails: list[str | None]


class ScatterRecord(TypedDict):
    """Similarity of each item to its nearest positive and to its nearest negative."""

    s_ap: list[float | None]
    s_an: list[float | None]
    ids: list[str]
