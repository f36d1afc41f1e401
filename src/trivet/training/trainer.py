"""A whole run of `trivet train`: the loop of `fit`, and between its calls it stops, repairs, cleans, saves."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from trivet.collapse.monitor import Event
from trivet.runtime.progress import work
from trivet.training.checkpoint import (
    Progress,
    fingerprint,
    load_checkpoint,
    load_snapshots,
    load_weights,
    read_progress,
    save_checkpoint,
    state_of,
    step_of,
)
from trivet.training.components import Components
from trivet.training.embed_dataset import embed
from trivet.training.guard import event_line
from trivet.training.loop import NotFiniteError, fit
from trivet.training.repairs import changes_said
from trivet.training.run_folder import NOISE, RunFolder, write_noise
from trivet.training.run_log import STEP, RunLog, Show

Status = Literal["finished", "interrupted", "stopped"]
Watch = Callable[[Sequence[Mapping[str, Any]], Sequence[Event]], str | None]
"""Called after each step that had a look or an event, but the last one, with the looks of `Choosing` so far and the
events of this step; a reason to stop ends the training."""

log = logging.getLogger("trivet")


class Trainer:
    """The training of a run from its first step, or from where a checkpoint was left.

    Args:
        checkpoint: the file to go on from.
        repair: ask for a repair of the first event that the monitor saw, to be made before training goes on.
        watch: may end the training; see `Watch`.

    Attributes:
        untrained: the network before its first step.
        task: the optimiser, at its step.
        journal: what is written.

    Raises:
        ValueError: if the run cannot go on from the checkpoint, or a repair is asked for that cannot be made.
    """

    def __init__(
        self,
        run: RunFolder,
        parts: Components,
        show: Show,
        command: str = "",
        *,
        checkpoint: Path | None = None,
        repair: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.run, self.parts, self._watch = run, parts, watch
        self._stopping = False
        self._fingerprint = fingerprint(parts.config, parts.splits)
        write_noise(run.path / NOISE, parts.splits)
        self.untrained = copy.deepcopy(parts.model)
        parts.choosing.begin(self.untrained, first=checkpoint is None)
        seconds = 0.0
        if checkpoint is None:
            self.task = parts.task(self._after_step)
            parts.history.measure(0, parts.measured)
        else:
            seconds = self._go_on_from(checkpoint)
        if repair:
            self._ask_for_repair()
        self.journal = RunLog(
            run, parts, show, command, step=self.task.step, seconds=seconds, resumed=checkpoint is not None
        )
        if checkpoint is None and parts.guard.action != "warn":
            self.checkpoint()  # what a repair can always return to

    def fit(self) -> Status:
        """Train, with the repairs that are made on the way; returns how it ended."""
        with work(STEP, self.task.step, self.parts.config.training.num_steps):
            going = self._fit_all()
        if self.parts.world is not None:
            self.parts.world.broadcast(None)
        if going and not self._stopping:
            self._keep_the_best_attempt()
        self.checkpoint()
        if self._stopping:
            return "stopped"
        return "finished" if going else "interrupted"

    def _fit_all(self) -> bool:
        """Train to the end, whatever it is; returns False if a signal stopped it before."""
        guard, cleaning = self.parts.guard, self.parts.cleaning
        self.journal.start_clock()
        going = True
        while going and not self._stopping:
            if guard.pending is not None:
                self._repair(guard.pending)
            if self.task.step >= self.parts.config.training.num_steps or self.parts.choosing.ended is not None:
                self.parts.history.close(self.task.step, self.parts.measured)
                break
            if guard.kept is not None:
                self._go_on_with_what_was_kept()
            if cleaning.due(self.task.step):
                self.checkpoint()  # a look may take long: what is interrupted in it goes on from here
                self._clean()
            going = self._fit()
        return going

    def checkpoint(self) -> None:
        """Leave a checkpoint of the current step."""
        parts = self.parts
        progress = Progress(
            self.task.step,
            self.journal.seconds,
            parts.history.moments,
            guard=parts.guard.state(),
            cleaning=parts.cleaning.state(),
            picks=parts.picks.looks,
            choosing=parts.choosing.state(),
            precision=self.task.precision.state(),
        )
        save_checkpoint(
            self.run,
            progress,
            parts.model,
            parts.loss,
            self.task.optimizer,
            fingerprint=self._fingerprint,
            healthy=parts.guard.healthy,
            best=parts.choosing.weights,
            held=parts.guard.weights,
            average=parts.average,
        )
        self.journal.skipped = self.task.precision.skipped
        if self.task.step:
            self.run.keep()

    def _go_on_from(self, checkpoint: Path) -> float:
        """Restore everything from a checkpoint; returns the seconds of training before it."""
        parts, before = self.parts, read_progress(checkpoint)
        parts.guard.restore(before.guard)
        parts.clean_as(parts.guard.settings)
        parts.cleaning.restore(before.cleaning)
        parts.put_in_force(parts.guard.settings)
        self.task = parts.task(self._after_step)
        done = load_checkpoint(
            checkpoint,
            parts.model,
            parts.loss,
            self.task.optimizer,
            fingerprint=self._fingerprint,
            average=parts.average,
        )
        steps = parts.config.training.num_steps
        if done.step > steps:
            raise ValueError(
                f"training.steps must be at least the number of completed steps, {done.step}: got {steps}; restore "
                "config.toml, or start a new run."
            )
        self.task.step = done.step
        self.task.precision.restore(done.precision)
        parts.history.restore(done.moments)
        parts.picks.restore(done.picks)
        best, parts.guard.weights = load_snapshots(checkpoint)
        if not parts.choosing.restore(done.choosing, best):
            parts.choosing.go_back(done.step, parts.measured)
        return done.seconds

    def _ask_for_repair(self) -> None:
        guard, path, checkpoints = self.parts.guard, self.run.path, self._checkpoints()
        if not checkpoints:
            raise ValueError(
                f"a repair needs a checkpoint to return to: {path} has none; train again with --set "
                "guard.action=repair."
            )
        if guard.pending is None and not guard.monitor.events:
            raise ValueError(
                f"a repair needs an event to be repaired: the monitor detected none in {path}; leave out --repair."
            )
        event = guard.pending or guard.monitor.events[0]
        plan = guard.plan(event, list(checkpoints))
        if isinstance(plan, str):
            raise ValueError(
                f"{path} cannot be repaired: {plan} ({event_line(event)}); train again with other settings, or with "
                "--set guard.action=repair."
            )
        guard.asked, guard.pending = True, event

    def _checkpoints(self) -> dict[int, Path]:
        """Step -> checkpoint, the oldest first."""
        return {step_of(file): file for file in self.run.checkpoints()}

    def _fit(self) -> bool:
        """Train to the last step or an event that asks for more; returns False if a signal stopped it before."""
        guard = self.parts.guard
        self._call_followers()
        try:
            return fit(self.task, self.parts.batches_from(self.task.step), workers=self.parts.settings.training.workers)
        except Exception as error:  # whatever it was, the record says that the run failed; it is raised again
            if isinstance(error, NotFiniteError):
                self._meet(guard.refused(self.task.step))
                if guard.pending is not None or self._stopping:
                    return True
            self.journal.write(status="failed")
            raise

    def _call_followers(self) -> None:
        """Tell the other processes from where they train along, see `training.distributed.worker_rank`."""
        parts, task = self.parts, self.task
        if parts.world is not None:
            states = {"guard": parts.guard.state(), "cleaning": parts.cleaning.state()}
            parts.world.broadcast({"step": task.step, "precision": task.precision.state(), **states})
            parts.world.share(state_of(parts.model, parts.loss, task.optimizer, parts.average))

    def _after_step(self) -> None:
        """Meet events, log and leave a checkpoint where the settings say so."""
        parts, step, training = self.parts, self.task.step, self.parts.settings.training
        parts.guard.hold()
        self._meet(self.task.events)
        parts.history.measure(step, parts.measured)
        recall = None
        if parts.looks_at(step):
            recall = parts.choosing.measure(step, parts.measured)
        if step != training.num_steps and (recall is not None or self.task.events):
            self._ask_to_go_on()
        ended = parts.choosing.ended is not None
        if parts.guard.pending is not None or self._stopping or parts.cleaning.due(step) or ended:
            self.task.should_stop = True
        self.journal.note_step(self.task, recall)
        if step % training.checkpoint_every == 0 and step != training.num_steps:
            self.checkpoint()
            self.journal.write()

    def _ask_to_go_on(self) -> None:
        why = None if self._watch is None else self._watch(self.parts.choosing.looks, self.task.events)
        if why is not None and not self._stopping:
            self._stopping, self.journal.stopped_by = True, why

    def _meet(self, events: Sequence[Event]) -> None:
        """Say each event and do what the guard is for; training goes on unless it asks for more."""
        guard = self.parts.guard
        for event in events:
            log.warning(event_line(event))
            self.journal.note_event(event)
            if guard.pending is not None or self._stopping:
                continue  # the first decides
            if guard.action == "stop":
                self._stopping, self.journal.stopped_by = True, event_line(event)
            elif guard.action == "repair":
                plan = guard.plan(event, list(self._checkpoints()))
                if isinstance(plan, str):
                    log.warning(guard.leave(event, plan))
                else:
                    guard.pending = event

    def _clean(self) -> None:
        """Judge the labels by the present embedding, and go on with the items and labels that this gives."""
        parts, step, embeddings = self.parts, self.task.step, None
        if parts.cleaning.judges(step):
            embeddings = embed(parts.measured, parts.splits.train.inputs)
        classes = parts.settings.batch.needed_classes
        log.warning(parts.cleaning.measure(step, embeddings, num_classes=classes, seed=parts.settings.seed))
        parts.take_items()

    def _keep_the_best_attempt(self) -> None:
        """After repairs, take the best network that the probe saw, if the last one is the result and is behind it.

        The choice of the best step stays that of the last attempt.
        """
        parts, guard, step = self.parts, self.parts.guard, self.task.step
        if not guard.repairs or self.task.probe is None or guard.kept is not None:
            return
        if parts.config.choosing.keep == "best":
            return
        guard.monitor.probing.measure(self.task.probe, step)
        guard.hold()
        said = guard.judged()
        if said is None:
            return
        moments, looks = parts.history.moments, parts.picks.looks
        parts.clean_as(guard.settings)
        parts.put_in_force(guard.settings)
        for network in filter(None, (parts.model, parts.average)):
            network.load_state_dict(guard.weights)
        parts.history.restore(moments)
        parts.picks.restore(looks)
        own = parts.measured.state_dict()
        if any(value.shape != own[name].shape for name, value in parts.choosing.weights.items()):
            parts.choosing.weights = {}  # of another width, which cannot be saved beside this one
        self.task = parts.task(self._after_step)
        self.task.step = step
        log.warning(said)

    def _go_on_with_what_was_kept(self) -> None:
        """Train on from the network of an earlier attempt; what the last one left is of no use any more."""
        self.parts.guard.go_on()
        self.task.monitor = self.parts.guard.monitor
        self.parts.choosing.go_back(self.task.step, self.parts.measured)
        for step, file in self._checkpoints().items():
            if 0 < step < self.task.step:
                file.unlink()

    def _repair(self, event: Event) -> None:
        """Go back to the last healthy checkpoint, with settings that may prevent the event."""
        parts, guard, checkpoints = self.parts, self.parts.guard, self._checkpoints()
        plan = guard.plan(event, list(checkpoints))
        if isinstance(plan, str):  # the settings of the guard were changed before the run was resumed
            guard.pending = None
            log.warning(guard.leave(event, plan))
            return
        healthy = checkpoints[plan.returned_to]
        guard.begin(plan)
        parts.clean_as(guard.settings)
        parts.cleaning.restore(read_progress(healthy).cleaning)
        parts.put_in_force(guard.settings)
        parts.history.restore(load_weights(healthy, parts.model, parts.loss, parts.average))
        parts.choosing.go_back(plan.returned_to, parts.measured)
        self.task = parts.task(self._after_step)
        self.journal.metrics.attempt = guard.attempt
        self.journal.cover()
        log.warning(f"repair {guard.attempt}: back to step {plan.returned_to} with {changes_said(plan)}")
        self.checkpoint()
        # Last: until these are gone, a killed run goes on from before the event, and comes to the same repair.
        for step, file in self._checkpoints().items():
            if step > plan.returned_to:
                file.unlink()
        self.journal.write()
