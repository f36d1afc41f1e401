"""The page of `trivet evaluate --report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trivet.commands.evaluate.embedding_sizes import stored_sizes
from trivet.commands.evaluate.plots import (
    PlotFigure,
    class_dots,
    class_histogram,
    dots,
    forest,
    key,
    recall_curve,
    rows_height,
    style,
)
from trivet.commands.evaluate.postprocessing import postprocessing_line
from trivet.commands.evaluate.record import (
    ClassShares,
    ComparisonRecord,
    DifferenceRecord,
    EvaluationRecord,
    ProtocolRecord,
    Shares,
)
from trivet.commands.train.outcome import size_line
from trivet.reports.items import is_number
from trivet.reports.measures import (
    CLUSTERING,
    EVALUATION,
    OVERS,
    VERIFICATION,
    best_line,
    best_text,
    between,
    by_chance,
    finite,
    interval,
    measure_key,
    named,
    together,
)
from trivet.reports.page import duration, moment, number, percent, points, write_page
from trivet.reports.shared_records import Levels
from trivet.runtime.text import noun

_MOST_DRAWN = 60  # classes with a line of their own in the plot
_LISTED = 15  # worst and best classes where there are more
_FEW_CLASSES = 10  # below, an interval over classes rests on hardly anything
_SAME = 1e-9  # shares closer than this are equal but for rounding


@dataclass
class Drawn:
    """A plot of the page, by its number there."""

    index: int
    title: str
    hint: str
    height: int
    wide: bool = False


@dataclass
class LevelView:
    """Contents of the page for one label level.

    Attributes:
        shares: the embeddings that were measured there.
        differences: measure -> the embedding and its difference from the first.
        classes: the classes of each embedding by its first measure; None where they are not known.
    """

    level: str
    shares: list[Shares]
    differences: dict[str, list[tuple[Shares, DifferenceRecord]]]
    retrieval: list[str]
    clustering: list[str]
    verification: list[str]
    classes: ClassShares | None
    figures: list[Drawn] = field(default_factory=list)

    @property
    def several(self) -> bool:
        return len(self.shares) > 1

    @property
    def leads(self) -> Sequence[str]:
        """The measures shown big."""
        every = self.retrieval or [*self.clustering, *self.verification]
        return [name for name in every if name in ("recall@1", "map@r", "nmi", "roc-auc")] or every[:2]

    @property
    def class_count(self) -> int | None:
        return self.shares[0].count("classes")

    @property
    def unit(self) -> str:
        """Noun for what an item has at the level: "class", "tag" of several, or "group" that pairs connect."""
        return self.shares[0].unit

    @property
    def others(self) -> str:
        """Words for what the wider interval is for."""
        return self.shares[0].sampled["classes"]

    @property
    def few(self) -> bool:
        """True if an interval over classes rests on hardly anything."""
        return bool(self.leads) and (self.class_count or _FEW_CLASSES) < _FEW_CLASSES

    @property
    def answers(self) -> list[str]:
        """Sentences on other forms of embeddings."""
        rows = {name: [row for _, row in pairs] for name, pairs in self.differences.items()}
        return answers([shares.result for shares in self.shares], rows, self.level)

    @property
    def headlines(self) -> list[str]:
        """The sentences that answer first: on other forms, else by the first of the leading measures.

        Of three embeddings or more the best comes before them. Of several those of another leading measure follow that
        is clear where the first is not.
        """
        if self.answers or not self.leads:
            return self.answers
        first = self.leads[0]
        if self.several:
            return [*_best(self, first), *_compared(self, first), *_better_otherwise(self, first)]
        return _sentences(self, first)

    @property
    def sentences(self) -> list[str]:
        """Sentences on other forms of embeddings or the best of them, on leading measures against chance, and on one
        against another.
        """
        best = self.answers or [sentence for name in self.leads[:1] for sentence in _best(self, name)]
        against_chance = [sentence for name in self.leads for sentence in _sentences(self, name)]
        compared = [sentence for name in self.leads for sentence in _compared(self, name)]
        return best + against_chance + compared

    @property
    def extremes(self) -> ClassShares | None:
        """The classes, where they are too many to be drawn one by one."""
        return self.classes if self.classes is not None and self.classes.count > _MOST_DRAWN else None

    @property
    def folds(self) -> list[str]:
        """The measures that were measured in folds."""
        return together(list(shares.folds) for shares in self.shares)

    def in_folds(self, name: str) -> list[Shares]:
        """The embeddings whose measure was measured in folds."""
        return [shares for shares in self.shares if name in shares.folds]

    def best(self, name: str) -> str | None:
        """The largest share, see `best_text`."""
        return best_text(percent(shares.value(name)) for shares in self.shares)

    def bars(self, name: str, *, named: bool) -> list[tuple[str, float]]:
        """The bars of a measure: of each embedding, and of chance."""
        known = {shares.label: value for shares in self.shares if (value := shares.value(name)) is not None}
        bars = [(label if named else "measured", min(max(value, 0.0), 1.0)) for label, value in known.items()]
        chance = self.shares[0].chance(name)
        return bars + ([] if chance is None else [("chance", chance)])


def level_views(record: ComparisonRecord) -> tuple[list[LevelView], list[PlotFigure]]:
    """Contents of the page for each label level, and all plots."""
    labels, figures = _labels(record.results), list[PlotFigure]()
    levels = together(list(result.evaluation) for result in record.results)
    return [_level(level, record, labels, figures) for level in levels], figures


def write_evaluation_report(record: ComparisonRecord, path: Path) -> None:
    """Write the page of evaluated embeddings; a part that the record lacks is left out."""
    results = record.results
    labels = _labels(results)
    labelled = list(zip(labels, results, strict=True))
    levels, figures = level_views(record)
    measured = {measure_key(name) for result in results for values in result.evaluation.values() for name in values}
    context = {
        "record": record,
        "labels": labels,
        "warnings": [(label, text) for label, result in labelled for text in result.warnings],
        "protocols": [_measured(result) for result in results],
        "key": [(label, *key(e)) for e, label in enumerate(labels)],
        "levels": levels,
        "stored": [
            (level, line)
            for level, differences in record.differences.items()
            for line in answers(results, differences, level)
        ],
        "rejection": [(label, rejection) for label, result in labelled if (rejection := result.rejection)],
        "glossary": [(measure.name, measure.meaning) for key, measure in EVALUATION.items() if key in measured],
        "named": named,
        "between": between,
        "by_chance": by_chance,
        "points": points,
        "listed": _LISTED,
    }
    plots = {"figures": figures, "styles": [style(e) for e in range(len(results))]}
    write_page("evaluation.html", path, context, plots, script="figures.js")


def answers(
    records: Sequence[EvaluationRecord], differences: Mapping[str, Sequence[DifferenceRecord]], level: str
) -> list[str]:
    """Sentences of a level on the fewest bytes that are enough, and on the post-processing that finds more."""
    lines = size_line(stored_sizes(records, differences, level)), postprocessing_line(records, differences, level)
    return [line for line in lines if line]


def _labels(results: Sequence[EvaluationRecord]) -> list[str]:
    """The names of the embeddings, told apart where two files have one name."""
    names = [result.embeddings or "unnamed embedding" for result in results]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:position].count(name) + 1})"
        for position, name in enumerate(names)
    ]


def _measured(result: EvaluationRecord) -> str:
    """The protocol, and when it was measured."""
    if not result.created:
        return protocol_sentences(result)
    version = f" with Trivet {result.trivet}" if result.trivet else ""
    took = f" in {duration(result.seconds)}" if result.seconds is not None else ""
    return f"{protocol_sentences(result)} Measured {moment(result.created)}{version}{took}."


def protocol_sentences(result: EvaluationRecord) -> str:
    """The protocol in words: queries, gallery, and exclusions."""
    protocol, items = result.protocol, result.items
    queries, gallery = protocol.queries, protocol.gallery
    distance = result.distance or "an unknown"
    sentences = [f"{_many(result.dimension, 'dimension')}, compared by {distance} distance."]
    if protocol.kind == "self-retrieval":
        sentences = [f"{_many(items, 'item')} of {sentences[0]}"]
        subject = "Each item" if queries == items else f"Each of {number(queries)} random items"
        sentences.append(f"{subject} is a query against the {f'{number(gallery - 1)} ' if gallery else ''}others.")
    elif protocol.kind == "both-ways":
        sentences = [f"{_many(items, 'item')} of {sentences[0]}"]
        sentences.append("Each item of a side is a query against those of the other side.")
    elif protocol.kind == "query-gallery":
        sentences.append(f"{_many(queries, 'query')} against a gallery of {_many(gallery, 'item')}.")
        if both := protocol.queries_in_gallery:
            sentences.append(f"{_many(both, 'query')} {_are(both)} in the gallery too; none retrieves itself.")
        if alike := protocol.ids_alike:
            sentences.append(
                f"The ids of {_many(alike, 'query')} occur in the gallery, it seems of other items; if they are of the "
                "same ones, give --same-items."
            )
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


def _level(level: str, record: ComparisonRecord, labels: Sequence[str], figures: list[PlotFigure]) -> LevelView:
    """Contents of the page for a level; its plots are added to `figures`."""
    several = [
        Shares(result, level, e, labels[e]) for e, result in enumerate(record.results) if level in result.evaluation
    ]
    retrieval = together(shares.retrieval for shares in several)
    clustering = [name for name in CLUSTERING if any(name in shares.values for shares in several)]
    verification = together([name for name in shares.values if measure_key(name) in VERIFICATION] for shares in several)
    # The others may leave 0 to 1 in a class.
    single = retrieval or [name for name in verification if name == "roc-auc"]
    classes = _classes(level, record, several, single[:1] if "recall@1" not in retrieval else ["recall@1"])
    differences = _differences(level, record, several)
    view = LevelView(level, several, differences, retrieval, clustering, verification, classes)

    def draw(title: str, hint: str, height: int, figure: PlotFigure | None, *, wide: bool = False) -> None:
        if figure is not None:
            view.figures.append(Drawn(len(figures), title, hint, height, wide))
            figures.append(figure)

    listed = {
        title: [name for name in names if any(shares.value(name) is not None for shares in several)]
        for title, names in (("Retrieval", retrieval), ("Clustering and verification", [*clustering, *verification]))
    }
    heights = {title: rows_height(len(names), len(several)) for title, names in listed.items()}
    band = "Bands: 95 % intervals, for other classes where there are any. Dashed: chance."
    draw("Recall at K", band, max(330, heights["Retrieval"]), recall_curve(several, retrieval))
    ends = "Thick bar: 95 % interval for other items of these classes; thin line: for other classes"
    for title, names in listed.items():
        draw(title, f"{ends}; upright dots: chance.", heights[title], dots(several, names))
    if classes is not None:
        title = f"{named(classes.measure)} of each {several[0].unit}"
        if classes.count <= _MOST_DRAWN:
            hint = "The worst first. Dashed: chance over all queries."
            height = 90 + max(20, 9 * len(several)) * classes.count
            draw(title, hint, height, class_dots(classes), wide=classes.count > _LISTED)
        else:
            draw(title, f"Number of {noun(2, several[0].unit)} by value.", 330, class_histogram(classes))
    if differences:
        height = rows_height(len(differences), len(next(iter(differences.values()))))
        less = f"Each embedding minus {labels[0]}, on the same queries; right of 0 it is better."
        draw("Differences", f"{less} {ends}.", height, forest(differences, labels[0]), wide=True)
    return view


def _sentences(view: LevelView, name: str) -> list[str]:
    """Sentences that compare each embedding with chance."""
    sentences = []
    for shares in view.shares:
        share, chance, widest = shares.value(name), shares.chance(name), shares.widest(name)
        if share is None or chance is None:
            continue
        of = f" of {shares.label}" if view.several else ""
        sentence = []
        if name == "recall@1":
            with_whom = f"With {shares.label} the" if of else "The"
            of_level = f"has {'the same' if view.unit == 'class' else 'matching'} {view.level} for"
            what = "of the other side belongs to" if view.unit == "group" else of_level
            sentence.append(
                f"{with_whom} nearest item {what} {percent(share)}\u00a0% of the queries, "
                f"against {percent(chance)}\u00a0% by chance."
            )
        if widest is None:
            if percent(share) == percent(chance):
                sentence.append(f"{_start(name)}{of} is no better than chance.")
        else:
            over, (low, high) = widest
            ends = f"the 95\u00a0% interval for {shares.sampled[over]}, {between((low, high))}"
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
    level: str, record: ComparisonRecord, several: Sequence[Shares]
) -> dict[str, list[tuple[Shares, DifferenceRecord]]]:
    """Measure -> the embedding and its difference to the first."""
    others = [shares for shares in several if shares.number]
    return {
        name: [(of, row) for of, row in zip(others, rows, strict=False) if row.of == of.result.embeddings]
        for name, rows in record.differences.get(level, {}).items()
    }


def _best(view: LevelView, name: str) -> list[str]:
    """A sentence on the best of three embeddings or more."""
    outcomes = {of.label: ("open", "better", "worse")[_clear_sign(row)] for of, row in view.differences.get(name, [])}
    return best_line(name, {shares.label: shares.value(name) for shares in view.shares}, outcomes) if outcomes else []


def _compared(view: LevelView, name: str) -> list[str]:
    """Sentences on which embedding is better, and whether the paired interval excludes 0."""
    rows = view.differences.get(name, [])
    return [line for of, row in rows if (line := _better(view, name, of, row)) is not None]


def _better_otherwise(view: LevelView, name: str) -> list[str]:
    """Sentences of other leading measures that clearly say what this one does not, the first for each embedding."""
    lines: list[str] = []
    for of, row in view.differences.get(name, []):
        for other in view.leads:
            rows = [each for shares, each in view.differences.get(other, []) if shares is of]
            if rows and (clear := _clear_sign(rows[0])) and clear != _clear_sign(row):
                lines += filter(None, [_better(view, other, of, rows[0])])
                break
    return lines


def _clear_sign(row: DifferenceRecord) -> int:
    """1 or -1 where the widest interval of a difference lies on that side of 0; else 0."""
    ends = next((known for over in reversed(OVERS) if (known := interval(row.over(over))) is not None), (0.0, 0.0))
    return 1 if min(ends) > _SAME else -1 if max(ends) < -_SAME else 0


def _better(view: LevelView, name: str, of: Shares, row: DifferenceRecord) -> str | None:
    """A sentence on whether an embedding is better than the first; None without a difference."""
    difference, first = finite(row.difference), view.shares[0].label
    if difference is None:
        return None
    if abs(difference) <= _SAME:
        return f"{of.label} and {first} are equal in {named(name)}."
    better, worse, sign = (of.label, first, 1) if difference > 0 else (first, of.label, -1)
    more = f"{100 * abs(difference):.1f} points"
    ends = {
        over: sorted(sign * end for end in known)
        for over in reversed(OVERS)
        if (known := interval(row.over(over))) is not None
    }
    if not ends:
        return f"{better} has {more} more {named(name)} than {worse}; the record has no interval for this difference."
    over, paired = next(iter(ends.items()))
    in_brackets = f"(paired 95\u00a0% interval for {of.sampled[over]}: {between(paired, points)})"
    sentence = f"{better} is {more} better in {named(name)} than {worse} {in_brackets}"
    if paired[0] > _SAME:
        return f"{sentence}. The interval excludes 0: the result would very likely hold on {of.sampled[over]}."
    if over == "classes" and "queries" in ends and ends["queries"][0] > _SAME:
        return (
            f"{sentence}. That interval includes 0, but the one for other items "
            f"({between(ends['queries'], points)}) does not: better on these classes, perhaps not on others."
        )
    return (
        f"It is not clear in {named(name)} which of {of.label} and {first} is better: {better} has {more} more "
        f"{in_brackets}, and the interval includes 0."
    )


def _rounded(count: object) -> int | None:
    return round(count) if is_number(count) else None


def _classes(
    level: str, record: ComparisonRecord, several: Sequence[Shares], measures: Sequence[str]
) -> ClassShares | None:
    """The classes of each embedding with a value, the worst first."""
    rows = []
    for shares in several if measures else ():
        rows_of = record.per_class[shares.number].get(level, []) if shares.number < len(record.per_class) else []
        values = [
            (str(row.get("class", "")), number(_rounded(row.get("queries"))), share)
            for row in rows_of
            if is_number(share := row.get(measures[0]))
        ]
        if values:
            rows.append((shares, sorted(values, key=lambda row: (row[2], row[0]))))
    return ClassShares(measures[0], rows, several[0].chance(measures[0])) if rows else None
