"""A whole run of `trivet train`: between two optimiser steps it measures, selects, meets events, logs and saves."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from trivet.collapse.monitor import Event
from trivet.reports.run_record import SelectionCheck
from trivet.runtime.progress import work
from trivet.training.components import Components, run_fingerprint
from trivet.training.embed_dataset import embed
from trivet.training.guard import event_line
from trivet.training.loop import NotFiniteError, fit
from trivet.training.run_folder import NOISE, RunFolder, write_noise
from trivet.training.run_log import STEP, RunLog, Show

Status = Literal["finished", "interrupted", "stopped"]
Watch = Callable[[Sequence[SelectionCheck], Sequence[Event]], str | None]
"""Called after each step that had a look or an event, but the last one, with the looks of `CheckpointSelection` so far
and the events of this step; a reason to stop ends the training."""

log = logging.getLogger("trivet")


class Trainer:
    """The training of a run from its first step, or from a checkpoint.

    Args:
        checkpoint: the file to go on from.
        watch: may end the training; see `Watch`.

    Attributes:
        untrained: the network before its first step.
        state: all that training changes.
        run_log: what is written.

    Raises:
        ValueError: if the run cannot go on from the checkpoint.
    """

    def __init__(
        self,
        run: RunFolder,
        components: Components,
        show: Show,
        command: str = "",
        *,
        checkpoint: Path | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.run, self.components, self.state, self._watch = run, components, components.state, watch
        self._stopping = False
        self._fingerprint = run_fingerprint(components.config, components.splits)
        write_noise(run.path / NOISE, components.splits)
        learner = self.state.learner
        learner.after_step = self._after_step
        self.untrained = copy.deepcopy(learner.model)
        self.state.selection.begin(self.untrained)
        if checkpoint is None:
            self.state.history.measure(0, learner.measured)
        else:
            self._resume(checkpoint)
        self.run_log = RunLog(run, components, show, command, resumed=checkpoint is not None)

    def _resume(self, checkpoint: Path) -> None:
        self.state.load(checkpoint, self._fingerprint)
        done, steps = self.state.learner.step, self.components.config.training.num_steps
        if done > steps:
            raise ValueError(
                f"training.steps must be at least the number of completed steps, {done}: got {steps}; restore "
                "config.toml, or start a new run."
            )
        self.components.take_items()

    def fit(self) -> Status:
        """Train to the last step, the end of patience, an event that stops, or a signal; returns which it was."""
        state, config, world = self.state, self.components.config, self.components.world
        finished = True
        self.run_log.start_clock()
        with work(STEP, state.learner.step, config.training.num_steps):
            while finished and not self._stopping and not self._ended():
                if state.cleaning.due(state.learner.step):
                    self.save()  # judging may take long: what is interrupted in it goes on from here
                    self._clean()
                finished = self._fit_to_next_break()
        if finished:
            self._close()
        if finished and not self._stopping:
            state.history.close(state.learner.step, state.learner.measured)
        if world is not None:
            world.broadcast(None)
        self.save()
        if self._stopping:
            self._restore_best()
            return "stopped"
        return "finished" if finished else "interrupted"

    def _ended(self) -> bool:
        last = self.state.learner.step >= self.components.config.training.num_steps
        return last or self.state.selection.ended is not None

    def _fit_to_next_break(self) -> bool:
        """Train to the last step, or to one at which something is due; returns False if a signal came before."""
        components, state, learner = self.components, self.state, self.state.learner
        if components.world is not None:  # the other processes train along, see `training.distributed.worker_rank`
            precision, cleaning = learner.precision.state(), state.cleaning.state().as_json()
            components.world.broadcast({"step": learner.step, "precision": precision, "cleaning": cleaning})
            components.world.share(learner.tensors())
        try:
            return fit(learner, components.batches_from(learner.step), workers=components.config.training.workers)
        except Exception as error:  # whatever it was, the record says that the run failed; it is raised again
            if isinstance(error, NotFiniteError):
                self._meet(state.guard.refuse(learner.step))
                if self._stopping:
                    return True
            self.run_log.record.status = "failed"
            self.run_log.write()
            raise

    def _after_step(self) -> None:
        """Measure, meet events, log, and save a checkpoint where the settings say so."""
        state, learner, training = self.state, self.state.learner, self.components.config.training
        step = learner.step
        self._meet(learner.events)
        state.history.measure(step, learner.measured)
        recall = state.selection.measure(step, learner.measured) if self.components.measures_at(step) else None
        if step != training.num_steps and self._watch is not None and (recall is not None or learner.events):
            self._stop(self._watch(state.selection.checks, learner.events))
        if self._stopping or self._ended() or state.cleaning.due(step):
            learner.should_stop = True
        self.run_log.add_step(recall)
        if step % training.checkpoint_every == 0 and step != training.num_steps:
            self.save()
            self.run_log.write()

    def _meet(self, events: Sequence[Event]) -> None:
        """Warn of each event; the first one ends the training where the guard is to stop it."""
        for event in events:
            log.warning(f"{event_line(event)}. {' '.join(event.changes)}".rstrip())
            self.run_log.add_event(event)
            if self.components.config.guard.action == "stop" and not event.suspected:
                self._stop(event_line(event))

    def _stop(self, reason: str | None) -> None:
        if reason is not None and not self._stopping:
            self._stopping, self.state.guard.stopped_by = True, reason

    def _clean(self) -> None:
        """Judge the labels by the present embedding, and go on with the items and labels that this gives."""
        components, step, embeddings = self.components, self.state.learner.step, None
        if self.state.cleaning.judges(step):
            embeddings = embed(self.state.learner.measured, components.splits.train.inputs)
        config = components.config
        log.warning(
            self.state.cleaning.measure(step, embeddings, num_classes=config.batch.needed_classes, seed=config.seed)
        )
        components.take_items()

    def _close(self) -> None:
        """Ask the probe for the last time."""
        monitor, learner = self.state.guard.monitor, self.state.learner
        before = len(monitor.events)
        monitor.close(learner.probe, step=learner.step)
        for event in monitor.events[before:]:
            log.warning(f"{event_line(event)}. {' '.join(event.changes)}".rstrip())
            self.run_log.add_event(event)

    def _restore_best(self) -> None:
        """Make the best network that the probe saw the result, if the last one is the result and is behind it."""
        guard, learner = self.state.guard, self.state.learner
        if learner.probe is None or self.components.config.choosing.keep == "best":
            return
        line = guard.restore_best(learner.measured, learner.step)
        if line is not None:
            log.warning(line)

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        self.state.seconds = self.run_log.seconds
        self.state.save(self.run, self._fingerprint)
        if self.state.learner.step:
            self.run.keep()
