"""The result of `trivet diagnose` for embeddings in files, runs or arrays: one, or several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.collapse import Verdict
from trivet.collapse.measures import Measures
from trivet.collapse.verdict_type import measure_words
from trivet.commands.diagnose.page import write_diagnosis_report
from trivet.commands.diagnose.run import Diagnosed
from trivet.reports.diagnosis_record import DiagnosesRecord, DiagnosisRecord, DiagnosisSummary
from trivet.reports.history_record import HistoryRecord
from trivet.reports.result import Contents, Paragraph, Result, TextTable
from trivet.runtime.progress import steps
from trivet.runtime.text import counted, digits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAD = ("network-collapse", "class-collapse", "worse-than-reference", "no-better-than-chance")
_SAMPLED = ("loss", "active_fraction", "hard_fraction", "dropped", "s_ap", "s_an", "choices")
_DIAGNOSED = (
    "relative_spread",
    "mean_distance",
    "effective_rank",
    "first_axis",
    "occupied",
    "class_spread",
    "modes",
    "nmi",
    "nmi_plus",
    "reference_modes",
    "mode_index",
    "reference_mode_index",
    "reference_mode_sharing",
    "retention",
    "recall",
    "chance",
    "centred_recall",
    "strangers",
    "norm",
    "reference_shrinkage",
    "reference_spread",
)
_FIRST = ("recall@1", "recall@1 by chance", "relative spread", "effective rank", "class spread")  # the rows that lead


class DiagnosisResult(Result):
    """The verdicts on one embedding, or on several: whether it is any good, whether and how it collapsed, and why.

    Attributes:
        diagnosed: each embedding with its diagnosis.
        record: a `DiagnosisSummary`, or of several a `DiagnosesRecord`.
        verdicts, measures, notes: of the first embedding, see `trivet.collapse.Diagnosis`.
    """

    kind = "diagnosis"

    def __init__(
        self,
        diagnosed: Sequence[Diagnosed],
        warnings: Sequence[str] = (),
        *,
        history: HistoryRecord | None = None,
        command: str = "",
    ) -> None:
        self.diagnosed, self.command = diagnosed, command
        self._warnings, self._history = list(warnings), history

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts, what is bad first."""
        return self.diagnosed[0].diagnosis.verdicts

    @property
    def measures(self) -> Measures:
        """All that was measured, also of each class."""
        return self.diagnosed[0].diagnosis.measures

    @property
    def notes(self) -> list[str]:
        """Sentences that a reader must know beside the verdicts."""
        return self._summaries[0].notes

    @property
    def good(self) -> bool | None:
        """True if it beats chance and is at least as good as its references, None where not asked, or open."""
        return self.diagnosed[0].diagnosis.good

    @property
    def collapsed(self) -> bool:
        """True if a verdict is a collapse of the network or of the classes."""
        return self.diagnosed[0].diagnosis.collapsed

    @property
    def record(self) -> DiagnosisSummary | DiagnosesRecord:
        """The record that `--json` prints."""
        if len(self.diagnosed) == 1:
            return self._summaries[0]
        warnings = {"warnings": self._warnings} if self._warnings else {}
        return DiagnosesRecord(results=self._summaries, **warnings)

    @property
    def _summaries(self) -> list[DiagnosisSummary]:
        return [diagnosed.summary for diagnosed in self.diagnosed]

    def contents(self) -> Contents:
        """The verdicts of each embedding with their evidence, cause and changes, then a table of measures."""
        return diagnosis_contents(self._summaries, self._warnings)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each measure, with a column for each embedding."""
        names = _names(self._summaries)
        return [
            {"measure": name, **dict(zip(names, values, strict=True))}
            for name, values in _measured(self._summaries).items()
        ]

    def figure(self) -> Figure:
        """Distances within and between classes, and the similarities of each item to its nearest of either kind."""
        from trivet.commands.diagnose.drawing import draw_sections  # here: it loads matplotlib

        return draw_sections([diagnosed.section(map_points=0) for diagnosed in self.diagnosed])

    def write_page(self, path: Path) -> None:
        """Write the page of all embeddings."""
        sections = [diagnosed.section() for diagnosed in steps(self.diagnosed, "tables and map of the page")]
        record = DiagnosisRecord(sections=sections, warnings=self._warnings, history=self._history)
        write_diagnosis_report(record.stamped(self.command), path)


def diagnosis_contents(results: Sequence[DiagnosisSummary], warnings: Sequence[str] = ()) -> Contents:
    """Paragraphs on the verdicts of one or more embeddings, each with its evidence, cause and changes, and a table of
    measures."""
    for warning in warnings:
        yield Paragraph(f"Warning: {warning}", bold=True)
    names = _names(results)
    # What is bad comes first, in the order that was given: nothing good may stand above it.
    for result, name in sorted(zip(results, names, strict=True), key=lambda each: not _bad(each[0])):
        yield from _verdicts(result, name)
    rows = [(name, *map(digits, values)) for name, values in _measured(results).items()]
    leads = [number for number, (name, *_) in enumerate(rows) if name in _FIRST]
    yield TextTable(None, ("measure",), names, rows, leads=leads)


def _verdicts(result: DiagnosisSummary, name: str) -> Iterator[Paragraph]:
    for verdict in (Verdict(**verdict.as_json()) for verdict in result.verdicts):
        yield Paragraph(f"{name}: {verdict.title}", bold=True)
        for line in verdict.lines():
            yield Paragraph(line, indent=2)
    counts = {result.unit: result.num_classes, "item": result.items, "dimension": result.dimension}
    items = ", ".join(counted(count or 0, name) for name, count in counts.items())
    reference = "no reference" if result.reference is None else f"reference: {result.reference}"
    yield Paragraph(f"Diagnosed: {result.level}, {items}, {result.distance} distance, {reference}", indent=2)
    for note in result.notes:
        yield Paragraph(f"Note: {note}", indent=2)


def _names(results: Sequence[DiagnosisSummary]) -> list[str]:
    return [result.name if result.split is None else f"{result.name} ({result.split})" for result in results]


def _bad(result: DiagnosisSummary) -> bool:
    return any(verdict.kind in BAD for verdict in result.verdicts)


def _measured(results: Sequence[DiagnosisSummary]) -> dict[str, list[float | None]]:
    """Rows of the table: what was measured in at least one embedding, or in a reference."""
    measures = [result.measures for result in results]
    references = [_references(result) for result in results]
    values: dict[str, list[float | None]] = {}
    for key in _DIAGNOSED:
        values[measure_words(key)] = [getattr(each, key) for each in measures]
        if key == "recall":
            for name in dict.fromkeys(name for known in references for name in known):
                values[name] = [known.get(name) for known in references]
            for key in ("map_at_r", "reference_map_at_r"):
                values[measure_words(key)] = [
                    next((getattr(row, key) for row in each.rankings), None) for each in measures
                ]
    for level in dict.fromkeys(level for each in measures for level in each.fine):
        for key in ("recall@1", "fine_coarse_index"):
            values[f"{level}: {measure_words(key)}"] = [each.fine.get(level, {}).get(key) for each in measures]
    for key in _SAMPLED:
        values[f"batches: {measure_words(key)}"] = [(each.sampling or {}).get(key) for each in measures]
    return {name: row for name, row in values.items() if any(value is not None for value in row)}


def _references(result: DiagnosisSummary) -> dict[str, float | None]:
    """Recall@1 of the references, by title."""
    return {
        f"{'' if row.level == result.level else row.level + ': '}recall@1 of {row.reference}": row.reference_recall
        for row in result.measures.comparisons
    }
