"""`trivet audit`."""

from __future__ import annotations

from pathlib import Path

import typer

from trivet.commands.audit.options import AuditOptions
from trivet.commands.printing import echo, print_json, print_result, print_text
from trivet.commands.shared_options import command, refuse
from trivet.io.overwrite_guard import is_run_folder
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

JUDGING = ("out", "report", "decisions", "relabel_above", "drop_above", "folds", "neighbours", "distance", "split",
           "encoder", "top", "seed", "force", "data_root", "relevant")  # what --apply refuses  # fmt: skip


@command(AuditOptions)
def audit(context: typer.Context, request: AuditOptions) -> int:
    """Estimate how many labels are wrong, and rank which probably are; or apply decisions on them to a file."""
    if request.apply is not None:
        refuse(context, "--apply judges nothing", *JUDGING)
        return _apply(request, request.apply)
    refuse(context, "--output is for --apply; an audit writes to --out, --report and --decisions", "output")
    if request.json:
        refuse(context, "--json holds all items", "top")
    if not is_run_folder(request.embeddings):
        refuse(context, "only a run needs its data", "data_root")
    with show_progress("audit"):
        from trivet.commands.audit.run import audit_path  # here: it loads the training stack

        result = audit_path(request)
    record = result.record
    print_result(result, json=request.json, report=None)
    if not request.json:
        decisions = "Decisions, none filled in" if record.refused else "Decisions"
        for title, file in (("Suspects", record.out), (decisions, record.decisions), ("Report", record.report)):
            if file:
                echo(f"{title}: {file}")
    if record.refused:  # at the end: what was computed is printed and written all the same
        raise ValueError(record.refused)
    return 0


def _apply(request: AuditOptions, decisions: Path) -> int:
    from trivet.io.corrected_files import write_cleaned  # here: `--help` reads no tables

    if (output := request.output) is None:
        raise ValueError("--apply writes a new file: name it with --output FILE.")
    level, text, tags = request.level, request.text, request.tags
    with show_progress("applying decisions"):
        if (sides := request.sides) is not None:
            from trivet.io.pair_table import side_columns
            from trivet.io.tag_cells import SINGLE, TagCells

            text, level = side_columns(request.embeddings, sides.left, sides.right)
            tags = TagCells(SINGLE)
        counts = write_cleaned(
            request.embeddings, decisions, output, level=level, text=text, choice=request.choice, tags=tags,
            pairs=sides is not None,
        )  # fmt: skip
    if request.json:
        print_json(counts | {"output": str(output)})
    else:
        more = f"{counted(counts['add'], 'tag' if sides is None else 'pair')} added, " if counts["add"] else ""
        print_text(
            f"{output}: {counted(counts['left'], 'row')} from {counts['rows']}; {more}{counts['relabel']} relabelled, "
            f"{counts['drop']} dropped, {counts['keep']} kept as they are, {counts['undecided']} not decided on"
        )
    return 0
