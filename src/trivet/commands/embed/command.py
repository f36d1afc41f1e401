"""`trivet embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import (
    DataRoot,
    EmbeddingColumn,
    Json,
    Table,
    TrustCode,
    VectorCodes,
    check_folder,
    check_written,
    exists,
    refuse,
)
from trivet.io.overwrite_guard import embeddings, in_shards
from trivet.io.vector_choice import VectorChoice
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted


def embed(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.", callback=exists)],
    data: Annotated[
        str,
        typer.Argument(
            help="A folder of images, a table of image paths, a file of texts or vectors such as the run was trained "
            "on, or the name of a data set such as digits (see trivet data list)."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The parquet file to write; or a folder, a name without an ending, for shards: existing ones are "
            "kept, and several processes can share the work.",
        ),
    ],
    model: Annotated[
        Literal["last", "best"] | None,
        typer.Option(
            help="The model of the last step, or the best one, if the run had items to choose by. Default: the one "
            "that its report measures."
        ),
    ] = None,
    side: Annotated[
        Literal["left", "right"] | None,
        typer.Option(
            help="Of a run with a network of each side of pairs: whose items these are. Default: those of the side "
            "that takes images, or texts, where one alone does."
        ),
    ] = None,
    shard_rows: Annotated[
        int | None, typer.Option(min=1, help="Items per shard; one shard at a time is held in memory. Default: 65,536.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it exists, or shards of other embeddings.")
    ] = False,
    table: Table = None,
    embedding: EmbeddingColumn = None,
    codes: VectorCodes = None,
    data_root: DataRoot = None,
    trust_code: TrustCode = False,
    json: Json = False,
) -> int:
    """Embed images, texts or vectors with the model of a run, into a parquet file or a folder of shards."""
    if in_shards(output):
        # DATA may name a data set, and the folder be called like it.
        check_folder(context, output, reads=[data] if Path(data).resolve() != output.resolve() else [])
    else:
        check_written(context, data, recognised={"output": embeddings})
    if Path(data).is_dir():
        refuse(context, "DATA is a folder, not a data set by name", "data_root")
    with show_progress("embeddings"):
        from trivet.commands.embed.run import embed_data  # here: it loads the training stack

        result = embed_data(
            run,
            data,
            output,
            which=model,
            side=side,
            rows_per_shard=shard_rows,
            choice=VectorChoice(table, embedding, codes),
            force=force,
            data_root=data_root,
        )
    if json:
        print_json(result)
    else:
        skipped = f", {len(result['skipped'])} unreadable images skipped" if result["skipped"] else ""
        echo(f"{result['items']} embeddings of dimension {result['dimension']} in {output}{skipped}")
        if shards := result.get("shards"):
            there = f", {shards['reused']} were there" if shards["reused"] else ""
            echo(f"{shards['written']} of {counted(shards['count'], 'shard')} written{there}")
            if shards["missing"]:
                echo(f"{counted(shards['missing'], 'shard')} missing, which other processes are writing")
    return 0
