"""`trivet index`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.output import Json, print_json


class Distance(StrEnum):
    """What near means."""

    cosine = "cosine"
    euclidean = "euclidean"


class Kind(StrEnum):
    """How the index searches."""

    auto = "auto"
    exact = "exact"
    hnsw = "hnsw"
    ivf = "ivf"


def index(
    source: Annotated[Path, typer.Argument(help="A run folder, or a file of embeddings: npz, npy with csv, parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    distance: Annotated[
        Distance | None, typer.Option(help="Default: that of the run's evaluation; cosine for a file.")
    ] = None,
    kind: Annotated[
        Kind, typer.Option(help="auto: exact up to 100,000 items, hnsw up to 1,000,000, ivf beyond.")
    ] = Kind.auto,
    seed: Annotated[int, typer.Option(help="Of the rows that train ivf, and of those that recall is measured on.")] = 0,
    split: Annotated[str | None, typer.Option(help="Index the items of this split only.")] = None,
    table: Annotated[Path | None, typer.Option(help="Of an npy file: its csv, if not of the same name.")] = None,
    text_model: Annotated[
        str | None,
        typer.Option(help="Of a file: the sentence-transformers model that made it, by name or folder, for --text."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the index that the folder holds.")] = False,
    json: Json = False,
) -> int:
    """Make an index folder of embeddings, for trivet search."""
    from trivet.tasks.index import make_index  # here: it loads the training stack

    made = make_index(
        source,
        output,
        distance=None if distance is None else distance.value,
        kind=kind.value,
        seed=seed,
        split=split,
        table=table,
        text_model=text_model,
        force=force,
        progress=True,
    )
    if json:
        print_json({"index": str(output), **made})
        return 0
    typer.echo(f"{made['items']} items of dimension {made['dimension']} in {output}, {made['distance']} distance")
    chosen = ", ".join(f"{name} = {value}" for name, value in made["parameters"].items())
    if made["kind"] == "exact":
        typer.echo("exact: every item is compared")
    else:
        typer.echo(
            f"{made['kind']}: {chosen}; recall@{made['recall_at']} {made['recall']:.1%} of the exact search, "
            f"measured on {made['recall_queries']} items"
        )
    return 0
