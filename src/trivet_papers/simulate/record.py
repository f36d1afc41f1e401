"""The record of `trivet simulate`."""

from __future__ import annotations

from typing import TypedDict


class FigureRecord(TypedDict):
    """A figure: what it shows, the columns and the number of rows of its data, and its picture as a data URI."""

    name: str
    title: str
    source: str
    reading: str
    columns: list[str]
    rows: int
    picture: str


class CheckRecord(TypedDict):
    """See `trivet_papers.checks.Check`."""

    id: str
    statement: str
    expected: str
    observed: str
    holds: bool


class SimulationRecord(TypedDict):
    """The content of the page of a simulation."""

    subject: str
    title: str
    settings: dict[str, object]
    figures: list[FigureRecord]
    checks: list[CheckRecord]
    command: str
    created: str
    trivet: str
