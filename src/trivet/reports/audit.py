"""The page of `trivet audit`: the most suspect items beside their neighbours, and what is to be done about each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.reports.items import is_number
from trivet.reports.page import MISSING, decimal, image, number, percent, same_length, write_page

_STRONG = 55  # per cent of the colour of a cell, from which its text is that of the paper


def write_audit_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page of an audit; a part that is absent is said to be absent.

    Args:
        record: what `trivet.tasks.audit.audit_path` gave, without "suspects", of which the page takes "shown": the
            most suspect items, each with "id", "label", "proposed", "probability", "evidence" (texts), "thumbnail" or
            "text", and its "neighbours": "id", "label", "similarity" or "distance", "thumbnail" or "text". Further
            "class_names" to relabel to, "command", "created" and "trivet" as far as known.

    Raises:
        ValueError: if the transition matrix and its classes differ in length.
        OSError: if the file cannot be written.
    """
    shown = [_item(one) for one in record.get("shown") or []]
    counts = Counter(label for one in shown for label in {one["label"], one["proposed"]})
    names = record.get("class_names") or []
    context = {
        "record": record,
        "title": f"{record.get('name') or 'embeddings'}{', ' + record['split'] if record.get('split') else ''}",
        "facts": _facts(record),
        "rate": _rate(record.get("noise_rate")),
        "shown": shown,
        "pictures": any(image(one.get("thumbnail")) for item in shown for one in (item, *item["neighbours"])),
        "filters": [(name, counts[name]) for name in names if name in counts],
        "names": names,
        "transition": _transition(record.get("transition")),
    }
    told = [{name: one[name] for name in ("id", "label", "proposed")} for one in shown]
    write_page("audit.html", path, context, {"items": told, "names": names}, script="audit.js", plotly=False)


def _facts(record: Mapping[str, Any]) -> list[str]:
    facts = [f"by {record['level']}"] if record.get("level") else []
    facts += [f"{number(record[name])} {name}" for name in ("items", "classes") if record.get(name) is not None]
    if record.get("folds") is not None:
        facts.append(f"out of {record['folds']} folds" if record["folds"] else "in one embedding")
    facts += [f"{record['neighbours']} neighbours each"] if record.get("neighbours") is not None else []
    return facts + ([f"{record['distance']} distance"] if record.get("distance") else [])


def _rate(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not found or not is_number(found.get("estimate")):
        return None
    low, high = found["interval"]
    return {"estimate": found["estimate"], "low": low, "high": high}


def _item(one: Mapping[str, Any]) -> dict[str, Any]:
    label, proposed = str(one.get("label")), str(one.get("proposed"))
    return {
        **one,
        "label": label,
        "proposed": proposed,
        "cents": percent(one.get("probability")),
        "neighbours": [
            {**near, "same": near.get("label") == label, "wished": near.get("label") == proposed, "near": _near(near)}
            for near in one.get("neighbours") or []
        ],
    }


def _near(near: Mapping[str, Any]) -> str:
    return decimal(near["similarity"] if near.get("similarity") is not None else near.get("distance"))


def _transition(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The rows of the heat map: by true class what the labels are."""
    if not found:
        return None
    classes, matrix = found["classes"], found["matrix"]
    columns = {f"columns of row {k + 1}": len(row) for k, row in enumerate(matrix)}
    same_length("the transition matrix", {"classes": len(classes), "rows": len(matrix), **columns})
    low, high = found.get("low"), found.get("high")

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
