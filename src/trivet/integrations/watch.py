"""Common half of the callbacks of all frameworks: watch a loss, report what is new, agree to stop."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trivet.collapse.best_weights import BestWeights
from trivet.collapse.monitor import SERIES, CollapseMonitor, Event
from trivet.collapse.probe import Probe
from trivet.io.overwrite_guard import Output, check_outputs, page
from trivet.mining.batch import Labels
from trivet.reports.monitor_record import MonitorRecord, WatchRecord
from trivet.runtime.arguments import check_name
from trivet.runtime.training_warning import warn

Action = Literal["warn", "stop"]
Network = TypeVar("Network", bound=nn.Module)
log = logging.getLogger("trivet")
LOGGED = ("recall", "relative_spread", "hard", "active", "risk")
"""The measures that are logged unless others are asked for."""
PROBED = {"step": "step", "recall": "probe_recall", "fine_recall": "probe_fine_recall"}


class WatchedTraining(NamedTuple):
    """Functions of the training that a `LossWatch` is in, the items of each of its steps, 0 if not known, and what
    learns.
    """

    step: Callable[[], int]
    probe: Probe | None
    items: int
    network: nn.Module | None


class LossWatch(Generic[Network]):
    """Common half of the callbacks: a monitor from `begin` to `end`; what the monitor saw before is not new.

    With several processes each one watches its own part of the batch, also for a loss with gather=True, which it is
    called with.

    Args:
        monitor: of this training alone.
        action: what an event does, beside a warning of the first process: nothing, or with "stop" end the training
            after the step; an event of any process ends that of all within `monitor.every` steps.
        measures: names of those to log, of `trivet.collapse.monitor.SERIES`.
        probe: gives, of the network, the embeddings and labels of some hundred held-out items, and finer labels if
            there are any: the same items each time, of which nothing is trained on. The network is in evaluation mode
            meanwhile, without gradients. See `CollapseMonitor.update`. Each process asks its own.
        report: html page to write at the end, by the first process; one that is there is replaced if it is such a page.
        restore_best: whether the network gets the weights of its best call of the probe at the end, if it is behind
            them beyond doubt: see `BestWeights`, whose copy takes as much memory of the CPU as the network.

    Attributes:
        restored: what came of `restore_best`, a sentence; None before the end, and without it.

    Raises:
        ValueError: if `action` or a measure is not known; without a probe that `report` and `restore_best` need; if
            `report` cannot be written.
    """

    def __init__(
        self,
        monitor: CollapseMonitor,
        action: Action = "warn",
        measures: Sequence[str] = LOGGED,
        probe: Callable[[Network], Sequence[Any]] | None = None,
        *,
        report: Path | str | None = None,
        restore_best: bool = False,
    ) -> None:
        if action not in ("warn", "stop"):
            raise ValueError(f'action must be "warn" or "stop": got {action!r}.')
        for name in measures:
            check_name(name, SERIES[1:], name="measures")
        if probe is None and (report is not None or restore_best):
            raise ValueError(
                "report and restore_best are for held-out items: got no probe; give one, or leave them out."
            )
        self.report = None if report is None else Path(report)
        if self.report is not None:
            check_outputs([Output("report", self.report, page("watch"))], reads=[])
        self.monitor, self.action, self._probe = monitor, action, probe
        self.restore_best = restore_best
        self.restored: str | None = None
        self._measures = {name: name for name in ("step", *measures)}
        self.active = False
        self._handle: RemovableHandle | None = None
        self._training: WatchedTraining | None = None
        self._best: BestWeights | None = None

    def begin(
        self,
        loss: nn.Module | None,
        step: Callable[[], int],
        network: Network | None = None,
        *,
        steps: int | None = None,
        items: int = 0,
    ) -> None:
        """Watch a loss from now on, and ask the probe for the first time.

        Args:
            loss: called as loss(embeddings, labels). Without one the probe alone judges, and the updates are the
                optimiser steps.
            step: gives the optimiser steps done.
            network: what the probe is of.
            steps, items: optimiser steps of the whole run, and items of each, if known: for a watch without a loss, and
                to say at once where held-out items will cost more than the steps.
        """
        probe: Probe | None = None
        self._best = self.restored = None
        if network is not None:
            self.monitor.follow(network)
        if self._probe is not None and network is not None:
            probe = partial(evaluated, network, partial(self._probe, network))
            if self.restore_best:
                self._best = BestWeights(self.monitor.probing)
                self._best.follow(network)
        self._training, self._last_step = WatchedTraining(step, probe, items, network), step()
        self._calls = len(self.monitor.probing.series["step"])
        if loss is not None:
            self._handle = self.monitor.watch(loss, step=step, probe=probe)
        else:
            self.monitor.steps = self.monitor.steps or steps
        self.active = True
        if probe is not None:
            self.monitor.begin(probe, step=step())
            self._warn_of_cost(steps or 0, items)
        self._checks, self._events = len(self.monitor.series["step"]), len(self.monitor.events)
        self._agreements = 0
        self._event_occurred = False

    def _warn_of_cost(self, steps: int, items: int) -> None:
        """Log that held-out items will cost more than the steps, if they will."""
        calls, cost = self.monitor.probing.least_cost(steps, items)
        if cost > 1:
            log.warning(
                "Held-out items will cost about %.1f times as much as the steps: %d are embedded %d times or more in "
                "%d steps of %d items; hold out fewer, or train longer.",
                cost,
                self.monitor.probing.items,
                calls,
                steps,
                items,
            )

    def __getstate__(self) -> dict[str, Any]:
        """All but the training that goes on, of which a copy has none."""
        return {**vars(self), "_training": None, "_best": None}

    def checks(self) -> list[dict[str, float]]:
        """The looks since the last call: "step" and the measures, those that are finite numbers."""
        count = len(self.monitor.series["step"])
        first = self._checks if self._checks <= count else 0  # fewer: the monitor began anew
        self._checks = count
        return _rows(self.monitor.series, self._measures, first)

    def calls(self) -> list[dict[str, float]]:
        """The calls of the probe since the last time: "step", "probe_recall", for finer classes "probe_fine_recall"."""
        series = self.monitor.probing.series
        first, self._calls = self._calls, len(series["step"])
        return _rows(series, PROBED, first)

    def stops(self, *, main: bool, device: torch.device) -> bool:
        """True if the training is to stop; to be called after each step, by all processes.

        Args:
            main: whether this process warns of the events since the last call.
            device: where processes exchange whether they have seen one.
        """
        if self._handle is None and self._training is not None and self._training.step() != self._last_step:
            self.update()
        stopping = self.action == "stop"
        events = self.warn_of_events(stopping=stopping, main=main)
        certain = any(not event.suspected for event in events)
        if not stopping or not self.agree(certain, device):
            return False
        if main and all(event.suspected for event in self.monitor.events):
            warn("Training stops: another process reported an event.")
        return True

    def update(
        self, embeddings: Tensor | None = None, labels: Labels | None = None, loss: Tensor | float | None = None
    ) -> list[Event]:
        """Note an optimiser step, with its batch if it can be had; returns the events that it brought."""
        training = self._training
        assert training is not None
        self._last_step = training.step()
        return self.monitor.update(
            embeddings, labels, loss, items=training.items, step=self._last_step, probe=training.probe
        )

    def warn_of_events(self, *, stopping: bool = False, main: bool = True) -> list[Event]:
        """The events since the last time, of which the first process warns."""
        first, self._events = self._events, len(self.monitor.events)
        events = self.monitor.events[first:]
        for event in events if main else ():
            stops = " Training stops." if stopping and not event.suspected else ""
            warn(event_sentences(event) + stops)
        return events

    def agree(self, event: bool, device: torch.device) -> bool:
        """True if any process has seen an event; to be called after each step, by all processes.

        Several processes exchange it at every `monitor.every`-th call alone, so that steps do not wait for each other.
        """
        self._event_occurred |= event
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return self._event_occurred
        self._agreements += 1
        if self._agreements % self.monitor.every:
            return False
        processes = torch.tensor(float(self._event_occurred), device=device)
        dist.all_reduce(processes)
        return processes.item() > 0

    def end(self, *, main: bool, finished: bool = True) -> None:
        """Ask the probe for the last time, leave the loss alone and log what was found.

        Args:
            main: whether this process warns of the events of the last call, and if no batch of the loss was seen.
            finished: whether the training came to its end: after an exception nothing is asked or warned of.
        """
        if not self.active:
            return
        self.active, needs_batches = False, self._handle is not None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if finished and self._training is not None:
            self.monitor.close(self._training.probe, step=self._training.step())
            self.warn_of_events(main=main)
            if self._best is not None and self._training.network is not None:
                line = self._best.restore(self._training.network, self._training.step())
                self.restored = None if line is None else f"{line[0].upper()}{line[1:]}."
            if self.report is not None and main:
                self._write_report(self.report)
        self.monitor.probing.on_best = self._best = None
        log.info(self.summary())
        if finished and main and needs_batches and not self.monitor.series["step"]:
            warn(
                "the monitor needs batches: the loss was never called as loss(embeddings, labels) during training; "
                "pass the module that is called, and call it rather than its forward, or watch without it."
            )

    def _write_report(self, path: Path) -> None:
        """Write the page; a fault of it must not end the training, and is warned of."""
        from trivet.reports.watch_page import write_watch_report  # here: few trainings have a page

        network = None if self._training is None else self._training.network
        record = WatchRecord(
            monitor=MonitorRecord.read(self.monitor.as_json()),
            network="" if type(network) in (nn.Module, type(None)) else type(network).__name__,
            restored=self.restored,
        )
        try:
            write_watch_report(record.stamped(""), path)
        except (OSError, ValueError) as error:
            warn(f"the page {path} could not be written: {error}")

    def summary(self) -> str:
        """A line on the monitor: how held-out items ended, what it found, how often it asked, and `restored`."""
        return " ".join(text for text in (self._monitored(), self.restored) if text is not None)

    def _monitored(self) -> str:
        steps, probed = self.monitor.series["step"], self.monitor.probing.series
        if not steps and len(probed["step"]) < 2:
            return self.monitor.closing() or "The monitor saw no batch."
        events = ", ".join(event.title for event in self.monitor.events) or "no event"
        text = f"The monitor found {events}"
        if steps:
            text += f" in {len(steps)} looks, the last at step {steps[-1]:.0f}"
        closing = self.monitor.closing()
        if not probed["step"]:
            return f"{text}; it had no probe." if closing is None else f"{closing} {text}."
        if closing is None:
            recall = f"{100 * probed['recall'][0]:.1f} %"
            return f"{text}; it asked the probe once, before training: recall@1 {recall}."
        return f"{closing} {text}; it asked the probe {len(probed['step'])} times."


def event_sentences(event: Event) -> str:
    """An event in sentences: what happened, by which rule, and what to change."""
    return f"{event.title}: {event.rule}. {' '.join(event.changes)} Last healthy step: {event.healthy}."


def _rows(series: Mapping[str, Sequence[float]], names: Mapping[str, str], first: int) -> list[dict[str, float]]:
    """The finite values of some series, by new names, from a row on."""
    return [
        {new: series[name][row] for name, new in names.items() if math.isfinite(series[name][row])}
        for row in range(first, len(series["step"]))
    ]


@torch.no_grad()
def evaluated(network: nn.Module, embed: Probe) -> Sequence[Any]:
    """The embeddings and labels of a probe in evaluation mode; each module is left in the mode it was in."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        return embed()
    finally:
        for module, training in modes.items():
            module.training = training
