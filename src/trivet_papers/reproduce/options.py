"""`trivet reproduce`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trivet.commands.printing import command_line, echo, print_json, print_text
from trivet.commands.shared_options import Change, DataRoot, Json, exists, refuse
from trivet.io.overwrite_guard import RUN_FOLDER, OutputFolder, check_outputs
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from trivet_papers.experiment import Experiment, Size
    from trivet_papers.reproduce.record import ReproductionRecord
    from trivet_papers.runs import Run, Runner


OF_A_RUN = (*RUN_FOLDER, "*.toml", "*.csv", "*.json", "*.html")
INSIDE = (".runs/*/stages.json", *(f".runs/*/run/{name}" for name in OF_A_RUN))


def reproduce(
    context: typer.Context,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="A paper, such as levi2021; an experiment, such as levi2021-table3; or all. list, alone or before "
            "a key, lists what there is.",
            show_default=False,
        ),
    ],
    size: Annotated[
        Literal["here", "paper"],
        typer.Option(help="here: stand-ins that two cores finish. paper: the published protocols, on a GPU."),
    ] = "here",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Number of seeds. Default: that of the recipe.", show_default=False),
    ] = None,
    data_root: DataRoot = None,
    models: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the pretrained networks of the stand-ins. Default: TRIVET_MODELS.", callback=exists
        ),
    ] = None,
    set: Change = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the results; several workers may share it.")
    ] = Path("reproductions"),
    pages: Annotated[
        Path | None, typer.Option(help="Folder of the pages. Default: that of the results.", show_default=False)
    ] = None,
    as_is: Annotated[bool, typer.Option("--as-is", help="Run nothing: write the pages of what has been run.")] = False,
    json: Json = False,
) -> int:
    """Run the papers' experiments again, and say which of their claims hold."""
    with show_progress("loading the experiments"):
        from trivet_papers.catalogue import experiments
        from trivet_papers.reproduce.run import FRONT, outputs, page_name, without_pictures, write_pages
        from trivet_papers.runs import Runner, store_of
    if as_is:
        refuse(context, "--as-is runs nothing", "data_root", "models")
    if keys[0] == "list":
        refuse(context, "list runs nothing", "size", "seeds", "data_root", "models", "set", "output", "pages", "as_is")
        _list(experiments(*(keys[1:] or ["all"])), json=json)
        return 0
    wanted, changes = experiments(*keys), set or ()
    variable = os.environ.get("TRIVET_MODELS")
    models = models or (Path(variable) if variable else None)

    def told(text: str) -> None:
        echo(text, err=True)

    place = pages or output
    folders = [OutputFolder("--output", output, INSIDE)]
    folders += [] if pages is None else [OutputFolder("--pages", pages, INSIDE)]
    reads = [] if models is None else [models]
    check_outputs(folders, reads)
    if as_is and not any(store_of(output, one, size).file.is_file() for one in wanted):
        raise ValueError(
            f"--as-is needs runs: {output} holds none of {', '.join(keys)}; name their folder with --output."
        )
    place.mkdir(parents=True, exist_ok=True)
    check_outputs(outputs(size, place, changes), reads)
    if not as_is:
        runner = Runner(output, data_root=data_root, models=models, say=told)
        _announce(wanted, size, seeds, changes, output, runner, told)
        try:
            runner.run_all(wanted, size, seeds, changes)
        except KeyboardInterrupt:
            told(f"what has been run is in {output}; the same command goes on from there")
            raise
    with show_progress("writing the pages"):
        records = write_pages(wanted, size, output, place, seeds=seeds, changes=changes, command=command_line())
    if json:
        print_json({"papers": [without_pictures(record) for record in records]})
        return 0
    chosen = {one.key for one in wanted}
    for record in records:
        _print(record, chosen)
        echo(f"Report: {place / page_name(record['paper'], size, changes)}.html")
    if not changes:
        echo(f"Front page: {place / FRONT}")
    return 0


def _announce(
    wanted: list[Experiment],
    size: Size,
    seeds: int | None,
    changes: Sequence[str],
    output: Path,
    runner: Runner,
    told: Callable[[str], None],
) -> None:
    """Say how many runs there are, and about how long they will take."""
    from trivet_papers.runs import planned, store_of

    missing: dict[str, Run] = {}
    for one in wanted:
        runs = planned(one, size, seeds, changes)
        done = store_of(output, one, size).rows()
        missing |= {run.key: run for run in runs if run.key not in done}
        told(f"{one.key}, {size}: {counted(len(runs), 'run')}, {sum(run.key in done for run in runs)} done")
    if missing:
        seconds = runner.seconds(list(missing.values()))
        told(f"{counted(len(missing), 'run')} to do: about {_long(seconds)} of training in one process, and measuring")


def _long(seconds: float) -> str:
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _list(every: list[Experiment], *, json: bool) -> None:
    if json:
        rows = [
            {
                "key": one.key,
                "title": one.title,
                "runs": {size: len(one.recipe(size).arms) * one.recipe(size).seeds for size in ("here", "paper")},
            }
            for one in every
        ]
        print_json({"experiments": rows})
        return
    for one in every:
        counts = ", ".join(
            f"{size} {counted(len(one.recipe(size).arms) * one.recipe(size).seeds, 'run')}"
            for size in ("here", "paper")
        )
        echo(f"{one.key:<18} {one.title} ({counts})")


def _print(record: ReproductionRecord, chosen: set[str]) -> None:
    from trivet_papers.reproduce.page import measured

    for one in record["experiments"]:
        if one["key"] not in chosen:
            continue
        print_text(f"{one['key']}: {one['title']}", bold=True)
        for claim in one["claims"]:
            why = f" ({claim['why']})" if claim["why"] else ""
            print_text(f"{claim['verdict']}: {claim['sentence']} {claim['says']}: {measured(claim)}{why}", indent=2)
