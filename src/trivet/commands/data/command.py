"""`trivet data`."""

from __future__ import annotations

from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import DataRoot, Json
from trivet.runtime.progress import show_progress

data = typer.Typer(help="List and download data sets.", rich_markup_mode=None)


@data.command("list")
def list_all(json: Json = False) -> int:
    """List the data sets and their label levels."""
    with show_progress("loading the data sets"):
        from trivet.datasets import DATA_SETS  # here: it loads the data stack

    if json:
        keys = ("description", "levels", "published")
        rows = [{"name": name, **{key: getattr(entry, key) for key in keys}} for name, entry in DATA_SETS.items()]
        print_json({"data": rows})
        return 0
    for name, entry in DATA_SETS.items():
        levels = " > ".join(entry.levels) or "levels from the data"
        echo(f"{name:<14} {entry.description} ({levels})")
        if entry.published:
            echo(f"{'':<14} {entry.published}")
    return 0


@data.command("download")
def download(
    name: Annotated[
        str,
        typer.Argument(
            help="mnist, fashion-mnist, omniglot, flowers102, cifar10 or cifar100. Others of `trivet data list` need "
            "no download or must be fetched by hand."
        ),
    ],
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Download a data set."""
    with show_progress(f"downloading {name}"):
        from trivet.datasets import download as fetch  # here: it loads the data stack

        folder = fetch(name, data_root)
    if json:
        print_json({"name": name, "folder": None if folder is None else str(folder)})
    else:
        echo(f"{name} needs no download" if folder is None else f"{name} is in {folder}")
    return 0
