"""The page of `trivet search --sheet`: each query beside its results, as pictures or texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trivet.commands.search.record import SearchQuery, SearchRecord
from trivet.reports.page import write_page


def write_sheet(record: SearchRecord, path: Path) -> None:
    """Write the page of a search, without scripts.

    Raises:
        OSError: if the file cannot be written.
    """
    queries = [_query(record.level, query) for query in record.queries]
    write_page("sheet.html", path, {"record": record, "queries": queries})


def _query(level: str | None, query: SearchQuery) -> dict[str, Any]:
    neighbours = [
        {
            **dict(neighbour),
            "rank": rank,
            "mark": _mark(level, query.labels, neighbour.labels),
            "names": [(at, name, _mark(at, query.labels, neighbour.labels)) for at, name in neighbour.labels.items()],
        }
        for rank, neighbour in enumerate(query.neighbours, start=1)
    ]
    marks = [neighbour["mark"] for neighbour in neighbours]
    counts = {"right": marks.count("right"), "judged": len(marks) - marks.count("")}
    return {**dict(query), "neighbours": neighbours, **counts}


def _mark(level: str | None, query: Mapping[str, str], neighbour: Mapping[str, str]) -> str:
    """ "right" or "wrong", or "" where the query's class at the level is not known."""
    if level is None or level not in query or level not in neighbour:
        return ""
    return "right" if query[level] == neighbour[level] else "wrong"
