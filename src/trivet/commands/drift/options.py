"""The arguments and options of `trivet drift`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    Distance,
    Json,
    Report,
    Separator,
    SkipEmpty,
    VectorOptions,
    exists,
)


class Change(StrEnum):
    """Findings that can make the exit code 1."""

    CHANGE = "change"
    SCOPE = "scope"
    CLUSTER = "cluster"
    RECALL = "recall"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class DriftOptions(VectorOptions):
    """A comparison of new data with a reference as it is asked for."""

    reference: Annotated[
        Path,
        typer.Argument(
            help=f"What new data should be like: {VECTOR_FILES}, or a run folder; with --encoder a file of texts or a "
            "folder of images.",
            callback=exists,
        ),
    ]
    now: Annotated[Path, typer.Argument(help="The new data, of the same kind.", callback=exists)]
    encoder: Annotated[
        Path | None,
        typer.Option(
            help="Embed texts or images of both by this encoder: a run, a folder of sentence-transformers, "
            "transformers or timm, or a file of weights.",
            callback=exists,
        ),
    ] = None
    text: Annotated[str | None, typer.Option(help="The column of texts, to embed or to show. Default: text.")] = None
    network: Annotated[
        str | None, typer.Option(help="The network of a file of weights, as for trivet evaluate --images.")
    ] = None
    labels: Annotated[
        str | None,
        typer.Option("--labels", "--level", help="A column of labels of both. Default: the only one that both have."),
    ] = None
    separator: Separator = None
    group: Annotated[
        str | None,
        typer.Option(
            help="A column of groups whose items resemble each other, such as author, camera or document: they change "
            "sides together, as no two of them are independent."
        ),
    ] = None
    canaries: Annotated[
        Path | None,
        typer.Option(
            help="Labelled queries, in a file like those of both: whether recall@1 fell from the reference to now.",
            callback=exists,
        ),
    ] = None
    false_alarms: Annotated[float, typer.Option(help="The chance of an alarm where nothing has changed.")] = 0.05
    distance: Distance = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of permutations and samples.")] = 0
    top: Annotated[int, typer.Option(min=0, help="How many items to print of each kind.")] = 3
    report: Report = None
    fail_on: Annotated[
        list[Change] | None,
        typer.Option(
            help="Exit with 1 if there is a change, if more is out of scope, if a cluster is new, if recall of the "
            "canaries fell, or if it is unclear whether there is a change. May be repeated."
        ),
    ] = None
    skip_empty: SkipEmpty = False
    json: Json = False
