"""`trivet train`: from settings to a finished run folder: start, or resume. The steps: `training.trainer`."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from trivet.commands.evaluate.trained_model import write_evaluation
from trivet.commands.train.page import write_run_report
from trivet.commands.train.pre_run_forecast import foresee
from trivet.datasets import Splits
from trivet.io.atomic_files import write_atomic
from trivet.io.label_decisions import write_decisions
from trivet.models import save
from trivet.reports.run_record import RunRecord
from trivet.runtime.progress import announce, report, reporter, show_progress
from trivet.runtime.signals import member_of
from trivet.training.components import Components, check_before_data, load_splits, run_fingerprint
from trivet.training.config import RunConfig, resolved, with_length
from trivet.training.dimension_check import check_width
from trivet.training.distributed.launch import launch, processes_to_start, together
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.distributed.worker_rank import follow_main
from trivet.training.loggers import check_installed
from trivet.training.run_folder import CLEANING, DECISIONS, MODEL, MODEL_BEST, MODEL_LAST, REPORT, RunFolder
from trivet.training.trainer import Status, Trainer, Watch

log = logging.getLogger("trivet")


def train(
    config: RunConfig,
    path: Path,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
    splits: Splits | None = None,
    watch: Watch | None = None,
) -> RunRecord:
    """Train, evaluate and report; returns the record, which is also written to the run folder.

    A run that is stopped by Ctrl-C, also while it is evaluated, is left with a checkpoint, its model, a record of
    status "interrupted" and a report, but without an evaluation. One that its guard stopped has the status "stopped"
    and all that a finished run has. Events are logged as warnings of the logger "trivet", at once, and in the record.

    With `training.devices` above 1 this starts as many processes, waits for them and returns the record that they have
    written. Among those of torchrun the one of rank 0 writes and returns; the others end here.

    Args:
        path: the run folder; it must be new unless `force` is set.
        data_root: where data sets lie, see `trivet.datasets.find_root`.
        command: what was typed, for the record.
        progress: show progress on standard error.
        splits: the data, where they are read already; not where this starts several processes, which read their own.
        watch: may end the training, see `trivet.training.trainer.Watch`; what is watched is not evaluated at its end.
            Not where this starts several processes either.

    Raises:
        ValueError: if the settings, the data or the run folder cannot be used.
        OSError: if the run folder cannot be written; what was written before stays.
        LostError: if one of several processes was killed, or is out of reach.
    """
    config = resolved(config)
    values = config.model_dump(mode="json", exclude_none=True)
    again = partial(_train_again, values, path, data_root=data_root, force=force, command=command, progress=progress)
    if (record := _of_processes(again, config, path, splits=splits, watch=watch)) is not None:
        return record
    with _begun(config, path, splits, data_root, progress=progress) as components:  # before the folder is made
        for note in filter(None, (check_width(components), components.piece_note, components.probe_note)):
            log.warning(note)
        # Before, too: it may lie in the run that is replaced.
        decisions = None if config.data.decisions is None else config.data.decisions.read_bytes()
        run = RunFolder(path)
        with run.new(config, force=force):
            if decisions is not None:
                write_atomic(path / DECISIONS, decisions)
            try:
                trainer = Trainer(run, components, report, command, watch=watch)
            except ValueError:  # before the first step, as by a logger that cannot be reached
                run.discard()
                raise
            with trainer.run_log.loggers:
                if config.guard.forecast and config.training.steps != 0:
                    _foretell(trainer)
                status = _fitted(trainer)
                if status == "interrupted" and trainer.state.learner.step == 0:
                    raise KeyboardInterrupt  # nothing has been trained that could be kept
                return _finish(trainer, status, evaluate=watch is None)


def _foretell(trainer: Trainer) -> None:
    """Say so if the run would collapse, or if nobody can tell."""
    foreseen = foresee(trainer.components)
    unchanged = foreseen.tried[0]
    if (sentence := foreseen.sentence or (unchanged.sentence if unchanged.outlook == "open" else None)) is not None:
        log.warning(sentence)
    trainer.run_log.record.foreseen = foreseen
    trainer.run_log.write()


def _train_again(values: dict[str, Any], path: Path, **options: Any) -> None:
    """`train` in another process, which gets no settings but as JSON."""
    train(RunConfig.parse(values, source="the settings"), path, **options)


def resume(
    path: Path,
    *,
    changes: Sequence[str] = (),
    data_root: Path | None = None,
    command: str = "",
    progress: bool = False,
    splits: Splits | None = None,
    watch: Watch | None = None,
) -> RunRecord:
    """Go on with a run from its last checkpoint to its last step; the result is that of a run never stopped.

    Args:
        changes: "training.steps=value" or "training.epochs=value": the run is to be so long; or the same of
            devices: where it goes on; see `with_length`.
        splits, watch: as in `train`.

    Raises:
        ValueError, OSError, LostError: as `train`; also if the folder holds no run.
    """
    run = RunFolder.open(path) if _first() else RunFolder(path)
    config = with_length(run.config(), changes)
    again = partial(resume, path, changes=changes, data_root=data_root, command=command, progress=progress)
    if (record := _of_processes(again, config, path, splits=splits, watch=watch)) is not None:
        return record
    with _begun(config, path, splits, data_root, progress=progress) as components, run.locked():
        checkpoint = run.checkpoints()[-1] if run.checkpoints() else None
        trainer = Trainer(run, components, report, command, checkpoint=checkpoint, watch=watch)
        if changes:
            run.change(changes)
        with trainer.run_log.loggers:
            return _finish(trainer, _fitted(trainer), evaluate=watch is None)


def _of_processes(
    action: Callable[[], object], config: RunConfig, path: Path, *, splits: Splits | None, watch: Watch | None
) -> RunRecord | None:
    """The record that several processes have written, where the settings ask for them; None where this one trains."""
    check_before_data(config)
    check_installed(config.training.loggers)
    size = processes_to_start(config.training, config.batch.batch_size)
    if size == 1:
        return None
    known = [name for name, value in {"splits": splits, "watch": watch}.items() if value is not None]
    if known:
        raise ValueError(
            f"{' and '.join(known)} cannot be given to the processes that training.devices starts: it asks for "
            f"{size}; set training.devices = 1, or start the processes with torchrun."
        )
    launch(action, size, path)
    record = RunFolder(path).record()
    assert record is not None, f"the processes have left no record in {path}"
    return record


@contextmanager
def _begun(
    config: RunConfig, path: Path, splits: Splits | None, data_root: Path | None, *, progress: bool
) -> Iterator[Components]:
    """Components of a run, in each of its processes; settings may not fit the data."""
    with together(config.training, path) as world, show_progress("training", show=progress and _first()):
        if splits is None:
            splits = load_splits(config, data_root, reporter("reading images"))
            announce(splits.summary)
        components = Components(config, splits, world)
        if world is not None:
            _meet(world, components)
        yield components


def _first() -> bool:
    """True if this process is alone, or the main one."""
    member = member_of(os.environ)
    return member is None or member.rank == 0


def _meet(world: ProcessGroup, components: Components) -> None:
    """Check that all processes have the same task, and end here in all but the main one."""
    identity = f"{run_fingerprint(components.config, components.splits)} {components.config.training.num_steps}"
    world.same(identity, what="settings and data")
    if not world.main:
        follow_main(components, world)
        world.leave_for_good()


def _fitted(trainer: Trainer) -> Status:
    """Train; what follows the main process does alone."""
    status = trainer.fit()
    if trainer.components.world is not None:
        trainer.components.world.leave()
    return status


def _finish(trainer: Trainer, status: Status, *, evaluate: bool) -> RunRecord:
    """Write the models and, unless a signal interrupts the training or this, evaluate the one that is kept."""
    run, components, record, loggers = trainer.run, trainer.components, trainer.run_log.record, trainer.run_log.loggers
    train, settings = components.splits.train, components.config
    _save_models(run, components)
    if settings.cleaning is not None:
        names = train.names[components.splits.level]
        rows = [(train.ids[i], decision, names[label]) for i, decision, label in trainer.state.cleaning.decisions()]
        write_atomic(run.path / CLEANING, write_decisions(rows).encode())
    record.step = trainer.state.learner.step
    trainer.run_log.write()
    if status != "interrupted" and evaluate:
        evaluated = record.model_copy(update={"status": status}, deep=True)
        try:
            complete = write_evaluation(
                run,
                evaluated,
                components.splits,
                trainer.state.learner.measured,
                trainer.untrained,
            )
            run.keep()  # also one of no step
            loggers.end(status, _results(complete, settings.evaluation.measures), trainer.state.learner.step)
            return complete
        except KeyboardInterrupt:  # a second one ends at once
            pass
    ended: Status = "interrupted" if evaluate else status
    record.status = ended
    run.write_record(record)
    write_run_report(record, run.path / REPORT)
    loggers.end(ended)
    return record


def _save_models(run: RunFolder, components: Components) -> None:
    """Write the model that is measured and, where there was something to choose by, the other one; leave the first."""
    config, network, best = components.config, components.state.learner.measured, components.state.selection.weights
    last = {name: value.detach().clone() for name, value in network.state_dict().items()}
    if config.choosing.keep == "best":
        models = [(MODEL_LAST, last), (MODEL, best)]
    else:
        models = [*([(MODEL_BEST, best)] if best else []), (MODEL, last)]
    for folder, weights in models:
        network.load_state_dict(weights)
        save(network, config.model, components.splits.train.inputs.shape, run.path / folder)
    for folder in {MODEL_LAST, MODEL_BEST} - {folder for folder, _ in models}:  # of the run with other settings
        shutil.rmtree(run.path / folder, ignore_errors=True)


def _results(record: RunRecord, measures: Sequence[str]) -> dict[tuple[str, ...], float]:
    """The measures of all splits and levels as loggers get them; those of references and prefixes are named so."""
    measured: dict[tuple[str, ...], float] = {}
    for split, evaluated in record.evaluation.items():
        cuts = {(f"first {cut.prefix}",): cut.evaluated for cut in record.prefixes.get(split, [])}
        for cut, rows in ({(): evaluated} | cuts).items():
            for row in rows:
                of = ("evaluation",) if row.name == "trained" else ("reference", row.name)
                for level, values in row.levels.items():
                    shares = {name: values.get(name) for name in measures}
                    measured |= {
                        (*of, *cut, split, level, name): float(share)
                        for name, share in shares.items()
                        if isinstance(share, int | float)
                    }
    return measured
