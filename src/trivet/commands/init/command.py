"""`trivet init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json, print_text
from trivet.commands.shared_options import (
    DataRoot,
    EmbeddingColumn,
    Json,
    Left,
    LeftVectors,
    Match,
    Minutes,
    PairRows,
    Relevant,
    Right,
    RightVectors,
    Separator,
    SkipEmpty,
    Start,
    Table,
    VectorCodes,
    Weights,
    check_written,
    exists,
    ladder_values,
    pair_sides,
    tag_cells,
)
from trivet.io.overwrite_guard import INIT_START, begins
from trivet.io.vector_choice import VectorChoice
from trivet.runtime.progress import show_progress

SCHEMA = "trivet.schema.json"


def init(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            help="A folder of images, a table of images, texts or vectors (csv, tsv, JSON lines, JSON, parquet, "
            "Hugging Face), or vectors (npz, npy with csv, shards).",
            callback=exists,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The settings file to write.")] = Path("trivet.toml"),
    labels: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of labels; may be repeated, the coarse one first. For a folder: the names of its levels. "
            "Default: guessed."
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The column of texts. Default: guessed.")] = None,
    weights: Weights = None,
    start: Start = None,
    minutes: Minutes = None,
    table: Table = None,
    embedding: EmbeddingColumn = None,
    codes: VectorCodes = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            callback=exists,
            help="The file of trivet settings --schema, which the settings then name for editors. Default: "
            f"{SCHEMA} beside them, if it is there.",
        ),
    ] = None,
    separator: Separator = None,
    match: Match = None,
    pairs: PairRows = False,
    left: Left = None,
    right: Right = None,
    left_vectors: LeftVectors = None,
    right_vectors: RightVectors = None,
    relevant: Relevant = None,
    skip_empty: SkipEmpty = False,
    force: Annotated[bool, typer.Option("--force", help="Replace settings that trivet init wrote.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Look at your data and write the settings of trivet train for it, with comments on what was found and chosen."""
    check_written(context, recognised={"output": begins(INIT_START.encode())})
    default_schema = output.parent / SCHEMA
    with show_progress("looking at the data"):
        from trivet.commands.init.data import detect  # here: they load the training stack
        from trivet.commands.init.run import as_toml, propose, write_settings

        choice = VectorChoice(table, embedding, codes)
        tags = tag_cells(separator, match)
        sides = pair_sides(pairs, left, right, left_vectors, right_vectors, relevant)
        detected = detect(path, labels, text, choice, tags=tags, pairs=sides, skip_empty=skip_empty, root=data_root)
        proposal = propose(path, detected, ladder=ladder_values(weights, start, minutes), data_root=data_root)
        write_settings(proposal, path, output, schema or (default_schema if default_schema.is_file() else None))
    command = shlex.join(["trivet", "train", str(output)])
    if json:
        counts = {"kind": proposal.kind, "items": proposal.items, "classes": proposal.classes}
        print_json(
            {
                "settings": str(output),
                **counts,
                "findings": proposal.findings,
                "chosen": proposal.values,
                "next": command,
            }
        )
        return 0
    echo("Found")
    for finding in proposal.findings:
        print_text(finding, indent=2)
    echo("Chosen")
    for section, values in proposal.values.items():
        for key, value in values.items():
            if why := proposal.reasons.get(f"{section}.{key}"):
                print_text(f"{section}.{key} = {as_toml(value)}: {why}", indent=2)
    echo(f"Written to {output}. Next:")
    echo(f"  {command}")
    return 0
