"""`trivet diagnose`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from trivet.commands.diagnose.options import DiagnoseOptions, Failure
from trivet.commands.printing import command_line, print_result
from trivet.commands.shared_options import check_written, command, refuse
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress

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
        # Here: they load the training stack.
        from trivet.commands.diagnose.result import DiagnosisResult
        from trivet.commands.diagnose.run import diagnose_paths

        diagnosed, warnings, history = diagnose_paths(request)
        result = DiagnosisResult(diagnosed, warnings, history=history, command=command_line())
        if request.report is not None:
            result.write_page(request.report)
    summaries = [each.summary for each in diagnosed]
    if Failure.WORSE in failing:
        _check_compared(summaries)
    print_result(result, json=request.json, report=request.report)
    kinds = {verdict.kind for summary in summaries for verdict in summary.verdicts}
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


_FAILURES = {
    Failure.COLLAPSE: ("network-collapse", "class-collapse"),
    Failure.WORSE: ("worse-than-reference",),
    Failure.CHANCE: ("no-better-than-chance",),
}
