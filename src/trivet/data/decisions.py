"""Decisions on the labels of training items: each is kept, changed, or its item left out, as a csv file says."""

from __future__ import annotations

import csv
import difflib
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trivet.arguments import nearest
from trivet.data.dataset import Splits, check_trainable

COLUMNS = ("id", "decision", "label")
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
        ValueError: if the file is missing, is no csv file in UTF-8 or lacks a column; if a row has no id, a decision
            that is not known or nothing to relabel to; or if two rows decide on one id.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = list(reader.fieldnames or [])
            rows = [(reader.line_num, row) for row in reader]
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"a decision file must be a csv file: {path} is none; check the path.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a csv file in UTF-8: {error}; save it again.") from None
    lacking = [column for column in COLUMNS[:2] if column not in columns]
    if lacking:
        raise ValueError(
            f"{path} must have the columns {', '.join(COLUMNS)}: it has no {lacking[0]!r}; write the names in its "
            "first line."
        )
    found: dict[str, Decision] = {}
    for line, row in rows:
        row_id, decision, label = (row.get(column) or "" for column in COLUMNS)
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
        if row_id in found:
            raise ValueError(
                f"{path} must decide once on an id: lines {found[row_id].line} and {line} have {row_id!r}; remove one."
            )
        found[row_id] = Decision(row_id, decision or UNDECIDED, label, line)
    return list(found.values())


def write_decisions(rows: Iterable[Sequence[str]]) -> str:
    """The text of a decision file of rows (id, decision, label)."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(rows)
    return text.getvalue()


def apply_decisions(splits: Splits, path: Path) -> Splits:
    """The splits with the training labels of the trained level, and the training items, as a decision file has them.

    Other levels and the evaluation splits stay as they are. Of a fold that is held out for validation, decisions on
    its items are passed over, and training items that are given one of its classes are dropped.

    Raises:
        ValueError: as `read_decisions`; if an id is no training item's, a label no class that is trained on or the one
            that the item has; or if a class is left with one item, or less than two classes are.
    """
    train, level = splits.train, splits.level
    names, labels = train.names[level], train.labels[level].copy()
    trained = {names[label]: label for label in np.unique(labels).tolist()}
    place = {name: i for i, name in enumerate(train.ids)}
    held_out, elsewhere = _held_out(splits)
    kept = np.ones(len(labels), bool)
    counts = Counter(dict.fromkeys((*DECISIONS, UNDECIDED), 0))
    for row in read_decisions(path):
        if row.id in held_out:
            continue
        if row.id not in place:
            raise ValueError(
                f"each id must be that of a training item: line {row.line} of {path} has {row.id!r}, and none of the "
                f"{len(train)} items has it;{_similar(row.id, train.ids)} leave out the row, or take the file of these "
                "data."
            )
        item, decision = place[row.id], row.decision
        if decision == "relabel" and row.label in elsewhere:
            decision = "drop"
        if decision == "relabel":
            if row.label not in trained:
                raise ValueError(
                    f"a new label must be one of the {len(trained)} classes trained on at level {level!r}: line "
                    f"{row.line} of {path} has {row.label!r};{_similar(row.label, trained)} correct it."
                )
            if trained[row.label] == labels[item]:
                raise ValueError(
                    f"relabel needs another label than the item has: line {row.line} of {path} has {row.label!r}, as "
                    f"{row.id!r} is labelled already; write the new label in the column label, or keep."
                )
            labels[item] = trained[row.label]
        kept[item] = decision != "drop"
        counts[decision] += 1
    labels = labels[kept]
    single = np.flatnonzero(np.bincount(labels, minlength=1) == 1)
    if len(single):
        raise ValueError(
            f"decisions must leave a class two items or none: those of {path} leave {names[single[0]]!r} one "
            f"({len(single)} of {len(trained)} classes at level {level!r}); keep another of its items, or drop the "
            "last one, too."
        )
    rows = np.flatnonzero(kept)
    train = train.subset(rows)
    train = replace(train, labels={**train.labels, level: labels})
    check_trainable(train, level)
    noise = splits.noise and replace(splits.noise, true_labels=splits.noise.true_labels[rows])
    return replace(splits, train=train, noise=noise, decisions=dict(counts))


def _held_out(splits: Splits) -> tuple[set[str], set[str]]:
    """The ids and the classes of the fold that is held out; empty without one."""
    data, level = splits.evaluation.get("validation"), splits.level
    if data is None:
        return set(), set()
    return set(data.ids), {data.names[level][label] for label in np.unique(data.labels[level]).tolist()}


def _similar(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" did you mean {close[0]!r}?" if close else ""
