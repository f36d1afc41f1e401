"""`trivet export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

import typer

from trivet.commands.export.options import ExportOptions, ModelForm
from trivet.commands.printing import echo, print_json, print_text
from trivet.commands.shared_options import check_folder, command, refuse
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from trivet.commands.export.record import ExportedEmbeddings

OF_EMBEDDINGS = (
    "labels",
    "separator",
    "match",
    "distance",
    "split",
    "skip_empty",
    "seed",
    "table",
    "embedding",
    "codes",
)


@command(ExportOptions)
def export(context: typer.Context, request: ExportOptions) -> int:
    """Write the model of a run, or embeddings with what is known of each item, for use in other programs."""
    if request.to in get_args(ModelForm):
        refuse(context, f"--to {request.to} writes a model, not embeddings", *OF_EMBEDDINGS)
        return _export_model(context, request)
    refuse(context, f"--to {request.to} writes embeddings, not a model", "side", "data_root")
    with show_progress("export"):
        from trivet.commands.export.embeddings import INSIDE, export_embeddings  # here: it loads the training stack

        check_folder(context, request.output, INSIDE)
        made = export_embeddings(request)
    if request.json:
        print_json(made.as_json())
    else:
        print_embeddings(made)
    return 0


def _export_model(context: typer.Context, request: ExportOptions) -> int:
    with show_progress("export"):
        from trivet.commands.export.run import INSIDE, DiffersError, export_run  # here: it loads the training stack

        check_folder(context, request.output, INSIDE)
        try:
            made = export_run(
                request.source,
                cast(ModelForm, request.to),
                request.output,
                side=request.side,
                force=request.force,
                data_root=request.data_root,
            )
        except DiffersError as error:
            echo(f"trivet: {error}", err=True)
            return 1
    if request.json:
        print_json(made.as_json())
        return 0
    echo(f"{', '.join(made.files)} in {made.output}")
    if made.note:
        echo(f"Note: {made.note}; random inputs stood for them.")
    echo(made.checked)
    return 0


def print_embeddings(made: ExportedEmbeddings) -> None:
    """The files, how items are compared, and the verdicts, on standard output."""
    print_text(
        f"{counted(made.items, 'item')} of dimension {made.dimension}, {made.distance} distance, in {made.output}: "
        f"{', '.join(dict.fromkeys(file.partition('/')[0] for file in made.files))}",
        bold=True,
    )
    print_text(made.checked)
    if made.map is not None:
        print_text(f"Map: {made.map}.")
    for verdict in made.verdicts:
        print_text(f"{made.level}: {verdict}")
    for note in made.notes:
        print_text(f"Note: {note}")
    echo(f"How to open it: {made.output}/README.md")
