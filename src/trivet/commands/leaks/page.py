"""The page of `trivet leaks`: the answer, the counts, and the copies side by side with their originals."""

from __future__ import annotations

from pathlib import Path

from trivet.commands.leaks.record import LeakedItem, LeaksRecord
from trivet.reports.page import write_page
from trivet.runtime.record import Record

TITLES = {
    "exact": "Exact copies",
    "near": "Near copies",
    "cropped": "Cut out of another image",
    "by encoder": "Near by the encoder",
    "alike": "Alike by the encoder",
    "one word": "Different by one word",
}


class LeakSection(Record):
    """The copies of one kind that the page shows, and how many there are."""

    title: str
    split: str
    searched: str
    total: int
    leaks: list[LeakedItem]


def write_leaks_report(record: LeaksRecord, path: Path) -> None:
    """Write the page of a search for copies."""
    sections = []
    for counts in record.comparisons:
        for kind, title in TITLES.items():
            leaks = [leak for leak in counts.leaks if leak.kind == kind]
            pictured = [leak for leak in leaks if leak.thumbnail or leak.text]
            if leaks:
                sections.append(
                    LeakSection(
                        title=title, split=counts.split, searched=counts.searched, total=len(leaks), leaks=pictured
                    )
                )
    copies = any(counts.copies for counts in record.comparisons)
    write_page("leaks.html", path, {"record": record, "sections": sections, "copies": copies})
