"""`trivet leaks`."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import typer

from trivet.commands.leaks.options import Leak, LeaksOptions
from trivet.commands.printing import command_line, per_cent, print_record, print_text
from trivet.commands.shared_options import check_written, command
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress

if TYPE_CHECKING:
    from trivet.commands.leaks.record import LeaksRecord

LONGEST = 80  # characters of a text


@command(LeaksOptions)
def leaks(context: typer.Context, request: LeaksOptions) -> int:
    """Find evaluated items that are copies of training items, or queries that are copies of the gallery."""
    check_written(context, recognised={"report": page("leaks")})
    with show_progress("leaks"):
        from trivet.commands.leaks.page import write_leaks_report  # here: they load the training stack
        from trivet.commands.leaks.run import search_leaks

        record = search_leaks(request).stamped(command_line())
    if request.report is not None:
        write_leaks_report(record, request.report)
    print_record(record, lambda: print_leaks(record, request.top), json=request.json, report=request.report)
    return int(any(_fails(record, reason) for reason in request.fail_on or []))


def _fails(record: LeaksRecord, reason: Leak) -> bool:
    if reason is Leak.GROUP:
        return any(each.crossing for each in record.groups)
    return any(each.exact if reason is Leak.EXACT else each.copies for each in record.comparisons)


def print_leaks(record: LeaksRecord, top: int) -> None:
    """The answer for each pair of splits, what it does to recall, and the first copies of each kind."""
    for counts in record.comparisons:
        print_text(counts.sentence, bold=True)
    for group in record.groups:
        print_text(group.sentence, bold=bool(group.crossing))
    for counts in record.comparisons:
        if (recall := counts.recall) is not None:
            print_text(
                f"{counts.split}: recall@1 is {per_cent(recall.recall)} % with the copies and "
                f"{per_cent(recall.without)} % without them; difference {per_cent(recall.difference)} points"
                f"{'' if recall.interval is None else f' (95 % interval {per_cent(recall.interval)})'}"
            )
        printed: Counter[str] = Counter()
        for leak in counts.leaks:
            printed[leak.kind] += 1
            if printed[leak.kind] <= top:
                left = _side(leak.text or leak.id, leak.label)
                print_text(
                    f"{leak.kind}: {left} is {_side(leak.original_text or leak.original, leak.original_label)}",
                    indent=2,
                )
    for note in record.notes:
        print_text(f"Note: {note}")


def _side(name: str, label: str) -> str:
    return repr(textwrap.shorten(name, LONGEST, placeholder="…")) + (f" ({label})" if label else "")
