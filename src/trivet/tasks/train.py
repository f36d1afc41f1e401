"""`trivet train`: from settings to a finished run folder: start, or resume. The steps: `training.job`."""

from __future__ import annotations

import copy
from pathlib import Path

from trivet.files import write_whole
from trivet.models import save
from trivet.progress import report, reporter, say, shown
from trivet.records import RunRecord
from trivet.reports import write_run_report
from trivet.tables import write_decisions
from trivet.tasks.evaluate_run import write_evaluation
from trivet.training.choosing import load_splits
from trivet.training.config import RunConfig, resolved
from trivet.training.job import Job, Status
from trivet.training.parts import Parts, check_before_data
from trivet.training.run_folder import (
    CLEANING,
    DECISIONS,
    REPORT,
    RunFolder,
)


def train(
    config: RunConfig,
    path: Path,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
) -> RunRecord:
    """Train, evaluate and report; returns the record, which is also written to the run folder.

    A run that is stopped by Ctrl-C, also while it is evaluated, is left with a checkpoint, its model, a record of
    status "interrupted" and a report, but without an evaluation. One that its guard stopped has the status "stopped"
    and all that a finished run has. What the guard saw and did is logged as warnings of the logger "trivet", at once,
    and in the record.

    Args:
        path: the run folder; it must be new unless `force` is set.
        data_root: where data sets lie, see `trivet.data.find_root`.
        command: what was typed, for the record.
        progress: show progress on standard error.

    Raises:
        ValueError: if the settings, the data or the run folder cannot be used.
        OSError: if the run folder cannot be written; what was written before stays.
    """
    config = resolved(config)
    check_before_data(config)
    with shown("training", show=progress):
        splits = load_splits(config, data_root, reporter("reading images"))
        say(splits.found)
        parts = Parts(config, splits)  # before the folder is made: settings may not fit the data
        # Before, too: it may lie in the run that is replaced.
        decisions = None if config.data.decisions is None else config.data.decisions.read_bytes()
        run = RunFolder(path)
        with run.new(config, force=force):
            if decisions is not None:
                write_whole(path / DECISIONS, decisions)
            job = Job(run, parts, report, command)
            status = job.fit()
            if status == "interrupted" and job.task.step == 0:
                raise KeyboardInterrupt  # nothing has been trained that could be kept
            return _finish(job, status, data_root)


def resume(
    path: Path,
    *,
    repair: bool = False,
    data_root: Path | None = None,
    command: str = "",
    progress: bool = False,
) -> RunRecord:
    """Go on with a run from its last checkpoint to its last step; the result is that of a run never stopped.

    Args:
        repair: first return to the last healthy checkpoint before the first event that the monitor saw, and change
            what may prevent it, as with guard.action = "repair", which is then in force for the rest of the run.

    Raises:
        ValueError, OSError: as `train`; also if the folder holds no run, or a repair is asked for that cannot be made.
    """
    run = RunFolder.open(path)
    config = run.given()
    check_before_data(config)
    with shown("training", show=progress):
        splits = load_splits(config, data_root, reporter("reading images"))
        say(splits.found)
        parts = Parts(config, splits)
        with run.locked():
            checkpoint = run.checkpoints()[-1] if run.checkpoints() else None
            job = Job(run, parts, report, command, checkpoint=checkpoint, repair=repair)
            return _finish(job, job.fit(), data_root)


def _finish(job: Job, status: Status, data_root: Path | None) -> RunRecord:
    """Write the model and, unless a signal interrupts the training or this, evaluate it."""
    run, parts, record = job.run, job.parts, job.journal.record
    train, settings = parts.splits.train, parts.settings
    parts.choosing.put_back(parts.model)
    save(parts.model, settings.model, train.inputs.shape, run.path / "model")
    if parts.config.cleaning is not None:
        names = train.names[parts.splits.level]
        rows = [(train.ids[i], decision, names[label]) for i, decision, label in parts.cleaning.decisions()]
        write_whole(run.path / CLEANING, write_decisions(rows).encode())
    job.journal.write(step=job.task.step)
    if status != "interrupted":
        job.untrained.normalize = settings.model.normalize
        evaluated = copy.deepcopy(record) | {"status": status}
        try:
            return write_evaluation(
                run, evaluated, settings, parts.splits, parts.model, job.untrained, data_root=data_root
            )
        except KeyboardInterrupt:  # a second one ends at once
            pass
    whole = run.write_record(record | {"status": "interrupted"})
    write_run_report(whole, run.path / REPORT)
    return whole
