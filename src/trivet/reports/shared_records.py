"""Parts that several records share: numbers with intervals, items, neighbours, maps and scatters."""

from __future__ import annotations

import datetime
from importlib.metadata import version
from typing import Self

from trivet.runtime.record import Number, Record

Ends = list[Number]
"""The low and the high end of an interval."""

Measures = dict[str, bool | Number | str | None]
"""The measures of one label level, by name; "chance_NAME" beside each and "NAME_missing", why there is none."""

Intervals = dict[str, dict[str, Ends | None]]
"""Measure -> "queries" or "classes" -> the ends of its 95 % interval; None where there is none."""

Levels = dict[str, Measures]
"""Label level -> its measures."""


class StampedRecord(Record):
    """A record of a command: what was typed, when it ended, and the version of Trivet."""

    command: str = ""
    created: str = ""
    trivet: str = ""

    def stamped(self, command: str) -> Self:
        """The record itself, as of now."""
        self.command, self.trivet = command, version("trivet")
        self.created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return self


class EstimateRecord(Record):
    """A number with its 95 % interval; None for what is not finite."""

    value: Number | None = None
    interval: list[Number | None] = []


class ItemRecord(Record):
    """An item with its thumbnail, a data URI, or its text; its labels are level -> class name."""

    id: str = ""
    thumbnail: str | None = None
    text: str | None = None
    labels: dict[str, str] = {}


class NeighbourRecord(ItemRecord):
    """An item near a query, by cosine similarity."""

    similarity: Number | None = None


class QueryRecord(ItemRecord):
    """An item with its neighbours, nearest first; `why` it was chosen, a sentence."""

    why: str = ""
    neighbours: list[NeighbourRecord] = []


class PlaneMap(Record):
    """Items in the plane: way of drawing -> the coordinates of each; level -> the class name of each."""

    coordinates: dict[str, list[list[Number]]] = {}
    labels: dict[str, list[str]] = {}
    ids: list[str] = []
    thumbnails: list[str | None] = []


class ScatterRecord(Record):
    """Similarity of each item to its nearest positive and to its nearest negative."""

    s_ap: list[Number | None] = []
    s_an: list[Number | None] = []
    ids: list[str] = []
