"""Reads decisions on labels from a csv file: keep, change or drop each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from trivet.config.base import nearest
from trivet.io.csv_files import csv_rows, csv_text
from trivet.io.embedding_source import check_columns
from trivet.io.overwrite_guard import DECISION_FILE

DECISIONS = ("keep", "relabel", "drop")
UNDECIDED = "undecided"  # what an empty decision counts as


class Decision(NamedTuple):
    """A row of a decision file.

    Attributes:
        decision: "keep", "relabel", "drop", or "undecided", which keeps the label.
        label: the new class name; of any decision but "relabel" it says nothing.
        line: of the file, counted from 1.
    """

    id: str
    decision: str
    label: str
    line: int


def read_decisions(path: Path) -> list[Decision]:
    """Read a csv file with the columns `id` and `decision`, and `label` if there is anything to relabel.

    Other columns are for people and are not read. An empty decision is none, and the label stays.

    Raises:
        ValueError: if the file is missing, is no csv file or lacks a column; if a row has no id, a decision
            that is not known or nothing to relabel to; or if two rows decide on one id.
    """
    try:
        columns, rows = csv_rows(path)
    except FileNotFoundError:
        raise ValueError(f"a decision file must exist: {path} does not exist; check the path.") from None
    except IsADirectoryError:
        raise ValueError(f"a decision file must be a csv file: {path} is not; check the path.") from None
    check_columns(path, columns)
    lacking = [column for column in DECISION_FILE[:2] if column not in columns]
    if lacking:
        raise ValueError(
            f"{path} must have the columns {', '.join(DECISION_FILE)}: it has no {lacking[0]!r}; write the names in "
            "its first line."
        )
    decisions: dict[str, Decision] = {}
    for line, row in rows:
        row_id, decision, label = (row.get(column) or "" for column in DECISION_FILE)
        decision = decision.strip()
        if not row_id:
            raise ValueError(f"every row of {path} must have an id: that of line {line} has none; fill it in.")
        if decision and decision not in DECISIONS:
            raise ValueError(
                f"a decision must be keep, relabel or drop, or empty: line {line} of {path} has {decision!r}; "
                f"{nearest(decision, DECISIONS)}"
            )
        if decision == "relabel" and not label:
            raise ValueError(f"relabel needs a label: line {line} of {path} has none for {row_id!r}; fill it in.")
        if row_id in decisions:
            raise ValueError(
                f"{path} must have one decision per id: lines {decisions[row_id].line} and {line} both have "
                f"{row_id!r}; remove one."
            )
        decisions[row_id] = Decision(row_id, decision or UNDECIDED, label, line)
    return list(decisions.values())


def write_decisions(rows: Iterable[Sequence[str]]) -> str:
    """The text of a decision file of rows (id, decision, label)."""
    return csv_text([DECISION_FILE, *rows])
