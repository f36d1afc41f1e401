"""The page of `trivet compare`: which run is better, then in what the runs differ and what they did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from trivet.commands.compare.record import (
    ComparedRun,
    CompareRecord,
    Finding,
    LevelTable,
    PairDifference,
    SharedGallery,
    SideDifference,
)
from trivet.commands.diagnose.page import verdict
from trivet.reports.diagnosis_record import VerdictRecord
from trivet.reports.items import gallery, is_number, thin, unseen_first
from trivet.reports.measures import NAMES
from trivet.reports.page import MISSING, Pictures, duration, number, percent, points, write_page
from trivet.reports.shared_records import QueryRecord

JUDGED = "recall@1"
_MOST_STEPS = 500  # of a curve: there is one for each run
_MOST_VALUES = 4  # of a setting on one side
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442")
_DASHES = {"solid": "none", "dash": "8 4", "dot": "2 3", "dashdot": "8 3 2 3"}
_INSIDE: dict[Literal["relative_spread", "effective_rank", "class_spread"], str] = {
    "relative_spread": "spread",
    "effective_rank": "rank",
    "class_spread": "class spread",
}
_TONES = {"better": "good", "worse": "bad", "open": "warn"}
_CURVES = {
    "loss": ("Loss", None),
    "active": ("Active (share of the mined with a loss)", [0, 1]),
    "hard": ("Hard (share of the mined with the negative nearer)", [0, 1]),
    "d_ap": ("Mean distance to the mined positive", None),
    "d_an": ("Mean distance to the mined negative", None),
    "dropped": ("Dropped anchors", None),
}


def write_compare_report(record: CompareRecord, path: Path) -> None:
    """Write the page of compared runs; a part that the record lacks is left out.

    Raises:
        OSError: if the file cannot be written.
    """
    pictures = Pictures()
    marks = _marks(record)
    curves = _curves(record, marks)
    gallery_content = _gallery(record.gallery, pictures)
    diagnosed = unseen_first(dict.fromkeys(split for run in record.runs for split in run.diagnosis))
    context = {
        "record": record,
        "said": compare_lines(record),
        "how": how_compared(record),
        "tables": [_table(record, table, marks) for table in record.tables],
        "several": any(len(side.runs) > 1 for side in record.sides),
        "marks": list(marks.values()),
        "curves": curves,
        "unlike_losses": any(row.name == "loss.name" for row in record.settings),
        "settings": [(row.name, [_values(column) for column in row.values]) for row in record.settings],
        "runs": [_run(run, diagnosed) for run in record.runs],
        "diagnosed": diagnosed,
        "gallery": gallery_content,
    }
    write_page("compare.html", path, context, {"lines": curves}, script=("dots.js", "plots.js", "compare.js"),
               pictures=pictures)  # fmt: skip


def compare_lines(record: CompareRecord) -> list[tuple[str, str]]:
    """Sentences on which side is better, with their tone ("good", "bad", "warn"): one for each measure and outcome."""
    changes: dict[tuple[str, str, str], list[str]] = {}
    less = record.sides[0].name if record.sides else ""
    measures = judged_measures(record)
    for side in record.sides:
        for measure in measures:
            for table in record.tables:
                for change in table.differences:
                    if change.measure == measure and change.of == side.name:
                        changes.setdefault((change.of, measure, change.outcome), []).append(_where(change, table))
    lines = []
    for (side_name, measure, outcome), texts in changes.items():
        words = f"{side_name} is {outcome} than {less}"
        if outcome == "open":
            words = f"No clear difference between {side_name} and {less}"
        if len(measures) > 1:
            words += f" by {NAMES.get(measure, measure)}"
        lines.append((_TONES[outcome], f"{words}: {'; '.join(texts)}."))
    return lines


def judged_measures(record: CompareRecord) -> list[str]:
    """The measures by which sides are judged: first those that a step was chosen by, and recall@1 in any case."""
    chosen = dict.fromkeys(name for run in record.runs if (name := run.chosen_by) and name != JUDGED)
    return [*chosen, JUDGED]


def how_compared(record: CompareRecord) -> str:
    """The meaning of the intervals, in a few sentences."""
    count, confidence = record.comparisons, record.confidence
    text = "Differences are those of the same queries (paired)."
    if count and confidence is not None:
        by = " and ".join(NAMES.get(name, name) for name in judged_measures(record))
        together = f", so that all {count} comparisons by {by} hold together with 95\u00a0%" if count > 1 else ""
        text += (
            f" Their intervals have a confidence of {100 * confidence:.4g}\u00a0% each{together}. They say what other "
            "queries and, with five classes or more, other classes would change, not what another seed would. They are "
            "the wider of two by Student's t; trivet evaluate draws by bootstrap, so its intervals differ somewhat."
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
    pairs = [pair.difference or 0.0 for pair in change.pairs]
    if len(pairs) > 1:
        sign = 1 if (change.difference or 0.0) >= 0 else -1
        agree = sum(sign * difference > 0 for difference in pairs)
        text += f"; {'higher' if sign > 0 else 'lower'} in {agree} of {len(pairs)} pairs"
    return f"{text})"


def _marks(record: CompareRecord) -> dict[str, dict[str, Any]]:
    """Run -> its line in the plots: a colour for each side, a dash for each of its runs."""
    alone = all(len(side.runs) == 1 for side in record.sides)
    marks = {}
    for column, side in enumerate(record.sides):
        for at, run in enumerate(side.runs):
            dash = list(_DASHES)[(column // len(_COLOURS) if alone else at) % len(_DASHES)]
            marks[run] = {
                "run": run,
                "colour": _COLOURS[column % len(_COLOURS)],
                "dash": dash,
                "strokes": _DASHES[dash],
            }
    return marks


def _table(record: CompareRecord, table: LevelTable, marks: Mapping[str, Any]) -> dict[str, Any]:
    """Runs of a split and level: the main measure with what it is compared with, then all measures."""
    judged = table.differences_of(JUDGED)
    less = {pair.of: pair for change in judged.values() for pair in change.pairs}
    rows = {row.run: row for row in table.rows}
    names = list(dict.fromkeys(name for row in table.rows for name in row.references))
    reference_texts = {name: [percent(row.references.get(name)) for row in table.rows] for name in names}
    shared = {name: texts[0] for name, texts in reference_texts.items() if len({*texts}) == 1}
    references = [name for name in names if name not in shared]
    measures = _measured(table)
    best = _best([row.measures.get(JUDGED) for row in table.rows])
    means = {(mean.side, mean.measure): mean for mean in table.means}
    main_rows: list[dict[str, Any]] = []
    all_rows: list[tuple[str, bool, list[tuple[str, bool]]]] = []
    columns = {name: _best([row.measures.get(name) for row in table.rows]) for name in measures}
    for side in record.sides:
        side_rows = [rows[run] for run in side.runs if run in rows]
        change = judged.get(side.name)
        several = len(side_rows) > 1
        if several:
            mean = means.get((side.name, JUDGED))
            main_rows.append(
                {
                    "name": side.name,
                    "kind": f"mean ± sd of {len(side_rows)}",
                    "of": "side",
                    "share": "" if mean is None else _spread(mean.mean, mean.deviation),
                    "ends": "",
                    "best": False,
                    "difference": _difference(change),
                    "references": [""] * len(references),
                }
            )
            spreads = [means.get((side.name, name)) for name in measures]
            all_rows.append(
                (side.name, True, [(_spread(m.mean, m.deviation) if m else MISSING, False) for m in spreads])
            )
        for row in side_rows:
            share = row.measures.get(JUDGED)
            pair = less.get(row.run)
            main_rows.append(
                {
                    "name": row.run,
                    "kind": "",
                    "of": "member" if several else "run",
                    "share": percent(share if is_number(share) else None),
                    "ends": _ends(row.intervals.get(JUDGED)),
                    "best": percent(share if is_number(share) else None) == best,
                    "difference": _difference(None if several else change, pair if several else None),
                    "references": [percent(row.references.get(name)) for name in references],
                }
            )
            texts = [percent(v if is_number(v := row.measures.get(name)) else None) for name in measures]
            all_rows.append(
                (row.run, False, [(text, text == columns[name]) for text, name in zip(texts, measures, strict=True)])
            )
    return {
        "split": table.split,
        "level": table.level,
        "queries": table.queries,
        "classes": table.classes,
        "less": record.sides[0].name if record.sides else "",
        "over": "classes" if (table.classes or 0) >= 5 else "queries",
        "references": references,
        "shared": [*shared.items(), *([("chance", percent(table.chance))] if table.chance is not None else [])],
        "rows": main_rows,
        "columns": [NAMES.get(name, name.replace("recall@", "R@")) for name in measures],
        "measures": all_rows,
        "differences": _differences(table, measures),
    }


def _measured(table: LevelTable) -> list[str]:
    """Recalls, then the measures of `NAMES`, that any run has."""
    known = {name for row in table.rows for name, value in row.measures.items() if is_number(value)}
    recalls = sorted((name for name in known if re.fullmatch(r"recall@\d+", name)), key=lambda name: int(name[7:]))
    return [*recalls, *(name for name in NAMES if name in known)]


def _differences(table: LevelTable, measures: Sequence[str]) -> dict[str, Any] | None:
    """Paired differences by measure, for each side but the first."""
    changes = {(change.of, change.measure): change for change in table.differences}
    names = [name for name in measures if any(measure == name for _, measure in changes)]
    sides = list(dict.fromkeys(side for side, _ in changes))
    if len(names) < 2:
        return None
    return {
        "columns": [NAMES.get(name, name.replace("recall@", "R@")) for name in names],
        "rows": [(side, [_difference(changes.get((side, name))) for name in names]) for side in sides],
    }


def _difference(change: SideDifference | None, pair: PairDifference | None = None) -> dict[str, str]:
    if change is not None:
        low, high = change.interval or (None, None)
        words = {"better": "better", "worse": "worse", "open": "no clear difference"}[change.outcome]
        return {
            "text": points(change.difference),
            "ends": f"{points(low)} to {points(high)}",
            "words": words,
            "tone": _TONES[change.outcome],
        }
    if pair is not None:
        return {"text": points(pair.difference), "ends": f"from {pair.less}", "words": "", "tone": "calm"}
    return {"text": "", "ends": "", "words": "", "tone": "calm"}


def _best(values: Sequence[Any]) -> str | None:
    """The largest as shown; None where all are equal, or there is one."""
    texts = [percent(value) for value in values if is_number(value)]
    return max(texts, key=float) if len(set(texts)) > 1 else None


def _spread(mean: float | None, deviation: float | None) -> str:
    return f"{percent(mean)} ± {percent(deviation)}"


def _ends(ends: Sequence[float] | None) -> str:
    return f"{percent(ends[0])} to {percent(ends[1])}" if ends else MISSING


def _values(values: Sequence[str]) -> str:
    """The values of a setting on one side."""
    texts = [text or "not set" for text in values]
    return ", ".join(texts[:_MOST_VALUES]) + (f" and {len(texts) - _MOST_VALUES} more" if texts[_MOST_VALUES:] else "")


def _run(run: ComparedRun, splits: Sequence[str]) -> dict[str, Any]:
    return {
        "name": run.name,
        "status": run.status or MISSING,
        "seed": MISSING if run.seed is None else str(run.seed),
        "fold": run.fold,
        "step": number(run.step),
        "seconds": [(what, duration(length)) for what, length in run.seconds.items()],
        "parameters": number(run.parameters),
        "helped": [re.sub(r" \([^()]*\)", "", line) for line in run.helped],  # the tables have the numbers
        "events": [_finding(event) for event in run.events],
        "inside": [_inside(run, split) for split in splits],
    }


def _inside(run: ComparedRun, split: str) -> dict[str, Any]:
    """The verdicts on a split, and what they rest on."""
    diagnosis = run.diagnosis.get(split)
    if diagnosis is None:
        return {"split": split, "verdicts": [], "facts": ""}
    numbers = {name: getattr(diagnosis, key) for key, name in _INSIDE.items()}
    facts = [f"{name} {value:.3g}" for name, value in numbers.items() if value is not None]
    return {
        "split": split,
        "verdicts": [_finding(finding) for finding in diagnosis.verdicts],
        "facts": ", ".join(facts),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return verdict(VerdictRecord(**dict(finding)))


def _curves(record: CompareRecord, marks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Plots with a line for each run that has the series."""
    known = [(run.name, run.training) for run in record.runs if run.training is not None]
    wanted: list[tuple[str, list[int] | None, list[tuple[str, list[int], list[float | None]]]]] = []
    levels = list(dict.fromkeys(level for _, training in known for level in training.recall))
    title, limits = _CURVES["loss"]
    wanted.append((title, limits, [(run, training.step, training.series.get("loss", [])) for run, training in known]))
    for level in levels:
        lines = [(run, training.validation_step, training.recall.get(level, [])) for run, training in known]
        wanted.append((f"Recall@1 during training, by {level}", [0, 1], lines))
    for name, (title, limits) in list(_CURVES.items())[1:]:
        wanted.append((title, limits, [(run, training.step, training.series.get(name, [])) for run, training in known]))
    curves = []
    for title, limits, lines in wanted:
        drawn = [_line(marks[run], step, values) for run, step, values in lines if any(map(is_number, values))]
        if drawn and not (title == _CURVES["dropped"][0] and not any(any(line["y"]) for line in drawn)):
            curves.append({"title": title, "limits": limits, "lines": drawn})
    return curves


def _line(mark: Mapping[str, Any], step: Sequence[int], values: Sequence[float | None]) -> dict[str, Any]:
    indices = thin(min(len(step), len(values)), _MOST_STEPS)
    return {
        "name": mark["run"],
        "colour": mark["colour"],
        "dash": mark["dash"],
        "x": [step[i] for i in indices],
        "y": [values[i] for i in indices],
    }


def _gallery(shared: SharedGallery | None, pictures: Pictures) -> dict[str, Any] | None:
    """The queries, each with what every run finds, judged at the level."""
    if shared is None or not shared.queries:
        return None
    level, queries = shared.level, []
    for query in shared.queries:
        item = {name: value for name, value in query if name != "runs"}
        (drawn,) = gallery(level, [QueryRecord(**item)], pictures)
        per_run = []
        for run_neighbours in query.runs:
            (judged,) = gallery(level, [QueryRecord(**item, neighbours=run_neighbours.neighbours)], pictures)
            per_run.append((run_neighbours.run, judged.neighbours))
        queries.append(dict(drawn) | {"runs": per_run})
    pictured = any(query["picture"] is not None for query in queries)
    return {"split": shared.split, "level": level, "queries": queries, "pictures": pictured}
