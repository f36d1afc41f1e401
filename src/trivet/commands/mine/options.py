"""The arguments and options of `trivet mine`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    Distance,
    IndexRecall,
    Json,
    TagOptions,
    VectorOptions,
    exists,
)
from trivet.knn.kinds import IndexKind


@dataclass(frozen=True)
class MineOptions(VectorOptions, TagOptions):
    """A mining as it is asked for; the rules are those of `trivet.knn.hard_negatives.MiningRules`."""

    vectors: Annotated[
        Path,
        typer.Argument(
            help=f"The anchors: {VECTOR_FILES}, or a run folder.",
            callback=exists,
        ),
    ]
    output: Annotated[Path, typer.Option("--output", "-o", help="The parquet file to write.")]
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--level",
            help="The label column: items of one class, or that share a tag, are no negatives. Default: the only "
            "one; none with --pairs.",
        ),
    ] = None
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="A table with the columns anchor and positive, of ids or row numbers. Default: a positive of the "
            "class, see --positives.",
            callback=exists,
        ),
    ] = None
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Vectors to take positives and negatives from. Default: those of the anchors.", callback=exists
        ),
    ] = None
    k: Annotated[int, typer.Option("--k", help="Number of negatives for each anchor and positive.")] = 3
    positives: Annotated[
        Literal["easy", "hard", "random"],
        typer.Option(
            help="The positive in the anchor's class: easy is the nearest item, hard the farthest, random any."
        ),
    ] = "easy"
    negatives: Annotated[
        Literal["hard", "random"], typer.Option(help="Which candidates to take: hard the nearest, random any.")
    ] = "hard"
    among: Annotated[
        int, typer.Option(help="Candidates of an anchor: this many of the nearest items that may be negatives.")
    ] = 100
    skip: Annotated[int, typer.Option(help="Leave out this many of the nearest candidates.")] = 0
    margin: Annotated[
        float | None,
        typer.Option(help="Leave out candidates that are not farther than the positive by at least this distance."),
    ] = None
    relative_margin: Annotated[
        float | None,
        typer.Option(
            help="Leave out candidates that are more similar than the positive minus this share of its cosine "
            "similarity, such as 0.05."
        ),
    ] = None
    min_distance: Annotated[float | None, typer.Option(help="Leave out candidates nearer than this.")] = None
    max_distance: Annotated[float | None, typer.Option(help="Leave out candidates farther than this.")] = None
    text: Annotated[str | None, typer.Option(help="A column of texts to write beside the ids.")] = None
    split: Annotated[str | None, typer.Option(help="Take only the rows of this split of VECTORS.")] = None
    distance: Distance = None
    kind: Annotated[IndexKind, typer.Option(help="Kind of the index, as in trivet index.")] = "auto"
    recall: IndexRecall = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of random choices and of the index.")] = 0
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False
    json: Json = False
