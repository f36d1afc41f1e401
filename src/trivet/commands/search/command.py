"""`trivet search`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.commands.printing import command_line, echo, print_json, print_table
from trivet.commands.shared_options import DataRoot, Json, check_written, exists, refuse
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress


def search(
    context: typer.Context,
    index: Annotated[Path, typer.Argument(help="An index folder, made by trivet index.", callback=exists)],
    query: Annotated[
        str | None,
        typer.Argument(
            help="The id of an item, an image file (index with a run), or vectors: npy, npz, parquet, or a folder of "
            "shards.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of an item, even if a file has the same name.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Words, if the index was made with --text-model.")] = None,
    k: Annotated[int, typer.Option("--k", help="Number of items to find.")] = 10,
    recall: Annotated[
        float | None,
        typer.Option(
            help="Share of the nearest 10 to find; uses the least effort that was measured to find it. "
            "Default: that of trivet index."
        ),
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", help="Also write a page with pictures of the results.")
    ] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Find the items nearest to an item, an image, a text or a vector."""
    if sum(value is not None for value in (query, id, text)) != 1:
        raise ValueError("search needs one query: give QUERY (an id or a file), --id ID or --text WORDS, and only one.")
    if sheet is None:
        refuse(context, "the data are read only for the pictures of a --sheet", "data_root")
    check_written(context, query, recognised={"sheet": page("sheet")})
    with show_progress("search"):
        from trivet.commands.search.run import search_folder  # here: it loads the training stack

        result = search_folder(
            index, query, id=id, text=text, k=k, recall=recall, sheet=sheet, data_root=data_root, command=command_line()
        )
    if json:
        print_json(result)
    else:
        print_result(result)
    return 0


def print_result(result: Mapping[str, Any]) -> None:
    """A table for each query on standard output."""
    for query in result["queries"]:
        known = ", ".join(f"{level} {name}" for level, name in query["labels"].items())
        levels = list(query["neighbours"][0]["labels"]) if query["neighbours"] else []
        print_table(
            f"{query['kind']} {query['query']}" + (f" ({known})" if known else ""),
            ("", "id", *levels),
            (f"{result['distance']} distance",),
            [
                (str(rank), item["id"], *(item["labels"][level] for level in levels), f"{item['distance']:.4g}")
                for rank, item in enumerate(query["neighbours"], start=1)
            ],
        )
        if len(query["neighbours"]) < result["k"]:
            echo(f"Only {len(query['neighbours'])} other items exist; {result['k']} were requested.")
    if "sheet" in result:
        echo(f"Sheet: {result['sheet']}")
