"""The result of `trivet audit` for items in files, runs or arrays: how many labels are wrong, and which."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.commands.audit.audited import Audited
from trivet.commands.audit.record import (
    AuditRecord,
    NearbyItem,
    PairSuspect,
    Suspect,
    SuspectItem,
    TagSuspect,
    probability_text,
)
from trivet.datasets.preview import preview_record
from trivet.io.embedding_table import class_numbers
from trivet.reports.result import Contents, Paragraph, Result, TextTable
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE_ITEMS, PAGE_NEIGHBOURS = 10_000, 8  # at most so many are shown
FACES = 12_000_000  # characters of pictures and texts that a page may take
LONGEST = 1000  # characters of a text on a page


class AuditResult(Result):
    """The share of labels that are wrong, and the items whose labels probably are, most suspect first.

    Attributes:
        audited: the items with their judgement.
        top: suspects that are printed.
    """

    kind = "audit"

    def __init__(
        self, audited: Audited, *, of_run: bool = False, apply: str | None = None, top: int = 10, command: str = ""
    ) -> None:
        self.audited, self.top, self.command = audited, top, command
        self._of_run, self._apply = of_run, apply

    @property
    def record(self) -> AuditRecord:
        """The record that `--json` prints."""
        return self.audited.record

    def contents(self) -> Contents:
        """The share of wrong labels, the most suspect items, and notes."""
        return (_relation_contents if self.record.headline else _class_contents)(self.record, self.top)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each suspect, the most suspect first; of classes with the number of its row."""
        record = self.record
        if record.headline:
            return [suspect.as_json() for suspect in (*record.tag_suspects, *record.pair_suspects)]
        return [
            {"row": row, **suspect.model_dump(exclude={"missing"})}
            for row, suspect in zip(self.audited.positions.tolist(), record.suspects, strict=False)
        ]

    def figure(self) -> Figure:
        """The probabilities that labels are wrong, and where it is known the transition matrix."""
        from trivet.commands.audit.drawing import draw_audit  # here: it loads matplotlib

        return draw_audit(self.record)

    def write_page(self, path: Path) -> None:
        """Write the page on which labels are decided."""
        from trivet.commands.audit.page import write_audit_report  # here: few audits have a report

        contents = {
            "of_run": self._of_run,
            "apply": self._apply,
            "selected": _page_items(self.audited),
            "class_names": [] if self.record.pairs else list(class_numbers(self.audited.items.labels)[1]),
        }
        write_audit_report(self.record.model_copy(update=contents).stamped(self.command), path)


def _class_contents(record: AuditRecord, top: int) -> Contents:
    """The noise rate, the most suspect items as a table, and where everything was written."""
    rate, suspects, unknown = record.noise_rate, record.suspects[:top], record.verdict == "cannot-tell"
    assert rate is not None
    assert record.duplicates is not None
    yield Paragraph(rate.headline(), bold=True)
    if rate.reason:
        yield Paragraph(rate.reason)
    name = record.name if record.split is None else f"{record.name} ({record.split})"
    how = f"out of {counted(record.folds, 'fold')}" if record.folds else "in one embedding"
    many = record.above_half
    wrong = f"{'is' if many == 1 else 'are'} wrong{' or not separable' if unknown else ''}"
    above = "" if many is None else f"; {many} {wrong} with a probability above 50 %"
    yield Paragraph(
        f"{name}, by {record.level}: {counted(record.items or 0, 'item')} of {counted(record.classes or 0, 'class')}, "
        f"judged {how} by {counted(record.neighbours or 0, 'neighbour')} each{above}"
    )
    yield Paragraph(
        f"duplicates: {counted(record.duplicates.exact, 'item')} exact, {record.duplicates.near} near, "
        f"{record.duplicates.other_label} of these with another label; outliers: {record.outliers}"
    )
    if any(suspect.text is not None for suspect in suspects):
        yield _texts(suspects)
    if suspects:
        yield _suspects(suspects, record.verdict, record.neighbours or 0)
    if record.suspects and unknown:
        yield Paragraph(
            f'"wrong": overlap of classes does not explain the label: {record.called_wrong} above 50 %, '
            f'{record.expected_wrong:g} by the probabilities of all. "wrong or not separable": the embedding takes it '
            "for another class; its label may be right all the same."
        )
        yield Paragraph(
            "How far to go: review from the top, and stop where that no longer pays. The label on offer is proposed, "
            "or the one that most neighbours have, which no probability speaks for; nothing is changed by itself."
        )
    for note in record.notes:
        yield Paragraph(f"Note: {note}")


def _relation_contents(record: AuditRecord, top: int) -> Contents:
    """The headline of an audit of tags or pairs, the ranges, and the most suspect."""
    yield Paragraph(record.headline, bold=True)
    for detail in record.details:
        yield Paragraph(detail)
    suspects = record.tag_suspects[:top]
    if any(suspect.text is not None for suspect in suspects):
        yield _texts(suspects)
    if suspects:
        rows = [(each.id, each.tag, each.kind, probability_text(each.probability_wrong), each.evidence)
                for each in suspects]  # fmt: skip
        yield TextTable(None, ("id", "tag", "kind"), ("wrong, %", "evidence"), rows, named_by=2)
    yield from _pairs(record.pair_suspects, top)
    for note in record.notes:
        yield Paragraph(f"Note: {note}")


def _pairs(suspects: Sequence[PairSuspect], top: int) -> Contents:
    """The pairs that are listed, and those that are missing, in a table each."""
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
            yield TextTable(None, words, (name,), rows, named_by=len(words) - 1)


def _suspects(suspects: Sequence[Suspect], verdict: str, neighbours: int) -> TextTable:
    """A table of the items; with both probabilities where it is unknown which are wrong."""
    words: tuple[str, ...] = ("id", "label", "proposed")
    numbers: tuple[str, ...] = ("wrong, %", "neighbours with its label", "margin", "mode, %")
    if verdict == "cannot-tell":
        words = ("id", "label", "proposed, or most neighbours")
        numbers = ("wrong, %", "wrong or not separable, %", "neighbours with its label")
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
    return TextTable(None, words, numbers, rows, named_by=1)


def _texts(suspects: Sequence[Suspect | TagSuspect]) -> TextTable:
    """The texts of the items beside their ids, each cut to a line."""
    widest = max(len(suspect.id) for suspect in suspects)
    room = max(20, shutil.get_terminal_size().columns - widest - 8)  # less the frame of a table of two columns
    texts = [(suspect.id, textwrap.shorten(suspect.text or "", room, placeholder="…")) for suspect in suspects]
    return TextTable(None, ("id", "text"), (), texts)


def _page_items(audited: Audited) -> list[SuspectItem]:
    """The most suspect items with their nearest neighbours, as the page shows them.

    When their pictures and texts take more than 12 million characters, the items that follow are without.
    """
    items = audited.items
    faces: dict[int, tuple[str | None, str | None]] = {}
    spent = 0

    def face(i: int) -> tuple[str | None, str | None]:
        """Thumbnail and text of an item."""
        nonlocal spent
        if i not in faces and spent < FACES:
            preview = preview_record(items.show and items.show(i))
            picture, text = preview["thumbnail"], preview["text"]
            if text is not None and len(text) > LONGEST:
                text = text[:LONGEST] + "…"
            faces[i] = picture, text
            spent += len(picture or "") + len(text or "")
        return faces.get(i, (None, None))

    def nearby(j: int, gap: float) -> NearbyItem:
        near = NearbyItem(id=items.ids[j], label=str(items.labels[j]))
        near.thumbnail, near.text = face(j)
        if items.distance == "cosine":  # between unit rows D^2 = 2 - 2 S
            near.similarity = round(1 - gap**2 / 2, 4)
        else:
            near.distance = round(gap, 4)
        return near

    positions = audited.positions[:PAGE_ITEMS]
    indices, gaps = audited.near(positions)
    listed = []
    entries = zip(positions.tolist(), audited.suspects, indices.tolist(), gaps.tolist(), strict=False)
    for number, (i, row, near, far) in enumerate(entries):
        suspect = SuspectItem(**dict(row), reasons=audited.reasons(number))
        suspect.thumbnail, suspect.text = face(i)
        suspect.neighbours = [nearby(j, gap) for j, gap in islice(zip(near, far, strict=True), PAGE_NEIGHBOURS)]
        listed.append(suspect)
    return listed
