"""`trivet demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import command_line, echo, print_json
from trivet.commands.shared_options import Json, check_folder
from trivet.runtime.progress import show_progress


def demo(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page, the picture and the record.")
    ] = Path("runs/demo"),
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier demo in that folder.")] = False,
    json: Json = False,
) -> int:
    """Show a class collapse on real images, and how easy positives prevent it."""
    check_folder(context, output)
    with show_progress("demo"):
        from trivet.commands.demo.run import demonstrate  # here: it loads the training stack

        record = demonstrate(output, force=force, command=command_line(), progress=True)
    report = output / "report.html"
    if json:
        values = record.as_json(unset=False)
        keys = ("results", "references", "collapse", "gains", "seconds")
        print_json({**{key: values[key] for key in keys}, "report": str(report)})
    else:
        for sentence in record.text:
            echo(sentence)
        echo(f"Report: {report}")
    return 0
