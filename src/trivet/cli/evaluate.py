"""`trivet evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.output import DataRoot, Json, print_json, print_run, run_summary


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Evaluate the model of a run anew; embeddings, record and report are written again."""
    from trivet.training.run import evaluate_run  # here: it loads the training stack

    record = evaluate_run(run, data_root=data_root, progress=True)
    if json:
        print_json(run_summary(record, run))
    else:
        print_run(record, run)
    return 0
