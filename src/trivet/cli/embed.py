"""`trivet embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.cli.options import DataRoot, Json, check_written, exists, refuse
from trivet.cli.output import echo, print_json
from trivet.outputs import embeddings
from trivet.progress import shown


def embed(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.", callback=exists)],
    data: Annotated[
        str,
        typer.Argument(
            help="A folder of images, a file of texts or vectors such as the run was trained on, or the name of a data "
            "set such as digits (see trivet data list)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The parquet file to write.")],
    model: Annotated[
        Literal["last", "best"] | None,
        typer.Option(
            help="That of the last step, or the best, where the run had items to choose by. Default: the one that its "
            "report measures.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Embed images, texts or vectors with the model of a run, into a parquet file."""
    check_written(context, data, own={"output": embeddings}, force=force)
    if Path(data).is_dir():
        refuse(context, "DATA is a folder, not a data set by name", "data_root")
    with shown("embeddings"):
        from trivet.tasks.embed import embed_data  # here: it loads the training stack

        result = embed_data(run, data, output, which=model, data_root=data_root)
    if json:
        print_json(result)
    else:
        skipped = f", {len(result['skipped'])} unreadable images skipped" if result["skipped"] else ""
        echo(f"{result['items']} embeddings of dimension {result['dimension']} in {output}{skipped}")
    return 0
