"""`trivet embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.output import DataRoot, Json, print_json


def embed(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[
        str, typer.Argument(help="A folder of images, or the name of a data set such as digits (see trivet data list).")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The parquet file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Embed images with the model of a run: a parquet file with columns id, one per label level, embedding."""
    from trivet.tasks.embed import embed_data  # here: it loads the training stack

    if output.is_dir() or not output.parent.is_dir():
        raise ValueError(f"--output must name a file in a folder that exists: got {output}; make the folder first.")
    if output.exists() and not force:
        raise ValueError(f"the output file must be new: {output} exists; choose another name, or use --force.")
    result = embed_data(run, data, output, data_root=data_root, progress=True)
    if json:
        print_json(result)
    else:
        skipped = f", {len(result['skipped'])} unreadable images left out" if result["skipped"] else ""
        typer.echo(f"{result['items']} embeddings of dimension {result['dimension']} in {output}{skipped}")
    return 0
