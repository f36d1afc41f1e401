"""The page of `trivet demo`: class collapse on handwritten digits, with random and with easy positives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trivet.commands.demo.record import DemoMap, DemoRecord
from trivet.reports.page import Pictures, percent, same_length, write_page

_MEASURES = {
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
    maps, pictures = record.maps, Pictures()
    panels = [_panel(positives, maps[positives], pictures) for positives in _POSITIVES if positives in maps]
    context = {
        "record": record,
        "panels": panels,
        "tables": _tables(record),
        "raw": _raw_pixels(record),
        "splits": _SPLITS,
    }
    write_page("demo.html", path, context, {"panels": panels}, pictures=pictures)


def _panel(positives: str, demo_map: DemoMap, pictures: Pictures) -> dict[str, Any]:
    points, digits, thumbnails = demo_map.points, demo_map.digit, demo_map.thumbnails
    lengths = {"points": len(points), "digits": len(digits), "parities": len(demo_map.parity)}
    same_length(f"the map with {positives} positives", lengths | ({"images": len(thumbnails)} if thumbnails else {}))
    parity = dict(zip(digits, demo_map.parity, strict=True))
    return {
        "positives": positives,
        "points": points,
        "classes": digits,
        "names": [f"{digit} ({('even', 'odd')[digit % 2]})" for digit in range(10)],
        "shapes": [parity.get(digit, digit % 2) for digit in range(10)],
        "thumbnails": [pictures.number(uri) for uri in thumbnails] or [None] * len(points),
    }


def _tables(record: DemoRecord) -> list[dict[str, Any]]:
    """One table per split and level: the two networks, then the references that were not trained."""
    every = [*record.results, *record.references]
    tables = []
    for split, level in dict.fromkeys((row.split, row.level) for row in every):
        rows = [row for row in every if (row.split, row.level) == (split, level)]
        columns = [measure for measure in _MEASURES if any(measure in row.measures for row in rows)]
        cells = [(row.title, list(map(row.measures.get, columns)), row.name is None) for row in rows]
        tables.append(
            {"split": split, "level": level, "columns": [_MEASURES[column] for column in columns], "rows": cells}
        )
    return tables


def _raw_pixels(record: DemoRecord) -> list[str]:
    """A sentence for each split and level where the raw pixels retrieve better than both networks."""
    sentences = []
    for row in record.references:
        same = [result.recall_1 for result in record.results if (result.split, result.level) == (row.split, row.level)]
        best = max((recall.mean for recall in same if recall), default=1.0)
        if row.name == "raw pixels" and row.recall_1 and row.recall_1.mean > best:
            sentences.append(
                f"By {row.level} on {_SPLITS.get(row.split, row.split)}: raw pixels "
                f"{percent(row.recall_1.mean)}\u00a0%, best network {percent(best)}\u00a0%."
            )
    return sentences
