"""`trivet reproduce`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trivet.commands.printing import command_line, echo, print_json, print_text
from trivet.commands.shared_options import Change, DataRoot, Json, exists, refuse
from trivet.io.overwrite_guard import RUN_FOLDER, OutputFolder, check_outputs
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted

if TYPE_CHECKING:
    from trivet_papers.experiment import Experiment, Size
    from trivet_papers.reproduce.record import ReproductionRecord
    from trivet_papers.reproduce.training_work import TrainingWork
    from trivet_papers.runs import ArmRun, Runner


OF_A_RUN = (*RUN_FOLDER, "*.toml", "*.csv", "*.json", "*.html")
INSIDE = (".runs/*/stages.json", *(f".runs/*/run/{name}" for name in OF_A_RUN))


def reproduce(
    context: typer.Context,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="A paper, such as levi2021; an experiment, such as levi2021-table3; or all. list, alone or before "
            "a key, lists what there is, with --size paper also what it takes.",
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
    if as_is:
        refuse(context, "--as-is runs nothing", "data_root", "models")
    if keys[0] == "list":
        refuse(context, "list runs nothing", "seeds", "data_root", "models", "set", "output", "pages", "as_is")
        _list(keys[1:] or ["all"], size, json=json)
        return 0
    with show_progress("loading the experiments"):
        from trivet_papers.catalogue import experiments
        from trivet_papers.reproduce.run import FRONT, outputs, page_name, write_pages
        from trivet_papers.runs import Runner, store_of
    wanted, changes = experiments(*keys), set or ()
    variable = os.environ.get("TRIVET_MODELS")
    models = models or (Path(variable) if variable else None)

    def report(text: str) -> None:
        echo(text, err=True)

    folder = pages or output
    folders = [OutputFolder("--output", output, INSIDE)]
    folders += [] if pages is None else [OutputFolder("--pages", pages, INSIDE)]
    reads = [] if models is None else [models]
    check_outputs(folders, reads)
    if as_is and not any(store_of(output, experiment, size).file.is_file() for experiment in wanted):
        raise ValueError(
            f"--as-is needs runs: {output} holds none of {', '.join(keys)}; name their folder with --output."
        )
    folder.mkdir(parents=True, exist_ok=True)
    check_outputs(outputs(size, folder, changes), reads)
    if not as_is:
        runner = Runner(output, data_root=data_root, models=models, report=report)
        _announce(wanted, size, seeds, changes, output, runner, report)
        try:
            runner.run_all(wanted, size, seeds, changes)
        except KeyboardInterrupt:
            report(f"what has been run is in {output}; the same command goes on from there")
            raise
    with show_progress("writing the pages"):
        records = write_pages(wanted, size, output, folder, seeds=seeds, changes=changes, command=command_line())
    if json:
        print_json({"papers": [record.as_json() for record in records]})
        return 0
    chosen = {experiment.key for experiment in wanted}
    for record in records:
        _print(record, chosen)
        echo(f"Report: {folder / page_name(record.paper, size, changes)}.html")
    if not changes:
        echo(f"Front page: {folder / FRONT}")
    return 0


def _announce(
    wanted: list[Experiment],
    size: Size,
    seeds: int | None,
    changes: Sequence[str],
    output: Path,
    runner: Runner,
    report: Callable[[str], None],
) -> None:
    """Say how many runs there are, and about how long they will take."""
    from trivet_papers.runs import planned, store_of

    missing: dict[str, ArmRun] = {}
    for experiment in wanted:
        runs = planned(experiment, size, seeds, changes)
        done = store_of(output, experiment, size).rows()
        missing |= {run.key: run for run in runs if run.key not in done}
        report(f"{experiment.key}, {size}: {counted(len(runs), 'run')}, {sum(run.key in done for run in runs)} done")
    if missing:
        seconds = runner.seconds(list(missing.values()))
        report(
            f"{counted(len(missing), 'run')} to do: about {_long(seconds)} of training in one process, and measuring"
        )


def _long(seconds: float) -> str:
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _list(keys: Sequence[str], size: Size, *, json: bool) -> None:
    """List experiments with their runs; in paper size with the work of these, and of all together."""
    from trivet_papers.catalogue import summaries

    every = summaries(*keys)
    works = _works(keys) if size == "paper" else []
    if json:
        rows: list[dict[str, Any]] = [asdict(each) for each in every]
        for row, work in zip(rows, works, strict=False):
            row["paper"] = work.as_json()
        print_json({"experiments": rows} | ({"paper": works[-1].as_json()} if works else {}))
        return
    texts = [work.as_text() for work in works] or [
        ", ".join(f"{name} {counted(count, 'run')}" for name, count in each.runs.items()) for each in every
    ]
    for each, text in zip(every, texts, strict=False):
        echo(f"{each.key:<18} {each.title} ({text})")
    if works:
        from trivet_papers.reproduce.training_work import ESTIMATE

        echo(f"In all, a run that experiments share once: {texts[-1]}. {ESTIMATE}")


def _works(keys: Sequence[str]) -> list[TrainingWork]:
    """The work of each experiment in paper size, and of all together."""
    with show_progress("counting the operations of the published networks"):
        from trivet_papers.catalogue import experiments
        from trivet_papers.reproduce.training_work import work_of
        from trivet_papers.runs import planned

        plans = [planned(experiment, "paper", None) for experiment in experiments(*keys)]
        return [work_of(runs) for runs in (*plans, [run for runs in plans for run in runs])]


def _print(record: ReproductionRecord, chosen: set[str]) -> None:
    from trivet_papers.reproduce.page import measured, remarks

    for experiment in record.experiments:
        if experiment.key not in chosen:
            continue
        print_text(f"{experiment.key}: {experiment.title}", bold=True)
        for claim in experiment.claims:
            why = f" ({remarks(claim)})" if remarks(claim) else ""
            print_text(f"{claim.verdict}: {claim.sentence} {claim.says}: {measured(claim)}{why}", indent=2)
