"""`trivet audit`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trivet.commands.audit.options import AuditOptions
from trivet.commands.printing import echo, print_json, print_table, print_text
from trivet.commands.shared_options import command, refuse
from trivet.io.overwrite_guard import is_run_folder
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from trivet.commands.audit.record import AuditRecord, PairSuspect, Suspect, TagSuspect

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

        record = audit_path(request)
    if request.json:
        print_json(record.as_json(unset=False))
    elif record.headline:
        print_relation_audit(record, request.top)
    else:
        print_audit(record, request.top)
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


def print_audit(record: AuditRecord, top: int) -> None:
    """The noise rate, the most suspect items as a table, and where everything was written."""
    rate, suspects, unknown = record.noise_rate, record.suspects[:top], record.verdict == "cannot-tell"
    assert rate is not None
    assert record.duplicates is not None
    print_text(rate.headline(), bold=True)
    if rate.reason:
        print_text(rate.reason)
    name = record.name if record.split is None else f"{record.name} ({record.split})"
    how = f"out of {counted(record.folds, 'fold')}" if record.folds else "in one embedding"
    many = record.above_half
    wrong = f"{'is' if many == 1 else 'are'} wrong{' or not separable' if unknown else ''}"
    above = "" if many is None else f"; {many} {wrong} with a probability above 50 %"
    print_text(
        f"{name}, by {record.level}: {counted(record.items or 0, 'item')} of {counted(record.classes or 0, 'class')}, "
        f"judged {how} by {counted(record.neighbours or 0, 'neighbour')} each{above}"
    )
    print_text(
        f"duplicates: {counted(record.duplicates.exact, 'item')} exact, {record.duplicates.near} near, "
        f"{record.duplicates.other_label} of these with another label; outliers: {record.outliers}"
    )
    if any(suspect.text is not None for suspect in suspects):
        _print_texts(suspects)
    if suspects:
        _print_suspects(suspects, record.verdict, record.neighbours or 0)
    if record.suspects and unknown:
        print_text(
            f'"wrong": overlap of classes does not explain the label: {record.called_wrong} above 50 %, '
            f'{record.expected_wrong:g} by the probabilities of all. "wrong or not separable": the embedding takes it '
            "for another class; its label may be right all the same."
        )
        print_text(
            "How far to go: review from the top, and stop where that no longer pays. The label on offer is proposed, "
            "or the one that most neighbours have, which no probability speaks for; nothing is changed by itself."
        )
    for note in record.notes:
        print_text(f"Note: {note}")
    decisions = "Decisions, none filled in" if record.refused else "Decisions"
    for title, file in (("Suspects", record.out), (decisions, record.decisions), ("Report", record.report)):
        if file:
            echo(f"{title}: {file}")


def print_relation_audit(record: AuditRecord, top: int) -> None:
    """The headline of an audit of tags or pairs, the ranges, and the most suspect."""
    from trivet.commands.audit.record import probability_text  # here: `--help` needs no records

    print_text(record.headline, bold=True)
    for detail in record.details:
        print_text(detail)
    suspects = record.tag_suspects[:top]
    if any(suspect.text is not None for suspect in suspects):
        _print_texts(suspects)
    if suspects:
        rows = [(each.id, each.tag, each.kind, probability_text(each.probability_wrong), each.evidence)
                for each in suspects]  # fmt: skip
        print_table(None, ("id", "tag", "kind"), ("wrong, %", "evidence"), rows, named_by=2)
    _print_pairs(record.pair_suspects, top)
    for note in record.notes:
        print_text(f"Note: {note}")
    for title, file in (("Suspects", record.out), ("Decisions", record.decisions), ("Report", record.report)):
        if file:
            echo(f"{title}: {file}")


def _print_pairs(suspects: Sequence[PairSuspect], top: int) -> None:
    """The pairs that are listed, and those that are missing, in a table each."""
    from trivet.commands.audit.record import probability_text  # here: `--help` needs no records

    room = max(16, (shutil.get_terminal_size().columns - 34) // 2)
    for kind, name in (("listed", "wrong, %"), ("missing", "missing, %")):
        some = [suspect for suspect in suspects if suspect.kind == kind][:top]
        rows = [
            (
                *((each.id,) if kind == "listed" else ()),
                *(textwrap.shorten(side, room, placeholder="…") for side in (each.left, each.right)),
                probability_text(each.probability_wrong),
            )
            for each in some
        ]
        if rows:
            words = ("id", "left", "right") if kind == "listed" else ("left", "right")
            print_table(None, words, (name,), rows, named_by=len(words) - 1)


def _print_suspects(suspects: Sequence[Suspect], verdict: str, neighbours: int) -> None:
    """A table of the items; with both probabilities where it is unknown which are wrong."""
    words: tuple[str, ...] = ("id", "label", "proposed")
    numbers: tuple[str, ...] = ("wrong, %", "neighbours with its label", "margin", "mode, %")
    if verdict == "cannot-tell":
        words = ("id", "label", "proposed, or most neighbours")
        numbers = ("wrong, %", "wrong or not separable, %", "neighbours with its label")
    from trivet.commands.audit.record import probability_text  # here: `--help` needs no records

    rows = []
    for suspect in suspects:
        margin = suspect.positive_margin
        near = f"{round((suspect.neighbour_agreement or 0) * neighbours)} of {neighbours}"
        cells: tuple[str, ...] = (
            near,
            "–" if margin is None else f"{margin:.3f}",
            f"{100 * (suspect.mode_share or 0):.0f}",
        )
        if verdict == "cannot-tell":
            cells = (probability_text(suspect.probability_not_separable), near)
        rows.append(
            (suspect.id, suspect.label, suspect.offered(verdict), probability_text(suspect.probability_wrong), *cells)
        )
    print_table(None, words, numbers, rows, named_by=1)


def _print_texts(suspects: Sequence[Suspect | TagSuspect]) -> None:
    """The texts of the items beside their ids, each cut to a line."""
    widest = max(len(suspect.id) for suspect in suspects)
    room = max(20, shutil.get_terminal_size().columns - widest - 8)  # less the frame of a table of two columns
    texts = [(suspect.id, textwrap.shorten(suspect.text or "", room, placeholder="…")) for suspect in suspects]
    print_table(None, ("id", "text"), (), texts)
