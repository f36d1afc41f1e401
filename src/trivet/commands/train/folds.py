"""`trivet train --folds`: trains and validates once for each class-disjoint fold of the training classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trivet.commands.evaluate.record import FoldsRecord
from trivet.commands.train.outcome import share_of
from trivet.commands.train.record import CrossValidation
from trivet.commands.train.run import resume, train
from trivet.config.plugins import settings_of
from trivet.datasets import DataConfig
from trivet.io.atomic_files import filled_folder, locked_folder, recover, write_atomic, write_json
from trivet.io.overwrite_guard import RUN_NAMES
from trivet.reports.shared_records import Levels
from trivet.runtime.text import typed
from trivet.training.components import check_before_data
from trivet.training.config import RunConfig, resolved
from trivet.training.run_folder import CONFIG, DECISIONS, FOLDS, FOLDS_CONFIG, RunFolder

WHAT = "a cross-validation"


def is_cross_validation(path: Path) -> bool:
    """True if a folder holds the runs of a cross-validation."""
    recover(path, RUN_NAMES)
    return (path / FOLDS_CONFIG).is_file()


def cross_validate(
    config: RunConfig,
    path: Path,
    folds: int,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
) -> CrossValidation:
    """Train once for each class-disjoint fold of the training classes, and measure each on the fold it has not seen.

    The runs are `path/fold-0`, ..., the settings of all `path/folds.toml`; what they say together is returned and
    written to `path/folds.json`. A run that is stopped, or killed, is gone on with by `resume_folds`.

    Raises:
        ValueError, OSError: as `train`.

    Source:
        Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.3.
    """
    config = _with_data(resolved(config), folds=folds)
    check_before_data(config)
    decisions = None if config.data.decisions is None else config.data.decisions.read_bytes()
    with filled_folder(
        path,
        _names(path, folds),
        mark=FOLDS_CONFIG,
        what=WHAT,
        force=force,
        ended=(path / FOLDS).is_file,
        go_on=f", or continue it with trivet train --resume {typed(path)}",
    ):
        if decisions is not None:
            write_atomic(path / DECISIONS, decisions)
        write_atomic(path / FOLDS_CONFIG, config.to_toml().encode())
        try:
            return _train_all(path, data_root=data_root, command=command, progress=progress)
        except ValueError:
            if not _run(path, 0).exists():  # the settings do not fit the data: nothing is to be gone on with
                (path / FOLDS_CONFIG).unlink()
                (path / DECISIONS).unlink(missing_ok=True)
            raise


def resume_folds(
    path: Path, *, data_root: Path | None = None, command: str = "", progress: bool = False
) -> CrossValidation:
    """Go on with a cross-validation: finished runs stay, one that was stopped goes on, those that lack are made.

    The result is that of a cross-validation never stopped; see `cross_validate`.

    Raises:
        ValueError, OSError: as `train`; also if the folder holds no cross-validation.
    """
    names = _names(path)
    with locked_folder(path, names, what=WHAT, ended=(path / FOLDS).is_file):
        return _train_all(path, data_root=data_root, command=command, progress=progress)


def _train_all(path: Path, *, data_root: Path | None, command: str, progress: bool) -> CrossValidation:
    config = _config(path)
    assert config.data.folds is not None
    result = CrossValidation(folds=config.data.folds, runs=[], status="finished")
    by_fold: list[Levels] = []
    for fold in range(config.data.folds):
        run = _run(path, fold)
        record = RunFolder(run).record()
        if record is None or record.status != "finished":
            if (run / CONFIG).is_file():
                record = resume(run, data_root=data_root, command=command, progress=progress)
            else:
                settings = _with_data(config, fold=fold)
                record = train(settings, run, data_root=data_root, command=command, progress=progress)
        result.runs.append(str(run))
        if record.status != "finished":
            result.status = "stopped" if record.status == "stopped" else "interrupted"
            if record.guard.stopped_by:
                result.stopped_by = record.guard.stopped_by
            return result
        by_fold.append(record.evaluation["validation"][0].levels)
    evaluation = {}
    for level in by_fold[0]:
        measured = {name: [share_of(levels, level, name) for levels in by_fold] for name in config.evaluation.measures}
        evaluation[level] = {
            name: FoldsRecord.of(known)
            for name, values in measured.items()
            if len(known := [value for value in values if value is not None]) == len(by_fold)
        }
    result.evaluation = evaluation
    write_json(path / FOLDS, result.as_json(unset=False))
    return result


def _run(path: Path, fold: int) -> Path:
    return path / f"fold-{fold}"


def _names(path: Path, folds: int = 0) -> frozenset[str]:
    """Names that a cross-validation may hold, also an earlier one of more folds."""
    there = (item.name for item in path.glob("fold-*") if item.name.removeprefix("fold-").isdecimal())
    return frozenset((FOLDS, FOLDS_CONFIG, DECISIONS, *there, *(f"fold-{fold}" for fold in range(folds))))


def _config(path: Path) -> RunConfig:
    """The settings that all runs share, with the copy of a decision file."""
    with settings_of(path):
        config = RunConfig.read(path / FOLDS_CONFIG)
    return config if config.data.decisions is None else _with_data(config, decisions=path.resolve() / DECISIONS)


def _with_data(config: RunConfig, **changes: Any) -> RunConfig:
    data = DataConfig.parse(config.data.model_dump(exclude_unset=True) | changes, source="data")
    return config.model_copy(update={"data": data})
