"""`trivet pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import Json, check_folder
from trivet.runtime.progress import show_progress


def pull(
    context: typer.Context,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="On the Hugging Face hub.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    revision: Annotated[
        str | None, typer.Option(help="A branch, a tag or the hash of a commit. Default: the newest.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what was pulled into the folder.")] = False,
    json: Json = False,
) -> int:
    """Download a model of Trivet from the Hugging Face hub, check its hashes, and load it once."""
    with show_progress("pull"):
        from trivet.commands.pull.run import INSIDE, pull_model  # here: it loads torch

        check_folder(context, output, INSIDE)
        made = pull_model(repository, output, revision=revision, force=force)
    if json:
        print_json(made.as_json())
        return 0
    echo(f"{', '.join(made.files)} in {made.output}, revision {made.revision}")
    if made.left_out:
        echo(f"Not downloaded, as a model needs none of them: {', '.join(made.left_out)}")
    return 0
