"""The result of a search: the nearest items of each query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.commands.search.record import AnsweredQuery, SearchAnswer, SearchNeighbour
from trivet.reports.result import Contents, Paragraph, Result, TextTable
from trivet.runtime.arrays import Floats, Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEARCHED = {
    "whitening": "distances are those of whitened embeddings",
    "expansion": "the order is that of the expanded query, the distances those of the query",
    "reciprocal": "the order is that of reciprocal neighbours, the distances those of the query",
}
DRAWN = 50  # queries
OF_NEIGHBOUR = {"row", "id", "distance"}


class SearchResult(Result):
    """The k nearest items of each of Q queries, nearest first.

    Args:
        record: the answers.
        write: writes the page with pictures of them to a path.
    """

    kind = "sheet"

    def __init__(self, record: SearchAnswer, write: Callable[[Path], None]) -> None:
        self._record, self._write = record, write

    @property
    def record(self) -> SearchAnswer:
        """The answers that `--json` prints."""
        return self._record

    @property
    def ids(self) -> list[list[str]]:
        """The names of the items that are near each query."""
        return [[item.id for item in query.neighbours] for query in self._record.queries]

    @property
    def indices(self) -> Integers:
        """Row numbers `(Q, k)` of the items; -1 where there are fewer."""
        return np.array(self._filled(lambda item: item.row, -1), np.int64).reshape(-1, self._record.k)

    @property
    def distances(self) -> Floats:
        """Distances `(Q, k)`; infinite where there are fewer items."""
        return np.array(self._filled(lambda item: item.distance, np.inf), float).reshape(-1, self._record.k)

    def _filled(self, value: Callable[[SearchNeighbour], Any], absent: float) -> list[list[Any]]:
        lists = [[value(item) for item in query.neighbours] for query in self._record.queries]
        return [[*values, *[absent] * (self._record.k - len(values))] for values in lists]

    def contents(self) -> Contents:
        """A table for each query."""
        record = self._record
        if record.postprocess is not None:
            yield Paragraph(f"Post-processing: {record.postprocess}; {SEARCHED[record.postprocess]}.")
        for query in record.queries:
            yield self._table(query)
            if len(query.neighbours) < record.k:
                yield Paragraph(f"Only {len(query.neighbours)} other items exist; {record.k} were requested.")

    def _table(self, query: AnsweredQuery) -> TextTable:
        known = ", ".join(f"{level} {name}" for level, name in query.labels.items())
        levels = list(query.neighbours[0].labels) if query.neighbours else []
        return TextTable(
            f"{query.kind} {query.query}" + (f" ({known})" if known else ""),
            ("", "id", *levels),
            (f"{self._record.distance} distance",),
            [
                (str(rank), item.id, *(item.labels[level] for level in levels), f"{item.distance:.4g}")
                for rank, item in enumerate(query.neighbours, start=1)
            ],
        )

    def rows(self) -> list[dict[str, Any]]:
        """A row for each item that is near a query."""
        return [
            {
                "query": query.query,
                "rank": rank,
                "row": item.row,
                "id": item.id,
                "distance": item.distance,
                **item.labels,
            }
            for query in self._record.queries
            for rank, item in enumerate(query.neighbours, start=1)
        ]

    def figure(self) -> Figure:
        """Distances of the neighbours by their rank, a line for each of the first 50 queries."""
        from trivet.reports.figure import panels, style  # here: it loads matplotlib

        with style():
            picture, axes = panels(1, 1, height=2.8)
            for query in self._record.queries[:DRAWN]:
                distances = [item.distance for item in query.neighbours]
                axes[0, 0].plot(range(1, len(distances) + 1), distances, color="C0", alpha=0.5, marker=".")
            axes[0, 0].set(xlabel="rank", ylabel=f"{self._record.distance} distance")
        return picture

    def write_page(self, path: Path) -> None:
        """Write the page, with pictures where there are any."""
        self._write(path)
