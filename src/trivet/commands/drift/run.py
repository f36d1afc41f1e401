"""`trivet drift`: new data compared with a reference, in sentences and records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from trivet.collapse.significance import compare_values
from trivet.commands.drift.options import DriftOptions
from trivet.commands.drift.record import (
    CanaryRecord,
    ClassDriftRow,
    ClusterRecord,
    ComparedSet,
    DriftQuestion,
    DriftRecord,
    PowerRow,
    ScopeRecord,
)
from trivet.commands.drift.sets import ItemSet, galleries, read_set, shared_level
from trivet.commands.inputs import default_distance, run_distance
from trivet.commands.printing import per_cent
from trivet.datasets.tags import column_relations
from trivet.drift import Drift, find_drift
from trivet.metrics import evaluate
from trivet.metrics.points import Metric
from trivet.reports.shared_records import ItemRecord
from trivet.runtime.progress import work
from trivet.runtime.text import abbreviated, counted, distinct_names, noun

PICTURED = 12  # items of each kind on the page
LISTED = 3  # classes in a sentence


def compare_with_reference(request: DriftOptions) -> DriftRecord:
    """Compare new data with a reference.

    Raises:
        ValueError: as `read_set` and `find_drift`, or if a column is missing.
    """
    paths = [request.reference, request.now]
    sets = [read_set(path, request, request.labels) for path in paths]
    different = [*dict.fromkeys(path.absolute() for path in paths)]
    called = dict(zip(different, distinct_names(different), strict=True))
    names = [called[path.absolute()] for path in paths]
    sets = [replace(each, vectors=replace(each.vectors, name=name)) for each, name in zip(sets, names, strict=True)]
    reference, now = sets
    level, note = (request.labels, None) if request.labels else shared_level(sets, request.group)
    distance = request.distance or _default_distance(request, reference)
    groups = None if request.group is None else [each.column(request.group, "--group") for each in sets]
    drift = find_drift(
        reference.vectors.embeddings,
        now.vectors.embeddings,
        labels=None if level is None else (reference.labels(level), now.labels(level)),
        groups=None if groups is None else (groups[0], groups[1]),
        distance=distance,
        level=request.false_alarms,
        seed=request.seed,
    )
    record = _record(drift, reference, now, level)
    record.notes += [] if note is None else [note]
    for each, described in ((reference, record.reference), (now, record.now)):
        if groups is not None and described is not None:
            described.groups = len({*groups[sets.index(each)]})
    if request.canaries is not None:
        with work("recall of the canaries"):
            record.canaries = _canaries(read_set(request.canaries, request, level), sets, level, distance, request.seed)
    return record


def _default_distance(request: DriftOptions, reference: ItemSet) -> Metric:
    if request.encoder is None and request.reference.is_dir():
        return run_distance(request.reference)
    return default_distance(reference.vectors)


def _record(drift: Drift, reference: ItemSet, now: ItemSet, level: str | None) -> DriftRecord:
    names = reference.vectors.name, now.vectors.name
    compared = [
        ComparedSet(name=name, items=len(each.vectors), compared=count)
        for name, each, count in zip(names, (reference, now), drift.compared, strict=True)
    ]
    sentences = _sentences(drift, *names)
    notes = [
        f"Of {counted(each.items, 'item')} of {each.name} {each.compared} at random were compared."
        for each in compared
        if each.compared < each.items
    ]
    if drift.scope is None:
        notes.append(f"{names[0]} has too few items to tell what is out of scope: give 40 or more.")
    return DriftRecord(
        headline=_headline(drift, compared),
        answer=drift.answer,
        false_alarms=drift.level,
        p=min(drift.adjusted.values()),
        reference=compared[0],
        now=compared[1],
        questions=[
            DriftQuestion(
                question=question,
                p=p,
                adjusted=drift.adjusted[question],
                changed=drift.changed(question),
                sentence=sentences[question],
            )
            for question, p in drift.p.items()
        ],
        power=[PowerRow(share=share, power=power) for share, power in drift.power.items()],
        detectable=drift.detectable,
        equivalent=drift.equivalent if drift.changed("items") else None,
        scope=None
        if drift.scope is None
        else ScopeRecord(
            now=drift.scope.now,
            reference=drift.scope.reference,
            excess=drift.scope.excess,
            interval=[drift.scope.interval.low, drift.scope.interval.high],
        ),
        clusters=[
            ClusterRecord(
                items=len(cluster.rows),
                now=cluster.share,
                reference=cluster.reference,
                p=cluster.p,
                new=not cluster.reference,
                label=_commonest(now, level, cluster.rows),
                ids=[now.displayed.ids[row] for row in cluster.rows.tolist()],
                examples=_items(now, cluster.rows),
            )
            for cluster in drift.clusters
        ],
        level=level,
        classes=[
            ClassDriftRow(
                name=each.name,
                reference=each.reference,
                now=each.now,
                reference_items=each.items[0],
                now_items=each.items[1],
                share_p=each.share_p,
                within_p=each.within_p,
            )
            for each in drift.classes
        ],
        farthest=_items(now, drift.farthest),
        more=_items(now, drift.typical_now),
        fewer=_items(reference, drift.typical_reference),
        notes=notes,
    )


def _items(items: ItemSet, rows: Any) -> list[ItemRecord]:
    displayed = items.displayed
    return [displayed.record(row) for row in rows[:PICTURED].tolist()]


def _commonest(items: ItemSet, level: str | None, rows: Any) -> str | None:
    """The label that most items of a cluster have."""
    if level is None:
        return None
    return str(Counter(items.vectors.labels[level][rows].tolist()).most_common(1)[0][0])


def _headline(drift: Drift, compared: list[ComparedSet]) -> str:
    """The answer: yes, no, or that it cannot be known."""
    reference, now = (each.name for each in compared)
    rate = f"{100 * drift.level:g} %"
    if drift.answer == "differs":
        return (
            f"{now} differs from {reference} (p = {_p(min(drift.adjusted.values()))} at a false-alarm rate of {rate})."
        )
    if drift.answer == "unclear":
        counts = " and ".join(counted(each.compared, "item") for each in compared)
        return (
            f"Cannot tell whether {now} differs from {reference}: with {counts} even a change of all items would often "
            f"be missed at a false-alarm rate of {rate}; give more items."
        )
    assert drift.detectable is not None
    return (
        f"No change found in {now} against {reference} (false-alarm rate {rate}); a new cluster of "
        f"{100 * drift.detectable:g} % of its items would have been found in 80 % of draws."
    )


def _p(value: float) -> str:
    return f"{value:.2g}"


def _sentences(drift: Drift, reference: str, now: str) -> dict[str, str]:
    """A sentence on each question."""
    adjusted = {question: f"p = {_p(value)}" for question, value in drift.adjusted.items()}
    sentences: dict[str, str] = {}
    if drift.changed("items"):
        size = (
            "more than any new cluster would change them"
            if drift.equivalent is None
            else f"as much as a new cluster of about {100 * drift.equivalent:.2g} % of the items would change them"
        )
        sentences["items"] = f"The items as a whole differ ({adjusted['items']}), {size}."
    else:
        sentences["items"] = f"The items as a whole: no change found ({adjusted['items']})."
    if (scope := drift.scope) is not None:
        shares = (
            f"{per_cent(scope.now)} % lie farther from {reference} than 95 % of its items, and "
            f"{per_cent(scope.reference)} % of {reference} itself"
        )
        ends = per_cent([scope.interval.low, scope.interval.high])
        if drift.changed("scope"):
            sentences["scope"] = (
                f"Out of scope: {per_cent(scope.excess)} % more of {now} than usual (95 % interval {ends}; "
                f"{adjusted['scope']}): {shares}."
            )
        else:
            sentences["scope"] = (
                f"Out of scope: no more than usual ({adjusted['scope']}; excess {per_cent(scope.excess)} %, 95 % "
                f"interval {ends}): {shares}."
            )
    if "clusters" in drift.p:
        sentences["clusters"] = (
            f"Clusters that are new or have grown: {len(drift.clusters)} ({adjusted['clusters']})."
            if drift.changed("clusters")
            else f"Clusters that are new or have grown: none ({adjusted['clusters']})."
        )
    if "shares" in drift.p:
        moved = [each for each in drift.classes if each.share_p <= drift.level]
        listed = [f"{each.name!r} {per_cent(each.reference)} → {per_cent(each.now)} %" for each in moved]
        which = f": {abbreviated(listed, LISTED)}" if listed else ""
        sentences["shares"] = (
            f"The shares of the classes differ ({adjusted['shares']}){which}."
            if drift.changed("shares")
            else f"The shares of the classes: no change found ({adjusted['shares']})."
        )
    if "classes" in drift.p:
        moved = sorted(
            (each for each in drift.classes if each.within_p is not None and each.within_p <= drift.level),
            key=lambda each: each.within_p or 0,
        )
        tested = sum(each.within_p is not None for each in drift.classes)
        names = abbreviated([repr(each.name) for each in moved], LISTED)
        sentences["classes"] = (
            f"The items of {len(moved)} of {tested} {noun(tested, 'class')} differ ({adjusted['classes']}): {names}."
            if drift.changed("classes")
            else f"The items within {counted(tested, 'class')}: no change found ({adjusted['classes']})."
        )
    return sentences


def _canaries(queries: ItemSet, sets: list[ItemSet], level: str | None, distance: Metric, seed: int) -> CanaryRecord:
    """recall@1 of labelled queries in the reference and in the new data, which both are their gallery in turn."""
    if level is None:
        raise ValueError(
            "--canaries needs labels of the canaries, the reference and the new data: they have no column in common; "
            "name one with --labels."
        )
    if level not in queries.vectors.labels:
        raise ValueError(f"--canaries must have the labels {level!r}: {queries.vectors.name} has none; add the column.")
    vectors = queries.vectors
    values, searched = [], galleries(sets, vectors, seed)
    for gallery in searched:
        (mine, theirs), _ = column_relations(
            vectors.labels[level], gallery.labels[level], match=vectors.tags.get(level)
        )
        result = evaluate(
            vectors.embeddings,
            {level: mine},
            measures=["recall@1"],
            distance=distance,
            gallery=gallery.embeddings,
            gallery_labels={level: theirs},
        )[level].retrieval
        assert result is not None
        values.append(np.nan_to_num(result.values[:, 0]))
    classes = np.unique(vectors.labels[level], return_inverse=True)[1]
    compared = compare_values(values[1], values[0], classes, reference=sets[0].vectors.name, level=level)
    outcome = "fell" if compared.worse else "rose" if compared.better else "did not change beyond doubt"
    sentence = (
        f"Canaries: recall@1 of {counted(len(vectors), 'query')} {outcome}: {per_cent(compared.reference_score)} % in "
        f"{sets[0].vectors.name}, {per_cent(compared.score)} % in {sets[1].vectors.name}, each among "
        f"{counted(len(searched[0]), 'item')}; difference {per_cent(compared.difference)} points (99 % interval "
        f"{per_cent([compared.low, compared.high])})."
    )
    return CanaryRecord(
        level=level,
        queries=len(vectors),
        reference=compared.reference_score,
        now=compared.score,
        difference=compared.difference,
        interval=[compared.low, compared.high],
        fell=compared.worse,
        gallery=len(searched[0]),
        sentence=sentence,
    )
