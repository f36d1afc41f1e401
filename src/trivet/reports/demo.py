"""The page of `trivet demo`: class collapse on handwritten digits, with random and with easy positives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.reports.page import images, percent, same_length, write_page

_MEASURES = {"recall@1": "R@1", "recall@2": "R@2", "recall@4": "R@4", "recall@8": "R@8", "nmi": "NMI", "nmi+": "NMI+"}
_POSITIVES = ("random", "easy")
_SPLITS = {"seen": "digits the network trained on", "unseen": "digits it never saw"}


def write_demo_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page of a demo record; a part that is absent is said to be absent.

    Raises:
        ValueError: if a map's points, digits, parities and images differ in number.
        OSError: if the file cannot be written.
    """
    results, references = record.get("results") or [], record.get("references") or []
    maps = record.get("maps") or {}
    panels = [_panel(positives, maps[positives]) for positives in _POSITIVES if positives in maps]
    context = {
        "record": record,
        "panels": panels,
        "tables": _tables(results, references),
        "measures": _MEASURES,
        "raw": _raw_pixels(results, references),
        "collapse": record.get("collapse") or {},
        "gains": record.get("gains") or {},
        "splits": _SPLITS,
    }
    write_page("demo.html", path, context, {"panels": panels})


def _panel(positives: str, part: Mapping[str, Any]) -> dict[str, Any]:
    places, digits, parities = part["points"], part["digit"], part["parity"]
    thumbnails = part.get("thumbnails") or []
    lengths = {"points": len(places), "digits": len(digits), "parities": len(parities)}
    same_length(f"the map with {positives} positives", lengths | ({"images": len(thumbnails)} if thumbnails else {}))
    parity = dict(zip(digits, parities, strict=True))
    return {
        "positives": positives,
        "points": places,
        "classes": digits,
        "names": [f"{digit} ({('even', 'odd')[digit % 2]})" for digit in range(10)],
        "shapes": [int(parity.get(digit, digit % 2)) for digit in range(10)],
        "thumbnails": images(thumbnails, len(places)),
    }


def _tables(results: Sequence[Mapping[str, Any]], references: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One table per split and level: the two networks, then the references that were not trained."""
    tables = []
    for split, level in dict.fromkeys((row["split"], row["level"]) for row in [*results, *references]):
        networks = [row for row in results if (row["split"], row["level"]) == (split, level)]
        others = [row for row in references if (row["split"], row["level"]) == (split, level)]
        rows = [(f"{row['positives']} positives", row, True) for row in networks]
        rows += [(row["name"], row, False) for row in others]
        columns = [measure for measure in _MEASURES if any(row.get(measure) for _, row, _ in rows)]
        tables.append(
            {
                "split": split,
                "level": level,
                "columns": columns,
                "rows": [(name, [row.get(column) for column in columns], trained) for name, row, trained in rows],
            }
        )
    return tables


def _raw_pixels(results: Sequence[Mapping[str, Any]], references: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each split and level where the raw pixels retrieve better than both networks."""
    sentences = []
    for row in references:
        split, level = row["split"], row["level"]
        means = [
            result["recall@1"]["mean"] for result in results if (result["split"], result["level"]) == (split, level)
        ]
        if row["name"] == "raw pixels" and means and row["recall@1"]["mean"] > max(means):
            sentences.append(
                f"By {level} on {_SPLITS.get(split, split)}: raw pixels {percent(row['recall@1']['mean'])}\u00a0%, "
                f"best network {percent(max(means))}\u00a0%."
            )
    return sentences
