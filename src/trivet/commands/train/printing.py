"""Output of `trivet train` and `trivet evaluate RUN` in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trivet.commands.printing import echo, per_cent, print_table, print_text
from trivet.runtime.text import event_title

if TYPE_CHECKING:
    from trivet.commands.train.record import CrossValidation
    from trivet.reports.run_record import RunRecord


def print_run(record: RunRecord, folder: Path) -> None:
    """Print whether training helped, and the evaluation of a run as tables."""
    from trivet.commands.train.outcome import cause_lines, choice_line, fell_back, result_lines
    from trivet.commands.train.page import evaluated_rows  # here: it loads what draws, which `--help` does not need
    from trivet.commands.train.tolerance import noise_lines

    for _, line in result_lines(record, run=str(folder)):
        print_text(line.replace("\u00a0", " "), bold=True)
    for line in cause_lines(record):
        print_text(line, indent=2)
    for warning in record.warnings:
        print_text(f"Warning: {warning}")
    for split in record.evaluation:
        rows = evaluated_rows(record, split)
        known = next(iter(rows[0].levels.values()))
        measures = [key for key in known if key.startswith("recall@") or key in ("map@r", "nmi", "nmi+")]
        print_table(
            f"{split}: per cent",
            ("level", "network"),
            measures,
            [
                (level, row.name, *(per_cent(row.levels[level].get(key)) for key in measures))
                for level in rows[0].levels
                for row in rows
            ],
        )
    chosen = None if fell_back(record) else choice_line(record, run=str(folder))
    for note in [*([chosen] if chosen else []), *_events(record), *noise_lines(record, run=str(folder))]:
        print_text(f"Note: {note}")
    echo(f"Run: {folder}")
    echo(f"Report: {folder / 'report.html'}")


def _events(record: RunRecord) -> list[str]:
    """The events of a run, and what its guard did, a line each."""
    foreseen, guard = record.foreseen, record.guard
    lines = [foreseen.sentence] if foreseen is not None and foreseen.sentence else []
    for event in record.monitor.events:
        line = f"{event_title(event.kind, event.step, suspected=event.suspected)}: {event.rule}."
        lines.append(" ".join([line, *event.changes]))
    if record.monitor.closing is not None:
        lines.append(record.monitor.closing)
    if guard.snapshot is not None:
        lines.append(f"The result is the network of step {guard.snapshot}, the best by held-out items.")
    return lines


def print_folds(result: CrossValidation) -> None:
    """Print the results of a cross-validation as tables."""
    for level, measures in result.evaluation.items():
        print_table(
            f"{level}: validation on {result.folds} folds; per cent",
            ("measure",),
            ("mean", "95 %, Student-t", *(f"fold {number}" for number in range(result.folds))),
            [
                (name, per_cent(over.mean), per_cent(over.interval), *map(per_cent, over.values))
                for name, over in measures.items()
            ],
        )
    echo("Runs: " + ", ".join(result.runs))
