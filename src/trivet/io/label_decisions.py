"""Decisions on labels in a csv file: keep, change or drop each."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trivet.config.base import nearest
from trivet.io.csv_files import csv_rows, csv_text
from trivet.io.overwrite_guard import DECISION_FILE
from trivet.io.table import check_columns
from trivet.io.tag_cells import JOINED, tag_set
from trivet.runtime.arrays import Booleans

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


class Decided(NamedTuple):
    """Decisions on N items.

    Attributes:
        labels: position -> the new label of an item.
        remaining: `(N,)` whether an item stays.
        counts: "keep", "relabel", "drop", "undecided" -> how many were decided so.
    """

    labels: dict[int, str]
    remaining: Booleans
    counts: Counter[str]


def decide(
    decisions: Iterable[Decision],
    path: Path,
    ids: Sequence[str],
    labels: Sequence[str],
    *,
    items: str,
    classes: str,
    elsewhere: Collection[str] = (),
    tags: Collection[str] | None = None,
) -> Decided:
    """Work out what decisions make of items; an item whose new label is of a class `elsewhere` is dropped.

    Args:
        path: of the decisions, for errors.
        ids, labels: of the N items; a new label must be one of these.
        items, classes: what an id and a label must be of, for errors: "training item" and "trained on".
        tags: of which a new label is a set, in any order; None where it is a class.

    Raises:
        ValueError: if an id is no item's, or a new label no class or the one that the item has.
    """
    position, known = {id: i for i, id in enumerate(ids)}, set(labels)
    decided = Decided({}, np.ones(len(ids), np.bool_), Counter(dict.fromkeys((*DECISIONS, UNDECIDED), 0)))
    for row in decisions:
        where = f"line {row.line} of {path}"
        if row.id not in position:
            raise ValueError(
                f"each id must be that of a {items}: {where} has {row.id!r}, and none of the {len(ids)} {items}s has "
                f"it;{_similar(row.id, ids)} remove the row, or use the file that was decided on."
            )
        item, decision = position[row.id], row.decision
        if decision == "relabel" and tags is not None:
            row = row._replace(label=_tag_set(row.label, tags, f"{where} has {row.label!r}"))
            known.add(row.label)
        if decision == "relabel" and row.label in elsewhere:
            decision = "drop"
        if decision == "relabel":
            if row.label not in known:
                raise ValueError(
                    f"a new label must be one of the {len(known)} classes {classes}: {where} has {row.label!r};"
                    f"{_similar(row.label, known)} correct it."
                )
            if row.label == labels[item]:
                raise ValueError(
                    f"relabel needs a different label from the current one: {where} has {row.label!r}, as {row.id!r} "
                    "is labelled already; write the new label in the column label, or keep. If these decisions were "
                    "applied before, there is nothing to do."
                )
            decided.labels[item] = row.label
        decided.remaining[item] = decision != "drop"
        decided.counts[decision] += 1
    return decided


def _tag_set(label: str, tags: Collection[str], where: str) -> str:
    """The set of tags in a text; ValueError if one is not known."""
    names = tag_set(label)
    if unknown := next((name for name in names.split(JOINED) if name not in tags), None):
        raise ValueError(
            f"a new set must be of the {len(tags)} tags that there are, joined by {JOINED!r}: {where}, and {unknown!r} "
            f"is none;{_similar(unknown, tags)} correct it."
        )
    return names


def _similar(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" did you mean {close[0]!r}?" if close else ""


def write_decisions(rows: Iterable[Sequence[str]]) -> str:
    """The text of a decision file of rows (id, decision, label)."""
    return csv_text([DECISION_FILE, *rows])
