"""`trivet train`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.commands.printing import command_line, echo, print_json
from trivet.commands.shared_options import (
    AcceptedLicence,
    Change,
    DataRoot,
    EmbeddingColumn,
    Json,
    Left,
    LeftVectors,
    Match,
    Minutes,
    PairRows,
    Relevant,
    Right,
    RightVectors,
    Separator,
    SkipEmpty,
    Start,
    Table,
    TrustCode,
    VectorCodes,
    Weights,
    check_folder,
    exists,
    ladder_values,
    pair_sides,
    refuse,
    tag_cells,
)
from trivet.commands.train.printing import print_folds, print_run
from trivet.io.overwrite_guard import RUN_FOLDER
from trivet.io.vector_choice import VectorChoice
from trivet.runtime.progress import show_progress
from trivet.runtime.signals import member_of
from trivet.runtime.text import typed

if TYPE_CHECKING:
    from trivet.commands.train.record import CrossValidation
    from trivet.datasets.config import ItemKind
    from trivet.io.pair_table import PairSides
    from trivet.io.tag_cells import TagCells
    from trivet.reports.run_record import RunRecord
    from trivet.training.config import RunConfig
    from trivet.training.ladder_config import LadderSettings


OF_LADDER = ("download", "accept_licence")  # options


def train(
    context: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(
            help="Your data, as trivet init takes them: a folder or a table of images, a table of texts, or vectors. "
            "Or settings, a TOML file.",
            show_default=False,
            callback=exists,
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The column of texts. Default: guessed.")] = None,
    weights: Weights = None,
    start: Start = None,
    minutes: Minutes = None,
    download: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Download a further encoder to compare, as trivet encoders --download does, or all that it lists. May "
            "be repeated. A terminal offers them in a question, unless it is none.",
        ),
    ] = None,
    accept_licence: AcceptedLicence = None,
    table: Table = None,
    embedding: EmbeddingColumn = None,
    codes: VectorCodes = None,
    set: Change = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The run folder. Default: runs/NAME for NAME.toml, or for data NAME."),
    ] = None,
    labels: Annotated[
        list[Path] | None,  # of paths, so that what is read is not written over; a column is a path, too
        typer.Option(
            metavar="TEXT",
            help="Of your data: a column of labels, or for a folder the name of a level; may be repeated, the coarse "
            "one first. With settings: decisions on training labels, a csv file id,decision,label as trivet audit "
            "writes it: keep, relabel, drop, or of tags add; the same as --set data.decisions=FILE.",
        ),
    ] = None,
    separator: Separator = None,
    match: Match = None,
    pairs: PairRows = False,
    left: Left = None,
    right: Right = None,
    left_vectors: LeftVectors = None,
    right_vectors: RightVectors = None,
    relevant: Relevant = None,
    skip_empty: SkipEmpty = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the run folder.")] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=exists,
            help="Continue the run in this folder from its last checkpoint, or an unfinished cross-validation; a run "
            "with --set training.steps=N until that step.",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=10_000,
            help="Train once for each class-disjoint fold of the training classes, and validate on it.",
        ),
    ] = None,
    data_root: DataRoot = None,
    trust_code: TrustCode = False,
    json: Json = False,
) -> int:
    """Train an embedding, evaluate it and write a report."""
    set = [*(set or []), *(["data.skip_empty=true"] if skip_empty else [])]
    of_data = ("text", "weights", "start", "minutes", "table", "embedding", "codes", "separator", "match")
    of_pairs = ("pairs", "left", "right", "left_vectors", "right_vectors", "relevant")
    further = Further(
        download, accept_licence or [], interactive=not json and sys.stdin.isatty() and sys.stderr.isatty()
    )
    if folds is not None and member_of(os.environ) is not None:
        raise ValueError("--folds trains several runs: start it once, without torchrun, and set training.devices.")
    record: RunRecord | None
    if resume is not None:
        if path is not None:
            raise ValueError("--resume takes the settings of the run: leave out the settings or data.")
        refuse(
            context,
            "--resume takes the settings of the run",
            *of_data,
            *of_pairs,
            *OF_LADDER,
            "labels",
            "output",
            "force",
            "folds",
            "skip_empty",
        )
        with show_progress("loading what trains"):
            from trivet.commands.train import folds as several  # here: it loads the training stack
            from trivet.commands.train import ladder, run
            from trivet.training.run_folder import is_unfinished_ladder

        folder = resume
        if several.is_cross_validation(folder):
            if member_of(os.environ) is not None:
                raise ValueError(f"{folder} holds several runs: resume it once, without torchrun.")
            refuse(context, f"--set is for one run: name one of those in {folder}", "set")
            result = several.resume_folds(folder, data_root=data_root, command=command_line(), progress=True)
            return _folds_ended(result, folder, json=json)
        if is_unfinished_ladder(folder):
            refuse(context, f"--set is for one run: {folder} tries several", "set")
            record = ladder.resume_climb(folder, data_root=data_root, command=command_line(), progress=True)
        else:
            record = run.resume(folder, changes=set, data_root=data_root, command=command_line(), progress=True)
    else:
        if path is None:
            raise ValueError(
                "train needs your data or a settings file, such as trivet train photos/ or trivet train "
                "examples/omniglot.toml, or --resume RUN."
            )
        settings: LadderSettings | RunConfig
        if path.suffix == ".toml":
            refuse(context, "what a settings file says is changed with --set", *of_data, *of_pairs)
            settings = _read(path, set, labels)  # before what takes long to load
            settings = _with_encoders(context, settings, further)
        else:
            settings = _proposed(
                path,
                set,
                labels,
                text,
                ladder_values(weights, start, minutes),
                VectorChoice(table, embedding, codes),
                tag_cells(separator, match),
                pair_sides(pairs, left, right, left_vectors, right_vectors, relevant),
                further,
                skip_empty=skip_empty,
                data_root=data_root,
            )
        with show_progress("loading what trains"):
            from trivet.commands.train import ladder, run
            from trivet.training.config import RunConfig

        folder = output or Path("runs") / path.stem
        for target in [folder] if folds is None else [folder / f"fold-{fold}" for fold in range(folds)]:
            check_folder(context, target, RUN_FOLDER, readable=("config.toml", "applied_decisions.csv"))
        if not isinstance(settings, RunConfig):
            refuse(context, "a ladder holds out a fold of its own", "folds")
            record = ladder.climb(
                settings, folder, data_root=data_root, force=force, command=command_line(), progress=True
            )
        elif folds is not None:
            from trivet.commands.train.folds import cross_validate

            result = cross_validate(
                settings, folder, folds, data_root=data_root, force=force, command=command_line(), progress=True
            )
            return _folds_ended(result, folder, json=json)
        else:
            record = run.train(
                settings, folder, data_root=data_root, force=force, command=command_line(), progress=True
            )
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
        command = f"evaluate {folder}" if trained else f"train --resume {folder}"
        echo(f"trivet: stopped {when}; continue with trivet {command}", err=True)
    return 1


def _read(path: Path, changes: list[str], decisions: list[Path] | None) -> LadderSettings | RunConfig:
    """The settings of a file, with changes and a file of decisions on labels: of a ladder where it has that section."""
    with show_progress("reading the settings"):
        from trivet.config.base import read_settings  # here: `--help` needs no settings
        from trivet.training.config import RunConfig
        from trivet.training.ladder_config import LadderSettings

    if decisions is not None and len(decisions) > 1:
        raise ValueError(
            f"--labels takes one file of decisions with a settings file: got {', '.join(map(str, decisions))}."
        )
    for file in decisions or []:
        exists(file)
        changes = [*changes, f"data.decisions={dumps(str(file))}"]
    kind = LadderSettings if "ladder" in read_settings(path) else RunConfig
    return kind.read(path, changes)


@dataclass(frozen=True)
class Further:
    """Encoders to download: by name, with what licences are accepted, and whether to ask where no name is given."""

    names: Sequence[str] | None
    accepted: Sequence[str]
    interactive: bool

    def encoders(self, kind: ItemKind, named: Sequence[str] | None) -> list[str] | None:
        """`LadderConfig.encoders` after the downloads; see `trivet.commands.encoders.run.fetched`."""
        from trivet.commands.encoders.run import fetched  # here: it loads the training stack

        if kind == "images and texts":
            if self.names:
                raise ValueError(
                    "--download is for images or texts alone: fetch encoders of both with trivet encoders --download."
                )
            return None
        if kind == "vectors":
            if self.names:
                raise ValueError("--download is for encoders of images or texts: the data are vectors; leave it out.")
            return None
        names = [name for name in self.names or [] if name != "none"]
        return fetched(kind, named, names, self.accepted, interactive=self.interactive and self.names is None)


def _with_encoders(
    context: typer.Context, settings: LadderSettings | RunConfig, further: Further
) -> LadderSettings | RunConfig:
    """The settings of a ladder, with further encoders downloaded; a single run has none."""
    from trivet.training.config import RunConfig  # here: it loads the training stack

    if isinstance(settings, RunConfig):
        refuse(context, "a single run compares no encoders", *OF_LADDER)
        return settings
    encoders = further.encoders(settings.data.item_kind, settings.ladder.encoders)
    ladder = settings.ladder if encoders is None else settings.ladder.model_copy(update={"encoders": tuple(encoders)})
    return settings.model_copy(update={"ladder": ladder})


def _proposed(
    path: Path,
    changes: list[str],
    labels: list[Path] | None,
    text: str | None,
    ladder: dict[str, Any],
    choice: VectorChoice,
    tags: TagCells | None,
    pairs: PairSides | None,
    further: Further,
    *,
    skip_empty: bool,
    data_root: Path | None,
) -> LadderSettings:
    """The settings that `trivet init` writes for data, with changes, and with further encoders downloaded."""
    if file := next((name for name in labels or [] if name.suffix == ".csv" and name.is_file()), None):
        raise ValueError(
            f"--labels names a column of your data: got the file {file}; if it holds decisions, use "
            f"--set data.decisions={file}."
        )
    with show_progress("looking at the data"):
        from trivet.commands.init.data import detect  # here: they load the training stack
        from trivet.commands.init.run import propose_ladder

        names = None if labels is None else [*map(str, labels)]
        detected = detect(path, names, text, choice, tags=tags, pairs=pairs, skip_empty=skip_empty, root=data_root)
    encoders = further.encoders(detected.item_kind, None)  # outside of what shows progress, which hides a question
    if encoders is not None:
        ladder["encoders"] = encoders
    with show_progress("looking at the data"):
        settings, findings = propose_ladder(path, detected, ladder=ladder, changes=changes, data_root=data_root)
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
