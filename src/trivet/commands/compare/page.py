"""The page of `trivet compare`: which run is better, then in what the runs differ and what they did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trivet.collapse.significance import OF_CLASSES
from trivet.commands.compare.record import (
    CompareRecord,
    LevelTable,
    Mean,
    PairDifference,
    Row,
    RunDiagnosis,
    SharedQuery,
    SideDifference,
    SideRecord,
)
from trivet.reports.diagnosis_record import VerdictRecord
from trivet.reports.items import JudgedNeighbour, JudgedQuery, gallery, is_number, thin, unseen_first
from trivet.reports.measures import best_line, best_text, in_order, named, short_name
from trivet.reports.page import Pictures, percent, points, write_page
from trivet.reports.shared_records import QueryRecord
from trivet.reports.verdict_view import verdict
from trivet.runtime.record import Number, Record
from trivet.runtime.text import abbreviated

JUDGED = "recall@1"
_MOST_STEPS = 500  # of a curve: there is one for each run
_MOST_VALUES = 4  # of a setting on one side
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442")
_DASHES = {"solid": "none", "dash": "8 4", "dot": "2 3", "dashdot": "8 3 2 3"}
_TONES = {"better": "good", "worse": "bad", "open": "warn"}
_OUTCOMES = {"better": "better", "worse": "worse", "open": "no clear difference"}
_Series = tuple[str, list[int], list[Number | None]]  # run, steps and values
_CURVES: dict[str, tuple[str, list[Number] | None]] = {
    "loss": ("Loss", None),
    "active": ("Active (share of the mined with a loss)", [0, 1]),
    "hard": ("Hard (share of the mined with the negative nearer)", [0, 1]),
    "d_ap": ("Mean distance to the mined positive", None),
    "d_an": ("Mean distance to the mined negative", None),
    "dropped": ("Dropped anchors", None),
}


class ComparedMark(Record):
    """Line of a run in the plots: a colour for each side, a dash for each of its runs."""

    run: str
    colour: str
    dash: str
    strokes: str


class ComparedLine(Record):
    """Values of a run over its steps."""

    name: str
    colour: str
    dash: str
    x: list[int]
    y: list[Number | None]


class ComparedLines(Record):
    """A plot with a line for each run that has the series."""

    title: str
    limits: list[Number] | None
    lines: list[ComparedLine]


@dataclass(frozen=True)
class TableView:
    """A table of the page: the runs of a split and level, by their sides."""

    table: LevelTable
    sides: Sequence[SideRecord]

    @property
    def measures(self) -> list[str]:
        """Recalls, then the measures of `EVALUATION`, that any run has."""
        return in_order(name for row in self.table.rows for name, value in row.measures.items() if is_number(value))

    @property
    def paired(self) -> list[str]:
        """The measures of which there are differences; none for a single one, which the first table has."""
        known = {change.measure for change in self.table.differences}
        names = [name for name in self.measures if name in known]
        return names if len(names) > 1 else []

    @property
    def other_sides(self) -> list[str]:
        """The sides of which there are differences."""
        return list(dict.fromkeys(change.of for change in self.table.differences))

    @property
    def references(self) -> list[str]:
        """References whose recall@1 is not the same for all runs."""
        return [name for name, texts in self._reference_texts.items() if len(texts) > 1]

    @property
    def shared(self) -> list[tuple[str, str]]:
        """References that are the same for all runs, with their recall@1, and chance."""
        shared = [(name, texts[0]) for name, texts in self._reference_texts.items() if len(texts) == 1]
        return shared + ([] if self.table.chance is None else [("chance", percent(self.table.chance))])

    @property
    def _reference_texts(self) -> dict[str, list[str]]:
        names = dict.fromkeys(name for row in self.table.rows for name in row.references)
        rows = self.table.rows
        return {name: list(dict.fromkeys(percent(row.references.get(name)) for row in rows)) for name in names}

    def rows(self, side: SideRecord) -> list[Row]:
        """The runs of a side."""
        known = {row.run: row for row in self.table.rows}
        return [known[run] for run in side.runs if run in known]

    def mean(self, side: SideRecord, measure: str) -> Mean | None:
        """The mean of the runs of a side."""
        means = (mean for mean in self.table.means if (mean.side, mean.measure) == (side.name, measure))
        return next(means, None)

    def change(self, side: str, measure: str = JUDGED) -> SideDifference | None:
        """The difference of a side from the first."""
        return self.table.differences_of(measure).get(side)

    def pair(self, run: str, measure: str = JUDGED) -> PairDifference | None:
        """The difference of a run from its partner."""
        changes = self.table.differences_of(measure).values()
        return next((pair for change in changes for pair in change.pairs if pair.of == run), None)

    def best(self, measure: str) -> str | None:
        """The largest as shown; None where all are equal, or there is one."""
        return best_text(percent(row.measures.get(measure)) for row in self.table.rows)


def write_compare_report(record: CompareRecord, path: Path) -> None:
    """Write the page of compared runs; a part that the record lacks is left out."""
    pictures = Pictures()
    marks = _marks(record)
    curves = _curves(record, marks)
    displayed = record.gallery if record.gallery and record.gallery.queries else None
    queries = [] if displayed is None else [_query(displayed.level, query, pictures) for query in displayed.queries]
    context = {
        "record": record,
        "said": compare_lines(record),
        "how": how_compared(record),
        "tables": [TableView(table, record.sides) for table in record.tables],
        "marks": list(marks.values()),
        "curves": curves,
        "unlike_losses": any(row.name == "loss.name" for row in record.settings),
        "settings": [(row.name, [_values(column) for column in row.values]) for row in record.settings],
        "diagnosed": unseen_first(dict.fromkeys(split for run in record.runs for split in run.diagnosis)),
        "gallery": displayed,
        "queries": queries,
        "pictures": bool(pictures.entries),
        "judged": JUDGED,
        "tones": _TONES,
        "outcomes": _OUTCOMES,
        "named": short_name,
        "brief": lambda line: re.sub(r" \([^()]*\)", "", line),  # the tables have the numbers
        "facts": _facts,
        "verdict": lambda finding: verdict(VerdictRecord(**dict(finding))),
    }
    write_page("compare.html", path, context, {"lines": curves}, script=("dots.js", "plots.js", "compare.js"),
               pictures=pictures)  # fmt: skip


def compare_lines(record: CompareRecord) -> list[tuple[str, str]]:
    """Sentences on which side is better, with their tone ("good", "bad", "warn"): one for each measure and outcome.

    Of three sides or more one on the best comes first, by the first measure on the first split and level.
    """
    changes: dict[tuple[str, str, str], list[str]] = {}
    less = record.sides[0].name if record.sides else ""
    measures = judged_measures(record)
    for side in record.sides:
        for measure in measures:
            for table in record.tables:
                for change in table.differences:
                    if change.measure == measure and change.of == side.name:
                        changes.setdefault((change.of, measure, change.outcome), []).append(_where(change, table))
    lines = _best(record.tables[0], measures[0]) if record.tables else []
    for (side_name, measure, outcome), texts in changes.items():
        words = f"{side_name} is {outcome} than {less}"
        if outcome == "open":
            words = f"No clear difference between {side_name} and {less}"
        if len(measures) > 1:
            words += f" by {named(measure)}"
        lines.append((_TONES[outcome], f"{words}: {'; '.join(texts)}."))
    return lines


def _best(table: LevelTable, measure: str) -> list[tuple[str, str]]:
    """A sentence on the best of three sides or more, with its tone."""
    changes = table.differences_of(measure)
    outcomes = {side: change.outcome for side, change in changes.items()}
    shares = {change.less: change.reference for change in changes.values()}
    shares |= {side: change.value for side, change in changes.items()}
    tone = next((_TONES[outcome] for outcome in ("better", "open", "worse") if outcome in outcomes.values()), "warn")
    return [(tone, f"{table.split} by {table.level}: {line}") for line in best_line(measure, shares, outcomes)]


def judged_measures(record: CompareRecord) -> list[str]:
    """The measures by which sides are judged: first those that a step was chosen by, and recall@1 in any case."""
    chosen = dict.fromkeys(name for run in record.runs if (name := run.chosen_by) and name != JUDGED)
    return [*chosen, JUDGED]


def how_compared(record: CompareRecord) -> str:
    """The meaning of the intervals, in a few sentences."""
    text = "Differences are those of the same queries (paired)."
    if record.confidence is not None:
        text += (
            f" Their intervals have a confidence of {100 * record.confidence:.4g}\u00a0%. They say what other items "
            "would change and, with five classes or more that were not trained on and less than 10 points, other "
            "classes; not what another seed would. Better or worse is a point or more with an interval that excludes "
            "0, as in a diagnosis."
        )
    if any(len(side.runs) > 1 for side in record.sides):
        text += (
            " Runs that differ in the seed or the fold alone are taken together: those of one seed and fold are "
            "paired, and their differences averaged query by query. Better or worse is what is so in every pair."
        )
    return text


def _where(change: SideDifference, table: LevelTable) -> str:
    """Split, level and size of a difference."""
    ends = " to ".join(points(end) for end in change.interval or ())
    shares = f"{percent(change.value)}\u00a0%, against {percent(change.reference)}\u00a0%"
    text = f"{table.split} by {table.level} {shares} ({points(change.difference)} points, {ends}"
    text += OF_CLASSES if change.known_classes else ""
    pairs = [pair.difference or 0.0 for pair in change.pairs]
    if len(pairs) > 1:
        sign = 1 if (change.difference or 0.0) >= 0 else -1
        agree = sum(sign * difference > 0 for difference in pairs)
        text += f"; {'higher' if sign > 0 else 'lower'} in {agree} of {len(pairs)} pairs"
    return f"{text})"


def _marks(record: CompareRecord) -> dict[str, ComparedMark]:
    alone = all(len(side.runs) == 1 for side in record.sides)
    marks = {}
    for column, side in enumerate(record.sides):
        for at, run in enumerate(side.runs):
            dash = list(_DASHES)[(column // len(_COLOURS) if alone else at) % len(_DASHES)]
            colour = _COLOURS[column % len(_COLOURS)]
            marks[run] = ComparedMark(run=run, colour=colour, dash=dash, strokes=_DASHES[dash])
    return marks


def _values(values: Sequence[str]) -> str:
    """The values of a setting on one side."""
    return abbreviated([text or "not set" for text in values], _MOST_VALUES)


def _facts(diagnosis: RunDiagnosis) -> str:
    """Measures behind the verdicts."""
    numbers = {
        "spread": diagnosis.relative_spread,
        "rank": diagnosis.effective_rank,
        "class spread": diagnosis.class_spread,
    }
    return ", ".join(f"{name} {value:.3g}" for name, value in numbers.items() if value is not None)


def _curves(record: CompareRecord, marks: dict[str, ComparedMark]) -> list[ComparedLines]:
    known = [(run.name, run.training) for run in record.runs if run.training is not None]
    levels = list(dict.fromkeys(level for _, training in known for level in training.recall))
    wanted: list[tuple[str, list[Number] | None, list[_Series]]] = [
        (title, limits, [(run, training.step, training.series.get(name, [])) for run, training in known])
        for name, (title, limits) in _CURVES.items()
    ]
    wanted[1:1] = [
        (
            f"Recall@1 during training, by {level}",
            [0, 1],
            [(run, training.validation_step, training.recall.get(level, [])) for run, training in known],
        )
        for level in levels
    ]
    curves = []
    for title, limits, series in wanted:
        lines = [_line(marks[run], step, values) for run, step, values in series if any(map(is_number, values))]
        if lines and (title != _CURVES["dropped"][0] or any(any(line.y) for line in lines)):
            curves.append(ComparedLines(title=title, limits=limits, lines=lines))
    return curves


def _line(mark: ComparedMark, step: list[int], values: list[Number | None]) -> ComparedLine:
    indices = thin(min(len(step), len(values)), _MOST_STEPS)
    x, y = [step[i] for i in indices], [values[i] for i in indices]
    return ComparedLine(name=mark.run, colour=mark.colour, dash=mark.dash, x=x, y=y)


def _query(
    level: str, query: SharedQuery, pictures: Pictures
) -> tuple[JudgedQuery, list[tuple[str, list[JudgedNeighbour]]]]:
    """A query as items.html shows it, and what every run finds, judged at the level."""
    item = {name: value for name, value in query if name != "runs"}
    judged = gallery(
        level, [QueryRecord(**item, neighbours=run_neighbours.neighbours) for run_neighbours in query.runs], pictures
    )
    runs = [(each.run, matches.neighbours) for each, matches in zip(query.runs, judged, strict=True)]
    return judged[0] if judged else gallery(level, [QueryRecord(**item)], pictures)[0], runs
