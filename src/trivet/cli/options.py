"""Options that several commands have, and checks of what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from trivet.files import recover

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets. Default: TRIVET_DATA, else ~/.cache/trivet."),
]
Distance = Annotated[
    Literal["cosine", "euclidean"] | None, typer.Option(help="Distance. Default: the run's; cosine for a file.")
]
Report = Annotated[Path | None, typer.Option(help="Write a page with tables and plots to this file.")]
Change = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: section.key=value. May be repeated.")
]


Paths = TypeVar("Paths", Path | None, list[Path] | None)


def exists(paths: Paths) -> Paths:
    """The path or paths of an argument; ValueError if one does not exist."""
    for path in [paths] if isinstance(paths, Path) else paths or []:
        recover(path)  # what a killed command has moved away comes back
        if not path.exists():
            raise ValueError(f"an input must exist: {path} does not exist; check the path.")
    return paths


def given(context: typer.Context, *names: str) -> list[str]:
    """Those of the named options that were written on the command line, as they are written there."""
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in names and getattr(context.get_parameter_source(option.name), "name", "") == "COMMANDLINE"
    ]


def refuse(context: typer.Context, reason: str, *names: str) -> None:
    """ValueError if one of the named options was written, which would do nothing for this reason."""
    if written := given(context, *names):
        raise ValueError(f"{reason}: leave out {', '.join(written)}.")


def check_output(file: Path | None) -> None:
    """ValueError unless a file can be written there."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise ValueError(f"an output must be a file in a folder that exists: got {file}; make the folder first.")
