"""The result of `trivet evaluate` for embeddings in files or arrays: one, or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.commands.evaluate.page import level_views, protocol_sentences, write_evaluation_report
from trivet.commands.evaluate.record import ComparisonRecord, DifferenceRecord, EvaluationRecord, Shares
from trivet.commands.evaluate.run import Evaluation, class_rows, compare
from trivet.commands.printing import per_cent
from trivet.reports.measures import OVERS, finite
from trivet.reports.result import Contents, Paragraph, Result, TextTable
from trivet.runtime.text import counted, noun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED_FIRST = ("recall@1", "map@r", "nmi", "roc-auc")  # the rows that lead


class EvaluationResult(Result):
    """Retrieval, clustering and verification of one embedding, or of several with their differences from the first.

    Attributes:
        evaluations: with the measures of each query and class.
        record: an `EvaluationRecord`, or of several a `ComparisonRecord`.
    """

    kind = "evaluation"

    def __init__(self, evaluations: Sequence[Evaluation], *, command: str = "") -> None:
        self.evaluations, self.command = evaluations, command
        self._compared = ComparisonRecord(
            results=[evaluated.record for evaluated in evaluations], differences=compare(evaluations)
        )

    @property
    def record(self) -> EvaluationRecord | ComparisonRecord:
        """The record that `--json` prints."""
        return self._compared if len(self.evaluations) > 1 else self.evaluations[0].record

    def contents(self) -> Contents:
        """The answer for each label level, its tables, and notes without which they cannot be understood."""
        records, differences = self._compared.results, self._compared.differences
        for record in records:
            for warning in record.warnings:
                yield Paragraph(f"Warning: {record.embeddings}: {warning}", bold=True)
        for view in level_views(self._compared)[0]:
            for line in view.headlines:
                yield Paragraph(f"{view.level}: {line}".replace("\u00a0", " "), bold=True)
        for level in dict.fromkeys(level for record in records for level in record.evaluation):
            if level in differences:
                yield _differences(level, differences[level], of_pairs=records[0].units.get(level) == "group")
            for record in records:
                if level in record.evaluation:
                    yield _measures(record, level)
        for record in records:
            for line in _notes(record):
                yield Paragraph(f"{record.embeddings}: {line}")

    def rows(self) -> list[dict[str, Any]]:
        """A row for each measure of each embedding at each level, shares from 0 to 1; with the differences of others
        from the first."""
        rows = []
        for record in self._compared.results:
            for level, values in record.evaluation.items():
                shares = Shares(record, level)
                for name in _named_measures(values):
                    row: dict[str, Any] = {"embeddings": record.embeddings, "level": level, "measure": name}
                    row |= {"value": shares.value(name)} | _ends({over: shares.interval(name, over) for over in OVERS})
                    row |= {"mean_of_classes": shares.macro(name), "chance": shares.chance(name)}
                    for less in self._compared.differences.get(level, {}).get(name, []):
                        if less.of == record.embeddings:
                            ends = _ends({over: less.over(over) for over in OVERS})
                            row |= {"difference": less.difference}
                            row |= {f"difference_{end}": value for end, value in ends.items()}
                    rows.append(row)
        return rows

    def figure(self) -> Figure:
        """Measures with their intervals and chance, or of several embeddings the differences, at each level."""
        from trivet.commands.evaluate.drawing import draw_figures  # here: it loads matplotlib

        views, figures = level_views(self._compared)
        titles = ("Differences",) if any(view.differences for view in views) else ("Retrieval", "Clustering and verif")
        chosen = [
            (f"{view.level}: {drawn.title}", figures[drawn.index])
            for view in views
            for drawn in view.figures
            if drawn.title.startswith(titles)
        ]
        return draw_figures(chosen)

    def write_page(self, path: Path) -> None:
        """Write the page, with the classes one by one."""
        classes = [{level: class_rows(each, level) for level in each.levels} for each in self.evaluations]
        record = self._compared.model_copy(update={"per_class": classes})
        write_evaluation_report(record.stamped(self.command), path)


def _measures(record: EvaluationRecord, level: str) -> TextTable:
    shares = Shares(record, level)
    names = _named_measures(shares.values)
    return TextTable(
        f"{record.embeddings}, {level}: {counted(int(shares.values['classes'] or 0), shares.unit)}, "
        f"{counted(int(shares.values['items'] or 0), 'item')}; per cent",
        ("measure",),
        (
            "value",
            "95 %, other items",
            f"95 %, {shares.sampled['classes']}",
            f"mean of {noun(2, shares.unit)}",
            "chance",
        ),
        [
            (
                name,
                per_cent(shares.value(name)),
                per_cent(shares.interval(name, "queries")),
                per_cent(shares.interval(name, "classes")),
                per_cent(shares.macro(name)),
                per_cent(shares.chance(name)),
            )
            for name in names
        ],
        leads=[names.index(name) for name in MEASURED_FIRST if name in names],
    )


def _differences(level: str, differences: Mapping[str, list[DifferenceRecord]], *, of_pairs: bool) -> TextTable:
    first = next(iter(differences.values()))
    rows = [(name, row) for name, rows in differences.items() for row in rows]
    return TextTable(
        f"{level}: difference from {first[0].less}; points, paired",
        ("measure", "embeddings"),
        ("difference", "95 %, other items", f"95 %, other {'groups' if of_pairs else 'classes'}"),
        [(name, row.of, *map(per_cent, (row.difference, row.queries, row.classes))) for name, row in rows],
        leads=[number for number, (name, _) in enumerate(rows) if name in MEASURED_FIRST],
    )


def _ends(intervals: Mapping[str, Sequence[float] | None]) -> dict[str, float | None]:
    """The ends of intervals over queries and over classes, each in a column."""
    return {
        f"{end}_{over}": None if interval is None else finite(interval[position])
        for over, interval in intervals.items()
        for position, end in enumerate(("low", "high"))
    }


def _named_measures(values: Mapping[str, Any]) -> list[str]:
    counts = ("items", "classes", "without_positive", "clusters")
    return [
        name
        for name in values
        if name not in counts
        and not name.startswith(("chance_", "nmi+_", "verification_", "verification-threshold"))
        and not name.endswith("_missing")
    ]


def _notes(record: EvaluationRecord) -> list[str]:
    """Notes without which the tables cannot be understood."""
    notes = [protocol_sentences(record).replace("\u00a0", " ")]
    for level, values in record.evaluation.items():
        missing: dict[str, list[str]] = {}
        for key, reason in values.items():
            if key.endswith("_missing"):
                missing.setdefault(str(reason), []).append(key[:-8])
        notes += [f"{level}: no {', '.join(names)}: {reason}" for reason, names in missing.items()]
    for level, measures in record.folds.items():
        for name, fold in measures.items():
            mean, interval = per_cent(fold.mean), per_cent(fold.interval)
            notes.append(f"{level}, {name} over {len(fold.values)} folds: {mean} ({interval})")
    notes += [f"{level}: no folds: {reason}" for level, reason in record.folds_missing.items()]
    if rejection := record.rejection:
        macro = rejection.macro.get("auroc")
        both = {
            name: "".join(
                f" (95 % over {over} {per_cent(interval)})"
                for over, interval in rejection.intervals.get(name, {}).items()
                if interval
            )
            for name in ("auroc", "fpr_at_95_tpr")
        }
        notes.append(
            f"rejection of {counted(rejection.out_of_scope or 0, 'query')} out of scope: AUROC "
            f"{per_cent(rejection.auroc)} %{both['auroc']}"
            f"{'' if macro is None else f', mean of classes {per_cent(macro)} %'}, "
            f"{per_cent(rejection.fpr_at_95_tpr)} %{both['fpr_at_95_tpr']} accepted at the threshold that accepts "
            f"95 % of the {rejection.in_scope} in scope"
        )
    return notes
