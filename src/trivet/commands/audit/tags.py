"""Audit of tags: which are probably missing or superfluous."""

from __future__ import annotations

import numpy as np

from trivet.commands.audit.items import Items, read_items
from trivet.commands.audit.options import AuditOptions
from trivet.commands.audit.record import AuditRecord, TagRange, TagSuspect
from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_text
from trivet.io.overwrite_guard import TAG_SUSPECTS, is_run_folder
from trivet.io.tag_cells import JOINED
from trivet.label_noise import TagSuspects, find_tag_suspects
from trivet.mining.tags import Tags


def audit_tags(request: AuditOptions) -> AuditRecord:
    """Audit the tags of a file; write those that disagree, with an empty column `decision`.

    Raises:
        ValueError: if a run, a page, decisions or neighbours are asked for, which only classes have.
    """
    if is_run_folder(request.embeddings):
        raise ValueError("--separator is for a file: an audit of a run takes classes; audit a file of its vectors.")
    for option, value in (
        ("--report", request.report),
        ("--decisions", request.decisions),
        ("--neighbours", request.neighbours),
    ):
        if value is not None:
            raise ValueError(
                f"{option} is for classes: tags are audited into a table; write it with --out FILE and fill in its "
                "column decision."
            )
    items = read_items(request)
    tags = Tags([name.split(JOINED) for name in items.labels.tolist()])
    suspects = find_tag_suspects(items.embeddings, tags, seed=request.seed, distance=items.distance)
    record = _tag_summary(items, tags, suspects)
    if request.out is not None:
        columns = [*TAG_SUSPECTS, "decision", *(() if items.texts is None else ("text",))]
        cells = ([getattr(row, name, None) or "" for name in columns] for row in record.tag_suspects)
        write_atomic(request.out, csv_text([columns, *cells]).encode())
        record.out = str(request.out)
    return record


def _tag_summary(items: Items, tags: Tags, suspects: TagSuspects) -> AuditRecord:
    called = suspects.probability_wrong > 0.5
    kinds = np.where(suspects.missing, "missing", "superfluous")
    notes = list(items.notes)
    if unknown := tags.names[~suspects.judged].tolist():
        notes.append(
            f"{len(unknown)} of {len(tags.names)} tags are not judged, such as {unknown[0]!r}: fewer than ten "
            "items have them or lack them, or the embedding does not tell them; bring more items, or an embedding "
            "that separates them."
        )
    return AuditRecord(
        name=items.name,
        split=items.split,
        level=items.level,
        items=len(tags),
        distance=items.distance,
        tags=len(tags.names),
        judged_tags=int(suspects.judged.sum()),
        tag_ranges=[
            TagRange(
                kind=kind, least=round(least, 6), most=round(most, 6), called=int((called & (kinds == kind)).sum())
            )
            for kind, (least, most) in suspects.ranges.items()
        ],
        tag_suspects=[
            TagSuspect(
                id=items.ids[item],
                tag=str(tags.names[tag]),
                kind=str(kind),
                probability_wrong=float(f"{wrong:.6g}"),
                evidence=f"{100 * like:.1f} % of items like it have the tag",
                text=None if items.texts is None else items.texts[item],
            )
            for item, tag, kind, wrong, like in zip(
                suspects.items.tolist(),
                suspects.tags.tolist(),
                kinds,
                suspects.probability_wrong,
                suspects.probability_tag,
                strict=True,
            )
        ],
        notes=notes,
    )
