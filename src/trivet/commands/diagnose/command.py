"""`trivet diagnose`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trivet.commands.diagnose.options import DiagnoseOptions, Failure
from trivet.commands.printing import echo, print_json, print_table, print_text
from trivet.commands.shared_options import check_written, command, refuse
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted, digits

if TYPE_CHECKING:
    from trivet.reports.diagnosis_record import DiagnosisSummary


@command(DiagnoseOptions)
def diagnose(context: typer.Context, request: DiagnoseOptions) -> int:
    """Say whether embeddings are any good, whether and how they collapsed, why, and what to change."""
    check_written(context, recognised={"report": page("diagnosis")})
    request.check(request.embeddings)
    failing, references = request.fail_on or [], request.reference or []
    if Failure.WORSE in failing and not references and not all(map(request.is_run, request.embeddings)):
        raise ValueError("--fail-on worse needs something to compare with: give --reference FILE.")
    if not any(map(request.is_run, [*request.embeddings, *references])):
        refuse(context, "only a run needs its data", "data_root")
    with show_progress("diagnosis"):
        from trivet.commands.diagnose.run import diagnose_paths  # here: it loads the training stack

        results, warnings = diagnose_paths(request)
    if Failure.WORSE in failing:
        _check_compared(results)
    if request.json:
        several = {"results": results} | ({"warnings": warnings} if warnings else {})
        result = results[0].as_json() if len(results) == 1 else several
        print_json(result | ({} if request.report is None else {"report": str(request.report)}))
    else:
        print_diagnosis(results, warnings, request.report)
    kinds = {verdict.kind for result in results for verdict in result.verdicts}
    return int(any(kind in kinds for name in failing for kind in _FAILURES[name]))


def _check_compared(results: Sequence[DiagnosisSummary]) -> None:
    """ValueError if an embedding was compared with nothing, as then none can be worse."""
    for result in results:
        if not result.measures.comparisons:
            why = f" ({result.notes[-1].rstrip('.')})" if result.notes else ""
            raise ValueError(
                f"--fail-on worse needs something to compare with: {result.name} was compared with nothing{why}; give "
                "--reference FILE, or for a run the --data-root of its data."
            )


def print_diagnosis(results: Sequence[DiagnosisSummary], warnings: Sequence[str], report: Path | None) -> None:
    """The verdicts of one or more embeddings, each with its evidence, cause and changes, then a table of measures."""
    from trivet.collapse import Verdict  # here: it loads the training stack

    for warning in warnings:
        print_text(f"Warning: {warning}", bold=True)
    names = [result.name if result.split is None else f"{result.name} ({result.split})" for result in results]
    # What is bad comes first, in the order that was given: nothing good may stand above it.
    for result, name in sorted(zip(results, names, strict=True), key=lambda each: not _bad(each[0])):
        for verdict in (Verdict(**verdict.as_json()) for verdict in result.verdicts):
            print_text(f"{name}: {verdict.title}", bold=True)
            for line in verdict.lines():
                print_text(line, indent=2)
        counts = {result.unit: result.num_classes, "item": result.items, "dimension": result.dimension}
        items = ", ".join(counted(count or 0, name) for name, count in counts.items())
        reference = "no reference" if result.reference is None else f"reference: {result.reference}"
        print_text(f"Diagnosed: {result.level}, {items}, {result.distance} distance, {reference}", indent=2)
        for note in result.notes:
            print_text(f"Note: {note}", indent=2)
        echo()
    print_table(None, ("measure",), names, _measured(results))
    if report is not None:
        echo(f"Report: {report}")


def _bad(result: DiagnosisSummary) -> bool:
    return any(verdict.kind in kinds for verdict in result.verdicts for kinds in _FAILURES.values())


def _measured(results: Sequence[DiagnosisSummary]) -> list[tuple[str, ...]]:
    """Rows of the table: what was measured in at least one embedding, or in a reference."""
    from trivet.collapse.verdict_type import measure_words  # here: it loads the training stack

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
    return [(name, *map(digits, row)) for name, row in values.items() if any(value is not None for value in row)]


def _references(result: DiagnosisSummary) -> dict[str, float | None]:
    """Recall@1 of the references, by title."""
    return {
        f"{'' if row.level == result.level else row.level + ': '}recall@1 of {row.reference}": row.reference_recall
        for row in result.measures.comparisons
    }


_FAILURES = {
    Failure.COLLAPSE: ("network-collapse", "class-collapse"),
    Failure.WORSE: ("worse-than-reference",),
    Failure.CHANCE: ("no-better-than-chance",),
}
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
