"""The record of `trivet search --sheet`."""

from __future__ import annotations

from typing import TypedDict


class SearchNeighbour(TypedDict):
    """An item of the index, as far as it is from the query."""

    row: int | None
    id: str
    distance: float
    labels: dict[str, str]
    thumbnail: str | None
    text: str | None


class SearchQuery(TypedDict):
    """Query and its neighbours, nearest first."""

    name: str
    kind: str
    labels: dict[str, str]
    thumbnail: str | None
    text: str | None
    neighbours: list[SearchNeighbour]


class SearchRecord(TypedDict):
    """Results of a search; neighbours are judged at `level`, and `pixels` says that pictures are shown unsmoothed."""

    index: str
    items: int
    kind: str
    recall: float | None
    distance: str
    k: int
    level: str | None
    levels: list[str]
    images: bool
    pixels: bool
    queries: list[SearchQuery]
    command: str
    created: str
    trivet: str
