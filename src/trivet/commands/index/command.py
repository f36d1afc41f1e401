"""`trivet index`."""

from __future__ import annotations

import typer

from trivet.commands.index.options import IndexOptions
from trivet.commands.printing import echo, print_json, print_text
from trivet.commands.shared_options import check_folder, command, refuse
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted


@command(IndexOptions)
def index(context: typer.Context, request: IndexOptions) -> int:
    """Make an index of embeddings for trivet search, or add items to one, or remove some."""
    if request.add and request.remove:
        raise ValueError("--add and --remove are two changes: got both; make one after the other.")
    changes = request.add or request.remove
    if changes:
        what = "an index that is changed keeps its kind, distance, text model and post-processing"
        refuse(context, what, "kind", "distance", "recall", "seed", "text_model", "text_prefix", "postprocess", "force")
    else:
        check_folder(context, request.output)
    if request.kind == "exact":
        refuse(context, "an exact index finds all of the nearest", "recall")
    if request.text_model is None:
        refuse(context, "only --text-model takes a prefix", "text_prefix")
    with show_progress("index"):
        # Here: it loads the training stack.
        from trivet.commands.index.run import make_index
        from trivet.commands.index.update import add_items, remove_items

        made = (add_items if request.add else remove_items if request.remove else make_index)(request)
    if request.json:
        print_json({"index": str(request.output), **made.as_json(unset=False)})
        return 0
    if changes:
        echo(f"{counted(made.added, 'item')} added, {counted(made.removed, 'item')} removed")
    echo(f"{made.present} items of dimension {made.dimension} in {request.output}, {made.distance} distance")
    if made.kind == "exact":
        echo("exact search")
    else:
        chosen = ", ".join(f"{name} = {value}" for name, value in made.parameters.items())
        echo(
            f"{made.kind}: {chosen}; recall@{made.recall_at} {100 * made.recall:.1f} % relative to exact search, "
            f"measured on {made.recall_queries} items"
            f"{'' if made.recall_items == made.items else f' of the first {made.recall_items}'}"
        )
    if made.about.postprocess is not None:
        echo(f"post-processing: {made.about.postprocess}")
    for note in made.notes:
        print_text(note)
    if "bytes" in made.parameters:
        echo(f"{made.bytes_per_item} bytes per item in memory, {4 * made.dimension} more on disk")
    return 0
