"""The page of `trivet evaluate --report`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.commands.evaluate.plots import class_dots, class_histogram, dots, forest, key, recall_curve, rows_height
from trivet.commands.evaluate.record import (
    ClassShares,
    ClusteringRecord,
    ComparisonRecord,
    DifferenceRecord,
    EvaluationRecord,
    ProtocolRecord,
    RejectionRecord,
    Shares,
)
from trivet.reports.items import is_number
from trivet.reports.measures import (
    CLUSTERING,
    GLOSSARY,
    OVERS,
    VERIFICATION,
    between,
    by_chance,
    finite,
    interval,
    named,
    together,
)
from trivet.reports.page import MISSING, decimal, duration, moment, number, percent, points, write_page
from trivet.reports.shared_records import Levels
from trivet.runtime.text import noun

_MOST_DRAWN = 60  # classes with a line of their own in the plot
_LISTED = 15  # worst and best classes where there are more
_FEW_CLASSES = 10  # below, an interval over classes rests on hardly anything
_SAME = 1e-9  # shares closer than this are equal but for rounding


def write_evaluation_report(record: ComparisonRecord, path: Path) -> None:
    """Write the page of evaluated embeddings; a part that the record lacks is left out.

    Raises:
        OSError: if the file cannot be written.
    """
    results = record.results
    labels = _labels(results)
    figures: list[dict[str, Any]] = []
    levels = [
        _level(level, record, labels, figures) for level in together(list(result.evaluation) for result in results)
    ]
    measures = {name for result in results for values in result.evaluation.values() for name in values}
    context = {
        "record": {
            "command": record.command,
            "trivet": results[0].trivet if results else "",
            "created": results[0].created if results else "",
        },
        "labels": labels,
        "warnings": [(label, text) for label, result in zip(labels, results, strict=True) for text in result.warnings],
        "protocols": [_protocol(result) for result in results],
        "key": [(label, *key(e)) for e, label in enumerate(labels)],
        "levels": levels,
        "rejection": [
            _rejection(label, rejection)
            for label, result in zip(labels, results, strict=True)
            if (rejection := result.rejection)
        ],
        "glossary": [
            (name, meaning)
            for pattern, name, meaning in GLOSSARY
            if any(re.fullmatch(pattern, measure) for measure in measures)
        ],
    }
    write_page("evaluation.html", path, context, {"figures": figures}, script="figures.js")


def _labels(results: Sequence[EvaluationRecord]) -> list[str]:
    """The names of the embeddings, told apart where two files have one name."""
    names = [result.embeddings or "unnamed embedding" for result in results]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:position].count(name) + 1})"
        for position, name in enumerate(names)
    ]


def _protocol(result: EvaluationRecord) -> str:
    """The protocol in words: queries, gallery, and exclusions."""
    protocol, items = result.protocol, result.items
    queries, gallery = protocol.queries, protocol.gallery
    distance = result.distance or "an unknown"
    sentences = [f"{_many(result.dimension, 'dimension')}, compared by {distance} distance."]
    if protocol.kind == "self-retrieval":
        sentences = [f"{_many(items, 'item')} of {sentences[0]}"]
        subject = "Each item" if queries == items else f"Each of {number(queries)} random items"
        sentences.append(f"{subject} is a query against the {f'{number(gallery - 1)} ' if gallery else ''}others.")
    elif protocol.kind == "query-gallery":
        sentences.append(f"{_many(queries, 'query')} against a gallery of {_many(gallery, 'item')}.")
        if both := protocol.queries_in_gallery:
            sentences.append(f"{_many(both, 'query')} {_are(both)} in the gallery too; none retrieves itself.")
    else:
        sentences.append("The record does not state the protocol.")
    if scope := result.rejection:
        more = scope.out_of_scope or 0
        sentences.append(
            f"{number(more)} more {noun(more, 'query')} {_are(more)} out of scope and used for rejection only."
        )
    if protocol.junk is not None:
        junk = protocol.junk
        sentences.append(f"{_many(junk, 'junk item')} {_are(junk)} excluded from the gallery.")
    if protocol.same_camera_left_out:
        sentences.append("Items of the query's class from the same camera are excluded.")
    sentences += _without_positive(result.evaluation, protocol)
    if index := protocol.approximate:
        parameters = ", ".join(f"{name} {setting}" for name, setting in index.parameters.items())
        sentences.append(
            f"The search is approximate, by {index.kind}{f' ({parameters})' if parameters else ''}: it finds "
            f"{percent(index.recall)}\u00a0% of the {index.recall_at} nearest items, measured on "
            f"{_many(index.recall_queries, 'query')}."
        )
    version = f" with Trivet {result.trivet}" if result.trivet else ""
    took = f" in {duration(result.seconds)}" if result.seconds is not None else ""
    if result.created:
        sentences.append(f"Measured {moment(result.created)}{version}{took}.")
    return " ".join(sentences)


def _without_positive(levels: Levels, protocol: ProtocolRecord) -> list[str]:
    counts = {level: count for level, values in levels.items() if is_number(count := values.get("without_positive"))}
    if counts and not any(counts.values()):
        return ["Every query has a positive."]
    drop = protocol.without_positive == "drop"
    return [
        f"By {level}, 1 query has no positive and {'is excluded' if drop else 'counts as a miss'}."
        if round(count) == 1
        else f"By {level}, {number(round(count))} queries have no positive and "
        f"{'are excluded' if drop else 'count as misses'}."
        for level, count in counts.items()
        if count
    ]


def _many(count: int | None, singular: str) -> str:
    return f"{number(count)} {noun(count, singular)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _level(
    level: str, record: ComparisonRecord, labels: Sequence[str], figures: list[dict[str, Any]]
) -> dict[str, Any]:
    """Contents of the page for a level; its plots are added to `figures`."""
    measured = {e: result.evaluation[level] for e, result in enumerate(record.results) if level in result.evaluation}
    shares = {e: Shares(record.results[e], level) for e in measured}
    retrieval = together(row_of.retrieval for row_of in shares.values())
    clustering = [name for name in CLUSTERING if any(name in values for values in measured.values())]
    verification = together(
        [name for name in values if re.fullmatch(VERIFICATION, name)] for values in measured.values()
    )
    leads = _leads(retrieval) or _leads([*clustering, *verification])
    differences = _differences(level, record, shares)
    drawn: list[dict[str, Any]] = []

    def draw(title: str, hint: str, height: int, figure: Mapping[str, Any] | None, *, wide: bool = False) -> None:
        if figure is not None:
            drawn.append({"index": len(figures), "title": title, "hint": hint, "height": height, "wide": wide})
            figures.append(dict(figure))

    listed = {
        title: [name for name in names if any(row_of.value(name) is not None for row_of in shares.values())]
        for title, names in (("Retrieval", retrieval), ("Clustering and verification", [*clustering, *verification]))
    }
    heights = {title: rows_height(len(names), len(shares)) for title, names in listed.items()}
    band = "Bands: 95 % intervals, over classes where there are any. Dashed: chance."
    draw("Recall at K", band, max(330, heights["Retrieval"]), recall_curve(shares, labels, retrieval))
    ends = "Thick bar: 95 % interval over queries; thin line: over classes"
    for title, names in listed.items():
        draw(title, f"{ends}; upright dots: chance.", heights[title], dots(shares, labels, names))
    # The others may leave 0 to 1 in a class.
    single = retrieval or [name for name in verification if name == "roc-auc"]
    classes = _classes(level, record, shares, single[:1] if "recall@1" not in retrieval else ["recall@1"])
    if classes is not None:
        title = f"{named(classes.measure)} of each class"
        if classes.count <= _MOST_DRAWN:
            hint = "The worst first. Dashed: chance over all queries."
            height = 90 + max(20, 9 * len(shares)) * classes.count
            draw(title, hint, height, class_dots(classes, labels), wide=classes.count > _LISTED)
        else:
            draw(title, "Number of classes by value.", 330, class_histogram(classes, labels))
    if differences:
        height = rows_height(len(differences), len(next(iter(differences.values()))))
        less = f"Each embedding minus {labels[0]}, on the same queries; right of 0 it is better."
        draw("Differences", f"{less} {ends}.", height, forest(differences, labels), wide=True)
    first = next(iter(measured.values()))
    count = finite(first.get("classes"))
    return {
        "level": level,
        "items": first.get("items"),
        "classes": count and round(count),
        "few": bool([*retrieval, *clustering, *verification]) and (count or _FEW_CLASSES) < _FEW_CLASSES,
        "leads": [_lead(name, shares, labels) for name in leads],
        "sentences": [sentence for name in leads for sentence in _sentences(level, name, shares, labels)]
        + [sentence for name in leads for sentence in _compared(name, differences.get(name, []), labels)],
        "table": [_table_row(name, shares, labels) for name in retrieval],
        "differences": [
            (
                named(name),
                [
                    (labels[of], points(row.difference), *(between(row.over(over), points) for over in OVERS))
                    for of, row in rows
                ],
            )
            for name, rows in differences.items()
        ],
        "less": labels[0],
        "clustering": _clustering(level, clustering, shares, labels),
        "clustering_table": [_table_row(name, shares, labels) for name in clustering],
        "verification": _verification(shares, labels) if verification else None,
        "verification_table": [_table_row(name, shares, labels) for name in verification],
        "folds": _folds(level, shares, labels),
        "foldless": [
            (labels[e], reason) for e, row_of in shares.items() if (reason := row_of.result.folds_missing.get(level))
        ],
        "missing": [
            (labels[e], named(name), reason) for e, values in shares.items() for name, reason in values.missing.items()
        ],
        "figures": drawn,
        "extremes": _extremes(classes, labels) if classes and classes.count > _MOST_DRAWN else [],
        "class_measure": classes and named(classes.measure),
        "class_count": classes and classes.count,
    }


def _leads(measures: Sequence[str]) -> Sequence[str]:
    """The measures shown big."""
    return [name for name in measures if name in ("recall@1", "map@r", "nmi", "roc-auc")] or measures[:2]


def _lead(name: str, shares: Mapping[int, Shares], labels: Sequence[str]) -> dict[str, Any]:
    measured = {e: value for e, shares_of in shares.items() if (value := shares_of.value(name)) is not None}
    chance = next((shares_of.chance(name) for shares_of in shares.values()), None)
    several = len(labels) > 1
    bars = [(labels[e] if several else "measured", min(max(value, 0.0), 1.0)) for e, value in measured.items()]
    return {
        "measure": named(name),
        "chance": chance,
        "bars": bars + ([] if chance is None else [("chance", chance)]),
        "rows": [
            {
                "label": labels[e] if several else None,
                "share": shares_of.value(name),
                "intervals": [
                    f"{between(ends)} over {over}"
                    for over in ("classes", "queries")
                    if (ends := shares_of.interval(name, over)) is not None
                ],
            }
            for e, shares_of in shares.items()
        ],
    }


def _sentences(level: str, name: str, shares: Mapping[int, Shares], labels: Sequence[str]) -> list[str]:
    """Sentences that compare each embedding with chance."""
    sentences = []
    for e, shares_of in shares.items():
        share, chance, widest = shares_of.value(name), shares_of.chance(name), shares_of.widest(name)
        if share is None or chance is None:
            continue
        of = f" of {labels[e]}" if len(labels) > 1 else ""
        sentence = []
        if name == "recall@1":
            with_whom = f"With {labels[e]} the" if of else "The"
            sentence.append(
                f"{with_whom} nearest item has the same {level} for {percent(share)}\u00a0% of the queries, against "
                f"{percent(chance)}\u00a0% by chance."
            )
        if widest is None:
            if percent(share) == percent(chance):
                sentence.append(f"{_start(name)}{of} is no better than chance.")
        else:
            over, (low, high) = widest
            ends = f"the 95\u00a0% interval over {over}, {between((low, high))}"
            if low - _SAME <= chance <= high + _SAME:
                sentence.append(f"{_start(name)}{of} does not differ from chance: {ends}, contains {percent(chance)}.")
            elif high < chance:
                sentence.append(f"{_start(name)}{of} is worse than chance: {ends}, lies below {percent(chance)}.")
            elif name == "recall@1":
                sentence.append(f"{ends[0].upper()}{ends[1:]}, lies above chance.")
        sentences += [" ".join(sentence)] if sentence else []
    return sentences


def _start(measure: str) -> str:
    return named(measure)[:1].upper() + named(measure)[1:] if measure.startswith("recall") else named(measure)


def _differences(
    level: str, record: ComparisonRecord, shares: Mapping[int, Shares]
) -> dict[str, list[tuple[int, DifferenceRecord]]]:
    """Measure -> the embedding and its difference to the first."""
    others = [e for e in shares if e > 0]
    return {
        name: [(e, row) for e, row in zip(others, rows, strict=False) if row.of == record.results[e].embeddings]
        for name, rows in record.differences.get(level, {}).items()
    }


def _compared(name: str, rows: Sequence[tuple[int, DifferenceRecord]], labels: Sequence[str]) -> list[str]:
    """Sentences on which embedding is better, and whether the paired interval excludes 0."""
    sentences = []
    for of, row in rows:
        difference = finite(row.difference)
        if difference is None:
            continue
        if abs(difference) <= _SAME:
            sentences.append(f"{labels[of]} and {labels[0]} are equal in {named(name)}.")
            continue
        better, worse, sign = (labels[of], labels[0], 1) if difference > 0 else (labels[0], labels[of], -1)
        sentence = f"{better} is {100 * abs(difference):.1f} points better in {named(name)} than {worse}"
        ends = {
            over: sorted(sign * end for end in known)
            for over in reversed(OVERS)
            if (known := interval(row.over(over))) is not None
        }
        if not ends:
            sentences.append(f"{sentence}; the record has no interval for this difference.")
            continue
        over, paired = next(iter(ends.items()))
        sentence += f" (paired 95\u00a0% interval over {over}: {between(paired, points)})"
        if paired[0] > _SAME:
            sentences.append(f"{sentence}. The interval excludes 0: the result would very likely hold on other {over}.")
        elif over == "classes" and "queries" in ends and ends["queries"][0] > _SAME:
            sentences.append(
                f"{sentence}. That interval includes 0, but the one over queries ({between(ends['queries'], points)}) "
                "does not: better on these classes, perhaps not on others."
            )
        else:
            sentences.append(f"{sentence}. The interval includes 0: it is not clear which of the two is better.")
    return sentences


def _table_row(name: str, shares: Mapping[int, Shares], labels: Sequence[str]) -> dict[str, Any]:
    texts = {e: percent(shares_of.value(name)) for e, shares_of in shares.items()}
    numbers = {text for text in texts.values() if text != MISSING}
    best = max(numbers, key=float) if len(numbers) > 1 else None
    return {
        "measure": named(name),
        "rows": [
            {
                "label": labels[e],
                "share": texts[e],
                "best": texts[e] == best,
                "queries": between(shares_of.interval(name, "queries")),
                "classes": between(shares_of.interval(name, "classes")),
                "macro": percent(shares_of.macro(name)),
                "macro_interval": between(shares_of.macro_interval(name)),
                "chance": by_chance(name, shares_of.chance(name)),
            }
            for e, shares_of in shares.items()
        ],
    }


def _clustering(
    level: str, names: Sequence[str], shares: Mapping[int, Shares], labels: Sequence[str]
) -> dict[str, Any] | None:
    if not names:
        return None
    rows = []
    for e, shares_of in shares.items():
        means = shares_of.result.clustering.get(level, ClusteringRecord())
        cells = [number(means.clusters), number(means.clusters_in_use)]
        cells += [_counted(shares_of.values.get("nmi+_clusters"))] if "nmi+" in names else []
        cells += [MISSING if means.inertia is None else f"{means.inertia:.4g}", number(means.restarts)]
        rows.append((labels[e], [*cells, duration(means.seconds)]))
    columns = ["clusters", "in use", *(["clusters of NMI+"] if "nmi+" in names else [])]
    return {"columns": [*columns, "inertia", "restarts", "k-means took"], "rows": rows}


def _counted(count: object) -> str:
    return number(round(count)) if is_number(count) else MISSING


def _verification(shares: Mapping[int, Shares], labels: Sequence[str]) -> dict[str, Any]:
    rows = []
    for e, shares_of in shares.items():
        pairs, sampled = shares_of.values.get("verification_pairs"), shares_of.values.get("verification_sampled")
        kind = "" if pairs is None or sampled is None else " sampled" if sampled else " (all)"
        threshold = finite(shares_of.values.get("verification-threshold"))
        rows.append((labels[e], [decimal(threshold), f"{_counted(pairs)}{kind}"]))
    return {"columns": ["threshold (distance)", "pairs"], "rows": rows}


def _rejection(label: str, rejection: RejectionRecord) -> dict[str, Any]:
    def row(title: str, share: float | None, name: str, chance: str) -> list[str]:
        ends = (between(rejection.intervals.get(name, {}).get(over)) for over in OVERS)
        macro = between(rejection.macro_intervals.get(name, {}).get("classes"))
        return [title, percent(share), *ends, percent(rejection.macro.get(name)), macro, chance]

    return {
        "label": label,
        "in_scope": rejection.in_scope,
        "out_of_scope": rejection.out_of_scope,
        "rows": [
            row("AUROC", rejection.auroc, "auroc", "50.0"),
            row("accepted", rejection.fpr_at_95_tpr, "fpr_at_95_tpr", "95.0"),
        ],
    }


def _folds(level: str, shares: Mapping[int, Shares], labels: Sequence[str]) -> list[dict[str, Any]]:
    folds = {e: shares_of.result.folds.get(level, {}) for e, shares_of in shares.items()}
    return [
        {
            "measure": named(name),
            "rows": [
                (
                    labels[e],
                    percent(measures[name].mean),
                    between(measures[name].interval),
                    ", ".join(percent(value) for value in measures[name].values),
                )
                for e, measures in folds.items()
                if name in measures
            ],
        }
        for name in together(list(measures) for measures in folds.values())
    ]


def _classes(
    level: str, record: ComparisonRecord, shares: Mapping[int, Shares], measures: Sequence[str]
) -> ClassShares | None:
    """The classes of each embedding with a value, the worst first."""
    per_class, rows = record.per_class, {}
    for e in shares if measures else ():
        rows_of = per_class[e].get(level, []) if e < len(per_class) else []
        values = [
            (str(row.get("class", "")), _counted(row.get("queries")), share)
            for row in rows_of
            if is_number(share := row.get(measures[0]))
        ]
        if values:
            rows[e] = sorted(values, key=lambda row: (row[2], row[0]))
    chance = next((shares_of.chance(name) for shares_of in shares.values() for name in measures), None)
    return ClassShares(measures[0], rows, chance) if rows else None


def _extremes(classes: ClassShares, labels: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"label": labels[e], "sides": [("worst", rows[:_LISTED]), ("best", rows[::-1][:_LISTED])]}
        for e, rows in classes.rows.items()
    ]
