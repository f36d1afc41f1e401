"""`trivet audit`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.options import DataRoot, Distance, Json, exists, refuse
from trivet.cli.output import command_line, print_json, print_table, say


def audit(
    context: typer.Context,
    embeddings: Annotated[
        Path,
        typer.Argument(
            help="Embeddings: .npz, .npy with a .csv beside it, .parquet; texts: .csv; or a run folder: its training "
            "items.",
            show_default=False,
            callback=exists,
        ),
    ],
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            "--labels",
            help="The label column to audit. Default: the first; for a run, the level it was trained on.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write all items here, most suspect first: id,label,proposed_label,probability_wrong,evidence."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page here: the most suspect items beside their neighbours.")
    ] = None,
    decisions: Annotated[
        Path | None,
        typer.Option(help="Write a file id,decision,label here, to be filled in and given to trivet train --labels."),
    ] = None,
    relabel_above: Annotated[
        float | None,
        typer.Option(
            help="Fill in decisions: relabel if the label is wrong with a probability above this, else keep. Default: "
            "leave them empty."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="For a run: number of networks to train, each without one fold of the items, which it then judges. 0 "
            "uses the network of the run, which may have memorised wrong labels. Default: 3, or 2 if the median "
            "class has fewer than 60 items."
        ),
    ] = None,
    neighbours: Annotated[
        int | None, typer.Option(help="Number of nearest neighbours that judge an item.", show_default=False)
    ] = None,
    distance: Distance = None,
    split: Annotated[str | None, typer.Option(help="For a file: use only the rows of this split.")] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="For a file: the column that the page shows for each row; for a .csv, the column of texts. Default: "
            "text."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="For a .csv: the sentence-transformers model that embeds the texts, by name or folder. Default: "
            "none; texts are compared by character n-grams.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of suspect items to print.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds, the text vectors and the estimate.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace files that an earlier audit wrote.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Estimate how many labels are wrong, and rank which probably are."""
    if json:
        refuse(context, "--json holds all items", "top")
    if not embeddings.is_dir():
        refuse(context, "only a run needs its data", "data_root")
    from trivet.tasks.audit import Outputs, Request, audit_path  # here: it loads the training stack
    from trivet.tasks.display import Display

    request = Request(
        level=level,
        split=split,
        text=text,
        encoder=encoder,
        distance=distance,
        neighbours=neighbours,
        folds=folds,
        seed=seed,
        data_root=data_root,
    )
    outputs = Outputs(out=out, decisions=decisions, relabel_above=relabel_above, report=report, force=force)
    with Display() as display:
        result = audit_path(embeddings, request, outputs, command=command_line(), progress=display.update)
    if json:
        print_json(result)
    else:
        print_audit(result, top)
    return 0


def print_audit(result: Mapping[str, Any], top: int) -> None:
    """The noise rate, the most suspect items as a table, and where everything was written."""
    rate = result["noise_rate"]
    low, high = (100 * end for end in rate["interval"])
    say(f"{100 * rate['estimate']:.1f} % of the labels are wrong (95 % interval: {low:.1f} to {high:.1f} %)", bold=True)
    name = result["name"] if result["split"] is None else f"{result['name']} ({result['split']})"
    how = f"out of {result['folds']} folds" if result["folds"] else "in one embedding"
    say(
        f"{name}, by {result['level']}: {result['items']} items of {result['classes']} classes, judged {how} by "
        f"{result['neighbours']} neighbours each; {result['above_half']} are wrong with a probability above 50 %"
    )
    if top:
        rows = []
        for one in result["suspects"][:top]:
            margin = one["positive_margin"]
            rows.append(
                (
                    *(one[column] for column in ("id", "label", "proposed_label")),
                    _cents(one["probability_wrong"]),
                    f"{round(one['neighbour_agreement'] * result['neighbours'])} of {result['neighbours']}",
                    "–" if margin is None else f"{margin:.3f}",
                    f"{100 * one['mode_share']:.0f}",
                )
            )
        numbers = ("wrong, %", "neighbours with its label", "margin", "mode, %")
        print_table(None, ("id", "label", "proposed"), numbers, rows)
    for note in result["notes"]:
        say(f"Note: {note}")
    for key, said in (("out", "Suspects"), ("decisions", "Decisions"), ("report", "Report")):
        if key in result:
            typer.echo(f"{said}: {result[key]}")


def _cents(probability: float) -> str:
    """Per cent with a decimal; what is not quite 100 is not said to be."""
    return ">99.9" if 0.9995 <= probability < 1 else f"{100 * probability:.1f}"
