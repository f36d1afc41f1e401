"""`trivet compare`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.commands.printing import command_line, echo, per_cent, print_json, print_table, print_text
from trivet.commands.shared_options import DataRoot, Json, Report, TrustCode, check_written, exists, refuse
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress

if TYPE_CHECKING:
    from trivet.commands.compare.record import CompareRecord, Finding, PairDifference, SideDifference


def compare(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders, or folders of cross-validations, whose folds are taken; each is compared with the "
            "first. Runs that differ only in the seed or the fold are taken together.",
            show_default=False,
            callback=exists,
        ),
    ],
    report: Report = None,
    data_root: DataRoot = None,
    trust_code: TrustCode = False,
    json: Json = False,
) -> int:
    """Show runs side by side: which is better, how their settings differ, and how training went."""
    check_written(context, recognised={"report": page("compare")})
    if report is None:
        refuse(context, "the data are read only for the pictures of a --report", "data_root")
    with show_progress("comparison"):
        from trivet.commands.compare.run import compare_runs  # here: it loads the training stack

        record = compare_runs(runs, report=report, data_root=data_root, command=command_line())
    if json:
        print_json(record.as_json(unset=False) | ({} if report is None else {"report": str(report)}))
    else:
        print_comparison(record, report)
    return 0


def print_comparison(record: CompareRecord, report: Path | None) -> None:
    """Print which side is better, then the runs on each split and level, the settings that differ, and how training
    ended."""
    from trivet.commands.compare.page import compare_lines, how_compared, judged_measures  # here: it loads what draws

    for note in record.notes:
        print_text(f"Warning: {note}")
    for _, line in compare_lines(record):
        print_text(line.replace("\u00a0", " "), bold=True)
    for measure in judged_measures(record):
        _print_table(record, measure)
    if record.settings:
        print_table(
            "settings that differ",
            ("setting", *(side.name for side in record.sides)),
            (),
            [
                (row.name, *(", ".join(value or "not set" for value in values) for values in row.values))
                for row in record.settings
            ],
        )
    splits = ["train", *(table.split for table in record.tables[:1])]
    splits = [split for split in splits if any(split in run.diagnosis for run in record.runs)]
    print_table(
        None,
        ("run", "ended", *(f"verdict on {split}" for split in splits), "monitor"),
        ("steps", "seconds", "parameters"),
        [
            (
                run.name,
                run.status or "–",
                *(_short_words(run.diagnosis[split].verdicts) if split in run.diagnosis else "–" for split in splits),
                _short_words(run.events),
                *("–" if value is None else f"{value:.0f}" for value in (run.step, sum(run.seconds.values()))),
                "–" if run.parameters is None else str(run.parameters),
            )
            for run in record.runs
        ],
        named_by=1,
    )
    print_text(f"Note: {how_compared(record)}".replace("\u00a0", " "))
    if report is not None:
        echo(f"Report: {report}")


def _print_table(record: CompareRecord, measure: str) -> None:
    """A measure of all runs on each split and level, with 95 % intervals, and the differences from the first side."""
    from trivet.commands.compare.page import TableView  # here: it loads what draws

    tables = record.tables
    views, rows = (
        [TableView(table, record.sides) for table in tables],
        [{row.run: row for row in t.rows} for t in tables],
    )
    lines: list[tuple[str, ...]] = []
    for side in record.sides:
        several = len(side.runs) > 1
        changes = [view.change(side.name, measure) for view in views]
        if several:
            means = [view.mean(side, measure) for view in views]
            shares = [f"{per_cent(mean.mean)} ± {per_cent(mean.deviation)}" if mean else "–" for mean in means]
            points = map(_points, changes)
            lines.append((f"{side.name}, mean of {len(side.runs)}", *chain(*zip(shares, points, strict=True))))
        for run in side.runs:
            cells: list[str] = []
            for view, known, change in zip(views, rows, changes, strict=True):
                row = known.get(run)
                cells.append("–" if row is None else _with_ends(row.measures.get(measure), row.intervals.get(measure)))
                cells.append(_points(view.pair(run, measure) if several else change))
            lines.append((run, *cells))
    names = dict.fromkeys(name for known in rows for row in known.values() for name in row.references)
    if measure != "recall@1":  # the others' are not known
        names = {}
    for name in names:
        references_of = [[row.references.get(name) for row in known.values()] for known in rows]
        lines.append((name, *chain(*((_span(values), "") for values in references_of))))
    print_table(
        f"{measure} in per cent, with 95 % intervals; points more than {record.sides[0].name}",
        ("run",),
        [head for table in tables for head in (f"{table.split} {table.level}", "points")],
        lines,
    )


def _with_ends(share: object, ends: list[float] | None) -> str:
    text = per_cent(share) if isinstance(share, float) else "–"
    return f"{text} ({per_cent(ends)})" if ends else text


def _span(values: list[float | None]) -> str:
    """The value that all have, else the lowest and the highest."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    low, high = per_cent(min(known)), per_cent(max(known))
    return low if low == high else f"{low} … {high}"


def _points(change: SideDifference | PairDifference | None) -> str:
    if change is None:
        return ""
    return "–" if change.difference is None else f"{100 * change.difference:+.1f}"


def _short_words(findings: list[Finding]) -> str:
    """Verdicts or events in short, each once."""
    words = [
        f"{finding.kind.replace('-', ' ')}{', ' + finding.severity if finding.severity else ''}" for finding in findings
    ]
    return "; ".join(dict.fromkeys(words)) or "–"
