"""`trivet simulate`: the checks of the papers' statements, and a folder of figures with their numbers."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal, get_args

from trivet.io.atomic_files import atomic_folder, write_atomic, write_json
from trivet.reports.figure import encode
from trivet.reports.page import write_page
from trivet.runtime.progress import steps
from trivet.runtime.record import Record
from trivet.training.run_folder import RECORD
from trivet_papers.checks import Check
from trivet_papers.experiment import DrawnRecord
from trivet_papers.figure import Figure, table

Theory = Literal["dynamics", "isometry", "noise", "risk"]
SUBJECTS: tuple[Theory, ...] = get_args(Theory)
PAGE, FIGURES = "simulation.html", "figures"
PAPERS = {"dynamics": "xuan2020", "isometry": "xu2024", "noise": "le2018", "risk": "levi2021"}
_TITLES = {
    "dynamics": "How a triplet moves in one gradient step",
    "isometry": "How far an embedding is from separating its classes",
    "noise": "How much label noise a loss tolerates",
    "risk": "Collapsed or in two modes: which has the lower expected loss",
}


class FigureRecord(DrawnRecord):
    """A figure with the columns and the number of rows of its data."""

    columns: list[str]
    rows: int


class SimulationRecord(Record):
    """The content of the page of a simulation; its settings are option -> value."""

    subject: str
    title: str
    settings: dict[str, object]
    checks: list[Check]
    command: str
    created: str
    trivet: str
    figures: list[FigureRecord]


def check(subjects: Sequence[Theory] = SUBJECTS) -> Iterator[tuple[Theory, list[Check]]]:
    """Run the checks of the paper behind each subject: `(subject, checks)` one after the other."""
    for subject in steps(subjects, "checking papers"):
        yield subject, import_module(f"trivet_papers.{PAPERS[subject]}.claims").checks()


def simulate(
    subject: Theory,
    figures: Sequence[Figure],
    folder: Path,
    *,
    settings: Mapping[str, object],
    checks: Sequence[Check] = (),
    command: str,
    force: bool = False,
) -> SimulationRecord:
    """Write the figures of a subject to a folder, with a page that explains them.

    `figures/NAME.csv` holds every number that is drawn, `NAME.svg` and `NAME.png` the picture, `simulation.html` all
    pictures and the table of checks, `record.json` what the page says.

    Args:
        settings: option -> value, for the page.
        checks: of the subject; none for a page without that table.
        command: what was typed.
        force: replace a folder of an earlier simulation.

    Raises:
        ValueError: if the folder exists and is not one of a simulation, or is one and `force` is not set.
        OSError: if a file cannot be written.
    """
    kind = frozenset((RECORD, PAGE, FIGURES))
    with atomic_folder(folder, kind, mark=RECORD, what="a simulation", force=force) as new:
        selected = []
        for figure in steps(figures, "drawing figures"):
            picture = encode(figure.picture, "png")
            files = {"png": picture, "svg": encode(figure.picture, "svg"), "csv": table(figure.numbers)}
            for ending, data in files.items():
                write_atomic(new / FIGURES / f"{figure.name}.{ending}", data)
            rows = len(next(iter(figure.numbers.values())))
            texts = vars(DrawnRecord.of(figure, picture))
            selected.append(FigureRecord(**texts, columns=list(figure.numbers), rows=rows))
        record = SimulationRecord(
            subject=subject,
            title=_TITLES[subject],
            settings=dict(settings),
            checks=list(checks),
            command=command,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            trivet=metadata.version("trivet"),
            figures=selected,
        )
        failed = [row for row in checks if not row.holds]
        write_page("simulation.html", new / PAGE, {"record": record, "failed": failed})
        write_json(new / RECORD, record.as_json())
    return record
