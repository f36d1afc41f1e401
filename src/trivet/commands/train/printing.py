"""Output of `trivet train` and `trivet evaluate RUN` in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.commands.printing import echo, per_cent, print_contents, print_table
from trivet.reports.result import Contents, Paragraph, TextTable
from trivet.runtime.text import event_title

if TYPE_CHECKING:
    from trivet.commands.train.record import CrossValidation
    from trivet.reports.ladder_record import LadderRecord
    from trivet.reports.run_record import RunRecord


def print_run(record: RunRecord, folder: Path) -> None:
    """Print the answer of a run, its evaluation as a table, and what to do next."""
    print_contents(run_contents(record, folder))
    echo(f"Run: {folder}")
    echo(f"Report: {folder / 'report.html'}")
    print_contents(advice_contents(record, folder))


def run_contents(record: RunRecord, folder: Path) -> Contents:
    """The answer of a run, its evaluation as a table, and notes."""
    from trivet.commands.train.outcome import cause_lines, choice_line, result_lines
    from trivet.reports.ladder_view import ladder_notes

    for _, line in result_lines(record):
        yield Paragraph(line.replace("\u00a0", " "), bold=True)
    for line in cause_lines(record):
        yield Paragraph(line, indent=2)
    for warning in record.warnings:
        yield Paragraph(f"Warning: {warning}")
    if record.ladder is not None:
        yield _candidates(record.ladder)
    yield from _measures(record)
    for note in ladder_notes(record.ladder) if record.ladder is not None else ():
        yield Paragraph(f"Note: {note}".replace("\u00a0", " "))
    for note in filter(None, [choice_line(record, run=folder), *_events(record)]):
        yield Paragraph(f"Note: {note}")


def advice_contents(record: RunRecord, folder: Path) -> Contents:
    """Advice on what to do next, where there is some."""
    from trivet.commands.train.outcome import how_to_go_on

    if (advice := how_to_go_on(record, folder)) is not None:
        yield Paragraph(f"Next: {advice}")


def _candidates(ladder: LadderRecord) -> TextTable:
    """The candidates that were measured; why others were not is said below."""
    from trivet.reports.ladder_view import COLUMNS, ladder_caption, ladder_rows

    measured = [row for row in ladder_rows(ladder) if row.cells[0]]
    rows = [(row.name, *row.cells) for row in measured]
    result_first = sorted(range(len(rows)), key=lambda number: not measured[number].result)
    return TextTable(ladder_caption(ladder), ("candidate",), COLUMNS, rows, leads=result_first)


def _measures(record: RunRecord) -> Iterator[TextTable]:
    """The measures of the splits that chose nothing; the page has all."""
    from trivet.commands.train.outcome import answering_splits, evaluated_rows, merged_rows

    rows, measures = [], dict[str, None]()
    for split in answering_splits(record):
        for level in dict.fromkeys(level for row in record.evaluation[split] for level in row.levels):
            for name, values in merged_rows(evaluated_rows(record, split), level):
                measures |= dict.fromkeys(key for key in values if key.startswith("recall@") or key == "map@r")
                rows.append((split, level, name, values))
    if rows:
        recalls = [measure for measure in measures if measure != "map@r"]
        columns = [*dict.fromkeys([*recalls[:1], *recalls[-1:]]), *(["map@r"] if "map@r" in measures else [])]
        cells = [(*words, *(per_cent(values.get(key)) for key in columns)) for *words, values in rows]
        yield TextTable("In per cent; all measures are in the report", ("split", "level", "network"), columns, cells)


def _events(record: RunRecord) -> list[str]:
    """The events of a run, and what its guard did, a line each."""
    foreseen, guard = record.foreseen, record.guard
    lines = [foreseen.sentence] if foreseen is not None and foreseen.sentence else []
    for event in record.monitor.events:
        line = f"{event_title(event.kind, event.step, suspected=event.suspected)}: {event.rule}."
        lines.append(" ".join([line, *event.changes]))
    if record.monitor.closing is not None and not record.evaluation:
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
