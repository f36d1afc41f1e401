"""`trivet sweep`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.commands.printing import command_line, echo, per_cent, print_json, print_table, print_text
from trivet.commands.shared_options import Change, DataRoot, Json, TrustCode, check_folder, exists, refuse
from trivet.io.overwrite_guard import RUN_FOLDER
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted, digits, typed

if TYPE_CHECKING:
    from trivet.commands.sweep.record import SweepRecord, SweepTrial

MOST = 20  # trials in the table
OF_A_RUN = (*RUN_FOLDER, "*.toml", "*.csv", "*.json", "*.html")
INSIDE = tuple(f"{folder}/{name}" for folder in ("trial-*/*", "best") for name in OF_A_RUN)


def sweep(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(help="The settings, a TOML file with a section [sweep].", show_default=False, callback=exists),
    ] = None,
    set: Change = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder of the sweep. Default: sweeps/NAME for NAME.toml."),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|ADDRESS",
            help="Work on the trials of a sweep that has been started: its folder, or the address of its storage. "
            "Any number of workers can join, on any machine that reaches the storage.",
            show_default=False,
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="With --join: the name of the study, if the storage has several.")
    ] = None,
    data_root: DataRoot = None,
    trust_code: TrustCode = False,
    json: Json = False,
) -> int:
    """Try many settings, choose the best by validation, and test that one."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError("the workers of a sweep are started one by one: leave out torchrun, and use --join.")
    with show_progress("loading what trains"):
        from trivet.commands.sweep import run as task  # here: it loads the training stack
        from trivet.commands.sweep.search_space import Sweep

    def print_progress(text: str) -> None:
        echo(text, err=True)

    if join is not None:
        if config is not None:
            raise ValueError("--join takes the settings of the sweep: leave out the settings file.")
        refuse(context, "--join takes the settings of the sweep", "set")
        if "://" not in join and (Path(join) / task.STUDY).exists():
            refuse(context, f"{join} is the folder of one sweep", "study")
        settings, location = task.join(join, output, study)
        data = task.Data(settings, data_root)
    else:
        if config is None:
            raise ValueError(
                "sweep needs a settings file with a section [sweep], such as examples/sweep.toml, or --join FOLDER."
            )
        refuse(context, "a new sweep is named by sweep.name", "study")
        folder = output or Path("sweeps") / config.stem
        check_folder(context, folder, INSIDE, readable=("sweep.toml",))
        settings = Sweep.read(config, set or ())
        data = task.Data(settings, data_root)
        settings, location = task.begin(settings, folder, data, notify=print_progress)
    record = task.work(settings, location, data, command=command_line(), notify=print_progress)
    if json:
        values = record.as_json()
        del values["best_settings"]
        print_json(values | _files(record, location.folder))
    else:
        print_sweep(record, location.folder)
    return _ended(record, location.folder)


def print_sweep(record: SweepRecord, folder: Path) -> None:
    """Print whether the best helped on the test classes, then the trials, best first, and all paths."""
    for line in record.helped:
        print_text(line.text.replace("\u00a0", " "), bold=True)
    for note in record.notes:
        print_text(f"Note: {note}")
    having = record.ranked
    names = [setting.name for setting in record.vary]
    several = record.runs_per_trial > 1
    if having:
        more = f"; the best {MOST} of {len(having)}" if len(having) > MOST else ""
        print_table(
            f"{record.measure} on validation, per cent{more}",
            ("trial",),
            (record.measure, *(["95 %, Student-t"] if several else []), "before", *names),
            [_row(trial, names, several=several) for trial in having[:MOST]],
        )
    for state in ("pruned", "failed"):
        matching = [trial for trial in record.trials if trial.state == state]
        for trial in matching[:MOST]:
            print_text(f"trial {trial.number} {state}: {trial.why}")
        if len(matching) > MOST:
            print_text(f"{len(matching) - MOST} more {state}")
    if record.importance:
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in record.importance.items())
        print_text(f"What the measure depends on (fANOVA): {shares}")
    for name, path in _files(record, folder).items():
        echo(f"{name.capitalize().replace('_', ' ')}: {path}")


def _row(trial: SweepTrial, names: list[str], *, several: bool) -> list[str]:
    from trivet.commands.sweep.record import setting_text

    texts = [
        digits(value) if isinstance(value, float) else setting_text(value) for value in map(trial.settings.get, names)
    ]
    interval = [per_cent(trial.interval)] if several else []
    return [str(trial.number), per_cent(trial.value), *interval, per_cent(trial.start), *texts]


def _files(record: SweepRecord, folder: Path) -> dict[str, str]:
    """Files in the folder of a sweep."""
    names = {"best_settings": "best.toml", "best_run": "best", "report": "sweep.html"}
    return {"sweep": str(folder)} | {
        name: str(folder / file)
        for name, file in names.items()
        if record.status != "waiting" and (folder / file).exists()
    }


def _ended(record: SweepRecord, folder: Path) -> int:
    """The exit code, after a line on standard error where the sweep is not at its end."""
    done = sum(trial.state in ("complete", "pruned", "failed") for trial in record.trials)
    if record.status == "finished":
        return 0
    if record.status == "waiting":
        echo("trivet: all trials are done; the worker that tests the best one writes the result", err=True)
        return 0
    if record.status == "failed":
        echo(f"trivet: {record.notes[0]}", err=True)
        return 1
    left = counted((record.requested or 0) - done, "trial")
    echo(f"trivet: stopped with {left} left; go on with trivet sweep --join {typed(folder)}", err=True)
    return 1
