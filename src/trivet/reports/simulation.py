"""The page of `trivet simulate`: figures of the papers' theory, how to read them, and the checks behind them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trivet.reports.page import write_page


def write_simulation_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page of a simulation, without scripts.

    Args:
        record: "subject", "title", "settings" (option -> value), "command", "created", "trivet"; "figures", each with
            name, title, source, reading, columns, rows and picture (a data URI); "checks", each with id, statement,
            expected, found and holds.

    Raises:
        OSError: if the file cannot be written.
    """
    checks = record["checks"]
    write_page("simulation.html", path, {"record": record, "failed": [row for row in checks if not row["holds"]]})
