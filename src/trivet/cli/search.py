"""`trivet search`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trivet.cli.output import DataRoot, Json, command_line, print_json


def search(
    index: Annotated[Path, typer.Argument(help="An index folder, made by trivet index.")],
    query: Annotated[
        str | None,
        typer.Argument(
            help="The id of an item, an image file (index of a run), or a file of vectors: npy, npz, parquet.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of an item, also where a file has that name.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Words, if the index was made with --text-model.")] = None,
    k: Annotated[int, typer.Option("--k", help="How many items to find.")] = 10,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", help="Also write a page with pictures of what was found.")
    ] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Find the indexed items nearest to an item, an image, a text or vectors."""
    from trivet.tasks.search import search_folder  # here: it loads the training stack

    found = search_folder(index, query, id=id, text=text, k=k, sheet=sheet, data_root=data_root, command=command_line())
    if json:
        print_json(found)
    else:
        print_found(found)
    return 0


def print_found(found: Mapping[str, Any]) -> None:
    """A table for each query on standard output."""
    console = Console()
    for query in found["queries"]:
        known = ", ".join(f"{level} {name}" for level, name in query["labels"].items())
        table = Table(
            title=Text(f"{query['kind']} {query['query']}" + (f" ({known})" if known else "")), title_justify="left"
        )
        levels = list(query["neighbours"][0]["labels"]) if query["neighbours"] else []
        for column in ("", "id", *levels, f"{found['distance']} distance"):
            table.add_column(
                Text(column), justify="right" if column in ("", f"{found['distance']} distance") else "left"
            )
        for rank, item in enumerate(query["neighbours"], start=1):
            names = (Text(item["labels"][level]) for level in levels)
            table.add_row(str(rank), Text(item["id"]), *names, f"{item['distance']:.4g}")
        console.print(table)
        if len(query["neighbours"]) < found["k"]:
            console.print(f"All {len(query['neighbours'])} other items: {found['k']} were asked for.")
    if "sheet" in found:
        console.print(f"Sheet: {found['sheet']}", markup=False, highlight=False, soft_wrap=True)
