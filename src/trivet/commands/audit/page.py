"""The page of `trivet audit`, on which labels are decided: each suspect item beside its neighbours."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from trivet.commands.audit.record import AuditRecord, NearbyItem, SuspectItem, Transition, probability_text
from trivet.reports.page import MISSING, Pictures, decimal, number, percent, same_length, write_page
from trivet.runtime.record import Record
from trivet.runtime.text import counted, noun

_FILES = (".csv", ".npz", ".npy", ".parquet")  # to which decisions are applied
_STRONG = 55  # per cent of the colour of a cell, from which its text is that of the paper


class PageData(Record):
    """Contents of the page for its script; a suspect and its item have the same number.

    `tags` are those that a new label may join by ";". `items` are id, number of the label, number of the picture and
    text; `suspects` number of the proposed label and of the one on offer, per cent, reasons, duplicate, the item it is
    one of, its label, outlier, neighbours: item and how near it is, and whether it is a pair that is missing.
    """

    key: str
    names: list[str]
    tags: list[str]
    items: list[tuple[str, int, int | None, str | None]]
    suspects: list[
        tuple[int, int, str, list[str], str | None, str | None, str | None, bool, list[tuple[int, str]], bool]
    ]
    wrong: str


class TransitionCell(Record):
    """A cell of the transition matrix: its text, its title, and the depth of its colour in per cent."""

    text: str
    title: str
    depth: int
    kind: str


def write_audit_report(record: AuditRecord, path: Path) -> None:
    """Write the page of an audit; a part that the record lacks is left out.

    The page holds all items of the record as data, and its script shows one of them at a time. What is decided on is
    kept in the browser under a digest of the items and their labels.
    """
    pictures = Pictures()
    data = _data(record, pictures)
    suspects = record.selected
    context = {
        "record": record,
        "title": ", ".join([record.name or "embeddings", *([record.split] if record.split else [])]),
        "facts": _facts(record),
        "rate": record.noise_rate,
        "wrong": _wrong(record),
        "shown": len(suspects),
        "pictures": bool(pictures.entries),
        "faceless": sum(suspect.thumbnail is None and suspect.text is None for suspect in suspects),
        "labels": _counted(suspect.label for suspect in suspects),
        "proposed": _counted(str(suspect.proposed_label) for suspect in suspects),
        "kinds": _kinds(record),
        "suffix": suffix if (suffix := Path(record.name).suffix.lower()) in _FILES else ".csv",
        "names": record.class_names,
        "transition": record.transition,
        "mixes": [] if record.transition is None else _cells(record.transition),
        "worst": [] if record.transition is None else _worst(record.transition.classes, record.transition.matrix),
    }
    write_page("audit.html", path, context, dict(data), script="audit.js", plotly=False, pictures=pictures)


def _wrong(record: AuditRecord) -> str:
    """Adjective for a suspect label."""
    return "wrong or not separable" if record.verdict == "cannot-tell" else "wrong"


def _counted(names: Iterable[str]) -> list[tuple[str, int]]:
    return sorted(Counter(names).items(), key=lambda pair: (len(pair[0]) if pair[0].isdigit() else 0, pair[0]))


def _kinds(record: AuditRecord) -> list[tuple[str, str, int]]:
    """Filters of the page: value, words, and number of items."""
    suspects = record.selected
    if record.pairs is not None:
        missing = sum(suspect.missing for suspect in suspects)
        return [("listed", "listed pairs", len(suspects) - missing), ("missing", "missing pairs", missing)]
    exact_or_near = [suspect.duplicate_label for suspect in suspects]
    return [
        ("other", "duplicates, other label", exact_or_near.count("other")),
        ("same", "duplicates, same label", exact_or_near.count("same")),
        ("outlier", "outliers", sum(suspect.outlier for suspect in suspects)),
    ]


def _data(record: AuditRecord, pictures: Pictures) -> PageData:
    names = list(record.class_names)
    number = {name: i for i, name in enumerate(names)}
    positions: dict[str, int] = {}
    items: list[tuple[str, int, int | None, str | None]] = []

    def numbered(name: str) -> int:
        if name not in number:
            number[name] = len(names)
            names.append(name)
        return number[name]

    def add(entry: SuspectItem | NearbyItem) -> int:
        items.append((entry.id, numbered(entry.label), pictures.number(entry.thumbnail), entry.text))
        return len(items) - 1

    def item(entry: NearbyItem) -> int:
        if entry.id not in positions:
            positions[entry.id] = add(entry)
        return positions[entry.id]

    for entry in record.selected:
        position = add(entry)
        if not entry.missing:
            positions[entry.id] = position
    suspects = []
    for entry in record.selected:
        estimated = record.verdict != "cannot-tell"
        probability = entry.probability_wrong if estimated else entry.probability_not_separable
        near = [(item(near), _near(near)) for near in entry.neighbours]
        labels = numbered(str(entry.proposed_label)), numbered(entry.offered(record.verdict))
        twin = entry.duplicate, entry.duplicate_of, entry.duplicate_label
        judgement = probability_text(probability), entry.reasons, *twin, entry.outlier, near
        suspects.append((*labels, *judgement, entry.missing))
    facts = [[entry.id, entry.proposed_label if entry.missing else entry.label] for entry in record.selected]
    content = [record.name, record.split, record.level, facts]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    return PageData(key=key, names=names, tags=record.tag_names, items=items, suspects=suspects, wrong=_wrong(record))


def _near(near: NearbyItem) -> str:
    return decimal(near.distance if near.similarity is None else near.similarity)


def _facts(record: AuditRecord) -> list[str]:
    facts = [f"by {record.level}"] if record.level else []
    counts = {"item": record.items, "class": record.classes}
    facts += [f"{number(count)} {noun(count, name)}" for name, count in counts.items() if count is not None]
    if record.folds is not None:
        facts.append(f"out of {counted(record.folds, 'fold')}" if record.folds else "in one embedding")
    facts += [f"{counted(record.neighbours, 'neighbour')} each"] if record.neighbours is not None else []
    return facts + ([f"{record.distance} distance"] if record.distance else [])


def _cells(transition: Transition) -> list[tuple[str, list[TransitionCell]]]:
    """The rows of the heat map: by true class what the labels are."""
    classes, matrix, low, high = transition.classes, transition.matrix, transition.low, transition.high
    columns = {f"columns of row {k + 1}": len(row) for k, row in enumerate(matrix)}
    same_length("the transition matrix", {"classes": len(classes), "rows": len(matrix), **columns})

    def cell(i: int, j: int) -> TransitionCell:
        share = matrix[i][j]
        title = f"{classes[i]} labelled {classes[j]}: {percent(share)} %"
        if low and high:
            title += f", 95 % interval {percent(low[i][j])} to {percent(high[i][j])} %"
        # Of small shares, which are the ones to be seen, the root is well above 0.
        depth = 0 if share is None else round(100 * math.sqrt(min(1.0, max(0.0, share))))
        text = MISSING if share is None else "" if share < 0.005 else f"{100 * share:.0f}"
        kind = ("right" if i == j else "wrong") + (" strong" if depth > _STRONG else "")
        return TransitionCell(text=text, title=title, depth=depth, kind=kind)

    return [(name, [cell(i, j) for j in range(len(classes))]) for i, name in enumerate(classes)]


def _worst(classes: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> list[tuple[str, str, str]]:
    """The three likeliest mistakes: the true class, the label, and how often in per cent."""
    pairs = [
        (share, i, j)
        for i, row in enumerate(matrix)
        for j, share in enumerate(row)
        if i != j and share is not None and share >= 0.005
    ]
    return [(classes[i], classes[j], percent(share)) for share, i, j in sorted(pairs, key=lambda entry: -entry[0])[:3]]
