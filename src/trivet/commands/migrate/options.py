"""The arguments and options of `trivet migrate`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    DataRoot,
    Distance,
    ItemOptions,
    Json,
    Report,
    TrustCode,
    exists,
)


class Refusal(StrEnum):
    """Outcomes that can make the exit code 1."""

    WORSE = "worse"
    NOT_BETTER = "not-better"


@dataclass(frozen=True)
class MigrateOptions(ItemOptions):
    """A change of encoder as it is asked for."""

    embeddings: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD NEW",
            help=f"Embeddings of the same items by the encoder in use and by the new one: {VECTOR_FILES}, or a run "
            "folder; with --texts or --images both encoders. Items are matched by their id. With --left-vectors and "
            "--right-vectors, the old of each side first, the table of their pairs.",
            show_default=False,
            callback=exists,
        ),
    ]
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", "--level", help="A label column, of several the last decides. Default: all."),
    ] = None
    query: Annotated[str | None, typer.Option(help="The split used as queries. Default: every item is one.")] = None
    gallery: Annotated[
        str | None, typer.Option(help="The split to retrieve from. Default: all other items of the set.")
    ] = None
    split: Annotated[str | None, typer.Option(help="Use only the rows of this split.")] = None
    distance: Distance = None
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many neighbours of a query are compared.")] = 10
    head: Annotated[
        bool,
        typer.Option(
            "--head", help="Also train a head on the new embedding that searches the old index, and measure it in both."
        ),
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="Seed of the halves on which maps are fitted and measured.")] = 0
    report: Report = None
    fail_on: Annotated[
        list[Refusal] | None,
        typer.Option(
            help="Exit with 1 if the new encoder is worse, or if it is not better beyond doubt, as without labels. May "
            "be repeated."
        ),
    ] = None
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False
