"""`trivet migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from trivet.commands.migrate.options import MigrateOptions, Refusal
from trivet.commands.printing import command_line, per_cent, print_record, print_table, print_text
from trivet.commands.shared_options import check_written, command
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress

if TYPE_CHECKING:
    from trivet.commands.migrate.record import MeasureChange, MigrateRecord


@command(MigrateOptions)
def migrate(context: typer.Context, request: MigrateOptions) -> int:
    """Judge a change of encoder: which neighbours change, and whether for better."""
    check_written(context, recognised={"report": page("migrate")})
    with show_progress("migration"):
        from trivet.commands.migrate.page import write_migrate_report  # here: they load the training stack
        from trivet.commands.migrate.run import judge_migration

        record = judge_migration(request).stamped(command_line())
    if request.report is not None:
        write_migrate_report(record, request.report)
    print_record(record, lambda: print_migration(record), json=request.json, report=request.report)
    refused = {Refusal.WORSE: record.outcome == "worse", Refusal.NOT_BETTER: record.outcome != "better"}
    return int(any(refused[reason] for reason in request.fail_on or []))


def print_migration(record: MigrateRecord) -> None:
    """The answer, the agreement of neighbours, and the measures of each level with what changed."""
    from trivet.commands.migrate.maps import (  # here: they load the training stack and what draws
        head_sentence,
        map_sentence,
    )
    from trivet.commands.migrate.page import agreement_sentence, how_judged

    for note in record.notes:
        print_text(f"Warning: {note}")
    print_text(record.headline.replace("\u00a0", " "), bold=True)
    for agreement in record.agreements:
        print_text(agreement_sentence(agreement).replace("\u00a0", " "))
    if record.levels:
        print_table(
            f"per cent, {100 * (record.confidence or 0):.4g} % intervals; queries gained and lost at the first place",
            ("level", "measure"),
            ("old", "new", "difference", "interval", "gained", "lost"),
            [
                (
                    level.level,
                    change.measure,
                    *map(per_cent, (change.reference, change.value, change.difference, change.interval)),
                    *((str(level.gained), str(level.lost)) if change.measure == "recall@1" else ("", "")),
                )
                for level in record.levels
                for change in level.measures
            ],
        )
    if (maps := record.linear_map) is not None:
        judged = ("recall@1", "less new, points") if maps.outcome else ()
        print_table(
            f"linear maps, fitted on other items; per cent; same: of the {maps.k} nearest",
            ("queries", "gallery"),
            ("same", *judged),
            [
                (row.queries, row.gallery, per_cent(row.overlap), *(_judged_cells(row.from_new[0]) if judged else ()))
                for row in maps.searches
            ],
        )
        if record.outcome != "better":
            print_text(map_sentence(maps).replace("\u00a0", " "))
        if head := head_sentence(maps):
            print_text(head.replace("\u00a0", " "))
    print_text(f"Note: {how_judged(record)}".replace("\u00a0", " "))


def _judged_cells(change: MeasureChange) -> tuple[str, str]:
    """A measure, and its difference from the reference with the interval."""
    return per_cent(change.value), f"{per_cent(change.difference)} ({per_cent(change.interval)})"
