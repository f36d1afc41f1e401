"""`trivet search`."""

from __future__ import annotations

import typer

from trivet.commands.printing import command_line, echo, print_contents, print_json
from trivet.commands.search.options import SearchOptions
from trivet.commands.shared_options import check_written, command, refuse
from trivet.io.overwrite_guard import page
from trivet.runtime.progress import show_progress


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
    if request.sheet is not None:
        result.write_page(request.sheet)
    sheet = {} if request.sheet is None else {"sheet": str(request.sheet)}
    if request.json:
        print_json(result.record.as_json(unset=False) | sheet)
        return 0
    print_contents(result.contents())
    if sheet:
        echo(f"Sheet: {request.sheet}")
    return 0
