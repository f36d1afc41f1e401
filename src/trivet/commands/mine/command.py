"""`trivet mine`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trivet.commands.printing import echo, per_cent, print_json, print_table
from trivet.commands.shared_options import (
    Distance,
    IndexKind,
    IndexRecall,
    Json,
    check_written,
    exists,
    refuse,
    written_options,
)
from trivet.io.overwrite_guard import triplets
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from trivet.commands.mine.run import MiningResult

LEFT_OUT = {  # names of `trivet.knn.hard_negatives.MiningCounts` -> what became of these candidates
    "taken": "taken",
    "skipped": "among the nearest, --skip",
    "near_positive": "too near for the positive, --margin or --relative-margin",
    "too_near": "nearer than --min-distance",
    "too_far": "farther than --max-distance",
    "not_needed": "left over beyond --k",
}


def mine(
    context: typer.Context,
    vectors: Annotated[
        Path,
        typer.Argument(
            help="The anchors: npz, npy with csv, parquet, a folder of shards, or a run folder.", callback=exists
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The parquet file to write.")],
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--level",
            help="The label column: items of one class are no negatives. Default: the only one; none with --pairs.",
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="A table with the columns anchor and positive, of ids or row numbers. Default: a positive of the "
            "class, see --positives.",
            callback=exists,
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Vectors to take positives and negatives from. Default: those of the anchors.", callback=exists
        ),
    ] = None,
    k: Annotated[int, typer.Option("--k", help="Number of negatives for each anchor and positive.")] = 3,
    positives: Annotated[
        Literal["easy", "hard", "random"],
        typer.Option(
            help="The positive in the anchor's class: easy is the nearest item, hard the farthest, random any."
        ),
    ] = "easy",
    negatives: Annotated[
        Literal["hard", "random"], typer.Option(help="Which candidates to take: hard the nearest, random any.")
    ] = "hard",
    among: Annotated[
        int, typer.Option(help="Candidates of an anchor: this many of the nearest items that may be negatives.")
    ] = 100,
    skip: Annotated[int, typer.Option(help="Leave out this many of the nearest candidates.")] = 0,
    margin: Annotated[
        float | None,
        typer.Option(help="Leave out candidates that are not farther than the positive by at least this distance."),
    ] = None,
    relative_margin: Annotated[
        float | None,
        typer.Option(
            help="Leave out candidates that are more similar than the positive minus this share of its cosine "
            "similarity, such as 0.05."
        ),
    ] = None,
    min_distance: Annotated[float | None, typer.Option(help="Leave out candidates nearer than this.")] = None,
    max_distance: Annotated[float | None, typer.Option(help="Leave out candidates farther than this.")] = None,
    text: Annotated[str | None, typer.Option(help="A column of texts to write beside the ids.")] = None,
    split: Annotated[str | None, typer.Option(help="Take only the rows of this split of VECTORS.")] = None,
    distance: Distance = None,
    kind: Annotated[IndexKind, typer.Option(help="Kind of the index, as in trivet index.")] = "auto",
    recall: IndexRecall = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random choices and of the index.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    json: Json = False,
) -> int:
    """Mine hard negatives for all items of a set, as triplets in a parquet file."""
    check_written(context, recognised={"output": triplets}, force=force)
    if output.suffix.lower() != ".parquet":
        raise ValueError(f"--output must name a .parquet file: got {output}.")
    if pairs is not None:
        refuse(context, "--pairs lists the positives", "positives")
    if kind == "exact":
        refuse(context, "an exact index finds all of the nearest", "recall")
    with show_progress("mining"):
        from trivet.commands.mine.run import mine_file
        from trivet.knn.hard_negatives import MiningRules  # here: they load torch

        rules = MiningRules(
            k=k,
            positives=positives,
            negatives=negatives,
            among=among,
            skip=skip,
            margin=margin,
            relative_margin=relative_margin,
            min_distance=min_distance,
            max_distance=max_distance,
            seed=seed,
        )
        mined = mine_file(
            vectors,
            output,
            rules=rules,
            corpus=corpus,
            pairs=pairs,
            level=labels,
            split=split,
            text=text,
            distance=distance,
            kind=kind,
            recall=recall,
        )
    if json:
        print_json(mined.as_json())
    else:
        print_mined(
            mined, written_options(context, "skip", "margin", "relative_margin", "min_distance", "max_distance")
        )
    return 0


def print_mined(mined: MiningResult, filters: list[str]) -> None:
    """Print the number of triplets, and how many candidates were left out and why."""
    counts, index = mined.counts, mined.index
    recall_text = "" if index.kind == "exact" else f", recall {per_cent(index.recall)} %"
    echo(
        f"{counted(counts['taken'], 'triplet')} of {counted(counts['pairs'], 'pair')} in {mined.output}, "
        f"{mined.distance} distance, {index.kind} index{recall_text}"
    )
    if mined.reused:
        echo(f"{mined.reused} of {counted(mined.chunks, 'chunk')} were there")
    rows = [
        (text, str(counts[name]), per_cent(counts[name] / counts["candidates"] if counts["candidates"] else None))
        for name, text in LEFT_OUT.items()
        if counts[name] or any(option in text.split() for option in filters)
    ]
    print_table(f"{counted(counts['candidates'], 'candidate')}", ("what became of them",), ("number", "%"), rows)
    echo(f"{counted(counts['same_class'], 'nearer item')} of the anchor's class, or listed as its positive")
    for name, text in (
        ("without_positive", "anchor without another item of its class"),
        ("without_negative", "pair without any negative left"),
        ("fewer", f"pair with fewer than {mined.rules['k']}"),
    ):
        if counts[name]:
            echo(f"{counts[name]} {text if counts[name] == 1 else text.replace(' ', 's ', 1)}")
    if mined.triplets:
        echo(
            f"mean distance to the positive {mined.to_positive:.4g}, to the negative {mined.to_negative:.4g}; "
            f"the negative is nearer in {per_cent(mined.nearer)} % of the triplets"
        )
