"""The page of `trivet audit`: the most suspect items beside their neighbours, with a choice for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trivet.records import AuditRecord
from trivet.records.audit import ShownSuspect, Transition
from trivet.reports.page import MISSING, Pictures, decimal, number, percent, same_length, write_page

_STRONG = 55  # per cent of the colour of a cell, from which its text is that of the paper


def write_audit_report(record: AuditRecord, path: Path) -> None:
    """Write the page of an audit; a part that the record lacks is left out.

    Raises:
        ValueError: if the transition matrix and its classes differ in length.
        OSError: if the file cannot be written.
    """
    pictures = Pictures()
    shown = [_item(one, pictures) for one in record["shown"]]
    counts = Counter(label for one in record["shown"] for label in {one["label"], one["proposed"]})
    names = record["class_names"]
    rate = record["noise_rate"]
    context = {
        "record": record,
        "title": ", ".join([record["name"] or "embeddings", *([record["split"]] if record["split"] else [])]),
        "facts": _facts(record),
        "rate": rate and {"estimate": rate["estimate"], "low": rate["interval"][0], "high": rate["interval"][1]},
        "shown": shown,
        "pictures": bool(pictures.places),
        "filters": [(name, counts[name]) for name in names if name in counts],
        "names": names,
        "transition": _transition(record["transition"]),
    }
    told = [{"id": one["id"], "label": one["label"], "proposed": one["proposed"]} for one in record["shown"]]
    plots = {"items": told, "names": names}
    write_page("audit.html", path, context, plots, script="audit.js", plotly=False, pictures=pictures)


def _facts(record: AuditRecord) -> list[str]:
    facts = [f"by {record['level']}"] if record["level"] else []
    counts = {"items": record["items"], "classes": record["classes"]}
    facts += [f"{number(count)} {name}" for name, count in counts.items() if count is not None]
    if record["folds"] is not None:
        facts.append(f"out of {record['folds']} folds" if record["folds"] else "in one embedding")
    facts += [f"{record['neighbours']} neighbours each"] if record["neighbours"] is not None else []
    return facts + ([f"{record['distance']} distance"] if record["distance"] else [])


def _item(one: ShownSuspect, pictures: Pictures) -> dict[str, Any]:
    return {
        **one,
        "picture": pictures.place(one["thumbnail"]),
        "cents": percent(one["probability"]),
        "neighbours": [
            {
                **near,
                "picture": pictures.place(near["thumbnail"]),
                "same": near["label"] == one["label"],
                "near": decimal(near["distance"] if near["similarity"] is None else near["similarity"]),
            }
            for near in one["neighbours"]
        ],
    }


def _transition(transition: Transition | None) -> dict[str, Any] | None:
    """The rows of the heat map: by true class what the labels are."""
    if not transition:
        return None
    classes, matrix, low, high = transition["classes"], transition["matrix"], transition["low"], transition["high"]
    columns = {f"columns of row {k + 1}": len(row) for k, row in enumerate(matrix)}
    same_length("the transition matrix", {"classes": len(classes), "rows": len(matrix), **columns})

    def cell(i: int, j: int) -> dict[str, Any]:
        share = matrix[i][j]
        said = f"{classes[i]} labelled {classes[j]}: {percent(share)} %"
        if low and high:
            said += f", 95 % interval {percent(low[i][j])} to {percent(high[i][j])} %"
        # Of small shares, which are the ones to be seen, the root is well above 0.
        depth = 0 if share is None else round(100 * math.sqrt(min(1.0, max(0.0, share))))
        return {
            "text": MISSING if share is None else "" if share < 0.005 else f"{100 * share:.0f}",
            "said": said,
            "depth": depth,
            "kind": ("right" if i == j else "wrong") + (" strong" if depth > _STRONG else ""),
        }

    return {
        "classes": classes,
        "rows": [(name, [cell(i, j) for j in range(len(classes))]) for i, name in enumerate(classes)],
        "worst": _worst(classes, matrix),
    }


def _worst(classes: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> list[tuple[str, str, str]]:
    """The three likeliest mistakes: the true class, the label, and how often in per cent."""
    pairs = [
        (share, i, j)
        for i, row in enumerate(matrix)
        for j, share in enumerate(row)
        if i != j and share is not None and share >= 0.005
    ]
    return [(classes[i], classes[j], percent(share)) for share, i, j in sorted(pairs, key=lambda one: -one[0])[:3]]
