"""`trivet migrate`: which neighbours change with the encoder, and whether for better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trivet.collapse.significance import LEVEL
from trivet.commands.migrate.changes import MEASURES, change_words, measure_changes
from trivet.commands.migrate.items import MigratedItems, SearchTask, read_items
from trivet.commands.migrate.maps import map_sentence, measure_maps
from trivet.commands.migrate.options import MigrateOptions
from trivet.commands.migrate.record import (
    AgreementRecord,
    ChangedQuery,
    LevelChange,
    MigrateRecord,
    RetrievedItem,
)
from trivet.datasets.preview import preview_record
from trivet.knn.agreement import neighbour_agreement
from trivet.metrics import Retrieval
from trivet.mining import Relation
from trivet.reports.page import percent
from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.progress import work
from trivet.runtime.text import counted

EXAMPLES, NEIGHBOURS = 4, 4  # queries of each kind on the page, and neighbours of each


def judge_migration(request: MigrateOptions) -> MigrateRecord:
    """Compare two embeddings of the same items.

    Raises:
        ValueError: as `read_items`.
    """
    items = read_items(request)
    record = MigrateRecord(
        old=items.old.name, new=items.new.name, items=len(items.ids), confidence=LEVEL, notes=[*items.notes]
    )
    for task in items.tasks:
        k = min(request.k, len(task.gallery))
        with work("neighbours"):
            nearest = tuple(task.nearest(space, space, max(k, NEIGHBOURS)) for space in (items.old, items.new))
        agreement = neighbour_agreement(*(indices[:, :k] for indices in nearest))
        record.agreements.append(
            AgreementRecord(
                queries=task.name,
                count=int(agreement.counted.sum()),
                k=k,
                overlap=float(np.nanmean(agreement.overlap)),
                first_changed=float(np.mean(~agreement.same_first[agreement.counted])),
                none_shared=float(np.mean(agreement.overlap[agreement.counted] == 0)),
            )
        )
        levels: list[tuple[Retrieval, Retrieval]] = []
        if task.relations:
            old, new = (task.retrieve(space, space, MEASURES) for space in (items.old, items.new))
            levels = [(old[level], new[level]) for level in task.relations]
            record.levels += [
                _level_change(level, before, after, items.old.name)
                for level, (before, after) in zip(task.relations, levels, strict=True)
            ]
        if not record.examples:
            changes = _by_right(*levels[0]) if levels else {"changed": agreement.overlap}
            record.examples += _examples(items, task, nearest, changes)
    record.linear_map = measure_maps(items, request.k, request.seed, head=request.head)
    decisive = record.levels[0] if record.levels else None
    record.level = None if decisive is None else decisive.level
    record.outcome = "no labels" if decisive is None else decisive.measures[0].outcome
    record.headline = _unjudged(record) if decisive is None else _answer(record, decisive)
    if record.outcome == "better" and record.linear_map is not None:
        record.headline += f" {map_sentence(record.linear_map)}"
    return record


def _level_change(level: str, old: Retrieval, new: Retrieval, reference: str) -> LevelChange:
    first = (old.only(MEASURES[:1]).values[:, 0], new.only(MEASURES[:1]).values[:, 0])
    return LevelChange(
        level=level,
        queries=int(old.counted.sum()),
        classes=len(old.labels),
        gained=int((first[1] > first[0]).sum()),
        lost=int((first[1] < first[0]).sum()),
        measures=measure_changes([new], [old], level, reference),
    )


def _answer(record: MigrateRecord, level: LevelChange) -> str:
    """The answer by recall@1 of the level that decides."""
    change = level.measures[0]
    words = {
        "better": f"Yes: {record.new} finds more than {record.old}",
        "worse": f"No: {record.new} finds less than {record.old}",
        "no gain": f"No: {record.new} gains no point over {record.old}",
        "open": f"Cannot tell whether {record.new} finds more than {record.old}",
    }[change.outcome]
    return f"{words} by {level.level}: {change_words(change)}, {counted(level.queries, 'query')}."


def _unjudged(record: MigrateRecord) -> str:
    agreement = record.agreements[0]
    return (
        f"No judgement without labels: {record.new} and {record.old} share {percent(agreement.overlap)}\u00a0% of the "
        f"{agreement.k} nearest, and {percent(agreement.first_changed)}\u00a0% of the queries find another item first; "
        "which of them finds what belongs together, only labels tell."
    )


def _by_right(old: Retrieval, new: Retrieval) -> dict[str, np.ndarray]:
    """Kind of change -> a number `(Q,)` for each query, the least of those that changed so; NaN for others."""
    gain = new.only(MEASURES[:1]).values[:, 0] - old.only(MEASURES[:1]).values[:, 0]
    return {"lost": np.where(gain < 0, gain, np.nan), "gained": np.where(gain > 0, -gain, np.nan)}


def _examples(
    items: MigratedItems, task: SearchTask, nearest: tuple[Integers, ...], changes: Mapping[str, np.ndarray]
) -> Iterator[ChangedQuery]:
    """Queries that changed most, drawn at random among equal ones, with what each embedding finds."""
    mixed = np.random.default_rng(0).permutation(len(task.queries))
    relation = next(iter(task.relations.values()), None)
    for change, values in changes.items():
        order = mixed[np.argsort(values[mixed], kind="stable")]
        for query in order[~np.isnan(values[order])][:EXAMPLES].tolist():
            row = int(task.queries[query])
            old, new = (
                [
                    RetrievedItem(**_item(items, neighbour), right=None if relation is None else bool(right))
                    for neighbour, right in zip(rows, _right(relation, row, np.array(rows)).tolist(), strict=True)
                ]
                for rows in ([i for i in of[query, :NEIGHBOURS].tolist() if i >= 0] for of in nearest)
            )
            yield ChangedQuery(**_item(items, row), change=change, old=old, new=new)


def _right(relation: np.ndarray | Relation | None, row: int, rows: Integers) -> Booleans:
    """Mask `(n,)` of the items that belong to an item."""
    if relation is None:
        return np.zeros(len(rows), np.bool_)
    if isinstance(relation, np.ndarray):
        same: Booleans = relation[rows] == relation[row]
        return same
    numbers = relation.items
    return relation.positive(numbers[[row]], numbers[rows])[0].numpy()


def _item(items: MigratedItems, row: int) -> dict[str, Any]:
    labels = {level: str(names[row]) for level, names in items.labels.items()}
    return {"id": items.ids[row], "labels": labels, **preview_record(items.show(row))}
