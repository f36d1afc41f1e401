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
    Json,
    Report,
    SkipEmpty,
    TagOptions,
    TrustCode,
    VectorOptions,
    exists,
)
from trivet.io.overwrite_guard import is_run_folder


class Failure(StrEnum):
    """Findings that can make the exit code 1."""

    COLLAPSE = "collapse"
    WORSE = "worse"
    CHANCE = "chance"


@dataclass(frozen=True)
class DiagnoseOptions(VectorOptions, TagOptions):
    """A diagnosis as it is asked for."""

    embeddings: Annotated[
        list[Path],
        typer.Argument(
            help=f"Embeddings: {VECTOR_FILES}, or a run folder; or with --texts or --images an encoder; several are "
            "shown side by side.",
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
            "and its inputs; none for a file.",
            callback=exists,
        ),
    ] = None
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Embed the texts of this file, such as a .csv with their labels, by encoders: folders of "
            "sentence-transformers, transformers or Trivet.",
            callback=exists,
        ),
    ] = None
    text: Annotated[str | None, typer.Option(help="With --texts: the column that holds the texts. Default: text.")] = (
        None
    )
    images: Annotated[
        Path | None,
        typer.Option(
            help="Embed the images of this folder, one folder for each class, by encoders: folders of timm or Trivet, "
            "or files of weights.",
            callback=exists,
        ),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            help="With --images: the network of files of weights, timm:NAME or torchvision:NAME. Default: that of timm "
            "which a file is called like."
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
    skip_empty: SkipEmpty = False
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

    def is_run(self, path: Path) -> bool:
        """Return whether a path is a run, which it is not where it embeds items."""
        return self.texts is None and self.images is None and is_run_folder(path)

    def check(self) -> None:
        """ValueError if options do not go together."""
        if self.texts is not None and self.images is not None:
            raise ValueError("--texts and --images are two kinds of items: got both; leave one out.")
        if self.text is not None and self.texts is None:
            raise ValueError("--text names a column of a file of texts: give the file with --texts.")
        if self.network is not None and self.images is None:
            raise ValueError("--network is of files of weights that embed images: give these with --images.")
