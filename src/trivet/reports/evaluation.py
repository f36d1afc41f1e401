"""The page of `trivet evaluate --report`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.reports.page import MISSING, decimal, duration, moment, number, percent, points, write_page

_MOST_DRAWN = 60  # classes with a line of their own in the plot
_LISTED = 15  # worst and best classes where there are more
_FEW_CLASSES = 10  # below, an interval over classes rests on hardly anything
_SAME = 1e-9  # shares closer than this are equal but for rounding

# Those of plots.js: a colour, a symbol and a dash tell an embedding apart, each without the others.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#B8A800")
_SYMBOLS = ("circle", "triangle-up", "square", "diamond", "cross", "x", "star", "triangle-down")
_SIGNS = ("●", "▲", "■", "◆", "✚", "✖", "★", "▼")
_DASHES = ("solid", "dash", "dot", "dashdot")
_DARK, _SOFT = "#1c2430", "#5b6675"

_NAMES = {
    "r-precision": "R-precision",
    "map@r": "MAP@R",
    "map": "mAP",
    "mrr": "MRR",
    "nmi": "NMI",
    "nmi-geometric": "NMI, geometric",
    "ami": "AMI",
    "nmi+": "NMI+",
    "roc-auc": "ROC AUC",
    "tar@far": "TAR@FAR",
    "verification-accuracy": "accuracy",
}
_CLUSTERING = ("nmi", "nmi-geometric", "ami", "nmi+")
_VERIFICATION = r"roc-auc|tar@far(=.*)?|verification-accuracy"
# Without knowledge of the classes; the chance of a retrieval measure depends on the data and is in the record.
_CHANCE = {"ami": 0.0, "roc-auc": 0.5, "verification-accuracy": 0.5}
_GLOSSARY = (
    (r"recall@\d+", "recall@K", "Share of the queries with an item of their class among their K nearest (CMC)."),
    (r"precision@\d+", "precision@K", "Share of items of the query's class among its K nearest, averaged."),
    (
        "r-precision",
        "R-precision",
        "Precision among the R nearest, where R items of the gallery have the query's class.",
    ),
    (
        "map@r",
        "MAP@R",
        "Precision at each right one of the R nearest, summed and divided by R: R-precision that counts order.",
    ),
    ("map", "mAP", "Mean over all items of the query's class, however far, of the precision up to each."),
    ("mrr", "MRR", "Mean of 1 / rank of the first item of the query's class."),
    (
        "nmi",
        "NMI",
        "Normalized mutual information of the classes with as many k-means clusters, over the mean entropy.",
    ),
    ("nmi-geometric", "NMI, geometric", "The same, over the geometric mean of the two entropies."),
    ("ami", "AMI", "Mutual information adjusted for chance: 0 for clusters that know nothing of the classes."),
    (r"nmi\+", "NMI+", "NMI with several times more clusters than classes: does not punish a class of several heaps."),
    ("roc-auc", "ROC AUC", "Chance that a pair of one class is nearer than a pair of two."),
    (
        "tar@far.*",
        "TAR@FAR",
        "Share of pairs of one class accepted at the distance that accepts the given share of pairs of two.",
    ),
    (
        "verification-accuracy",
        "accuracy",
        "Mean share of pairs judged rightly, same class or not, by a threshold chosen on the other half.",
    ),
)


def write_evaluation_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page of evaluated embeddings; a part that is absent is left out or said to be absent.

    Args:
        record: "results", a record as `trivet evaluate --json` prints it for each embedding; of several,
            "differences", level -> measure -> rows, each embedding less the first; "per_class", for each embedding
            level -> rows of "class", "queries" and the measures.

    Raises:
        OSError: if the file cannot be written.
    """
    results = record.get("results") or []
    labels = _labels(results)
    figures: list[dict[str, Any]] = []
    levels = [
        _level(level, record, labels, figures)
        for level in dict.fromkeys(level for result in results for level in result.get("evaluation") or {})
    ]
    measures = {name for result in results for values in (result.get("evaluation") or {}).values() for name in values}
    first = results[0] if results else {}
    context = {
        "record": {"trivet": first.get("trivet"), "created": first.get("created")},
        "command": record.get("command"),
        "labels": labels,
        "protocols": [_protocol(result) for result in results],
        "key": [(label, *_style(e)[:1], _SIGNS[_symbol(e)]) for e, label in enumerate(labels)],
        "levels": levels,
        "rejection": [_rejection(label, result["rejection"]) for label, result in zip(labels, results, strict=True)
                      if result.get("rejection")],
        "glossary": [(name, said) for pattern, name, said in _GLOSSARY
                     if any(re.fullmatch(pattern, measure) for measure in measures)],
    }  # fmt: skip
    write_page("evaluation.html", path, context, {"figures": figures}, script="figures.js")


def _labels(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the embeddings, told apart where two files have one name."""
    names = [str(result.get("embeddings", "unnamed embedding")) for result in results]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]


def _protocol(result: Mapping[str, Any]) -> str:
    """In words: what was asked of what, and what was left out."""
    protocol = result.get("protocol") or {}
    items, queries, gallery = result.get("items"), protocol.get("queries"), protocol.get("gallery")
    width, distance = result.get("dimension"), result.get("distance", "an unknown")
    said = [f"{number(width)} dimensions, compared by {distance} distance."]
    if protocol.get("kind") == "self-retrieval":
        said = [f"{number(items)} items of {said[0]}"]
        asked = "Each item" if queries == items else f"Each of {number(queries)} random items"
        said.append(f"{asked} is a query against the {f'{number(gallery - 1)} ' if gallery else ''}others.")
    elif protocol.get("kind") == "query-gallery":
        said.append(f"{number(queries)} queries against a gallery of {number(gallery)} items.")
        if protocol.get("queries_in_gallery"):
            said.append(
                f"{number(protocol['queries_in_gallery'])} queries stand in the gallery too; none finds itself."
            )
    else:
        said.append("How the queries were asked is not in the record.")
    if scope := result.get("rejection"):
        said.append(f"{number(scope.get('out_of_scope'))} more queries are out of scope and asked for rejection only.")
    if "junk" in protocol:
        said.append(f"{number(protocol['junk'])} junk items are taken out of the gallery.")
    if protocol.get("same_camera_left_out"):
        said.append("Items of the query's class that its own camera saw are left out.")
    said += _without_positive(result, protocol)
    if index := protocol.get("approximate"):
        parameters = ", ".join(f"{name} {setting}" for name, setting in (index.get("parameters") or {}).items())
        said.append(
            f"The search is approximate, by {index.get('kind')}{f' ({parameters})' if parameters else ''}: it finds "
            f"{percent(index.get('recall'))}\u00a0% of the {index.get('recall_at')} nearest items, measured on "
            f"{number(index.get('recall_queries'))} queries."
        )
    version = f" with Trivet {result['trivet']}" if result.get("trivet") else ""
    took = f" in {duration(result['seconds'])}" if result.get("seconds") is not None else ""
    if result.get("created"):
        said.append(f"Measured {moment(result['created'])}{version}{took}.")
    return " ".join(said)


def _without_positive(result: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
    counts = {
        level: values["without_positive"]
        for level, values in (result.get("evaluation") or {}).items()
        if values.get("without_positive") is not None
    }
    if counts and not any(counts.values()):
        return ["Every query has something to be found."]
    treated = "are left out" if protocol.get("without_positive") == "drop" else "count as misses"
    return [
        f"By {level}, {number(count)} queries have nothing to be found and {treated}."
        for level, count in counts.items()
        if count
    ]


def _level(
    level: str, record: Mapping[str, Any], labels: Sequence[str], figures: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the page shows of a level; its plots are added to `figures`."""
    found = {
        e: result["evaluation"][level]
        for e, result in enumerate(record["results"])
        if level in (result.get("evaluation") or {})
    }
    shares = {e: _Shares(record["results"][e], level) for e in found}
    retrieval = _together(one.retrieval for one in shares.values())
    clustering = [name for name in _CLUSTERING if any(name in values for values in found.values())]
    verification = _together(
        [name for name in values if re.fullmatch(_VERIFICATION, name)] for values in found.values()
    )
    leads = _leads(retrieval) or _leads([*clustering, *verification])
    differences = _differences(level, record, shares)
    drawn: list[dict[str, Any]] = []

    def draw(title: str, hint: str, height: int, figure: Mapping[str, Any] | None, *, wide: bool = False) -> None:
        if figure is not None:
            drawn.append({"index": len(figures), "title": title, "hint": hint, "height": height, "wide": wide})
            figures.append(dict(figure))

    listed = {
        "Retrieval": [name for name in retrieval if any(one.value(name) is not None for one in shares.values())],
        "Clustering and verification": [
            name for name in [*clustering, *verification] if any(one.value(name) is not None for one in shares.values())
        ],
    }
    heights = {title: _rows_height(len(names), len(shares)) for title, names in listed.items()}
    band = "Bands: 95 % intervals, over classes where there are any. Dashed: chance."
    draw("Recall at K", band, max(330, heights["Retrieval"]), _recall_curve(shares, labels, retrieval))
    ends = "Thick bar: 95 % interval over queries; thin line: over classes"
    draw(
        "Retrieval", f"{ends}; upright dots: chance.", heights["Retrieval"], _dots(shares, labels, listed["Retrieval"])
    )
    title = "Clustering and verification"
    draw(title, f"{ends}; upright dots: chance.", heights[title], _dots(shares, labels, listed[title]))
    # The others may leave 0 to 1 in a class.
    single = retrieval or [name for name in verification if name == "roc-auc"]
    classes = _classes(level, record, labels, shares, single[:1] if "recall@1" not in retrieval else ["recall@1"])
    if classes["rows"]:
        title = f"{_named(classes['measure'])} of each class"
        if classes["count"] <= _MOST_DRAWN:
            hint = "The worst first. Dashed: chance over all queries."
            height = 90 + max(20, 9 * len(shares)) * classes["count"]
            draw(title, hint, height, _class_dots(classes, labels), wide=classes["count"] > _LISTED)
        else:
            draw(title, "How many classes have which value.", 330, _class_histogram(classes, labels))
    if differences:
        height = _rows_height(len(differences), len(next(iter(differences.values()))))
        less = f"Each embedding less {labels[0]}, on the same queries; right of 0 it is the better one."
        draw("Differences", f"{less} {ends}.", height, _forest(differences, labels), wide=True)
    first = next(iter(found.values()))
    return {
        "level": level,
        "items": first.get("items"),
        "classes": first.get("classes"),
        "few": bool([*retrieval, *clustering, *verification]) and (first.get("classes") or _FEW_CLASSES) < _FEW_CLASSES,
        "leads": [_lead(name, shares, labels) for name in leads],
        "sentences": [sentence for name in leads for sentence in _sentences(level, name, shares, labels)]
        + [sentence for name in leads for sentence in _compared(name, differences.get(name, []), labels)],
        "table": [_table_row(name, shares, labels) for name in retrieval],
        "differences": [
            (_named(name), [(labels[of], points(row.get("difference")), _ends(row.get("queries"), points),
                             _ends(row.get("classes"), points)) for of, row in rows])
            for name, rows in differences.items()
        ],
        "less": labels[0],
        "clustering": _clustering(level, clustering, shares, labels),
        "clustering_table": [_table_row(name, shares, labels) for name in clustering],
        "verification": _verification(shares, labels) if verification else None,
        "verification_table": [_table_row(name, shares, labels) for name in verification],
        "folds": _folds(level, shares, labels),
        "missing": [
            (labels[e], _named(name.removesuffix("_missing")), str(reason))
            for e, values in found.items()
            for name, reason in values.items()
            if name.endswith("_missing")
        ],
        "figures": drawn,
        "extremes": _extremes(classes, labels) if classes["count"] > _MOST_DRAWN else [],
        "class_measure": _named(classes["measure"]) if classes["rows"] else None,
        "class_count": classes["count"],
    }  # fmt: skip


def _leads(measures: Sequence[str]) -> Sequence[str]:
    """The measures shown big."""
    return [name for name in measures if name in ("recall@1", "map@r", "nmi", "roc-auc")] or measures[:2]


class _Shares:
    """The measures of one embedding at one level."""

    def __init__(self, result: Mapping[str, Any], level: str) -> None:
        self.result = result
        self.values = result["evaluation"][level]
        self._macro = (result.get("macro") or {}).get(level) or {}
        self._intervals = (result.get("intervals") or {}).get(level) or {}
        self._macro_intervals = (result.get("macro_intervals") or {}).get(level) or {}
        self.retrieval = [
            name
            for name in self.values
            if (f"chance_{name}" in self.values or name in self._macro)
            and name not in _CLUSTERING
            and not re.fullmatch(_VERIFICATION, name)
        ]

    def value(self, name: str) -> float | None:
        return _finite(self.values.get(name))

    def chance(self, name: str) -> float | None:
        if name.startswith("tar@far="):
            return float(name.removeprefix("tar@far="))
        return _finite(self.values.get(f"chance_{name}", _CHANCE.get(name)))

    def macro(self, name: str) -> float | None:
        return _finite(self._macro.get(name))

    def interval(self, name: str, over: str) -> Sequence[float] | None:
        return _interval((self._intervals.get(name) or {}).get(over))

    def macro_interval(self, name: str) -> Sequence[float] | None:
        return _interval((self._macro_intervals.get(name) or {}).get("classes"))

    def widest(self, name: str) -> tuple[str, Sequence[float]] | None:
        """The interval over classes, or over queries where there is none, and which of them."""
        for over in ("classes", "queries"):
            if (ends := self.interval(name, over)) is not None:
                return over, ends
        return None


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _interval(ends: Any) -> Sequence[float] | None:
    return ends if ends and all(_finite(end) is not None for end in ends) else None


def _together(lists: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))


def _named(measure: str | None) -> str:
    if measure and measure.startswith("tar@far="):
        return f"TAR@FAR {100 * float(measure.removeprefix('tar@far=')):g}\u00a0%"
    return _NAMES.get(measure or "", measure or "")


def _ends(ends: Any, shown: Callable[[float | None], str] = percent) -> str:
    found = _interval(ends)
    return MISSING if found is None else f"{shown(found[0])} to {shown(found[1])}"


def _by_chance(measure: str, share: float | None) -> str:
    """A share that is a small power of ten keeps its digits."""
    return f"{100 * share:g}" if share is not None and measure.startswith("tar@far=") else percent(share)


def _lead(name: str, shares: Mapping[int, _Shares], labels: Sequence[str]) -> dict[str, Any]:
    measured = {e: value for e, one in shares.items() if (value := one.value(name)) is not None}
    chance = next((one.chance(name) for one in shares.values()), None)
    several = len(labels) > 1
    bars = [(labels[e] if several else "measured", min(max(value, 0.0), 1.0)) for e, value in measured.items()]
    return {
        "measure": _named(name),
        "chance": chance,
        "bars": bars + ([] if chance is None else [("chance", chance)]),
        "rows": [
            {
                "label": labels[e] if several else None,
                "share": one.value(name),
                "intervals": [
                    f"{_ends(ends)} over {over}"
                    for over in ("classes", "queries")
                    if (ends := one.interval(name, over)) is not None
                ],
            }
            for e, one in shares.items()
        ],
    }


def _sentences(level: str, name: str, shares: Mapping[int, _Shares], labels: Sequence[str]) -> list[str]:
    """What each embedding finds, beside chance."""
    found = []
    for e, one in shares.items():
        share, chance, widest = one.value(name), one.chance(name), one.widest(name)
        if share is None or chance is None:
            continue
        of = f" of {labels[e]}" if len(labels) > 1 else ""
        said = []
        if name == "recall@1":
            with_whom = f"With {labels[e]} the" if of else "The"
            said.append(
                f"{with_whom} nearest item has the same {level} for {percent(share)}\u00a0% of the queries, against "
                f"{percent(chance)}\u00a0% by chance."
            )
        if widest is None:
            if percent(share) == percent(chance):
                said.append(f"{_start(name)}{of} is no better than chance.")
        else:
            over, (low, high) = widest
            ends = f"the 95\u00a0% interval over {over}, {_ends((low, high))}"
            if low - _SAME <= chance <= high + _SAME:
                said.append(f"{_start(name)}{of} does not differ from chance: {ends}, holds {percent(chance)}.")
            elif high < chance:
                said.append(f"{_start(name)}{of} is worse than chance: {ends}, lies below {percent(chance)}.")
            elif name == "recall@1":
                said.append(f"{ends[0].upper()}{ends[1:]}, lies above chance.")
        found += [" ".join(said)] if said else []
    return found


def _start(measure: str) -> str:
    return _named(measure)[:1].upper() + _named(measure)[1:] if measure.startswith("recall") else _named(measure)


def _differences(
    level: str, record: Mapping[str, Any], shares: Mapping[int, _Shares]
) -> dict[str, list[tuple[int, Mapping[str, Any]]]]:
    """Measure -> the embedding and its difference to the first."""
    others = [e for e in shares if e > 0]
    by_measure = ((record.get("differences") or {}).get(level) or {}).items()
    return {
        name: [
            (e, row)
            for e, row in zip(others, rows, strict=False)
            if row.get("of") == record["results"][e].get("embeddings")
        ]
        for name, rows in by_measure
    }


def _compared(name: str, rows: Sequence[tuple[int, Mapping[str, Any]]], labels: Sequence[str]) -> list[str]:
    """Which embedding is better, and whether the paired interval excludes 0."""
    found = []
    for of, row in rows:
        difference = _finite(row.get("difference"))
        if difference is None:
            continue
        classes, queries = _interval(row.get("classes")), _interval(row.get("queries"))
        if abs(difference) <= _SAME:
            found.append(f"{labels[of]} and {labels[0]} do equally well in {_named(name)}.")
            continue
        better, worse, sign = (labels[of], labels[0], 1) if difference > 0 else (labels[0], labels[of], -1)
        said = f"{better} is {100 * abs(difference):.1f} points better in {_named(name)} than {worse}"
        ends = {
            over: sorted(sign * end for end in interval)
            for over, interval in (("classes", classes), ("queries", queries))
            if interval is not None
        }
        if not ends:
            found.append(f"{said}; the record has no interval of that difference.")
            continue
        over, interval = next(iter(ends.items()))
        said += f" (paired 95\u00a0% interval over {over}: {_ends(interval, points)})"
        if interval[0] > _SAME:
            found.append(f"{said}. The interval excludes 0: other {over} would very likely agree.")
        elif over == "classes" and "queries" in ends and ends["queries"][0] > _SAME:
            found.append(
                f"{said}. That interval includes 0, the one over queries ({_ends(ends['queries'], points)}) does not: "
                "better on these classes, not surely on others."
            )
        else:
            found.append(f"{said}. The interval includes 0: which of the two is better is not settled.")
    return found


def _table_row(name: str, shares: Mapping[int, _Shares], labels: Sequence[str]) -> dict[str, Any]:
    texts = {e: percent(one.value(name)) for e, one in shares.items()}
    numbers = {text for text in texts.values() if text != MISSING}
    best = max(numbers, key=float) if len(numbers) > 1 else None
    return {
        "measure": _named(name),
        "rows": [
            {
                "label": labels[e],
                "share": texts[e],
                "best": texts[e] == best,
                "queries": _ends(one.interval(name, "queries")),
                "classes": _ends(one.interval(name, "classes")),
                "macro": percent(one.macro(name)),
                "macro_interval": _ends(one.macro_interval(name)),
                "chance": _by_chance(name, one.chance(name)),
            }
            for e, one in shares.items()
        ],
    }


def _clustering(
    level: str, names: Sequence[str], shares: Mapping[int, _Shares], labels: Sequence[str]
) -> dict[str, Any] | None:
    if not names:
        return None
    rows = []
    for e, one in shares.items():
        means = (one.result.get("clustering") or {}).get(level) or {}
        inertia = _finite(means.get("inertia"))
        cells = [number(means.get("clusters")), number(means.get("clusters_in_use"))]
        cells += [number(one.values.get("nmi+_clusters"))] if "nmi+" in names else []
        cells += [MISSING if inertia is None else f"{inertia:.4g}", number(means.get("restarts"))]
        rows.append((labels[e], [*cells, duration(means.get("seconds"))]))
    columns = ["clusters", "in use", *(["clusters of NMI+"] if "nmi+" in names else [])]
    return {"columns": [*columns, "inertia", "restarts", "k-means took"], "rows": rows}


def _verification(shares: Mapping[int, _Shares], labels: Sequence[str]) -> dict[str, Any]:
    rows = []
    for e, one in shares.items():
        pairs, sampled = one.values.get("verification_pairs"), one.values.get("verification_sampled")
        kind = "" if pairs is None or sampled is None else " sampled" if sampled else " (all)"
        rows.append((labels[e], [decimal(one.values.get("verification-threshold")), f"{number(pairs)}{kind}"]))
    return {"columns": ["threshold (distance)", "pairs"], "rows": rows}


def _rejection(label: str, found: Mapping[str, Any]) -> dict[str, Any]:
    def of(part: str, name: str, over: str) -> str:
        return _ends(((found.get(part) or {}).get(name) or {}).get(over))

    return {
        "label": label,
        "in_scope": found.get("in_scope"),
        "out_of_scope": found.get("out_of_scope"),
        "rows": [
            [
                title,
                percent(_finite(found.get(name))),
                of("intervals", name, "queries"),
                of("intervals", name, "classes"),
                percent(_finite((found.get("macro") or {}).get(name))),
                of("macro_intervals", name, "classes"),
                chance,
            ]
            for title, name, chance in (("AUROC", "auroc", "50.0"), ("accepted", "fpr_at_95_tpr", "95.0"))
        ],
    }


def _folds(level: str, shares: Mapping[int, _Shares], labels: Sequence[str]) -> list[dict[str, Any]]:
    folds = {e: (one.result.get("folds") or {}).get(level) or {} for e, one in shares.items()}
    return [
        {
            "measure": _named(name),
            "rows": [
                (
                    labels[e],
                    percent(found[name].get("mean")),
                    _ends(found[name].get("interval")),
                    ", ".join(percent(value) for value in found[name].get("values") or []),
                )
                for e, found in folds.items()
                if name in found
            ],
        }
        for name in _together(list(found) for found in folds.values())
    ]


def _classes(
    level: str,
    record: Mapping[str, Any],
    labels: Sequence[str],
    shares: Mapping[int, _Shares],
    measures: Sequence[str],
) -> dict[str, Any]:
    """Embedding -> its classes with a value, the worst first."""
    per_class = record.get("per_class") or []
    measure = measures[0] if measures else None
    rows = {}
    for e in shares:
        found = (per_class[e].get(level) or []) if e < len(per_class) else []
        kept = [row for row in found if _finite(row.get(measure)) is not None]
        if kept:
            rows[e] = sorted(kept, key=lambda row: (row[measure], str(row.get("class", ""))))
    chance = next((one.chance(measure) for one in shares.values()), None) if measure else None
    count = max((len(found) for found in rows.values()), default=0)
    return {"measure": measure, "rows": rows, "count": count, "chance": chance}


def _extremes(classes: Mapping[str, Any], labels: Sequence[str]) -> list[dict[str, Any]]:
    measure = classes["measure"]
    return [
        {
            "label": labels[e],
            "sides": [
                (side, [(row.get("class", ""), row.get("queries"), row[measure]) for row in listed])
                for side, listed in (("worst", rows[:_LISTED]), ("best", rows[::-1][:_LISTED]))
            ],
        }
        for e, rows in classes["rows"].items()
    ]


def _symbol(e: int) -> int:
    # The ninth embedding has the colour of the first and another symbol.
    return (e + e // len(_COLOURS)) % len(_SYMBOLS)


def _style(e: int) -> tuple[str, str, str]:
    return _COLOURS[e % len(_COLOURS)], _SYMBOLS[_symbol(e)], _DASHES[e % len(_DASHES)]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _plain(text: object, length: int = 28) -> str:
    """Shortened, and with nothing that plotly would read as markup."""
    found = str(text)
    found = found if len(found) <= length else found[: length - 1] + "…"
    return found.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _drawn(measure: str) -> str:
    return _plain(_named(measure))


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "gridcolor": "#e8ebee",
        "zeroline": False,
        "linecolor": "#8a96a5",
        "automargin": True,
    } | more


def _figure(traces: Sequence[Mapping[str, Any]], **layout: Any) -> dict[str, Any]:
    return {
        "traces": traces,
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "#fff",
            "margin": {"l": 52, "r": 14, "t": 12, "b": 46},
            "modebar": {"bgcolor": "rgba(255,255,255,0.85)", "color": _SOFT, "activecolor": "#0072B2"},
            "showlegend": False,  # the key above the plots names the embeddings once
            "hovermode": "closest",
        }
        | layout,
    }


def _cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _hover(label: str, one: _Shares, name: str) -> str:
    lines = [f"{_plain(label, 60)}<br>{_drawn(name)}: {percent(one.value(name))} %"]
    lines += [
        f"95 %, {over}: {_ends(ends)}"
        for over in ("queries", "classes")
        if (ends := one.interval(name, over)) is not None
    ]
    chance = one.chance(name)
    return "<br>".join([*lines, *([] if chance is None else [f"chance: {_by_chance(name, chance)}"])])


def _recall_curve(
    shares: Mapping[int, _Shares], labels: Sequence[str], retrieval: Sequence[str]
) -> dict[str, Any] | None:
    names = sorted((name for name in retrieval if re.fullmatch(r"recall@\d+", name)), key=lambda name: int(name[7:]))
    if len(names) < 2:
        return None
    ks = {name: int(name[7:]) for name in names}
    traces: list[dict[str, Any]] = []
    for e, one in shares.items():
        colour, symbol, dash = _style(e)
        banded = [(ks[name], found[1]) for name in names if (found := one.widest(name)) is not None]
        edge = [(k, high) for k, (_, high) in banded] + [(k, low) for k, (low, _) in reversed(banded)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [k for k, _ in edge],
                "y": [_cent(share) for _, share in edge],
                "fill": "toself",
                "fillcolor": _faint(colour),
                "line": {"width": 0},
                "hoverinfo": "skip",
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": _plain(labels[e]),
                "x": [ks[name] for name in names],
                "y": [_cent(one.value(name)) for name in names],
                "line": {"color": colour, "dash": dash, "width": 2},
                "marker": {"symbol": symbol, "size": 8},
                "hoverinfo": "text",
                "hovertext": [_hover(labels[e], one, name) for name in names],
            }
        )
    chance = [(ks[name], share) for name in names if (share := next(iter(shares.values())).chance(name)) is not None]
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "x": [k for k, _ in chance],
            "y": [_cent(share) for _, share in chance],
            "line": {"color": _SOFT, "dash": "dash", "width": 1.5},
            "hoverinfo": "text",
            "hovertext": [f"chance, K = {k}: {percent(share)} %" for k, share in chance],
        }
    )
    ticks = list(ks.values())[:: math.ceil(len(ks) / 8)]
    return _figure(
        traces,
        xaxis=_axis("K, nearest items", type="log", tickvals=ticks, ticktext=[str(k) for k in ticks]),
        yaxis=_axis("recall@K, per cent", range=[-2, 103]),
    )


_ROW = 30  # pixels


def _rows_height(rows: int, marks: int) -> int:
    return 76 + max(_ROW, 14 * marks) * rows


def _row_axis(names: Sequence[str]) -> dict[str, Any]:
    """One row for each name, the first on top."""
    count = len(names)
    return _axis("", tickvals=list(range(count)), ticktext=list(names), range=[count - 0.5, -0.5], showgrid=False)


def _stripes(count: int) -> list[dict[str, Any]]:
    stripe = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "fillcolor": "#f5f6f8", "line": {"width": 0}}
    return [stripe | {"y0": row - 0.5, "y1": row + 0.5, "layer": "below"} for row in range(1, count, 2)]


def _beside(mark: int, marks: int) -> float:
    """How far below the middle of its row a mark stands."""
    return 0.72 * ((mark + 0.5) / marks - 0.5)


def _segments(ends: Sequence[tuple[float, Sequence[float] | None]], line: Mapping[str, Any]) -> dict[str, Any]:
    """A level line for each interval, at its height."""
    drawn = [(y, found) for y, found in ends if found is not None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for _, (low, high) in drawn for x in (100 * low, 100 * high, None)],
        "y": [value for y, _ in drawn for value in (y, y, None)],
        "line": line,
        "hoverinfo": "skip",
    }


def _marks(e: int, label: str, places: Sequence[tuple[float | None, float]], hover: Sequence[str]) -> dict[str, Any]:
    colour, symbol, _ = _style(e)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": _plain(label),
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"color": "#fff", "width": 0.8}},
        "hoverinfo": "text",
        "hovertext": hover,
    }


def _dots(shares: Mapping[int, _Shares], labels: Sequence[str], names: Sequence[str]) -> dict[str, Any] | None:
    if not names:
        return None
    first = next(iter(shares.values()))
    upright = [(100 * share, row) for row, name in enumerate(names) if (share := first.chance(name)) is not None]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [value for x, _ in upright for value in (x, x, None)],
            "y": [value for _, row in upright for value in (row - 0.42, row + 0.42, None)],
            "line": {"color": _DARK, "dash": "dot", "width": 2},
            "hoverinfo": "skip",
        }
    ]
    for mark, (e, one) in enumerate(shares.items()):
        height = [row + _beside(mark, len(shares)) for row in range(len(names))]
        for over, line in _lines(e):
            ends = [one.interval(name, over) for name in names]
            traces.append(_segments(list(zip(height, ends, strict=True)), line))
        places = [(_cent(one.value(name)), y) for name, y in zip(names, height, strict=True)]
        traces.append(_marks(e, labels[e], places, [_hover(labels[e], one, name) for name in names]))
    least = min(0.0, *(x for trace in traces for x in trace["x"] if x is not None))
    return _figure(
        traces,
        xaxis=_axis("per cent", range=[least - 2, 102]),
        yaxis=_row_axis([_drawn(name) for name in names]),
        shapes=_stripes(len(names)),
    )


def _lines(e: int) -> list[tuple[str, dict[str, Any]]]:
    colour = _style(e)[0]
    return [("queries", {"color": _faint(colour).replace("0.16", "0.4"), "width": 7}),
            ("classes", {"color": colour, "width": 1.6})]  # fmt: skip


def _forest(
    differences: Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]], labels: Sequence[str]
) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    others = list(dict.fromkeys(of for rows in differences.values() for of, _ in rows))
    for mark, e in enumerate(others):
        found = [
            (name, row + _beside(mark, len(others)), one)
            for row, (name, rows) in enumerate(differences.items())
            for of, one in rows
            if of == e
        ]
        for over, line in _lines(e):
            traces.append(_segments([(y, _interval(one.get(over))) for _, y, one in found], line))
        hover = []
        for name, _, one in found:
            lines = [f"{_plain(labels[e], 60)} less {_plain(labels[0], 60)}"]
            lines += [f"{_drawn(name)}: {points(_finite(one.get('difference')))}"]
            lines += [f"95 %, {over}: {_ends(one.get(over), points)}" for over in ("queries", "classes")]
            hover.append("<br>".join(lines))
        traces.append(_marks(e, labels[e], [(_cent(_finite(one.get("difference"))), y) for _, y, one in found], hover))
    drawn = [0.0, *(x for trace in traces for x in trace["x"] if x is not None)]
    room = 0.05 * (max(drawn) - min(drawn)) + 0.1
    zero = {"zeroline": True, "zerolinecolor": _DARK, "zerolinewidth": 2}
    return _figure(
        traces,
        xaxis=_axis("difference, percentage points", range=[min(drawn) - room, max(drawn) + room], **zero),
        yaxis=_row_axis([_drawn(name) for name in differences]),
        shapes=_stripes(len(differences)),
    )


def _class_dots(classes: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    measure, rows = classes["measure"], classes["rows"]
    order = _together([str(row.get("class", "")) for row in found] for found in rows.values())
    place = {name: row for row, name in enumerate(order)}
    traces = []
    for mark, (e, found) in enumerate(rows.items()):
        shift = _beside(mark, len(rows)) if len(rows) > 1 else 0.0
        places = [(100 * row[measure], place[str(row.get("class", ""))] + shift) for row in found]
        hover = [
            f"{_plain(labels[e], 60)}<br>{_plain(row.get('class', ''), 80)}, {number(row.get('queries'))} queries<br>"
            f"{_drawn(measure)}: {percent(row[measure])} %"
            for row in found
        ]
        traces.append(_marks(e, labels[e], places, hover))
    shapes = _stripes(len(order))
    if classes["chance"] is not None:
        line = {"color": _SOFT, "dash": "dash", "width": 1.5}
        x = 100 * classes["chance"]
        shapes.append({"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line})
    return _figure(
        traces,
        xaxis=_axis(f"{_drawn(measure)}, per cent", range=[-2, 102]),
        # Names of one data set often begin alike.
        yaxis=_row_axis([_plain(name if len(name) <= 22 else f"{name[:11]}…{name[-10:]}") for name in order]),
        shapes=shapes,
    )


def _class_histogram(classes: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    measure, width = classes["measure"], 5
    bins = 100 // width
    traces = []
    for e, found in classes["rows"].items():
        counts = [0] * bins
        for row in found:
            counts[min(int(row[measure] * bins), bins - 1)] += 1
        colour, _, dash = _style(e)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": _plain(labels[e]),
                "x": [width * k for k in range(bins + 1)],
                "y": [*counts, counts[-1]],
                "line": {"color": colour, "dash": dash, "width": 2, "shape": "hv"},
                "fill": "tozeroy",
                "fillcolor": _faint(colour),
                "hoverinfo": "text",
                "hovertext": [
                    f"{_plain(labels[e], 60)}<br>{width * k} to {width * (k + 1)} %: {count} classes"
                    for k, count in enumerate(counts)
                ],
            }
        )
    return _figure(
        traces,
        xaxis=_axis(f"{_drawn(measure)}, per cent", range=[0, 100]),
        yaxis=_axis("classes", rangemode="tozero"),
    )
