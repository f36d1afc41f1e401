"""`trivet init`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json, print_text
from trivet.commands.shared_options import DataOptions, DataRoot, Json, SkipEmpty, check_written, command, exists
from trivet.io.overwrite_guard import INIT_START, begins
from trivet.runtime.progress import show_progress

SCHEMA = "trivet.schema.json"


@dataclass(frozen=True)
class InitOptions(DataOptions):
    """A proposal of settings as it is asked for."""

    path: Annotated[
        Path,
        typer.Argument(
            help="A folder of images, a table of images, texts or vectors (csv, tsv, JSON lines, JSON, parquet, "
            "Hugging Face), or vectors (npz, npy with csv, shards).",
            callback=exists,
        ),
    ]
    output: Annotated[Path, typer.Option("--output", "-o", help="The settings file to write.")] = Path("trivet.toml")
    labels: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of labels; may be repeated, the coarse one first. For a folder: the names of its levels. "
            "Default: guessed."
        ),
    ] = None
    schema: Annotated[
        Path | None,
        typer.Option(
            callback=exists,
            help="The file of trivet settings --schema, which the settings then name for editors. Default: "
            f"{SCHEMA} beside them, if it is there.",
        ),
    ] = None
    skip_empty: SkipEmpty = False
    force: Annotated[bool, typer.Option("--force", help="Replace settings that trivet init wrote.")] = False
    data_root: DataRoot = None
    json: Json = False


@command(InitOptions)
def init(context: typer.Context, request: InitOptions) -> int:
    """Look at your data and write the settings of trivet train for it, with comments on what was found and chosen."""
    check_written(context, recognised={"output": begins(INIT_START.encode())})
    path, output, root = request.path, request.output, request.data_root
    default_schema = output.parent / SCHEMA
    with show_progress("looking at the data"):
        from trivet.commands.init.data import detect  # here: they load the training stack
        from trivet.commands.init.run import as_toml, propose, write_settings

        detected = detect(
            path,
            request.labels,
            request.text,
            request.choice,
            tags=request.tags,
            pairs=request.sides,
            skip_empty=request.skip_empty,
            root=root,
        )
        proposal = propose(path, detected, ladder=request.ladder, data_root=root)
        schema = request.schema or (default_schema if default_schema.is_file() else None)
        write_settings(proposal, path, output, schema)
    next_command = shlex.join(["trivet", "train", str(output)])
    if request.json:
        counts = {"kind": proposal.kind, "items": proposal.items, "classes": proposal.classes}
        print_json(
            {
                "settings": str(output),
                **counts,
                "findings": proposal.findings,
                "chosen": proposal.values,
                "next": next_command,
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
    echo(f"  {next_command}")
    return 0
