"""`trivet data`."""

from __future__ import annotations

from typing import Annotated

import typer

from trivet.cli.options import DataRoot, Json
from trivet.cli.output import print_json

data = typer.Typer(help="The data sets: what there is, and how to get it.", rich_markup_mode=None)


@data.command("list")
def list_all(json: Json = False) -> int:
    """List the data sets and their label levels."""
    from trivet.data import available  # here: it loads the data stack

    found = [{"name": one.name, "description": one.description, "levels": list(one.levels)} for one in available()]
    if json:
        print_json({"data": found})
    else:
        for one in found:
            typer.echo(f"{one['name']:<14} {one['description']} ({' > '.join(one['levels'])})")
    return 0


@data.command("download")
def download(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist or omniglot.")],
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Download a data set with torchvision."""
    from trivet.data import download as fetch  # here: it loads the data stack

    folder = fetch(name, data_root)
    if json:
        print_json({"name": name, "folder": None if folder is None else str(folder)})
    else:
        typer.echo(f"{name} is part of scikit-learn" if folder is None else f"{name} is in {folder}")
    return 0
