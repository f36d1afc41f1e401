"""`trivet push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import Json, exists
from trivet.runtime.progress import show_progress
from trivet.runtime.text import typed


def push(
    source: Annotated[
        Path,
        typer.Argument(help="A run folder, or the folder of a model.", callback=exists, show_default=False),
    ],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Made if it is not there.")],
    public: Annotated[
        bool, typer.Option("--public", help="Let all read it. Default: only its owner, and whom they let.")
    ] = False,
    licence: Annotated[
        str | None, typer.Option(metavar="ID", help="Licence of the weights, as the hub names it: apache-2.0.")
    ] = None,
    json: Json = False,
) -> int:
    """Send the model of a run, with its card, to a repository of the Hugging Face hub."""
    with show_progress("push"):
        from trivet.commands.push.run import push_model  # here: it loads the training stack

        made = push_model(source, repository, public=public, licence=licence)
    if json:
        print_json(made.as_json())
        return 0
    echo(f"{', '.join(made.files)} in {made.url}, {'private' if made.private else 'public'}, revision {made.revision}")
    echo(f"To have it elsewhere: trivet pull {typed(made.repository)} -o FOLDER")
    return 0
