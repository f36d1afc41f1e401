"""`trivet index`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import Distance, IndexKind, IndexRecall, Json, check_folder, exists, refuse
from trivet.runtime.progress import show_progress


def index(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            help="A run folder, or embeddings: npz, npy with csv, parquet, or a folder of shards.", callback=exists
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    run: Annotated[
        Path | None,
        typer.Option(
            help="For a file made by trivet embed RUN: that run, which then embeds image queries.",
            callback=exists,
        ),
    ] = None,
    distance: Distance = None,
    kind: Annotated[
        IndexKind,
        typer.Option(
            help="auto: exact up to 100,000 items, hnsw up to 1,000,000, ivf beyond. ivf-pq: short codes in memory, "
            "the vectors on disk."
        ),
    ] = "auto",
    recall: IndexRecall = None,
    seed: Annotated[int, typer.Option(help="Seed of the rows that train ivf and of those used to measure recall.")] = 0,
    split: Annotated[str | None, typer.Option(help="Index only the items of this split.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="For an .npy file: its csv file, if it has another name.", callback=exists)
    ] = None,
    text_model: Annotated[
        str | None,
        typer.Option(
            help="For a file: the sentence-transformers model that made it (name or folder), used for --text queries."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the index in the folder.")] = False,
    json: Json = False,
) -> int:
    """Make an index of embeddings, for trivet search."""
    check_folder(context, output)
    if kind == "exact":
        refuse(context, "an exact index finds all of the nearest", "recall")
    with show_progress("index"):
        from trivet.commands.index.run import make_index  # here: it loads the training stack

        made = make_index(
            source,
            output,
            run=run,
            distance=distance,
            kind=kind,
            recall=recall,
            seed=seed,
            split=split,
            table=table,
            text_model=text_model,
            force=force,
        )
    if json:
        print_json({"index": str(output), **made.as_json(unset=False)})
        return 0
    echo(f"{made.items} items of dimension {made.dimension} in {output}, {made.distance} distance")
    if made.kind == "exact":
        echo("exact search")
    else:
        chosen = ", ".join(f"{name} = {value}" for name, value in made.parameters.items())
        echo(
            f"{made.kind}: {chosen}; recall@{made.recall_at} {100 * made.recall:.1f} % relative to exact search, "
            f"measured on {made.recall_queries} items"
        )
    if made.kind == "ivf-pq":
        echo(f"{made.bytes_per_item} bytes per item in memory, {4 * made.dimension} more on disk")
    return 0
