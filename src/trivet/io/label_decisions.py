"""Decisions on labels in a csv file: keep, change or drop each, or add one."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
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

DECISIONS = ("keep", "relabel", "drop", "add")
ADD = DECISIONS[3]
UNDECIDED = "undecided"  # what an empty decision counts as


class Decision(NamedTuple):
    """A row of a decision file.

    Attributes:
        decision: "keep", "relabel", "drop", or "undecided", which keeps the label; "add" gives one more.
        label: the new label; of any decision but "relabel" and "add" it says nothing.
        line: of the file, counted from 1.
    """

    id: str
    decision: str
    label: str
    line: int


def read_decisions(path: Path) -> list[Decision]:
    """Read a csv file with the columns `id` and `decision`, and `label` if there is anything to relabel or to add.

    Other columns are for people and are not read. An empty decision is none, and the label stays. Of an id there is one
    decision, and any number of labels to add.

    Raises:
        ValueError: if the file is missing, is no csv file or lacks a column; if a row has no id, a decision that is not
            known or lacks its label; or if two rows decide on one id, or add the same.
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
    decisions: list[Decision] = []
    first: dict[tuple[str, str], int] = {}
    for line, row in rows:
        row_id, decision, label = (row.get(column) or "" for column in DECISION_FILE)
        decision = decision.strip()
        if not row_id:
            raise ValueError(f"every row of {path} must have an id: that of line {line} has none; fill it in.")
        if decision and decision not in DECISIONS:
            raise ValueError(
                f"a decision must be keep, relabel, drop or add, or empty: line {line} of {path} has {decision!r}; "
                f"{nearest(decision, DECISIONS)}"
            )
        if decision in ("relabel", ADD) and not label:
            raise ValueError(f"{decision} needs a label: line {line} of {path} has none for {row_id!r}; fill it in.")
        if decision and (before := first.setdefault((row_id, label if decision == ADD else ""), line)) != line:
            raise ValueError(
                f"{path} must have one decision per id, and different labels to add: lines {before} and {line} both "
                f"have {row_id!r}; remove one."
            )
        decisions.append(Decision(row_id, decision or UNDECIDED, label, line))
    return decisions


class Decided(NamedTuple):
    """Decisions on N items.

    Attributes:
        labels: position -> the new label of an item.
        added: of pairs: position of a row, and what else its left side belongs to.
        remaining: `(N,)` whether an item stays.
        counts: "keep", "relabel", "drop", "add", "undecided" -> how many were decided so.
    """

    labels: dict[int, str]
    added: list[tuple[int, str]]
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
    lefts: Sequence[str] | None = None,
) -> Decided:
    """Work out what decisions make of items; an item whose new label is of a class `elsewhere` is dropped.

    A class is one label of an item, a set of tags too. The label of a pair is its right side, and another row of the
    same left side is another label of that.

    Args:
        path: of the decisions, for errors.
        ids, labels: of the N items; a new label must be one of these.
        items, classes: what an id and a label must be of, for errors: "training item" and "trained on".
        tags: of which a new label is a set, in any order; None where it is a class or a right side.
        lefts: the left sides of pairs; None of items.

    Raises:
        ValueError: if an id is no item's, a new label no class or one that the item has, or a class is to be added.
    """
    position, known = {id: i for i, id in enumerate(ids)}, set(labels)
    listed: dict[str, set[str]] = defaultdict(set)  # what each left side belongs to
    for left, right in zip(lefts or (), labels, strict=lefts is not None):
        listed[left].add(right)
    decided = Decided({}, [], np.ones(len(ids), np.bool_), Counter(dict.fromkeys((*DECISIONS, UNDECIDED), 0)))
    for row in sorted(decisions, key=lambda row: row.decision == ADD):
        where = f"line {row.line} of {path}"
        if row.id not in position:
            raise ValueError(
                f"each id must be that of a {items}: {where} has {row.id!r}, and none of the {len(ids)} {items}s has "
                f"it;{_similar(row.id, ids)} remove the row, or use the file that was decided on."
            )
        item, decision, label = position[row.id], row.decision, row.label
        has = {decided.labels.get(item, labels[item])} if lefts is None or decision != ADD else listed[lefts[item]]
        if decision == ADD and tags is None and lefts is None:
            raise ValueError(
                f"add is for tags and pairs: {where} adds {label!r} to {row.id!r}, which has one class; write relabel."
            )
        if decision == ADD and tags is not None and not decided.remaining[item]:
            raise ValueError(
                f"a tag is added to an item that stays: {where} has {row.id!r}, which is dropped; remove the row."
            )
        if decision in ("relabel", ADD) and tags is not None:
            label = _tag_set(label, tags, f"{where} has {label!r}")
            label = tag_set(JOINED.join([label, *has])) if decision == ADD else label
            known.add(label)
        if decision == "relabel" and label in elsewhere:
            decision = "drop"
        if decision in ("relabel", ADD):
            if label not in known:
                raise ValueError(
                    f"a new label must be one of the {len(known)} classes {classes}: {where} has {label!r};"
                    f"{_similar(label, known)} correct it."
                )
            if label in has:
                raise ValueError(
                    f"{decision} needs a label that {row.id!r} does not have yet: {where} has {row.label!r}; write "
                    "another label in the column label, or remove the row. If these decisions were applied before, "
                    "there is nothing to do."
                )
            if lefts is not None:
                listed[lefts[item]].add(label)
            if decision == ADD and lefts is not None:
                decided.added.append((item, label))
            else:
                decided.labels[item] = label
        decided.remaining[item] &= decision != "drop"
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
