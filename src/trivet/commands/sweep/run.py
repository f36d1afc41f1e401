"""`trivet sweep`: tries settings, chooses the best by items that are not tested, and tests that one once.

Every worker does the same: it claims a trial of the study, trains its runs and tells what they came to, until all
trials are told. The first that then finds the folder free trains the best settings, tests them and writes the result.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trivet.collapse.monitor import Event, EventKind
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.sweep.page import write_sweep_report
from trivet.commands.sweep.record import StudyDescription, SweepRecord, SweepRun, SweepTrial
from trivet.commands.sweep.results import COMPARED, RECORD, SETTINGS, make_record, run_path
from trivet.commands.sweep.search_space import Sweep, Value
from trivet.commands.sweep.storage_address import SQLITE, storage_name
from trivet.commands.sweep.study import (
    ClaimedTrial,
    Study,
    TakenOverError,
    best_of,
    only_study,
    open_study,
    ranked,
    study_description,
    within_reach,
)
from trivet.commands.train.run import resume, train
from trivet.config.base import flat
from trivet.config.plugins import settings_of
from trivet.datasets import Splits
from trivet.datasets.holdout import folds_advice
from trivet.io.atomic_files import InUseError, locked_folder, write_atomic
from trivet.reports.run_record import RunRecord, SelectionCheck
from trivet.runtime.progress import reporter, show_progress
from trivet.runtime.safe_read import parse_toml
from trivet.training.checkpoint import forget_checkpoints
from trivet.training.checkpoint_selection import selection_split
from trivet.training.components import in_steps, load_splits
from trivet.training.config import RunConfig, resolved
from trivet.training.guard import event_line
from trivet.training.run_folder import CONFIG, RunFolder

STUDY, BEST_SETTINGS, BEST, PAGE = "study.db", "best.toml", "best", "sweep.html"
TAKEN_OVER = "taken over by another worker"  # why a run ended whose trial was closed meanwhile
COLLAPSED: tuple[EventKind, ...] = ("network-collapse", "class-collapse")
WARM = 0.25  # of the steps of a run, before which it is not compared with the median
MAY_DIFFER = {"sweep.trials", "sweep.storage", "sweep.name", "sweep.heartbeat"}  # where a sweep goes on
POLL = 1.0  # seconds between looks at a study where all trials are taken

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Location:
    """Paths of a sweep: the folder of its runs and the storage of its study.

    Attributes:
        folder: of the runs, and, where the sweep began here, of its result.
        url: of the storage, with a password where there is one.
        name: of the study.
    """

    folder: Path
    url: str
    name: str


class Data:
    """The data of a sweep, read once; of each run only what trials are compared by is measured.

    Args:
        root: where data sets lie, see `trivet.datasets.find_root`.
    """

    def __init__(self, sweep: Sweep, root: Path | None = None) -> None:
        self._sweep, self.root = sweep, root
        self._known: dict[str, Splits] = {}

    def check(self) -> None:
        """Check that each value fits the data, before the first trial."""
        self._sweep.check_data(self.of(self._sweep.run(self._sweep.first, fold=self._sweep.folds[0])))

    def of(self, config: RunConfig) -> Splits:
        """The data of a run."""
        config = resolved(config)
        key = json.dumps([config.data.model_dump(mode="json"), *config.model.tokens_key], sort_keys=True)
        if key not in self._known:
            if len(self._known) > len(self._sweep.folds):  # how items are shown varies, too
                self._known.clear()
            with show_progress("reading the data"):
                splits = load_splits(config, self.root, reporter("reading images"))
            split = selection_split(splits)
            if split is None or len(splits.evaluation) < 2:
                raise ValueError(
                    f"a sweep must choose by items that are not tested: there is only {', '.join(splits.evaluation)}; "
                    f"give the data a split val{folds_advice(splits)}."
                )
            self._known[key] = replace(splits, evaluation={split: splits.evaluation[split]})
        return self._known[key]


def begin(sweep: Sweep, folder: Path, data: Data, *, notify: Notify = print) -> tuple[Sweep, Location]:
    """Make the folder and the study of a sweep, or find those that the same settings made before.

    Returns:
        The settings as they are in the folder, and where the study is.
    """
    text = sweep.to_toml()
    location = _location(folder, sweep.config.storage, sweep.config.name)
    file = folder / SETTINGS
    if file.is_file():
        _check_same(text, file.read_text(encoding="utf-8"), str(folder))
    elif folder.exists() and any(not item.name.startswith((".", STUDY)) for item in folder.iterdir()):
        raise ValueError(f"the folder of a sweep must be new: {folder} holds something else; choose another --output.")
    data.check()
    if sweep.config.storage is None:
        folder.mkdir(parents=True, exist_ok=True)
    with within_reach(location.url), open_study(location.url, sweep.config, location.name, make=True) as study:
        if study.description is not None:
            _check_same(text, study.description.sweep, f"the study {location.name} in {storage_name(location.url)}")
        elif study.outcomes():
            raise ValueError(
                f"the study {location.name} must be new, or that of this sweep: set sweep.name to another."
            )
        seed = sweep.seeds[0]
        study.describe(StudyDescription(sweep=text, folder=str(folder.resolve()), trials=sweep.trials, seed=seed))
        done = [outcome for outcome in study.outcomes() if outcome.state in ("complete", "pruned", "failed")]
    write_atomic(file, text.encode())
    if done:
        notify(f"going on with {folder}: {len(done)} of {sweep.trials} trials are done")
    return Sweep.parse(parse_toml(text), source=str(file)), location


def join(where: str, folder: Path | None, name: str | None) -> tuple[Sweep, Location]:
    """The sweep that a folder or a storage holds.

    Args:
        where: a folder of `trivet sweep`, or the address of a storage.
        folder: of the runs of this worker; by default that in which the sweep began.
        name: of the study, where a storage has several; of a folder, that in its storage if it is not in the settings.
    """
    if "://" not in where:
        path = Path(where)
        file = path / SETTINGS
        if not file.is_file():
            raise ValueError(
                f"a sweep to join must hold {SETTINGS}: {path} does not; give the folder that trivet sweep made, or "
                "the address of its storage."
            )
        with settings_of(path):
            sweep = Sweep.read(file)
        return sweep, replace(_location(path, sweep.config.storage, name or sweep.config.name), folder=folder or path)
    name, description = study_description(where, name)
    origin = Path(description.folder)
    if folder is None and not (origin / SETTINGS).is_file():
        raise ValueError(
            f"the runs of a worker need a folder: that in which the sweep began, {origin}, is not on this machine; "
            "give one with --output."
        )
    file = (folder or origin) / SETTINGS
    if file.is_file():
        _check_same(description.sweep, file.read_text(encoding="utf-8"), str(folder or origin))
    sweep = Sweep.parse(parse_toml(description.sweep), source=f"the study {name}")
    return sweep, Location(folder or origin, where, name)


def work(sweep: Sweep, location: Location, data: Data, *, command: str = "", notify: Notify = print) -> SweepRecord:
    """Work on the trials of a sweep until all are told, then write the result; returns its record.

    Its status is "finished"; "interrupted" where this worker was asked to end; "waiting" where another worker writes
    the result, or the sweep began in another folder; and "failed" where no trial has a value.

    Args:
        command: what was typed, for the records.
        notify: called with a sentence for each trial that is told.
    """
    links = sorted(item for item in location.folder.glob("*") if item.is_symlink())
    if links:
        raise ValueError(f"a sweep must hold its runs itself: {links[0]} is a link, where others may be; take it away.")
    with within_reach(location.url), open_study(location.url, sweep.config, location.name, make=False) as study:
        return Worker(sweep, location, study, data, command=command, notify=notify).work()


class Worker:
    """One process that works on the trials of a sweep; see `work`."""

    def __init__(
        self, sweep: Sweep, location: Location, study: Study, data: Data, *, command: str, notify: Notify
    ) -> None:
        self._sweep, self._folder, self._url = sweep, location.folder, location.url
        self._data, self._command, self._notify = data, command, notify
        self._study = study
        self._grid = _grid(sweep)

    def work(self) -> SweepRecord:
        status: Literal["finished", "interrupted"] = "finished"
        try:
            self._data.check()
            while (attempt := self._next()) is not None:
                self._try(attempt)
        except KeyboardInterrupt:
            status = "interrupted"
        return self._conclude(status)

    def _next(self) -> ClaimedTrial | None:
        """The next trial; None once all are told. Those that others work on are waited for, as they may come back."""
        with show_progress("waiting for the trials of other workers"):
            while not self._study.over():
                self._study.revive()
                attempt = self._study.claim(self._grid)
                if attempt is not None:
                    return attempt
                time.sleep(POLL)
        return None

    def _try(self, attempt: ClaimedTrial) -> None:
        """Train the runs of a trial, and tell what they came to."""
        began = time.monotonic()
        try:
            with attempt:
                closed = self._train_all(attempt)
        except (KeyboardInterrupt, OSError):
            attempt.leave()
            raise
        except TakenOverError:
            closed = None
        except (ValueError, RuntimeError, MemoryError) as error:
            if isinstance(error, InUseError):
                raise
            sentence = str(error).removeprefix("a trial: ").strip().splitlines()
            closed = attempt.fail(sentence[0] if sentence else type(error).__name__) or None
        if closed is None:
            self._notify(f"trial {attempt.candidate} was taken over by another worker")
            return
        for _, _, path in self._paths(attempt.candidate):
            forget_checkpoints(RunFolder(path))
        (outcome,) = [outcome for outcome in self._study.outcomes() if outcome.number == attempt.candidate]
        self._notify(f"{_trial_line(outcome, self._study, self._sweep)}, {time.monotonic() - began:.0f} s")

    def _paths(self, candidate: int) -> list[tuple[int | None, int, Path]]:
        return [
            (fold, seed, self._folder / run_path(candidate, seed, fold))
            for fold in self._sweep.folds
            for seed in self._sweep.seeds
        ]

    def _train_all(self, attempt: ClaimedTrial) -> bool | None:
        """Returns None if another worker has closed the trial meanwhile."""
        runs: list[SweepRun] = []
        for number, (fold, seed, path) in enumerate(self._paths(attempt.candidate)):
            config = self._sweep.run(attempt.values, seed=seed, fold=fold)
            record = self._train(config, path, attempt, number)
            if record.status == "interrupted":
                raise KeyboardInterrupt
            if record.status == "stopped":
                why = record.guard.stopped_by or "stopped"
                if why == TAKEN_OVER:
                    return None
                return attempt.prune(why if len(self._paths(attempt.candidate)) == 1 else f"{path.name}: {why}") or None
            runs.append(_result(record, config, fold))
            for measurement in record.choosing.checks if record.choosing else ():  # those that a dead worker had seen
                attempt.report(number, measurement.step, measurement.value or 0.0)
        return attempt.complete(sum(run.value for run in runs) / len(runs), runs) or None

    def _train(self, config: RunConfig, path: Path, attempt: ClaimedTrial, number: int) -> RunRecord:
        """The record of a run: finished before, gone on with, or begun."""
        splits = self._data.of(config)
        watch = _watch(in_steps(config, splits), attempt, number, pruning=self._sweep.config.pruning)
        while True:
            try:
                return self._trained(resolved(config), path, ("finished",), splits=splits, watch=watch)
            except InUseError:  # a worker that was taken for dead is not; it ends at its next look
                time.sleep(POLL)

    def _trained(
        self, config: RunConfig, path: Path, ended: Sequence[str], *, note: str = "", **options: Any
    ) -> RunRecord:
        """The record of the run with these settings: what is there, if its status is one of these, else trained."""
        options |= {"data_root": self._data.root, "command": self._command, "progress": True}
        if not (path / CONFIG).is_file() or (path / CONFIG).read_text(encoding="utf-8") != config.to_toml():
            if note:
                self._notify(note)
            return train(config, path, force=True, **options)
        record = RunFolder(path).record()
        return record if record is not None and record.status in ended else resume(path, **options)

    def _conclude(self, status: Literal["finished", "interrupted"]) -> SweepRecord:
        """Train and test the best, and write the result, where the sweep began and nobody else does."""
        if not (self._folder / SETTINGS).is_file():
            return self._record("waiting" if status == "finished" else status, None)
        try:
            with locked_folder(
                self._folder, frozenset((RECORD, PAGE, BEST_SETTINGS)), what="a sweep", ended=lambda: False
            ):
                return self._write(status)
        except InUseError:
            return self._record("waiting" if status == "finished" else status, None)

    def _write(self, status: Literal["finished", "interrupted"]) -> SweepRecord:
        outcomes = self._study.outcomes()
        best = best_of(outcomes)
        ended: Literal["finished", "interrupted", "failed"] = status
        tested: RunRecord | None = None
        if best is not None:
            config = self._sweep.best(best.settings)
            write_atomic(self._folder / BEST_SETTINGS, config.to_toml().encode())
            if status == "finished":
                try:
                    note = f"training the best settings, {BEST_SETTINGS}, to test them"
                    tested = self._trained(config, self._folder / BEST, ("finished", "stopped"), note=note)
                except KeyboardInterrupt:
                    ended = "interrupted"
                if tested is not None and tested.status == "interrupted":
                    ended, tested = "interrupted", None
        elif status == "finished":
            ended = "failed"
        record = self._record(ended, tested)
        write_atomic(self._folder / RECORD, json.dumps(record.as_json(), ensure_ascii=False, allow_nan=False).encode())
        write_sweep_report(record, self._folder / PAGE)
        if ended == "finished":
            try:
                self._evaluate_best(outcomes)
            except KeyboardInterrupt:
                self._notify("the result is written; trivet compare will not show all of the best trials")
        return record

    def _evaluate_best(self, outcomes: Sequence[SweepTrial]) -> None:
        """Measure the runs of the best trials whole on validation, for `trivet compare`: of all it would take long."""
        for outcome in ranked(outcomes)[:COMPARED]:
            if outcome.value is None:
                break
            for fold, seed, path in self._paths(outcome.number):
                record = RunFolder(path).record()
                if record is not None and not record.evaluation:  # its worker may have another folder
                    splits = self._data.of(self._sweep.run(outcome.settings, seed=seed, fold=fold))
                    evaluate_run(path, data_root=self._data.root, progress=True, splits=splits)

    def _record(self, status: str, tested: RunRecord | None) -> SweepRecord:
        storage = storage_name(self._url)
        return make_record(
            self._sweep, self._study, status=status, storage=storage, tested=tested, command=self._command
        )


def _location(folder: Path, storage: str | None, name: str | None) -> Location:
    url = f"{SQLITE}{(folder / STUDY).resolve()}" if storage is None else storage
    known = only_study(url) if storage is None and name is None else None  # the folder may have had another name
    return Location(folder, url, name or known or folder.resolve().name)


def _check_same(text: str, other: str, where: str) -> None:
    """ValueError unless two sweeps are one: only how many trials there are, and where, may differ."""
    mine, its = flat(parse_toml(text)), flat(parse_toml(other))
    differing = sorted(key for key in (mine.keys() | its.keys()) - MAY_DIFFER if mine.get(key) != its.get(key))
    if differing:
        raise ValueError(
            f"a sweep goes on with its own settings: {where} has others ({differing[0]}); choose another --output (and "
            "sweep.name), or join it with trivet sweep --join."
        )


def _grid(sweep: Sweep) -> list[dict[str, Value]] | None:
    """The values in the order in which they are tried: in random order where they are more than the trials."""
    if sweep.config.sampler != "grid":
        return None
    import numpy as np

    every = sweep.grid()
    if sweep.trials == len(every):
        return every
    return [every[number] for number in np.random.default_rng(sweep.seeds[0]).permutation(len(every))]


def _watch(
    config: RunConfig, attempt: ClaimedTrial, number: int, *, pruning: bool
) -> Callable[[Sequence[SelectionCheck], Sequence[Event]], str | None]:
    """Reports the looks of a run, and says why it may end."""

    def watch(measurements: Sequence[SelectionCheck], events: Sequence[Event]) -> str | None:
        try:
            for measurement in measurements:
                attempt.report(number, measurement.step, measurement.value)
        except TakenOverError:
            return TAKEN_OVER
        if not pruning:
            return None
        for event in events:
            if event.kind in COLLAPSED and not event.suspected:
                return event_line(event)
        if len(measurements) > 1 and measurements[-1].step >= WARM * config.training.num_steps:
            return attempt.below_median(
                number, measurements[-1].step, max(measurement.value for measurement in measurements)
            )
        return None

    return watch


def _result(record: RunRecord, config: RunConfig, fold: int | None) -> SweepRun:
    """Result of a finished run, by the measurement at the step whose model is saved.

    Raises:
        ValueError: if nothing finite was measured.
    """
    choice = record.choosing
    if choice is None or not choice.checks:
        raise ValueError("nothing was measured on validation")
    measurements = choice.checks
    selected = (
        measurements[-1]
        if choice.keep == "last"
        else next(measurement for measurement in measurements if measurement.step == choice.step)
    )
    value = selected.value
    if value is None or not math.isfinite(value):
        raise ValueError("the measure on validation is not finite")
    return SweepRun(
        seed=config.seed,
        fold=fold,
        value=value,
        start=measurements[0].value,
        step=selected.step,
        seconds=record.seconds.get("training"),
    )


def _trial_line(outcome: SweepTrial, study: Study, sweep: Sweep) -> str:
    """A line on a trial that was told."""
    outcomes = study.outcomes()
    done = sum(other.state in ("complete", "pruned", "failed") for other in outcomes)
    head = f"{done}/{study.trials}: trial {outcome.number}"
    if outcome.value is None:
        return f"{head} {outcome.state}: {outcome.why}"
    best = best_of(outcomes)
    assert best is not None
    comparison = (
        "the best so far"
        if best.number == outcome.number
        else f"best {100 * (best.value or 0):.1f} %, trial {best.number}"
    )
    return f"{head}: {sweep.measure} {100 * outcome.value:.1f} % ({comparison})"
