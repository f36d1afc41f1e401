"""The arguments and options of `trivet diagnose`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    DataRoot,
    DistanceByDimension,
    ItemOptions,
    Json,
    Report,
    TrustCode,
    exists,
)


class Failure(StrEnum):
    """Findings that can make the exit code 1."""

    COLLAPSE = "collapse"
    WORSE = "worse"
    CHANCE = "chance"


@dataclass(frozen=True)
class DiagnoseOptions(ItemOptions):
    """A diagnosis as it is asked for."""

    embeddings: Annotated[
        list[Path],
        typer.Argument(
            help=f"Embeddings: {VECTOR_FILES}, or a run folder; or with --texts or --images an encoder; several are "
            "shown side by side. With --left-vectors and --right-vectors the table of their pairs.",
            show_default=False,
            callback=exists,
        ),
    ]
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--level",
            help="The label column to diagnose. Default: the first; for a run, the level it was trained on.",
        ),
    ] = None
    fine: Annotated[
        list[str] | None, typer.Option(help="A finer label column. May be repeated. Default: all finer ones.")
    ] = None
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another embedding of the same items, such as that before training: a file or a run, matched by id "
            "if both have one, or an encoder. May be repeated. Default: the untrained network of a run, its backbone "
            "and its inputs; none for a file. Beside --left-vectors the two files of a side each, the left one first.",
            callback=exists,
        ),
    ] = None
    distance: DistanceByDimension = None
    split: Annotated[
        str | None,
        typer.Option(
            help="Use only the rows of this split. Default: all rows of a file; all splits of a run, its training "
            "items alone beside a --reference that is a file."
        ),
    ] = None
    report: Report = None
    fail_on: Annotated[
        list[Failure] | None,
        typer.Option(
            help="Exit with 1 if the network or the classes collapsed, if an embedding is worse than a reference, or "
            "if it is no better than chance. May be repeated."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False
