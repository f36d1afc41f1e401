"""Items that several runs share: after decisions on labels, those with the same labels in all of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from trivet.commands.compare.runs import StoredRun
from trivet.io.embedding_table import Names, Vectors

ENOUGH = 0.5  # of the items of each run: with fewer in common they are of other data

Stored = Mapping[tuple[str, str], Vectors]  # (name of the run, split)


def shared_items(runs: Sequence[StoredRun], stored: Stored) -> tuple[dict[tuple[str, str], Vectors], list[str]]:
    """The items that have the same labels in all runs on the same data, and a sentence where these are not all."""
    shared, notes = dict(stored), []
    for split in dict.fromkeys(split for run in runs for split in run.splits):
        groups: list[tuple[list[StoredRun], list[Names]]] = []  # runs on the same data, what each has with the first
        for run in (run for run in runs if split in run.splits):
            for members, common in groups:
                names = _common(members[0], run, split, stored)
                if len(names) >= ENOUGH * max(len(stored[of.name, split]) for of in (members[0], run)):
                    members.append(run)
                    common.append(names)
                    break
            else:
                groups.append(([run], [np.array(stored[run.name, split].names())]))
        for members, common in groups:
            most = max(len(stored[run.name, split]) for run in members)
            left = functools.reduce(np.intersect1d, common)
            if len(left) == most:
                continue
            for run in members:
                items = stored[run.name, split]
                shared[run.name, split] = items.select(np.isin(np.array(items.names()), left))
            notes.append(
                f"Items of {split} or their labels differ between {', '.join(run.name for run in members)}. Each is "
                f"measured on the {len(left):,} of {most:,} items that have the same labels in all of them."
            )
    return shared, notes


def _common(first: StoredRun, other: StoredRun, split: str, stored: Stored) -> Names:
    """The ids of the items that have the same labels in two runs."""
    before, after = stored[first.name, split], stored[other.name, split]
    names, mine, its = np.intersect1d(before.names(), after.names(), return_indices=True)
    same = np.ones(len(names), np.bool_)
    for level in before.labels.keys() & after.labels.keys():
        same &= before.labels[level][mine] == after.labels[level][its]
    if before.texts is not None and after.texts is not None:
        same &= np.array(before.texts)[mine] == np.array(after.texts)[its]
    elif all(name.isdigit() for name in names.tolist()) and _count(first) != _count(other):
        same[:] = False  # numbers of rows are those of other items once a row is dropped
    common: Names = names[same]
    return common


def _count(run: StoredRun) -> int:
    """The number of items of the data of a run."""
    counts = [run.record.data.train, *run.record.data.evaluation.values()]
    return sum(count.items or 0 for count in counts if count is not None)
