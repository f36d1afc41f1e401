"""`trivet train`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.commands.printing import command_line, echo, print_json
from trivet.commands.shared_options import (
    Change,
    DataRoot,
    EmbeddingColumn,
    Json,
    SkipEmpty,
    Table,
    TrustCode,
    VectorCodes,
    check_folder,
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
    from trivet.training.config import RunConfig


def train(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(help="The settings, a TOML file.", show_default=False, callback=exists)
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            callback=exists,
            help="Instead of settings: a file of vectors with labels (a table, npz, or npy with a csv beside it), on "
            "which a head is trained.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            callback=exists,
            help="Instead of settings: a file of texts with labels (csv, parquet or JSON lines), on whose vectors a "
            "head is trained.",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="With --texts: the sentence-transformers model that makes the vectors, by name or folder. Default: "
            "character n-grams."
        ),
    ] = None,
    table: Table = None,
    embedding: EmbeddingColumn = None,
    codes: VectorCodes = None,
    set: Change = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The run folder. Default: runs/NAME for NAME.toml or another file NAME."),
    ] = None,
    labels: Annotated[
        list[Path] | None,  # of paths, so that what is read is not written over; a column is a path, too
        typer.Option(
            metavar="TEXT",
            help="With settings: decisions on training labels, a csv file id,decision,label as trivet audit writes it: "
            "keep, relabel or drop; the same as --set data.decisions=FILE. With --vectors or --texts: a label column; "
            "may be repeated, the coarse one first, which is trained on.",
        ),
    ] = None,
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
    if folds is not None and member_of(os.environ) is not None:
        raise ValueError("--folds trains several runs: start it once, without torchrun, and set training.devices.")
    if resume is not None:
        if config is not None:
            raise ValueError("--resume takes the settings of the run: leave out the settings file.")
        new_only = (
            "vectors",
            "texts",
            "encoder",
            "table",
            "embedding",
            "codes",
            "labels",
            "output",
            "force",
            "folds",
            "skip_empty",
        )
        refuse(context, "--resume takes the settings of the run", *new_only)
        with show_progress("loading what trains"):
            from trivet.commands.train import folds as several  # here: it loads the training stack
            from trivet.commands.train import run

        folder = resume
        if several.is_cross_validation(folder):
            if member_of(os.environ) is not None:
                raise ValueError(f"{folder} holds several runs: resume it once, without torchrun.")
            refuse(context, f"--set is for one run: name one of those in {folder}", "set")
            result = several.resume_folds(folder, data_root=data_root, command=command_line(), progress=True)
            return _folds_ended(result, folder, json=json)
        record = run.resume(folder, changes=set, data_root=data_root, command=command_line(), progress=True)
    else:
        sources = [source for source in (config, vectors, texts) if source is not None]
        if len(sources) != 1:
            raise ValueError(
                "train needs one of a settings file, such as examples/omniglot.toml, --vectors FILE, --texts FILE and "
                f"--resume RUN: got {len(sources)} of them."
            )
        if encoder is not None and texts is None:
            raise ValueError("--encoder makes vectors of texts: give it with --texts FILE.")
        if vectors is None:
            refuse(context, "vectors are read with --vectors", "table", "embedding", "codes")
        if config is not None:
            settings = _read(config, set, labels)  # before what takes long to load
        else:
            for file in (name for name in labels or [] if name.suffix == ".csv" and name.is_file()):
                raise ValueError(
                    f"--labels names a column with --vectors and --texts: got the file {file}; if it holds decisions, "
                    f"use --set data.decisions={file}."
                )
            data = {"path": str(sources[0])} | ({} if labels is None else {"levels": list(map(str, labels))})
            data |= {"name": "vectors"} if texts is None else {"name": "texts"}
            answers = {"encoder": encoder, "table": table, "embedding": embedding, "codes": codes}
            data |= {name: str(value) for name, value in answers.items() if value is not None}
            settings = _made(data, set, folds, data_root)
        with show_progress("loading what trains"):
            from trivet.commands.train import run

        folder = output or Path("runs") / sources[0].stem
        for target in [folder] if folds is None else [folder / f"fold-{fold}" for fold in range(folds)]:
            check_folder(context, target, RUN_FOLDER, readable=("config.toml", "applied_decisions.csv"))
        if folds is not None:
            from trivet.commands.train.folds import cross_validate

            result = cross_validate(
                settings, folder, folds, data_root=data_root, force=force, command=command_line(), progress=True
            )
            return _folds_ended(result, folder, json=json)
        record = run.train(settings, folder, data_root=data_root, force=force, command=command_line(), progress=True)
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


def _read(config: Path, changes: list[str], decisions: list[Path] | None) -> RunConfig:
    """The settings of a file, with changes and a file of decisions on labels."""
    with show_progress("reading the settings"):
        from trivet.training.config import RunConfig  # here: `--help` needs no settings

    if decisions is not None and len(decisions) > 1:
        raise ValueError(
            f"--labels takes one file of decisions with a settings file: got {', '.join(map(str, decisions))}."
        )
    for file in decisions or []:
        exists(file)
        changes = [*changes, f"data.decisions={dumps(str(file))}"]
    return RunConfig.read(config, changes)


def _made(data: Mapping[str, object], changes: list[str], folds: int | None, data_root: Path | None) -> RunConfig:
    """Settings that suit the data, said on standard error."""
    with show_progress("loading what trains"):
        from trivet.commands.train.train_on_vectors import head_settings
    changes = changes if folds is None else [*changes, f"data.folds={folds}"]
    with show_progress("reading the data"):
        settings, summary = head_settings(data, changes, data_root=data_root)
    echo(summary, err=True)
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
