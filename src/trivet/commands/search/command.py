"""`trivet search`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from trivet.commands.printing import command_line, echo, print_json, print_table
from trivet.commands.search.options import SearchOptions
from trivet.commands.shared_options import check_written, command, refuse
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress

SEARCHED = {
    "whitening": "distances are those of whitened embeddings",
    "expansion": "the order is that of the expanded query, the distances those of the query",
    "reciprocal": "the order is that of reciprocal neighbours, the distances those of the query",
}


@command(SearchOptions)
def search(context: typer.Context, request: SearchOptions) -> int:
    """Find the items nearest to an item, an image, a text or a vector."""
    if sum(value is not None for value in (request.query, request.id, request.text)) != 1:
        raise ValueError("search needs one query: give QUERY (an id or a file), --id ID or --text WORDS, and only one.")
    if request.sheet is None:
        refuse(context, "the data are read only for the pictures of a --sheet", "data_root")
    check_written(context, request.query, recognised={"sheet": page("sheet")})
    with show_progress("search"):
        from trivet.commands.search.run import search_folder  # here: it loads the training stack

        result = search_folder(request, command=command_line())
    if request.json:
        print_json(result)
    else:
        print_result(result)
    return 0


def print_result(result: Mapping[str, Any]) -> None:
    """A table for each query on standard output."""
    if result["postprocess"] is not None:
        echo(f"Post-processing: {result['postprocess']}; {SEARCHED[result['postprocess']]}.")
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
