"""Results of `trivet search`, and the record of its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from trivet.knn.index import IndexInfo
from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record


class SearchNeighbour(Record):
    """An item of the index near a query; `split` where the index knows it. Pictures and texts are of the page only."""

    row: int
    id: str
    distance: Number
    labels: dict[str, str]
    split: str | None = None
    thumbnail: str | None = None
    text: str | None = None


class SearchQuery(Record):
    """Query of an index and its neighbours, nearest first.

    Attributes:
        name: the id, path or text as given; of a row of a file, its id or "FILE row N".
        labels: level -> class name, as far as they are known.
        row: the row of the index that it is, or None.
    """

    name: str
    kind: Literal["id", "image", "text", "vector"]
    labels: dict[str, str] = {}
    row: int | None = None
    thumbnail: str | None = None
    text: str | None = None
    neighbours: list[SearchNeighbour] = []

    def mark(self, neighbour: SearchNeighbour, level: str | None) -> str:
        """ "right" or "wrong", or "" where the query's class at the level is not known."""
        if level not in self.labels or level not in neighbour.labels:
            return ""
        return "right" if self.labels[level] == neighbour.labels[level] else "wrong"


class SearchRecord(StampedRecord):
    """Results of a search; neighbours are judged at `level`, and `pixels` says that pictures are shown unsmoothed."""

    index: str
    info: IndexInfo
    k: int
    level: str | None = None
    images: bool = False
    pixels: bool = False
    queries: list[SearchQuery] = []


class AnsweredQuery(Record):
    """Query and its neighbours, nearest first, as `--json` prints them; see `SearchQuery`."""

    query: str
    kind: Literal["id", "image", "text", "vector"]
    labels: dict[str, str]
    neighbours: list[SearchNeighbour]


class SearchAnswer(Record):
    """Results of a search as `--json` prints them.

    Attributes:
        recall: the share of the nearest 10 that the index finds; None where it looks at every row.
        postprocess: what was done with what was found; None for nothing.
    """

    index: str
    k: int
    distance: str
    recall: Number | None
    postprocess: str | None
    queries: list[AnsweredQuery]

    @classmethod
    def of(cls, queries: Sequence[SearchQuery], **about: Any) -> Self:
        """The answer to queries.

        Args:
            about: all other fields.
        """
        answers = [
            AnsweredQuery(
                query=query.name,
                kind=query.kind,
                labels=query.labels,
                neighbours=[
                    SearchNeighbour(row=item.row, id=item.id, distance=item.distance, labels=item.labels)
                    for item in query.neighbours
                ],
            )
            for query in queries
        ]
        return cls(**about, queries=answers)
