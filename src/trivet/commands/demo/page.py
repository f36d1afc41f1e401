"""The page of `trivet demo`: class collapse on handwritten digits, with random and with easy positives."""

from __future__ import annotations

from pathlib import Path

from trivet.commands.demo.record import DemoMap, DemoRecord, DemoRow
from trivet.reports.measures import short_name
from trivet.reports.page import Pictures, percent, same_length, write_page
from trivet.runtime.record import Number, Record

MEASURES = ("recall@1", "recall@2", "recall@4", "recall@8", "nmi", "nmi+")
_POSITIVES = ("random", "easy")
_SPLITS = {"seen": "digits the network trained on", "unseen": "digits it never saw"}


def write_demo_report(record: DemoRecord, path: Path) -> None:
    """Write the page of a demo; a part that the record lacks is left out."""
    maps, pictures = record.maps, Pictures()
    panels = [_panel(positives, maps[positives], pictures) for positives in _POSITIVES if positives in maps]
    context = {
        "record": record,
        "panels": panels,
        "tables": _tables(record),
        "raw": _raw_pixels(record),
        "splits": _SPLITS,
        "short_name": short_name,
    }
    write_page("demo.html", path, context, {"panels": panels}, pictures=pictures)


class DemoPanel(Record):
    """A map as demo.html draws it; its shapes are those of the digits' parities."""

    positives: str
    points: list[list[Number]]
    classes: list[int]
    names: list[str]
    shapes: list[int]
    thumbnails: list[int | None]


def _panel(positives: str, demo_map: DemoMap, pictures: Pictures) -> DemoPanel:
    points, digits, thumbnails = demo_map.points, demo_map.digit, demo_map.thumbnails
    lengths = {"points": len(points), "digits": len(digits), "parities": len(demo_map.parity)}
    same_length(f"the map with {positives} positives", lengths | ({"images": len(thumbnails)} if thumbnails else {}))
    parity = dict(zip(digits, demo_map.parity, strict=True))
    return DemoPanel(
        positives=positives,
        points=points,
        classes=digits,
        names=[f"{digit} ({('even', 'odd')[digit % 2]})" for digit in range(10)],
        shapes=[parity.get(digit, digit % 2) for digit in range(10)],
        thumbnails=[pictures.number(uri) for uri in thumbnails] or [None] * len(points),
    )


def _tables(record: DemoRecord) -> list[tuple[str, str, list[str], list[DemoRow]]]:
    """A table per split and level: its measures, the two networks, then the references that were not trained."""
    every = [*record.results, *record.references]
    tables = []
    for split, level in dict.fromkeys((row.split, row.level) for row in every):
        rows = [row for row in every if (row.split, row.level) == (split, level)]
        tables.append((split, level, [name for name in MEASURES if any(name in row.measures for row in rows)], rows))
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
