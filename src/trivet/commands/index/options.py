"""The arguments and options of `trivet index`."""

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
    SkipEmpty,
    TrustCode,
    VectorOptions,
    exists,
)
from trivet.knn.kinds import IndexKind, Postprocessing


@dataclass(frozen=True)
class IndexOptions(VectorOptions):
    """An index as it is asked for."""

    source: Annotated[
        Path,
        typer.Argument(
            help=f"A run folder, or embeddings: {VECTOR_FILES}.",
            callback=exists,
        ),
    ]
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to make, or with --add or --remove to change.")
    ]
    run: Annotated[
        Path | None,
        typer.Option(
            help="For a file made by trivet embed RUN: that run, which then embeds image queries.", callback=exists
        ),
    ] = None
    distance: Distance = None
    kind: Annotated[
        IndexKind,
        typer.Option(
            help="auto: exact up to 100,000 items, hnsw up to 1,000,000, ivf beyond. int8, binary, ivf-pq: "
            "short codes in memory, the vectors on disk."
        ),
    ] = "auto"
    postprocess: Annotated[
        Postprocessing | None,
        typer.Option(
            help="What every search of the index does: whitening (a map that is stored with it), expansion of queries, "
            "reciprocal re-ranking. trivet evaluate --postprocess measures what they gain."
        ),
    ] = None
    recall: IndexRecall = None
    seed: Annotated[int, typer.Option(help="Seed of the rows that train ivf and of those used to measure recall.")] = 0
    split: Annotated[str | None, typer.Option(help="Index only the items of this split.")] = None
    side: Annotated[
        Literal["left", "right"] | None,
        typer.Option(
            help="Of pairs, in a run or a file: the side whose items are indexed. Default: the right one, or the left "
            "one with a --split that ends in -reversed."
        ),
    ] = None
    skip_empty: SkipEmpty = False
    text_model: Annotated[
        str | None,
        typer.Option(
            help="For vectors made by a sentence-transformers model: that model (name or folder), for --text queries."
        ),
    ] = None
    text_prefix: Annotated[
        str, typer.Option(help="What --text-model was given before each text, such as 'query: '.")
    ] = ""
    add: Annotated[
        bool,
        typer.Option("--add", help="Add the embeddings to the index in the folder; items of the same id are replaced."),
    ] = False
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove the items whose ids are in the column id of a table, SOURCE."),
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Replace the index in the folder.")] = False
    trust_code: TrustCode = False
    json: Json = False
