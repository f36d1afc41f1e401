"""`trivet leaks`: each split compared with those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

import numpy as np

from trivet.commands.leaks.options import LeaksOptions
from trivet.commands.leaks.record import GroupCrossing, LeakCounts, LeakedItem, LeaksRecord, RecallWithout
from trivet.commands.leaks.sides import read_sides
from trivet.datasets.leaks import KINDS, Content, Leaks, NamedItems, copies_sentence, find_leaks, vector_rows
from trivet.datasets.preview import preview_record
from trivet.datasets.splitting import TRAIN
from trivet.metrics import evaluate
from trivet.metrics.intervals import interval_json, symmetrical_interval
from trivet.runtime.progress import work
from trivet.runtime.text import abbreviated, noun

PICTURED = 100  # copies of each kind, of each pair of splits, on the page
LISTED = 3  # groups in a sentence
# Kinds of texts that are no copies, and their verbs in the singular and the plural.
NO_COPIES = (
    ("alike", ("is", "are"), "alike by the encoder"),
    ("one word", ("differs", "differ"), "from one by one word"),
)


def search_leaks(request: LeaksOptions) -> LeaksRecord:
    """Compare each split with those before it.

    Raises:
        ValueError: as `read_sides`, or if a column of groups is missing.
    """
    sides, content = read_sides(request)
    record = LeaksRecord(
        name=", ".join(path.name for path in request.data),
        content=content,
        splits={side.name: len(side.dataset) for side in sides},
    )
    for column in request.group or []:
        groups = {side.name: _column(side, column) for side in sides}
        record.groups += [
            _crossing(column, (second.name, groups[second.name]), (first.name, groups[first.name]))
            for first, second in combinations(sides, 2)
        ]
    for searched, side in combinations(sides, 2):
        with work(f"comparing {side.name} with {searched.name}"):
            leaks = find_leaks(side, searched, content, crops=request.crops)
        record.comparisons.append(_counts(side, searched, leaks, content))
        record.notes += [note for note in leaks.notes if note not in record.notes]
    first = [each.sentence for each in record.comparisons if each.searched == sides[0].name]
    record.headline = " ".join(first)
    return record


def _counts(side: NamedItems, searched: NamedItems, leaks: Leaks, content: Content) -> LeakCounts:
    kinds, copies = Counter(leaks.kinds.tolist()), leaks.copies
    sentence = copies_sentence(side, searched, leaks)
    for kind, verbs, what in NO_COPIES:
        if number := kinds[kind]:
            sentence += f" {number:,} more {verbs[number != 1]} {what}."
    return LeakCounts(
        split=side.name,
        searched=searched.name,
        items=len(leaks.kinds),
        copies=int(copies.sum()),
        exact=kinds["exact"],
        near=kinds["near"],
        cropped=kinds["cropped"],
        by_encoder=kinds["by encoder"],
        alike=kinds["alike"],
        word_twins=kinds["one word"],
        other_class=int((leaks.other_class & copies).sum()),
        sentence=sentence,
        recall=_recall(side, searched, copies, content),
        leaks=list(_leaked(side, searched, leaks)),
    )


def _leaked(side: NamedItems, searched: NamedItems, leaks: Leaks) -> Iterator[LeakedItem]:
    """The copies, by kind; the first of each kind with what they look like."""
    classes, others = side.classes, searched.classes
    for kind in KINDS:
        for number, i in enumerate(np.flatnonzero(leaks.kinds == kind).tolist()):
            j = int(leaks.original[i])
            views = (side.dataset.show(i), searched.dataset.show(j)) if number < PICTURED else (None, None)
            left, right = map(preview_record, views)
            yield LeakedItem(
                kind=kind,
                id=side.dataset.ids[i],
                original=searched.dataset.ids[j],
                label=classes[i],
                original_label=others[j],
                text=left["text"],
                original_text=right["text"],
                thumbnail=left["thumbnail"],
                original_thumbnail=right["thumbnail"],
            )


def _recall(side: NamedItems, searched: NamedItems, copies: np.ndarray, content: Content) -> RecallWithout | None:
    """recall@1 with and without the copies as queries: within the split, or of queries in what they search.

    None without embeddings, or without a class for each item.
    """
    within = searched.name == TRAIN
    sides = (side,) if within else (side, searched)
    labels = [each.classes for each in sides]
    rows = [some for each in sides if (some := _embeddings(each, content)) is not None]
    if not copies.any() or len(rows) < len(sides) or any("" in names for names in labels):
        return None
    names = {name: number for number, name in enumerate(dict.fromkeys(chain(*labels)))}
    numbers = [np.array([names[name] for name in each]) for each in labels]
    related = side.dataset.relation(side.level) if within else numbers[0]
    options: dict[str, Any] = {} if within else {"gallery": rows[1], "gallery_labels": {"class": numbers[1]}}
    result = evaluate(rows[0], {"class": related}, measures=["recall@1"], distance="cosine", **options)["class"]
    return None if result.retrieval is None else recall_without(result.retrieval.values[:, 0], copies)


def _embeddings(side: NamedItems, content: Content) -> np.ndarray | None:
    if content == "vectors":
        return vector_rows(side.dataset.inputs, np.arange(len(side.dataset))).numpy()
    return side.embeddings


def recall_without(values: np.ndarray, copies: np.ndarray) -> RecallWithout | None:
    """Mean of the values `(Q,)` of queries, that of those that are no copies, and the difference.

    The queries vary alike in both means, so the variance of the difference is that of the sum of each query's influence
    on it. None where no query is left.
    """
    counted_queries = ~np.isnan(values)
    values, rest = values[counted_queries], ~copies[counted_queries]
    if not rest.any() or len(values) < 2:
        return None
    mean, without = float(values.mean()), float(values[rest].mean())
    influences = (values - mean) / len(values) - rest * (values - without) / rest.sum()
    ends = symmetrical_interval(
        mean - without, float((influences**2).sum()), degrees=len(values) - 1, units=len(values), level=0.95
    )
    return RecallWithout(recall=mean, without=without, difference=mean - without, interval=interval_json(ends))


def _column(side: NamedItems, column: str) -> list[str]:
    """The group of each item."""
    data = side.dataset
    if column in data.columns:
        return [*data.columns[column]]
    if column in data.labels:
        return [data.names[column][label] for label in data.labels[column].tolist()]
    known = [*data.labels, *data.columns]
    raise ValueError(f"--group must name a column: {side.name} has no {column!r}; it has {', '.join(known) or 'none'}.")


def _crossing(column: str, side: tuple[str, list[str]], searched: tuple[str, list[str]]) -> GroupCrossing:
    groups, others = (dict.fromkeys(name for name in each[1] if name) for each in (side, searched))
    crossing = [name for name in groups if name in others]
    what = "training items" if searched[0] == TRAIN else f"items in {searched[0]}"
    which = f", such as {abbreviated([repr(name) for name in crossing], LISTED)}" if crossing else ""
    total = len(groups)
    verb = "has" if len(crossing) == 1 else "have"
    text = f"{side[0]}: {len(crossing):,} of {total:,} {noun(total, 'group')} by {column} {verb} {what}, too{which}."
    return GroupCrossing(
        column=column, split=side[0], searched=searched[0], groups=total, crossing=crossing, sentence=text
    )
