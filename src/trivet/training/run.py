"""A run from its settings to its folder: train, go on, evaluate."""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import lightning
import numpy as np
import torch

import trivet
from trivet.batching import PKBatches
from trivet.collapse.monitor import Event
from trivet.data import (
    DATA_SETS,
    DataConfig,
    Dataset,
    Splits,
    augmentation,
    load,
    load_images,
    noise_summary,
    settings_for,
)
from trivet.evaluation import recall_at_k, standard
from trivet.evaluation.intervals import across_folds, interval_json
from trivet.mining.names import check_name
from trivet.models import Embedder, build, load_model, save
from trivet.plugins import absolute, is_reference
from trivet.reports import write_run_report
from trivet.rows import RowLoss
from trivet.tables import write_decisions
from trivet.training.checkpoint import (
    Progress,
    load_checkpoint,
    load_weights,
    read_progress,
    save_checkpoint,
    step_of,
)
from trivet.training.cleaning import Cleaning
from trivet.training.config import RunConfig
from trivet.training.diagnose import diagnosis_section, of_dataset, some_items
from trivet.training.embedding import embed, label_names
from trivet.training.files import (
    CLEANING,
    DECISIONS,
    METRICS,
    NOISE,
    RECORD,
    REPORT,
    Metrics,
    RunFolder,
    write_embeddings,
    write_json,
    write_noise,
    write_whole,
)
from trivet.training.fit import Batches, NotFiniteError, Task, fit, step_seed
from trivet.training.guard import Guard, changes_said, said, with_changes
from trivet.training.history import History
from trivet.training.measure import measure_splits
from trivet.training.progress import Display
from trivet.training.tolerance import PickLog, labels_section

Status = Literal["finished", "interrupted", "stopped"]
FOLDS = "folds.json"
STEP_COLUMNS = ["loss", "active", "hard", "d_ap", "d_an", "dropped"]
log = logging.getLogger("trivet")


def train(
    config: RunConfig,
    path: Path,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
) -> dict[str, Any]:
    """Train, evaluate and report; returns the record, which is also written to the run folder.

    A run that is stopped by Ctrl-C is left with a checkpoint, its model, a record of status "interrupted" and a
    report, but without an evaluation. One that its guard stopped has the status "stopped" and all that a finished run
    has. What the guard saw and did is logged as warnings of the logger "trivet", at once, and in the record.

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
    with Display(show=progress) as display:
        splits = load(config.data, data_root, lambda done, total: display.update("reading images", done, total))
        job = Job(RunFolder(path), config, splits, display)  # before the folder is made: settings may not fit the data
        # Before, too: it may lie in the run that is replaced.
        decisions = None if config.data.decisions is None else config.data.decisions.read_bytes()
        with job.run.new(config, force=force):
            if decisions is not None:
                write_whole(path / DECISIONS, decisions)
            job.start(command)
            return job.finish(job.fit())


def cross_validate(
    config: RunConfig,
    path: Path,
    folds: int,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
) -> dict[str, Any]:
    """Train once for each class-disjoint fold of the training classes, and measure each on the fold it has not seen.

    The runs are `path/fold-0`, ...; what they say together is returned and written to `path/folds.json`.

    Args:
        folds: at least 2.
        data_root, force, command, progress: as in `train`.

    Returns:
        {"folds": k, "runs": [PATH], "status": "finished", "interrupted" or "stopped", "evaluation": {LEVEL: {MEASURE:
        {"mean", "interval" (Student-t, 95 %), "values"}}}}; without "evaluation" where a run did not finish, and with
        the event that "stopped_by" it where the guard stopped one.

    Raises:
        ValueError, OSError: as `train`.

    Source:
        Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.3.
    """
    result: dict[str, Any] = {"folds": folds, "runs": [], "status": "finished"}
    found: list[dict[str, dict[str, Any]]] = []
    for fold in range(folds):
        data = DataConfig.parse(
            config.data.model_dump(exclude_unset=True) | {"folds": folds, "fold": fold}, source="data"
        )
        run = path / f"fold-{fold}"
        record = train(
            config.model_copy(update={"data": data}),
            run,
            data_root=data_root,
            force=force,
            command=command,
            progress=progress,
        )
        result["runs"].append(str(run))
        if record["status"] != "finished":
            why = record["guard"].get("stopped_by")
            return result | {"status": record["status"]} | ({"stopped_by": why} if why else {})
        found.append(record["evaluation"]["validation"][0]["levels"])
    result["evaluation"] = {
        level: {
            name: _over_folds([levels[level][name] for levels in found])
            for name in standard(config.evaluation.k)
            if all(levels[level].get(name) is not None for levels in found)
        }
        for level in found[0]
    }
    write_json(path / FOLDS, result)
    return result


def _over_folds(values: list[float]) -> dict[str, Any]:
    mean, interval = across_folds(values)
    return {"mean": mean, "interval": interval_json(interval), "values": values}


def resume(
    path: Path,
    *,
    repair: bool = False,
    data_root: Path | None = None,
    command: str = "",
    progress: bool = False,
) -> dict[str, Any]:
    """Go on with a run from its last checkpoint to its last step; the result is that of a run never stopped.

    Args:
        repair: first return to the last healthy checkpoint before the first event that the monitor saw, and change
            what may prevent it, as with guard.action = "repair", which is then in force for the rest of the run.

    Raises:
        ValueError, OSError: as `train`; also if the folder holds no run, or a repair is asked for that cannot be made.
    """
    run = RunFolder.open(path)
    config = run.given()
    with Display(show=progress) as display:
        splits = load(config.data, data_root, lambda done, total: display.update("reading images", done, total))
        job = Job(run, config, splits, display)
        with run.locked():
            job.start(command, checkpoint=run.checkpoints()[-1] if run.checkpoints() else None, repair=repair)
            return job.finish(job.fit())


def evaluate_run(path: Path, *, data_root: Path | None = None, progress: bool = False) -> dict[str, Any]:
    """Evaluate the model of a run anew and write embeddings, record and report; returns the record.

    Raises:
        ValueError, OSError: as `train`; also if the folder holds no run with a model.
    """
    run = RunFolder.open(path)
    config = run.given()
    with Display(show=progress) as display, run.locked():
        model = trained_model(run)
        splits = load(config.data, data_root, lambda done, total: display.update("reading images", done, total))
        record = run.record() or _first_record(run, config, splits, "")
        if record["status"] == "running":  # the record was lost: what is left tells
            checkpoints = run.checkpoints()
            done = bool(checkpoints) and step_of(checkpoints[-1]) == config.training.steps
            record["status"] = "finished" if done else "interrupted"
            if checkpoints:
                guard = Guard(config, ())
                kept = read_progress(checkpoints[-1])
                guard.restore(kept.guard)
                picks = PickLog(splits, guard.settings)
                picks.restore(kept.picks)
                record |= {"guard": guard.as_json(), "monitor": guard.seen()}
                record["label_noise"] = {"strategy": picks.as_json()}
                record["cleaning"] = list(kept.cleaning.get("looks", []))
        config = with_changes(config, (record.get("guard") or {}).get("settings") or {})
        untrained = build(config.model, splits.train.inputs.shape, config.seed)
        _evaluate(run, record, config, splits, model, untrained, display)
        return record


def trained_model(run: RunFolder) -> Embedder:
    """The model of a run, in evaluation mode.

    Raises:
        ValueError: if the run has none, or it is broken.
    """
    if not (run.path / "model").is_dir():
        raise ValueError(
            f"a run has a model once it has ended: {run.path} has none; go on with trivet train --resume {run.path}."
        )
    return load_model(run.path / "model")


def fingerprint(config: RunConfig, splits: Splits) -> str:
    """What a checkpoint depends on: the settings, but for those that change no step before it, and the items.

    Of decisions on labels it is what they did to these, and not where their file lies.
    """
    changes_nothing = {"steps"} if config.training.schedule == "constant" else set()
    changes_nothing |= {"log_every", "checkpoint_every", "workers"}
    left_out: dict[str, Any] = {"evaluation": True, "guard": True, "training": changes_nothing, "data": {"decisions"}}
    settings = config.model_dump(mode="json", exclude=left_out)
    decided = [] if splits.decisions is None else [splits.train.labels[splits.level].tolist()]
    text = json.dumps([settings, splits.train.ids, *decided], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def resolved(config: RunConfig) -> RunConfig:
    """The settings with paths made absolute, so that the run folder can be used from anywhere."""
    whole = {name: path.resolve() for name, path in config.data if isinstance(path, Path)}
    data = config.data.model_copy(update={"name": absolute(config.data.name), **whole})
    model = config.model.model_copy(update={"name": absolute(config.model.name)})
    return config.model_copy(update={"data": data, "model": model})


def easy_positive_warnings(config: RunConfig) -> list[str]:
    """What about the settings would surprise the person who made them."""
    easy = config.loss.positives == "easy" or (
        isinstance(config.loss.positives, dict) and config.loss.positives.get("name") == "easy"
    )
    if easy and config.batch.samples_per_class == 2:
        return [
            "With batch.samples_per_class = 2 each anchor has one positive to choose from, so easy positives change "
            "nothing; take more samples of fewer classes."
        ]
    return []


class Job:
    """The parts of a run while it trains.

    Attributes:
        config: the settings of the user.
        settings: those in force, which repairs change.
        model: may be changed or replaced before `start`. A repair loads weights into it; one that widens the embedding
            builds another, whose last layer is new.
        guard: what was seen, and done about it.
    """

    metrics: Metrics
    record: dict[str, Any]
    task: Task

    def __init__(self, run: RunFolder, config: RunConfig, splits: Splits, display: Display) -> None:
        self.run, self.config, self.splits, self.display = run, config, splits, display
        if config.training.accelerator == "gpu" and not torch.accelerator.is_available():
            raise ValueError('training.accelerator = "gpu" needs a GPU: torch sees none here; use "auto" or "cpu".')
        self.fingerprint = fingerprint(config, splits)
        if not isinstance(config.evaluation.nmi_plus, int):
            for level in config.evaluation.nmi_plus:
                check_name(level, splits.train.labels, name="the level of evaluation.nmi_plus")
        sizes = np.unique(splits.train.labels[splits.level], return_counts=True)[1]
        self.guard = Guard(config, sizes.tolist())
        levels = list(splits.train.labels)
        self.fine = levels[-1] if levels[-1] != splits.level else None
        self.model = build(config.model, splits.train.inputs.shape, config.seed)
        size = config.batch.num_classes * config.batch.samples_per_class
        self.cleaning = Cleaning(config.cleaning, splits.train.labels[splits.level], batch_size=size)
        self._put_in_force(config)
        self.split, held_out = next(iter(splits.evaluation.items()))
        order = np.random.default_rng(config.seed).permutation(len(held_out))
        self.sample = held_out.subset(np.sort(order[: config.evaluation.sample]))
        self.seconds_before = 0.0
        self.recall: dict[str, float] = {}
        self.stopped_by: Event | None = None

    def _put_in_force(self, settings: RunConfig) -> None:
        """Build what depends on the settings that repairs change, but for the task."""
        train, level = self.splits.train, self.splits.level
        if settings.model.embedding_dim != self.config.model.embedding_dim:  # a repair widened it
            self.model = build(settings.model, train.inputs.shape, settings.seed)
        self.settings = settings
        if len(np.unique(self.cleaning.labels[self.cleaning.rows])) < settings.batch.num_classes:
            self.cleaning.take_as_given()  # a repair took more classes than were left
        self._make_batches()
        self.model.normalize = settings.model.normalize
        self.loss: RowLoss = settings.loss.build(
            num_classes=len(train.names[level]),
            embedding_dim=settings.model.embedding_dim,
            generator=torch.Generator().manual_seed(step_seed(settings.seed, 0, 3)),
        )
        self.history = History(train, level, settings)
        self.picks = PickLog(self.splits, settings)

    def _truth(self, step: int) -> np.ndarray | None:
        """The true labels of the batch that follows so many steps; None where they are not known."""
        if self.splits.noise is None:
            return None
        index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
        truth: np.ndarray = self.splits.noise.true_labels[self.cleaning.rows[index]]
        return truth

    def _make_batches(self) -> None:
        """Batches of the items and labels in force."""
        train, level, batch = self.splits.train, self.splits.level, self.settings.batch
        self.items = train
        if self.cleaning.changed:
            labels = {**train.labels, level: self.cleaning.labels}
            self.items = replace(train, labels=labels).subset(self.cleaning.rows)
        self.batches = PKBatches(
            self.items.labels[level],
            num_classes=batch.num_classes,
            samples_per_class=batch.samples_per_class,
            seed=self.settings.seed,
        )

    def _begin(self) -> None:
        """An optimiser that has done nothing yet; the monitor of the guard and the log of picks see its batches."""
        self.task = Task(
            self.model,
            self.loss,
            self.settings.training,
            seed=self.settings.seed,
            after_step=self.after_step,
            monitor=self.guard.monitor,
            since=self.guard.since,
        )
        self.picks.watch(self.loss, lambda: self.task.step, self._truth)

    def start(self, command: str, checkpoint: Path | None = None, *, repair: bool = False) -> None:
        """Begin at the first step, or where a checkpoint was left.

        Args:
            repair: ask for a repair of the first event that the monitor saw, to be made before training goes on.
        """
        write_noise(self.run.path / NOISE, self.splits)
        self.untrained = copy.deepcopy(self.model)
        columns = [*STEP_COLUMNS, *(f"recall@1/{level}" for level in self.sample.labels)]
        if checkpoint is not None:
            before = read_progress(checkpoint)
            self.guard.restore(before.guard)
            self.cleaning.restore(before.cleaning)
            self._put_in_force(self.guard.settings)
            self._begin()
            done = load_checkpoint(checkpoint, self.model, self.loss, self.task.optimizer, fingerprint=self.fingerprint)
            if done.step > self.config.training.steps:
                raise ValueError(
                    f"training.steps must not lie below the steps that are done: got {self.config.training.steps}, "
                    f"and {done.step} are; restore config.toml, or start a new run."
                )
            self.task.step, self.seconds_before = done.step, done.seconds
            self.history.restore(done.moments)
            self.picks.restore(done.picks)
        else:
            self._begin()
            self.history.look(0, self.model)
        if repair:
            self._ask_for_repair()
        self.metrics = Metrics(self.run.path / METRICS, columns, upto=self.task.step, attempt=self.guard.attempt)
        forecast = self.run.record().get("forecast")  # one that was made of this run stays with it
        self.record = _first_record(self.run, self.config, self.splits, command)
        self.record |= {} if forecast is None else {"forecast": forecast}
        self.record["warnings"] += self.cleaning.warnings(self.config.training.steps)
        self.record["model"] = {"parameters": self.model.num_parameters}
        self.record["data"]["coverage"] = dict(self.batches.coverage(0)._asdict())
        self.began = time.perf_counter()
        if checkpoint is None and self.guard.action != "warn":
            self.checkpoint()  # what a repair can always return to

    def _ask_for_repair(self) -> None:
        events, checkpoints = self.guard.monitor.events, self._checkpoints()
        if not checkpoints:
            raise ValueError(
                f"a repair needs a checkpoint to return to: {self.run.path} has none; train anew with "
                "--set guard.action=repair."
            )
        if self.guard.pending is None and not events:
            raise ValueError(
                f"a repair needs an event to be repaired: the monitor saw none in {self.run.path}; leave out --repair."
            )
        event = self.guard.pending or events[0]
        plan = self.guard.plan(event, checkpoints)
        if isinstance(plan, str):
            raise ValueError(
                f"{self.run.path} cannot be repaired: {plan} ({said(event)}); train anew with other settings, or with "
                "--set guard.action=repair."
            )
        self.guard.asked, self.guard.pending = True, event

    def _checkpoints(self) -> list[int]:
        return [step_of(file) for file in self.run.checkpoints()]

    def fit(self) -> Status:
        """Train, with the repairs that are made on the way; returns how it ended."""
        self.began = time.perf_counter()
        going = True
        while going and self.stopped_by is None:
            if self.guard.pending is not None:
                self._repair(self.guard.pending)
            if self.task.step >= self.config.training.steps:
                break
            if self.cleaning.due(self.task.step):
                self.checkpoint()  # a look may take long: what is interrupted in it goes on from here
                self._clean()
            going = self._fit()
        self.checkpoint()
        if self.stopped_by is not None:
            return "stopped"
        return "finished" if going else "interrupted"

    def _fit(self) -> bool:
        """Train to the last step or an event that asks for more; returns False if a signal stopped it before."""
        batches = Batches(
            self.items,
            self.splits.level,
            self.batches,
            augmentation(self.settings.data),
            seed=self.settings.seed,
            start=self.task.step,
            steps=self.settings.training.steps,
            fine=self.fine,
        )
        try:
            return fit(self.task, batches, workers=self.settings.training.workers)
        except NotFiniteError:
            self._meet(self.guard.refused(self.task.step))
            if self.guard.pending is not None or self.stopped_by is not None:
                return True
            self._failed()
            raise
        except Exception:  # whatever it was: the record says that the run failed, and the fault goes on its way
            self._failed()
            raise

    def _clean(self) -> None:
        """Judge the labels by the present embedding, and go on with the items and labels that this gives."""
        step, embeddings = self.task.step, None
        if self.cleaning.judges(step):
            embeddings = embed(self.model, self.splits.train.inputs)
        classes = self.settings.batch.num_classes
        log.warning(self.cleaning.look(step, embeddings, num_classes=classes, seed=self.settings.seed))
        self._make_batches()

    def _failed(self) -> None:
        self.record["status"] = "failed"
        self.write_record()

    def _meet(self, events: Sequence[Event]) -> None:
        """Say each event and do what the guard is for; training goes on unless it asks for more."""
        for event in events:
            log.warning(said(event))
            if self.guard.pending is not None or self.stopped_by is not None:
                continue  # the first decides
            if self.guard.action == "stop":
                self.stopped_by = event
            elif self.guard.action == "repair":
                plan = self.guard.plan(event, self._checkpoints())
                if isinstance(plan, str):
                    log.warning(self.guard.leave(event, plan))
                else:
                    self.guard.pending = event

    def _repair(self, event: Event) -> None:
        """Go back to the last healthy checkpoint, with settings that may prevent the event."""
        plan = self.guard.plan(event, self._checkpoints())
        if isinstance(plan, str):  # the settings of the guard were changed before the run was resumed
            self.guard.pending = None
            log.warning(self.guard.leave(event, plan))
            return
        self.guard.begin(plan)
        self.cleaning.restore(read_progress(self._checkpoint(plan.returned_to)).cleaning)
        self._put_in_force(self.guard.settings)
        moments = load_weights(self._checkpoint(plan.returned_to), self.model, self.loss)
        self.history.restore(moments)
        self._begin()
        self.metrics.attempt = self.guard.attempt
        self.record["data"]["coverage"] = dict(self.batches.coverage(0)._asdict())
        log.warning(f"repair {self.guard.attempt}: back to step {plan.returned_to} with {changes_said(plan)}")
        self.checkpoint()
        # Last: until these are gone, a killed run goes on from before the event, and comes to the same repair.
        for file in self.run.checkpoints():
            if step_of(file) > plan.returned_to:
                file.unlink()
        self.write_record()

    def _checkpoint(self, step: int) -> Path:
        return next(file for file in self.run.checkpoints() if step_of(file) == step)

    def after_step(self) -> None:
        """Meet events, log, look at recall@1 and leave a checkpoint where the settings say so."""
        config, step = self.settings, self.task.step
        self._meet(self.task.events)
        if self.guard.pending is not None or self.stopped_by is not None:
            self.task.trainer.should_stop = True
        if self.cleaning.due(step):
            self.task.trainer.should_stop = True
        self.history.look(step, self.model)
        last = step == config.training.steps
        values: dict[str, float] = {}
        if step % config.training.log_every == 0 or last:
            values |= step_values(self.loss, self.task.value)
        if step % config.evaluation.every == 0 or last:
            self.recall = look(self.model, self.sample, config.evaluation.distance)
            values |= {f"recall@1/{level}": share for level, share in self.recall.items()}
        if values:
            self.metrics.add(step, values)
            self.display.update("training", step, config.training.steps, self._note())
        if step % config.training.checkpoint_every == 0 and not last:
            self.checkpoint()
            self.write_record()

    def _note(self) -> str:
        done = self.loss.last
        assert done is not None
        note = (
            f"loss {self.task.value:.4f}  active {done.active_fraction:.0%}  "
            f"d_ap {done.mean_to_positive:.3f}  d_an {done.mean_to_negative:.3f}"
        )
        return note + "".join(f"  R@1 {level} {share:.1%}" for level, share in self.recall.items())

    def checkpoint(self) -> None:
        """Leave a checkpoint of the current step."""
        states = {"guard": self.guard.state(), "cleaning": self.cleaning.state()}
        save_checkpoint(
            self.run,
            Progress(self.task.step, self.seconds, self.history.moments, **states, picks=self.picks.looks),
            self.model,
            self.loss,
            self.task.optimizer,
            fingerprint=self.fingerprint,
            healthy=self.guard.healthy,
        )

    @property
    def seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.seconds_before + time.perf_counter() - self.began

    def write_record(self) -> None:
        """Write what is known so far."""
        self.record["curves"] = self.metrics.series(*STEP_COLUMNS)
        recalls = [column for column in self.metrics.columns if column.startswith("recall@1/")]
        looks = self.metrics.series(*recalls)
        self.record["validation"] = {
            "split": self.split,
            "items": len(self.sample),
            "step": looks.pop("step"),
            "attempt": looks.pop("attempt"),
            "recall@1": {column.removeprefix("recall@1/"): values for column, values in looks.items()},
        }
        self.record["history"] = self.history.as_json()
        self.record["label_noise"] = {"strategy": self.picks.as_json()}
        stopped = {} if self.stopped_by is None else {"stopped_by": said(self.stopped_by)}
        self.record["guard"] = self.guard.as_json() | stopped
        self.record["monitor"] = self.guard.seen()
        self.record["cleaning"] = self.cleaning.as_json()
        self.record["seconds"]["training"] = round(self.seconds, 3)
        write_json(self.run.path / RECORD, self.record)

    def finish(self, status: Status) -> dict[str, Any]:
        """Write the model and, unless a signal interrupted the training, evaluate it."""
        settings = self.settings
        save(self.model, settings.model, self.splits.train.inputs.shape, self.run.path / "model")
        self.record["status"] = status
        self.record["step"] = self.task.step
        if self.config.cleaning is not None:
            train, names = self.splits.train, self.splits.train.names[self.splits.level]
            rows = [(train.ids[i], decision, names[label]) for i, decision, label in self.cleaning.decisions()]
            write_whole(self.run.path / CLEANING, write_decisions(rows).encode())
        self.write_record()
        if status == "interrupted":
            write_run_report(self.record, self.run.path / REPORT)
        else:
            self.untrained.normalize = settings.model.normalize
            _evaluate(self.run, self.record, settings, self.splits, self.model, self.untrained, self.display)
        return self.record


def step_values(loss: RowLoss, value: float) -> dict[str, float]:
    """A row of `metrics.csv` from the loss's record of its last step; a distance that was not measured is left out."""
    done = loss.last
    assert done is not None
    values = {
        "loss": value,
        "active": done.active_fraction,
        "hard": done.hard_fraction,
        "d_ap": done.mean_to_positive,
        "d_an": done.mean_to_negative,
        "dropped": float(sum(done.dropped.values())),
    }
    return {name: number for name, number in values.items() if np.isfinite(number)}


def look(model: Embedder, sample: Dataset, distance: Any) -> dict[str, float]:
    """Recall@1 of a sample at each level; nothing where embeddings are not finite."""
    embeddings = embed(model, sample.inputs)
    if not np.isfinite(embeddings).all():
        return {}
    return {
        level: recall_at_k(embeddings, labels, (1,), distance=distance)[1] for level, labels in sample.labels.items()
    }


def _first_record(run: RunFolder, config: RunConfig, splits: Splits, command: str) -> dict[str, Any]:
    settings = config.model_dump(mode="json", exclude_none=True)
    seed = settings.pop("seed")
    return {
        "trivet": trivet.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "status": "running",
        "run": run.name,
        "command": command,
        "level": splits.level,
        "settings": {"run": {"seed": seed}, **settings},
        "environment": environment(),
        "data": {
            "train": _counts(splits.train),
            "evaluation": {name: _counts(dataset) for name, dataset in splits.evaluation.items()},
            "skipped": [{"id": skip.id, "reason": skip.reason} for skip in splits.train.skipped],
            "noise": noise_summary(splits),
            "decisions": splits.decisions,
        },
        "warnings": easy_positive_warnings(config),
        "seconds": {},
    }


def environment() -> dict[str, Any]:
    """The versions and the hardware, in general words, that a result depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _counts(dataset: Dataset) -> dict[str, Any]:
    return {
        "items": len(dataset),
        "classes": {level: len(np.unique(labels)) for level, labels in dataset.labels.items()},
    }


def _evaluate(
    run: RunFolder,
    record: dict[str, Any],
    config: RunConfig,
    splits: Splits,
    model: Embedder,
    untrained: Embedder,
    display: Display,
) -> None:
    trained = splits.train.subset(some_items(splits.train, seed=config.seed))
    datasets = {"train": trained, **splits.evaluation}
    counts = {name: len(dataset) for name, dataset in datasets.items()} | {"train": len(splits.train)}
    diagnosed: dict[str, Any] = {}

    def keep(name: str, embeddings: np.ndarray) -> None:
        dataset = datasets[name]
        write_embeddings(run.path / "embeddings" / f"{name}.parquet", embeddings, dataset.ids, label_names(dataset))

    def diagnose(name: str, embeddings: np.ndarray, before: np.ndarray) -> None:
        dataset = datasets[name]
        if len(np.unique(dataset.labels[splits.level])) < 2:  # a single class has nothing to collapse into
            return
        rows = some_items(dataset, seed=config.seed)
        subject = of_dataset(run, config, name, dataset.subset(rows), splits.level, embeddings[rows], before[rows])
        if len(rows) < counts[name]:
            subject = replace(subject, notes=(*subject.notes, f"{len(rows)} of {counts[name]} items were diagnosed."))
        # The record holds a map of each evaluation split already.
        points = config.evaluation.map_points if name == "train" else 0
        diagnosed[name] = diagnosis_section(subject, seed=config.seed, map_points=points)

    model = model.cpu()
    began = time.perf_counter()
    embeddings = embed(model, trained.inputs, lambda done, total: display.update("diagnosis", done, total))
    if not np.isfinite(embeddings).all():
        record["warnings"].append("The embeddings are not finite, so nothing was evaluated.")
        write_json(run.path / RECORD, record)
        write_run_report(record, run.path / REPORT)
        return
    keep("train", embeddings)
    before = embed(untrained, trained.inputs)
    diagnose("train", embeddings, before)
    record["label_noise"] = (record.get("label_noise") or {}) | {
        "labels": labels_section(
            embeddings,
            before,
            trained.labels[splits.level],
            classes=len(np.unique(splits.train.labels[splits.level])),
            distance=config.evaluation.distance,
            seed=config.seed,
        )
    }
    seconds = time.perf_counter() - began
    sections: Mapping[str, Any] = measure_splits(
        splits.evaluation,
        splits.level,
        model,
        untrained,
        config.evaluation,
        seed=config.seed,
        display=display,
        keep=keep,
        diagnose=diagnose,
    )
    seconds += sections["evaluation_seconds"]
    record.update({name: section for name, section in sections.items() if name != "evaluation_seconds"})
    record["diagnosis"] = diagnosed
    record["seconds"]["evaluation"] = round(seconds, 3)
    write_json(run.path / RECORD, record)
    write_run_report(record, run.path / REPORT)


def embed_data(
    path: Path, data: str, output: Path, *, data_root: Path | None = None, progress: bool = False
) -> dict[str, Any]:
    """Embed a folder of images, or a data set by name, with the model of a run; writes a parquet file.

    A data set has a column `split` besides its label levels; a folder has the levels its nesting gives, if any.

    Raises:
        ValueError, OSError: if the run, the data or the output cannot be used.
    """
    run = RunFolder.open(path)
    config = run.config()
    model = trained_model(run)
    names = [name for name in DATA_SETS if name != "folder"]
    with Display(show=progress) as display:

        def reading(done: int, total: int) -> None:
            display.update("reading images", done, total)

        if data in names or is_reference(data):
            same = config.data.name == absolute(data)
            splits = load(config.data if same else settings_for(data, model.input_shape), data_root, reading)
            parts = {"train": splits.train, **splits.evaluation}
        elif Path(data).is_dir():
            channels, size, _ = model.input_shape
            parts = {"": load_images(Path(data), size=size, channels=channels, progress=reading)}
        else:
            raise ValueError(
                f"DATA must be a folder of images or one of {', '.join(names)}: {data} is neither; check the path."
            )
        embeddings = [
            embed(model, part.inputs, lambda done, total: display.update("embedding", done, total))
            for part in parts.values()
        ]
    ids = tuple(id for part in parts.values() for id in part.ids)
    columns = {
        level: tuple(name for part in parts.values() for name in label_names(part)[level])
        for level in next(iter(parts.values())).labels
    }
    if "" not in parts:
        columns["split"] = tuple(name for name, part in parts.items() for _ in range(len(part)))
    write_embeddings(output, np.concatenate(embeddings), ids, columns)
    skipped = [{"id": skip.id, "reason": skip.reason} for part in parts.values() for skip in part.skipped]
    return {
        "run": str(path),
        "output": str(output),
        "items": len(ids),
        "dimension": int(embeddings[0].shape[1]),
        "columns": ["id", *columns, "embedding"],
        "skipped": skipped,
    }
