"""`trivet diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.cli.output import DataRoot, Json, command_line, print_diagnosis, print_json


def diagnose(
    embeddings: Annotated[
        list[Path],
        typer.Argument(
            help="Embeddings: .npz, .npy with a .csv beside it, .parquet, or a run folder; several stand side by side.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--level",
            help="The label column to diagnose. Default: the first; of a run, that it was trained on.",
        ),
    ] = None,
    fine: Annotated[
        list[str] | None,
        typer.Option(help="A label column inside it. May be repeated. Default: all that are."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Another embedding of the same items, a file or a run, matched by id if both have one. Default: the "
            "untrained network of a run; none for a file."
        ),
    ] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None, typer.Option(help="Default: that of the run; cosine for a file.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Take the rows of this split only; of a run, this split. Default: its training items."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with tables and plots here.")] = None,
    fail_on: Annotated[
        Literal["collapse"] | None, typer.Option(help="Exit with 1 if the network or the classes collapsed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples that are drawn.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Say whether embeddings collapsed, which way, on what evidence, why, and what to change."""
    from trivet.tasks.diagnose import Request, diagnose_paths  # here: it loads the training stack
    from trivet.tasks.display import Display

    if report is not None and (report.is_dir() or not report.parent.is_dir()):
        raise ValueError(f"an output must be a file in a folder that exists: got {report}; make the folder first.")
    request = Request(
        level=labels,
        fine=tuple(fine) if fine else None,
        reference=reference,
        distance=distance,
        split=split,
        seed=seed,
        data_root=data_root,
    )
    with Display() as display:
        result, collapsed = diagnose_paths(
            embeddings, request, report=report, command=command_line(), progress=display.update
        )
    if json:
        print_json(result)
    else:
        print_diagnosis(result)
    return int(fail_on == "collapse" and collapsed)
