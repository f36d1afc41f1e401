"""`trivet index`."""

from __future__ import annotations

import typer

from trivet.commands.index.options import IndexOptions
from trivet.commands.printing import echo, print_json, print_text
from trivet.commands.shared_options import check_folder, command, refuse
from trivet.runtime.progress import show_progress


@command(IndexOptions)
def index(context: typer.Context, request: IndexOptions) -> int:
    """Make an index of embeddings, for trivet search."""
    check_folder(context, request.output)
    if request.kind == "exact":
        refuse(context, "an exact index finds all of the nearest", "recall")
    if request.text_model is None:
        refuse(context, "only --text-model takes a prefix", "text_prefix")
    with show_progress("index"):
        from trivet.commands.index.run import make_index  # here: it loads the training stack

        made = make_index(request)
    if request.json:
        print_json({"index": str(request.output), **made.as_json(unset=False)})
        return 0
    echo(f"{made.items} items of dimension {made.dimension} in {request.output}, {made.distance} distance")
    if made.kind == "exact":
        echo("exact search")
    else:
        chosen = ", ".join(f"{name} = {value}" for name, value in made.parameters.items())
        echo(
            f"{made.kind}: {chosen}; recall@{made.recall_at} {100 * made.recall:.1f} % relative to exact search, "
            f"measured on {made.recall_queries} items"
        )
    for note in made.notes:
        print_text(note)
    if "bytes" in made.parameters:
        echo(f"{made.bytes_per_item} bytes per item in memory, {4 * made.dimension} more on disk")
    return 0
