"""The arguments and options of `trivet leaks`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.shared_options import DataRoot, Json, Report, SkipEmpty, TrustCode, VectorOptions, exists


class Leak(StrEnum):
    """Findings that can make the exit code 1."""

    EXACT = "exact"
    NEAR = "near"
    GROUP = "group"


@dataclass(frozen=True)
class LeaksOptions(VectorOptions):
    """A search for copies as it is asked for."""

    data: Annotated[
        list[Path],
        typer.Argument(
            help="Settings, a run folder, or data as for trivet init that say what is trained on; or several files or "
            "folders, of which each is compared with those before it.",
            show_default=False,
            callback=exists,
        ),
    ]
    labels: Annotated[
        list[str] | None, typer.Option(help="A column of labels, of several the last counts. Default: guessed.")
    ] = None
    text: Annotated[str | None, typer.Option(help="The column of texts. Default: guessed.")] = None
    group: Annotated[
        list[str] | None,
        typer.Option(help="A column of groups that must not cross, such as camera or author. May be repeated."),
    ] = None
    crops: Annotated[
        bool, typer.Option("--crops", help="Search images for cut-outs, too, which takes 25 times as long.")
    ] = False
    encoder: Annotated[
        Path | None,
        typer.Option(
            help="Search images or texts by their embeddings, too, of this encoder: a run, a folder of "
            "sentence-transformers, transformers or timm, or a file of weights.",
            callback=exists,
        ),
    ] = None
    network: Annotated[
        str | None, typer.Option(help="The network of a file of weights, as for trivet evaluate --images.")
    ] = None
    top: Annotated[int, typer.Option(min=0, help="How many copies of each kind to print.")] = 3
    report: Report = None
    fail_on: Annotated[
        list[Leak] | None,
        typer.Option(
            help="Exit with 1 if there are exact copies, copies of any kind (not texts that are alike or differ by one "
            "word), or groups that cross. May be repeated."
        ),
    ] = None
    skip_empty: SkipEmpty = False
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False
