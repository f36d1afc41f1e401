"""The record of `trivet search --sheet`."""

from __future__ import annotations

from typing import TypedDict


class FoundItem(TypedDict):
    """An item of the index, as far as it is from the query."""

    row: int | None
    id: str
    distance: float
    labels: dict[str, str]
    thumbnail: str | None
    text: str | None


class SearchQuery(TypedDict):
    """What was searched with, and what was found, nearest first."""

    name: str
    kind: str
    labels: dict[str, str]
    thumbnail: str | None
    text: str | None
    neighbours: list[FoundItem]


class SearchRecord(TypedDict):
    """Of `level` a neighbour is judged; `pixels`: pictures so small that they are shown unsmoothed."""

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
