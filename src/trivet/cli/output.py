"""What commands print: one JSON object, or a table for people; everything else goes to standard error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets by name. Default: TRIVET_DATA, else ~/.cache/trivet."),
]


def command_line() -> str:
    """What was typed, for the record."""
    return shlex.join(["trivet", *sys.argv[1:]])


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def run_summary(record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The JSON of `train` and `evaluate`: "evaluation" is that of the first split, "splits" holds all."""
    splits = {
        split: {row["name"]: row["levels"] for row in rows} for split, rows in record.get("evaluation", {}).items()
    }
    first = next(iter(splits), None)
    return {
        "run": str(folder),
        "status": record["status"],
        "split": first,
        "evaluation": splits[first]["trained"] if first else {},
        "splits": {split: rows["trained"] for split, rows in splits.items()},
        "references": {
            split: {name: levels for name, levels in rows.items() if name != "trained"}
            for split, rows in splits.items()
        },
        "collapse": record.get("collapse", {}),
        "seconds": record["seconds"],
        "warnings": record["warnings"],
        "report": str(folder / "report.html"),
    }


def print_run(record: Mapping[str, Any], folder: Path) -> None:
    """The evaluation of a run as tables on standard output."""
    console = Console()
    for split, rows in record.get("evaluation", {}).items():
        measures = [key for key in next(iter(rows[0]["levels"].values())) if key.startswith(("recall@", "nmi"))]
        measures = [key for key in measures if not key.startswith("nmi+_")]
        table = Table(title=Text(f"{split}: per cent"), title_justify="left")
        for column in ("level", "", *(key.replace("recall", "R") for key in measures)):
            table.add_column(column, justify="left" if column in ("level", "") else "right")
        for level in rows[0]["levels"]:
            for row in rows:
                shares = [row["levels"][level].get(key) for key in measures]
                table.add_row(
                    Text(level), row["name"], *("–" if share is None else f"{share:.1%}"[:-1] for share in shares)
                )
            table.add_section()
        console.print(table)
    for warning in record["warnings"]:
        console.print(f"Note: {warning}", markup=False)
    console.print(f"Run: {folder}\nReport: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)
