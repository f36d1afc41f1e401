"""The page of `trivet simulate`: figures of the papers' theory, how to read them, and the checks behind them."""

from __future__ import annotations

from pathlib import Path

from trivet.reports.page import write_page
from trivet_papers.simulate.record import SimulationRecord


def write_simulation_report(record: SimulationRecord, path: Path) -> None:
    """Write the page of a simulation, without scripts.

    Raises:
        OSError: if the file cannot be written.
    """
    checks = record["checks"]
    write_page("simulation.html", path, {"record": record, "failed": [row for row in checks if not row["holds"]]})
