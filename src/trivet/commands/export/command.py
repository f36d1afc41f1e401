"""`trivet export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import DataRoot, Json, TrustCode, check_folder, exists
from trivet.runtime.progress import show_progress


def export(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.", callback=exists)],
    to: Annotated[
        Literal["onnx", "torch-export", "sentence-transformers", "safetensors"],
        typer.Option(
            help="onnx: a graph for onnxruntime (extra export). torch-export: a graph for torch.export.load. "
            "sentence-transformers: a folder for that library, of a network of texts. safetensors: weights and JSON "
            "for trivet.models.load_model."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    side: Annotated[
        Literal["left", "right"] | None,
        typer.Option(help="Of a run with a network of each side of pairs: which of them."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the exported model in the folder.")] = False,
    data_root: DataRoot = None,
    trust_code: TrustCode = False,
    json: Json = False,
) -> int:
    """Write the model of a run for use elsewhere, checked against the run's own embeddings, with a model card."""
    with show_progress("export"):
        from trivet.commands.export.run import INSIDE, DiffersError, export_run  # here: it loads the training stack

        check_folder(context, output, INSIDE)
        try:
            made = export_run(run, to, output, side=side, force=force, data_root=data_root)
        except DiffersError as error:
            echo(f"trivet: {error}", err=True)
            return 1
    if json:
        print_json(made.as_json())
        return 0
    echo(f"{', '.join(made.files)} in {output}")
    if made.note:
        echo(f"Note: {made.note}; random inputs stood for them.")
    echo(made.checked)
    return 0
