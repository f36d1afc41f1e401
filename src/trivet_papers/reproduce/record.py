"""The record of `trivet reproduce`: one paper, its experiments, what was found and the verdict on each claim."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.shared_records import Ends


class OutcomeRecord(TypedDict):
    """See `trivet_papers.experiment.ClaimNumber`; `values` are those of the seeds."""

    name: str
    mean: float
    interval: Ends | None
    values: list[float]


class ClaimRecord(TypedDict):
    """See `trivet_papers.experiment.JudgedClaim`: the part that decides is the first."""

    sentence: str
    says: str
    unit: str
    verdict: str
    why: str
    outcomes: list[OutcomeRecord]


class CellRecord(TypedDict):
    """The values of the seeds, and what the paper prints, as text; empty where it prints nothing."""

    values: list[float]
    printed: str


class RowRecord(TypedDict):
    head: str
    cells: list[CellRecord]


class ColumnRecord(TypedDict):
    head: str
    share: bool


class TableRecord(TypedDict):
    """Our numbers in the layout of the paper's table."""

    title: str
    columns: list[ColumnRecord]
    rows: list[RowRecord]


class DrawnRecord(TypedDict):
    """A figure: what it shows, how to read it, and its picture as a data URI."""

    name: str
    title: str
    source: str
    reading: str
    picture: str


class ExperimentRecord(TypedDict):
    """An experiment in one size: `runs` of `planned` were run, `failed` of them ended without numbers.

    `seconds` are those of a processor, for all runs together; of a run that did not note them, those that went by.
    """

    key: str
    title: str
    ran: str
    data: str
    setting: str
    chosen: str
    fair: str
    seeds: int
    planned: int
    runs: int
    failed: int
    seconds: float
    dates: list[str]
    versions: list[str]
    hardware: list[str]
    claims: list[ClaimRecord]
    tables: list[TableRecord]
    figures: list[DrawnRecord]


class ReproductionRecord(TypedDict):
    """The content of the page of a paper. `changes` are the settings that the user has changed in all runs.

    `runs` and `seconds`, those of a processor, count a run that experiments share once.
    """

    paper: str
    title: str
    size: str
    changes: list[str]
    experiments: list[ExperimentRecord]
    runs: int
    seconds: float
    command: str
    created: str
    trivet: str
