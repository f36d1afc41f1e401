"""The parts of a run while it trains: steps, events, repairs, cleaning, checkpoints."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from trivet.arguments import check_name
from trivet.batching import PKBatches
from trivet.collapse.monitor import Event
from trivet.data import Dataset, Splits, augmentation
from trivet.evaluation import recall_at_k
from trivet.files import write_json
from trivet.models import Embedder, build
from trivet.rows import RowLoss
from trivet.training.checkpoint import (
    Progress,
    fingerprint,
    load_checkpoint,
    load_weights,
    read_progress,
    save_checkpoint,
    step_of,
)
from trivet.training.cleaning import Cleaning
from trivet.training.config import RunConfig
from trivet.training.embedding import embed
from trivet.training.fit import Batches, NotFiniteError, Task, fit, step_seed
from trivet.training.guard import Guard, changes_said, said
from trivet.training.history import History
from trivet.training.picks import PickLog
from trivet.training.record import first_record
from trivet.training.run_folder import (
    METRICS,
    NOISE,
    RECORD,
    Metrics,
    RunFolder,
    write_noise,
)

Status = Literal["finished", "interrupted", "stopped"]
STEP_COLUMNS = ["loss", "active", "hard", "d_ap", "d_an", "dropped"]
Show = Callable[[str, int, int, str], None]  # of a work: its title, parts done, parts in all, a note
log = logging.getLogger("trivet")


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

    def __init__(self, run: RunFolder, config: RunConfig, splits: Splits, show: Show) -> None:
        self.run, self.config, self.splits, self.show = run, config, splits, show
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
        self.record = first_record(self.run, self.config, self.splits, command)
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
            self.show("training", step, config.training.steps, self._note())
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
