"""The page of `trivet drift`: the answer, each question, new clusters, classes, and where the change is."""

from __future__ import annotations

from pathlib import Path

from trivet.commands.drift.record import DriftRecord
from trivet.reports.page import write_page


def write_drift_report(record: DriftRecord, path: Path) -> None:
    """Write the page of a comparison of new data with a reference."""
    classes = [
        each
        for each in record.classes
        if each.share_p <= record.false_alarms or (each.within_p is not None and each.within_p <= record.false_alarms)
    ]
    write_page("drift.html", path, {"record": record, "classes": classes})
