"""The page of `trivet demo`: class collapse on handwritten digits, with random and with easy positives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trivet.commands.demo.record import DemoMap, DemoMeasure, DemoRecord, DemoReference, DemoResult, DemoRow
from trivet.reports.page import Pictures, percent, same_length, write_page

_MEASURES: dict[DemoMeasure, str] = {
    "recall@1": "R@1",
    "recall@2": "R@2",
    "recall@4": "R@4",
    "recall@8": "R@8",
    "nmi": "NMI",
    "nmi+": "NMI+",
}
_POSITIVES = ("random", "easy")
_SPLITS = {"seen": "digits the network trained on", "unseen": "digits it never saw"}


def write_demo_report(record: DemoRecord, path: Path) -> None:
    """Write the page of a demo; a part that the record lacks is left out.

    Raises:
        ValueError: if a map's points, digits, parities and images differ in number.
        OSError: if the file cannot be written.
    """
    results, references, maps, pictures = record["results"], record["references"], record["maps"], Pictures()
    panels = [_panel(positives, maps[positives], pictures) for positives in _POSITIVES if positives in maps]
    context = {
        "record": record,
        "panels": panels,
        "tables": _tables(results, references),
        "raw": _raw_pixels(results, references),
        "splits": _SPLITS,
    }
    write_page("demo.html", path, context, {"panels": panels}, pictures=pictures)


def _panel(positives: str, demo_map: DemoMap, pictures: Pictures) -> dict[str, Any]:
    points, digits, parities, thumbnails = (
        demo_map["points"],
        demo_map["digit"],
        demo_map["parity"],
        demo_map["thumbnails"],
    )
    lengths = {"points": len(points), "digits": len(digits), "parities": len(parities)}
    same_length(f"the map with {positives} positives", lengths | ({"images": len(thumbnails)} if thumbnails else {}))
    parity = dict(zip(digits, parities, strict=True))
    return {
        "positives": positives,
        "points": points,
        "classes": digits,
        "names": [f"{digit} ({('even', 'odd')[digit % 2]})" for digit in range(10)],
        "shapes": [int(parity.get(digit, digit % 2)) for digit in range(10)],
        "thumbnails": [pictures.number(uri) for uri in thumbnails] or [None] * len(points),
    }


def _tables(results: Sequence[DemoResult], references: Sequence[DemoReference]) -> list[dict[str, Any]]:
    """One table per split and level: the two networks, then the references that were not trained."""
    named: list[tuple[str, DemoRow, bool]] = [(f"{row['positives']} positives", row, True) for row in results]
    named += [(row["name"], row, False) for row in references]
    tables = []
    for split, level in dict.fromkeys((row["split"], row["level"]) for _, row, _ in named):
        rows = [item for item in named if (item[1]["split"], item[1]["level"]) == (split, level)]
        columns = [measure for measure in _MEASURES if any(row[measure] for _, row, _ in rows)]
        tables.append(
            {
                "split": split,
                "level": level,
                "columns": [_MEASURES[column] for column in columns],
                "rows": [(name, [row[column] for column in columns], trained) for name, row, trained in rows],
            }
        )
    return tables


def _raw_pixels(results: Sequence[DemoResult], references: Sequence[DemoReference]) -> list[str]:
    """A sentence for each split and level where the raw pixels retrieve better than both networks."""
    sentences = []
    for row in references:
        split, level, pixels = row["split"], row["level"], row["recall@1"]
        same = [result["recall@1"] for result in results if (result["split"], result["level"]) == (split, level)]
        best = max((recall["mean"] for recall in same if recall), default=1.0)
        if row["name"] == "raw pixels" and pixels and pixels["mean"] > best:
            sentences.append(
                f"By {level} on {_SPLITS.get(split, split)}: raw pixels {percent(pixels['mean'])}\u00a0%, "
                f"best network {percent(best)}\u00a0%."
            )
    return sentences
