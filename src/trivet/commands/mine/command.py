"""`trivet mine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from trivet.commands.mine.options import MineOptions
from trivet.commands.printing import echo, per_cent, print_json, print_table
from trivet.commands.shared_options import check_written, command, refuse, written_options
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


@command(MineOptions)
def mine(context: typer.Context, request: MineOptions) -> int:
    """Mine hard negatives for all items of a set, as triplets in a parquet file."""
    check_written(context, recognised={"output": triplets})
    if request.output.suffix.lower() != ".parquet":
        raise ValueError(f"--output must name a .parquet file: got {request.output}.")
    if request.pairs is not None:
        refuse(context, "--pairs lists the positives", "positives")
    if request.kind == "exact":
        refuse(context, "an exact index finds all of the nearest", "recall")
    with show_progress("mining"):
        from trivet.commands.mine.run import mine_file  # here: it loads torch

        mined = mine_file(request)
    if request.json:
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
    echo(f"{counted(counts['same_class'], 'nearer item')} left out, as no negative of the anchor")
    for name, text in (
        ("without_positive", "anchor without a positive"),
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
