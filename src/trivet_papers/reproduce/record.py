"""The record of `trivet reproduce`: one paper, its experiments, what was found and the verdict on each claim."""

from __future__ import annotations

from trivet.runtime.record import Record
from trivet_papers.experiment import DrawnRecord, JudgedClaim


class CellRecord(Record):
    """The values of the seeds, and what the paper prints, as text; empty where it prints nothing."""

    values: list[float]
    printed: str


class RowRecord(Record):
    head: str
    cells: list[CellRecord]


class ColumnRecord(Record):
    head: str
    share: bool


class TableRecord(Record):
    """Our numbers in the layout of the paper's table."""

    title: str
    columns: list[ColumnRecord]
    rows: list[RowRecord]

    @property
    def printed(self) -> bool:
        """True if the paper prints some of it."""
        return any(cell.printed for row in self.rows for cell in row.cells)


class ExperimentRecord(Record):
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
    claims: list[JudgedClaim]
    tables: list[TableRecord]
    figures: list[DrawnRecord]


class ReproductionRecord(Record):
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
