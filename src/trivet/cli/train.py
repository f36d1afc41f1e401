"""`trivet train`."""

from __future__ import annotations

import os
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.options import Change, DataRoot, Json, check_folder, exists, refuse
from trivet.cli.output import command_line, echo, print_json
from trivet.cli.run import print_folds, print_run, run_summary
from trivet.outputs import RUN_FOLDER
from trivet.progress import shown
from trivet.signals import check_alone


def train(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(help="The settings, a TOML file.", show_default=False, callback=exists)
    ] = None,
    set: Change = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run folder. Default: runs/NAME for NAME.toml.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            callback=exists,
            help="Decisions on training labels, a csv file id,decision,label as trivet audit writes it: keep, relabel "
            "or drop. The same as --set data.decisions=FILE.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the run folder.")] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=exists,
            help="Continue the run in this folder from its last checkpoint, or an unfinished cross-validation.",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="With --resume: return to the last healthy checkpoint before the first event that the monitor "
            "detected, apply the smallest change that may prevent it, and continue from there.",
        ),
    ] = False,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Train once for each class-disjoint fold of the training classes, and validate on it."
        ),
    ] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Train an embedding, evaluate it and write a report."""
    check_alone(os.environ)
    if resume is not None:
        if config is not None:
            raise ValueError("--resume takes the settings of the run: leave out the settings file.")
        refuse(context, "--resume takes the settings of the run", "set", "labels", "output", "force", "folds")
        with shown("loading what trains"):
            from trivet.tasks import folds as several  # here: it loads the training stack
            from trivet.tasks import train as run

        folder = resume
        if several.is_cross_validation(folder):
            refuse(context, f"--repair is for one run: name one of those in {folder}", "repair")
            result = several.resume_folds(folder, data_root=data_root, command=command_line(), progress=True)
            return _folds_ended(result, folder, json=json)
        record = run.resume(folder, repair=repair, data_root=data_root, command=command_line(), progress=True)
    else:
        if repair:
            raise ValueError("--repair goes with --resume RUN: for a new run, --set guard.action=repair.")
        if config is None:
            raise ValueError("train needs a settings file, such as examples/omniglot.toml, or --resume RUN.")
        from trivet.training.config import RunConfig

        decisions = [] if labels is None else [f"data.decisions={dumps(str(labels))}"]
        settings = RunConfig.read(config, [*(set or []), *decisions])  # before what takes long to load
        with shown("loading what trains"):
            from trivet.tasks import train as run

        folder = output or Path("runs") / config.stem
        for one in [folder] if folds is None else [folder / f"fold-{fold}" for fold in range(folds)]:
            check_folder(context, one, RUN_FOLDER, kept=("config.toml", "applied_decisions.csv"))
        if folds is not None:
            from trivet.tasks.folds import cross_validate

            result = cross_validate(
                settings, folder, folds, data_root=data_root, force=force, command=command_line(), progress=True
            )
            return _folds_ended(result, folder, json=json)
        record = run.train(settings, folder, data_root=data_root, force=force, command=command_line(), progress=True)
    if json:
        print_json(run_summary(record, folder))
    else:
        print_run(record, folder)
    if record["status"] == "finished":
        return 0
    if record["status"] == "stopped":
        why = f"the guard stopped the training after step {record['step']}: {record['guard']['stopped_by']};"
        echo(f"trivet: {why} to repair it, run trivet train --resume {folder} --repair", err=True)
    else:
        trained = record["guard"]["stopped_by"] is not None or record["step"] == record["settings"]["training"]["steps"]
        when = "before the evaluation was complete" if trained else f"after step {record['step']}"
        command = f"evaluate {folder}" if trained else f"train --resume {folder}"
        echo(f"trivet: stopped {when}; continue with trivet {command}", err=True)
    return 1


def _folds_ended(result: dict[str, Any], folder: Path, *, json: bool) -> int:
    """Print how a cross-validation ended; returns the exit code."""
    if json:
        print_json(result)
    else:
        print_folds(result)
    if result["status"] == "finished":
        return 0
    why = f"the guard stopped {result['runs'][-1]}: {result['stopped_by']}" if "stopped_by" in result else "stopped"
    echo(f"trivet: {why}; continue with trivet train --resume {folder}", err=True)
    return 1
