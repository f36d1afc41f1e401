"""`trivet train`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.commands.printing import command_line, echo, print_json
from trivet.commands.shared_options import (
    AcceptedLicence,
    Change,
    DataOptions,
    DataRoot,
    Json,
    SkipEmpty,
    TrustCode,
    check_folder,
    command,
    exists,
    refuse,
)
from trivet.commands.train.printing import print_folds, print_run
from trivet.io.overwrite_guard import RUN_FOLDER
from trivet.runtime.progress import show_progress
from trivet.runtime.signals import member_of
from trivet.runtime.text import typed

if TYPE_CHECKING:
    from trivet.commands.train.record import CrossValidation
    from trivet.datasets.config import ItemKind
    from trivet.reports.run_record import RunRecord
    from trivet.training.config import RunConfig
    from trivet.training.ladder_config import LadderSettings

OF_DATA = [field.name for field in fields(DataOptions)]
OF_LADDER = ("download", "accept_licence")  # options


@dataclass(frozen=True)
class TrainOptions(DataOptions):
    """A training as it is asked for."""

    path: Annotated[
        Path | None,
        typer.Argument(
            help="Your data, as trivet init takes them: a folder or a table of images, a table of texts, or vectors. "
            "Or settings, a TOML file.",
            show_default=False,
            callback=exists,
        ),
    ] = None
    download: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Download a further encoder to compare, as trivet encoders --download does, or all that it lists. May "
            "be repeated. A terminal offers them in a question, unless it is none.",
        ),
    ] = None
    accept_licence: AcceptedLicence = None
    set: Change = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The run folder. Default: runs/NAME for NAME.toml, or for data NAME."),
    ] = None
    labels: Annotated[
        list[Path] | None,  # of paths, so that what is read is not written over; a column is a path, too
        typer.Option(
            metavar="TEXT",
            help="Of your data: a column of labels, or for a folder the name of a level; may be repeated, the coarse "
            "one first. With settings: decisions on training labels, a csv file id,decision,label as trivet audit "
            "writes it: keep, relabel, drop, or of tags add; the same as --set data.decisions=FILE.",
        ),
    ] = None
    skip_empty: SkipEmpty = False
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the run folder.")] = False
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=exists,
            help="Continue the run in this folder from its last checkpoint, or an unfinished cross-validation; a run "
            "with --set training.steps=N until that step.",
        ),
    ] = None
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=10_000,
            help="Train once for each class-disjoint fold of the training classes, and validate on it.",
        ),
    ] = None
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False

    @property
    def interactive(self) -> bool:
        """True if the command may ask in a terminal."""
        return not self.json and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def changes(self) -> list[str]:
        """The settings that are changed."""
        return [*(self.set or []), *(["data.skip_empty=true"] if self.skip_empty else [])]


@command(TrainOptions)
def train(context: typer.Context, request: TrainOptions) -> int:
    """Train an embedding, evaluate it and write a report."""
    if request.folds is not None and member_of(os.environ) is not None:
        raise ValueError("--folds trains several runs: start it once, without torchrun, and set training.devices.")
    return _resumed(context, request, request.resume) if request.resume is not None else _trained(context, request)


def _resumed(context: typer.Context, request: TrainOptions, folder: Path) -> int:
    """Go on with what is in a folder: a run, a ladder, or a cross-validation."""
    if request.path is not None:
        raise ValueError("--resume takes the settings of the run: leave out the settings or data.")
    of_new = (*OF_DATA, *OF_LADDER, "labels", "output", "force", "folds", "skip_empty")
    refuse(context, "--resume takes the settings of the run", *of_new)
    with show_progress("loading what trains"):
        from trivet.commands.train import folds, ladder, run  # here: they load the training stack
        from trivet.training.run_folder import is_unfinished_ladder

    root = request.data_root
    if folds.is_cross_validation(folder):
        if member_of(os.environ) is not None:
            raise ValueError(f"{folder} holds several runs: resume it once, without torchrun.")
        refuse(context, f"--set is for one run: name one of those in {folder}", "set")
        result = folds.resume_folds(folder, data_root=root, command=command_line(), progress=True)
        return _folds_ended(result, folder, json=request.json)
    record: RunRecord | None
    if is_unfinished_ladder(folder):
        refuse(context, f"--set is for one run: {folder} tries several", "set")
        record = ladder.resume_climb(folder, data_root=root, command=command_line(), progress=True)
    else:
        changes = request.changes
        record = run.resume(folder, changes=changes, data_root=root, command=command_line(), progress=True)
    return _ended(record, folder, json=request.json)


def _trained(context: typer.Context, request: TrainOptions) -> int:
    """Train by the settings of a file, or by those that are proposed for data."""
    path, folds, root, force = request.path, request.folds, request.data_root, request.force
    if path is None:
        raise ValueError(
            "train needs your data or a settings file, such as trivet train photos/ or trivet train "
            "examples/omniglot.toml, or --resume RUN."
        )
    settings: LadderSettings | RunConfig
    if path.suffix == ".toml":
        refuse(context, "what a settings file says is changed with --set", *OF_DATA)
        settings = _with_encoders(context, _read(path, request), request)  # before what takes long to load
    else:
        settings = _proposed(path, request)
    with show_progress("loading what trains"):
        from trivet.commands.train import ladder, run
        from trivet.training.config import RunConfig

    folder = request.output or Path("runs") / path.stem
    for target in [folder] if folds is None else [folder / f"fold-{fold}" for fold in range(folds)]:
        check_folder(context, target, RUN_FOLDER, readable=("config.toml", "applied_decisions.csv"))
    record: RunRecord | None
    if not isinstance(settings, RunConfig):
        refuse(context, "a ladder holds out a fold of its own", "folds")
        record = ladder.climb(settings, folder, data_root=root, force=force, command=command_line(), progress=True)
    elif folds is not None:
        from trivet.commands.train.folds import cross_validate

        result = cross_validate(
            settings, folder, folds, data_root=root, force=force, command=command_line(), progress=True
        )
        return _folds_ended(result, folder, json=request.json)
    else:
        record = run.train(settings, folder, data_root=root, force=force, command=command_line(), progress=True)
    return _ended(record, folder, json=request.json)


def _ended(record: RunRecord | None, folder: Path, *, json: bool) -> int:
    """Print how a run ended, None before it began; returns the exit code."""
    if record is None:
        echo(f"trivet: stopped; continue with trivet train --resume {typed(folder)}", err=True)
        return 1
    if json:
        from trivet.commands.train.record import RunSummary  # here: `--help` needs no record

        print_json(RunSummary.of(record, folder).as_json(unset=False))
    else:
        print_run(record, folder)
    if record.status == "finished":
        return 0
    if record.status == "stopped":
        why = f"the guard stopped the training after step {record.step}: {record.guard.stopped_by}"
        echo(f"trivet: {why}; train again with what {folder / 'report.html'} proposes", err=True)
    else:
        trained = record.guard.stopped_by is not None or record.step == record.settings["training"]["steps"]
        trained |= record.choosing is not None and record.choosing.ended is not None
        when = "before the evaluation was complete" if trained else f"after step {record.step}"
        next_command = f"evaluate {folder}" if trained else f"train --resume {folder}"
        echo(f"trivet: stopped {when}; continue with trivet {next_command}", err=True)
    return 1


def _read(path: Path, request: TrainOptions) -> LadderSettings | RunConfig:
    """The settings of a file, with changes and a file of decisions on labels: of a ladder where it has that section."""
    with show_progress("reading the settings"):
        from trivet.config.base import read_settings  # here: `--help` needs no settings
        from trivet.training.config import RunConfig
        from trivet.training.ladder_config import LadderSettings

    changes, decisions = request.changes, request.labels or []
    if len(decisions) > 1:
        raise ValueError(
            f"--labels takes one file of decisions with a settings file: got {', '.join(map(str, decisions))}."
        )
    for file in decisions:
        exists(file)
        changes = [*changes, f"data.decisions={dumps(str(file))}"]
    kind = LadderSettings if "ladder" in read_settings(path) else RunConfig
    return kind.read(path, changes)


def further_encoders(
    request: TrainOptions, kind: ItemKind, named: Sequence[str] | None = None, *, interactive: bool = False
) -> list[str] | None:
    """`LadderConfig.encoders` after the downloads that are asked for, or in a terminal are agreed to.

    Args:
        kind, named, interactive: see `trivet.commands.encoders.run.fetched`.
    """
    from trivet.commands.encoders.run import fetched  # here: it loads the training stack

    if kind == "images and texts" or kind == "vectors":
        if request.download:
            raise ValueError(
                "--download is for encoders of images or texts: the data are vectors; leave it out."
                if kind == "vectors"
                else "--download is for images or texts alone: fetch encoders of both with trivet encoders --download."
            )
        return None
    names = [name for name in request.download or [] if name != "none"]
    asks = interactive and request.download is None
    return fetched(kind, named, names, request.accept_licence or (), interactive=asks)


def _with_encoders(
    context: typer.Context, settings: LadderSettings | RunConfig, request: TrainOptions
) -> LadderSettings | RunConfig:
    """The settings of a ladder, with further encoders downloaded; a single run has none."""
    from trivet.training.config import RunConfig  # here: it loads the training stack

    if isinstance(settings, RunConfig):
        refuse(context, "a single run compares no encoders", *OF_LADDER)
        return settings
    kind, named = settings.data.item_kind, settings.ladder.encoders
    encoders = further_encoders(request, kind, named, interactive=request.interactive)
    ladder = settings.ladder if encoders is None else settings.ladder.model_copy(update={"encoders": tuple(encoders)})
    return settings.model_copy(update={"ladder": ladder})


def _proposed(path: Path, request: TrainOptions) -> LadderSettings:
    """The settings that `trivet init` writes for data, with changes, and with further encoders downloaded."""
    labels, root, ladder = request.labels, request.data_root, request.ladder
    if file := next((name for name in labels or [] if name.suffix == ".csv" and name.is_file()), None):
        raise ValueError(
            f"--labels names a column of your data: got the file {file}; if it holds decisions, use "
            f"--set data.decisions={file}."
        )
    with show_progress("looking at the data"):
        from trivet.commands.init.data import detect  # here: they load the training stack
        from trivet.commands.init.run import propose_ladder

        names = None if labels is None else [*map(str, labels)]
        detected = detect(
            path,
            names,
            request.text,
            request.choice,
            tags=request.tags,
            pairs=request.sides,
            skip_empty=request.skip_empty,
            root=root,
        )
    # Outside of what shows progress, which hides a question.
    encoders = further_encoders(request, detected.item_kind, interactive=request.interactive)
    if encoders is not None:
        ladder["encoders"] = encoders
    with show_progress("looking at the data"):
        settings, findings = propose_ladder(path, detected, ladder=ladder, changes=request.changes, data_root=root)
    for finding in findings:
        echo(finding, err=True)
    return settings


def _folds_ended(result: CrossValidation, folder: Path, *, json: bool) -> int:
    """Print how a cross-validation ended; returns the exit code."""
    if json:
        print_json(result.as_json(unset=False))
    else:
        print_folds(result)
    if result.status == "finished":
        return 0
    why = f"the guard stopped {result.runs[-1]}: {result.stopped_by}" if result.stopped_by else "stopped"
    echo(f"trivet: {why}; continue with trivet train --resume {typed(folder)}", err=True)
    return 1
