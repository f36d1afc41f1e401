"""`trivet drift`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import typer

from trivet.commands.drift.options import Change, DriftOptions
from trivet.commands.printing import command_line, per_cent, print_record, print_text
from trivet.commands.shared_options import check_written, command
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from trivet.commands.drift.record import DriftRecord
    from trivet.reports.shared_records import ItemRecord

LONGEST = 60  # characters of a text


@command(DriftOptions)
def drift(context: typer.Context, request: DriftOptions) -> int:
    """Test whether new data is like a reference: items, classes, what is out of scope, recall of canaries."""
    check_written(context, recognised={"report": page("drift")})
    with show_progress("drift"):
        from trivet.commands.drift.run import compare_with_reference  # here: it loads the encoders

        record = compare_with_reference(request).stamped(command_line())
    if request.report is not None:
        from trivet.commands.drift.page import write_drift_report

        write_drift_report(record, request.report)
    print_record(record, lambda: print_drift(record, request.top), json=request.json, report=request.report)
    return int(any(_fails(record, reason) for reason in request.fail_on or []))


def _fails(record: DriftRecord, reason: Change) -> bool:
    if reason is Change.RECALL:
        return record.canaries is not None and record.canaries.fell
    if reason is Change.CLUSTER:
        return bool(record.clusters)
    if reason is Change.SCOPE:
        return any(each.changed for each in record.questions if each.question == "scope")
    return record.answer == ("differs" if reason is Change.CHANGE else "unclear")


def print_drift(record: DriftRecord, top: int) -> None:
    """The answer, that of each question, and the items that are new, more or fewer."""
    print_text(record.headline, bold=True)
    for question in record.questions:
        print_text(question.sentence)
    for cluster in record.clusters:
        label = "" if cluster.label is None else f", most of them {cluster.label!r}"
        kind = "New" if cluster.new else "Grown"
        print_text(
            f"{kind} cluster: {counted(cluster.items, 'item')}, {per_cent(cluster.now)} % of the new ones against "
            f"{per_cent(cluster.reference)} % (p = {cluster.p:.2g}){label}: {_listed(cluster.examples[:top])}"
        )
    for title, items in (
        ("Farthest from the reference", record.farthest),
        ("More than before around", record.more),
        ("Fewer than before around", record.fewer),
    ):
        if items[:top]:
            print_text(f"{title}: {_listed(items[:top])}")
    if record.canaries is not None:
        print_text(record.canaries.sentence, bold=record.canaries.fell)
    for note in record.notes:
        print_text(f"Note: {note}")


def _listed(items: list[ItemRecord]) -> str:
    return "; ".join(repr(textwrap.shorten(item.text or item.id, LONGEST, placeholder="…")) for item in items)
