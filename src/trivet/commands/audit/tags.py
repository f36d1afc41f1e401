"""Audit of tags: which are probably missing or superfluous."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from trivet.commands.audit.audited import Audited, nearest_items
from trivet.commands.audit.items import Items
from trivet.commands.audit.options import AuditOptions
from trivet.commands.audit.record import AuditRecord, KindRange, Suspect, TagSuspect, probability_text
from trivet.io.overwrite_guard import TAG_SUSPECTS
from trivet.io.tag_cells import JOINED
from trivet.label_noise import TagSuspects, find_tag_suspects
from trivet.label_noise.tag_suspects import Kind
from trivet.mining.tags import Tags
from trivet.runtime.text import counted, percents

NEIGHBOURS = 8
MISSING, SUPERFLUOUS = "missing", "superfluous"


def audit_tags(request: AuditOptions, items: Items) -> Audited:
    """Audit the tags of items; those with tags that disagree are suspects, and other sets are proposed for them.

    Raises:
        ValueError: if an option is asked for that only classes have.
    """
    for option, value, remedy in (
        ("--neighbours", request.neighbours, "leave it out"),
        ("--drop-above", request.drop_above, "take --relabel-above, or decide on each item"),
    ):
        if value is not None:
            raise ValueError(f"{option} is for classes, and these are tags: {remedy}.")
    tags = Tags([name.split(JOINED) for name in items.labels.tolist()])
    suspects = _suspects(items, tags, request.seed)
    record = _tag_summary(items, tags, suspects)
    of_item: dict[int, list[int]] = defaultdict(list)
    for number, item in enumerate(suspects.items.tolist()):
        of_item[item].append(number)
    numbers_of = [*of_item.values()]
    columns = [*TAG_SUSPECTS, "decision", *(() if items.texts is None else ("text",))]
    return Audited(
        items=items,
        record=record.model_copy(update={"tag_names": tags.names.tolist()}),
        suspects=[_item_suspect(items, tags, suspects, item, numbers) for item, numbers in of_item.items()],
        positions=np.array(list(of_item), np.int64),
        reasons=lambda suspect: [_reason(tags, suspects, number) for number in numbers_of[suspect]],
        near=nearest_items(items, NEIGHBOURS),
        columns=columns,
        rows=([getattr(row, name, None) or "" for name in columns] for row in record.tag_suspects),
    )


def _suspects(items: Items, tags: Tags, seed: int) -> TagSuspects:
    """The suspect tags of each fold, whose items alone are comparable, as those of all."""
    if items.fold is None:
        return find_tag_suspects(items.embeddings, tags, seed=seed, distance=items.distance)
    folds = [np.flatnonzero(items.fold == number) for number in np.unique(items.fold)]
    judged = [
        find_tag_suspects(items.embeddings[rows], tags[rows], seed=seed, distance=items.distance) for rows in folds
    ]
    carried = tags.rows(tags.items)[:, : len(tags.names)]
    counts = [
        int(carried[rows][:, np.flatnonzero(each.judged)].sum()) for rows, each in zip(folds, judged, strict=True)
    ]
    ranges: dict[Kind, tuple[float, float]] = {}
    for kind in {kind: None for each in judged for kind in each.ranges}:
        ends = [
            np.array(each.ranges.get(kind, (0.0, 0.0))) * count / max(1, sum(counts))
            for each, count in zip(judged, counts, strict=True)
        ]
        least, most = np.sum(ends, axis=0).tolist()
        ranges[kind] = least, most
    wrong = np.concatenate([each.probability_wrong for each in judged])
    order = np.argsort(-wrong, kind="stable")
    return TagSuspects(
        items=np.concatenate([rows[each.items] for rows, each in zip(folds, judged, strict=True)])[order],
        tags=np.concatenate([each.tags for each in judged])[order],
        missing=np.concatenate([each.missing for each in judged])[order],
        probability_wrong=wrong[order],
        probability_tag=np.concatenate([each.probability_tag for each in judged])[order],
        judged=np.any([each.judged for each in judged], axis=0),
        ranges=ranges,
    )


def _item_suspect(items: Items, tags: Tags, suspects: TagSuspects, item: int, numbers: list[int]) -> Suspect:
    """An item with tags that disagree, and the set without what is called wrong, or at least the most suspect."""
    names = set(items.labels[item].split(JOINED)) - {""}
    right, changed = 1.0, 1.0
    for number in numbers:
        wrong = float(suspects.probability_wrong[number])
        if wrong > 0.5 or number == numbers[0]:
            names ^= {str(tags.names[suspects.tags[number]])}
            changed *= wrong
        else:
            changed *= 1 - wrong
        right *= 1 - wrong
    return Suspect(
        id=items.ids[item],
        label=str(items.labels[item]),
        proposed_label=JOINED.join(sorted(names)) or str(items.labels[item]),
        probability_wrong=float(f"{1 - right:.6g}"),
        probability_proposed=float(f"{changed:.6g}"),
        evidence="; ".join(_reason(tags, suspects, number) for number in numbers),
        text=None if items.texts is None else items.texts[item],
    )


def _reason(tags: Tags, suspects: TagSuspects, number: int) -> str:
    kind = MISSING if suspects.missing[number] else SUPERFLUOUS
    wrong, like = probability_text(suspects.probability_wrong[number]), 100 * suspects.probability_tag[number]
    return f"{tags.names[suspects.tags[number]]} is {kind} with {wrong} %: {like:.1f} % of items like it have the tag"


def _tag_summary(items: Items, tags: Tags, suspects: TagSuspects) -> AuditRecord:
    called = suspects.probability_wrong > 0.5
    kinds = np.where(suspects.missing, MISSING, SUPERFLUOUS)
    notes = list(items.notes)
    if unknown := tags.names[~suspects.judged].tolist():
        notes.append(
            f"{len(unknown)} of {len(tags.names)} tags are not judged, such as {unknown[0]!r}: fewer than ten "
            "items have them or lack them, or the embedding does not tell them; bring more items, or an embedding "
            "that separates them."
        )
    ranges = [
        KindRange(kind=kind, least=round(least, 6), most=round(most, 6), called=int((called & (kinds == kind)).sum()))
        for kind, (least, most) in suspects.ranges.items()
    ]
    numbers = " and ".join(f"{each.called} {each.kind}" for each in ranges)
    return AuditRecord(
        headline=f"Called wrong: {numbers} tags" if ranges else "These embeddings cannot judge these tags",
        details=[
            *(f"{each.kind}: {percents(each.least, each.most)} of the judged tags" for each in ranges),
            f"{items.name}, by {items.level}: {counted(len(tags), 'item')}, {counted(len(tags.names), 'tag')}, of "
            f"which {int(suspects.judged.sum())} can be judged",
        ],
        name=items.name,
        split=items.split,
        level=items.level,
        items=len(tags),
        distance=items.distance,
        tags=len(tags.names),
        judged_tags=int(suspects.judged.sum()),
        ranges=ranges,
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
