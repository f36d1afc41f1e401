"""Common half of the callbacks of all frameworks: watch a loss, report what is new, agree to stop."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn

from trivet.collapse.monitor import SERIES, CollapseMonitor, Event
from trivet.collapse.probe import Probe
from trivet.distances import Array
from trivet.runtime.arguments import check_name

Action = Literal["warn", "stop"]
log = logging.getLogger("trivet")
ACTIONS: tuple[Action, ...] = ("warn", "stop")
LOGGED = ("recall", "relative_spread", "hard", "active", "risk")
"""The measures that are logged unless others are asked for."""


def check_action(action: str) -> None:
    """Raises ValueError if `action` is not known."""
    if action not in ACTIONS:
        raise ValueError(f'action must be "warn" or "stop": got {action!r}.')


class HoldoutProbe:
    """A probe of a network in training: embeds held-out items in evaluation mode, and leaves it in the mode it was in.

    Args:
        network: gives embeddings `(M, d)`; a module, whose mode is changed meanwhile.
        embed: gives `(embeddings, labels)` or `(embeddings, labels, fine)`, the same items each time.
    """

    def __init__(self, network: nn.Module, embed: Probe) -> None:
        self._network, self._embed = network, embed

    @torch.no_grad()
    def __call__(self) -> Sequence[Array]:
        modes = {module: module.training for module in self._network.modules()}
        self._network.eval()
        try:
            return self._embed()
        finally:
            for module, training in modes.items():
                module.training = training


def check_measures(measures: Sequence[str]) -> None:
    """Raises ValueError if the monitor has no measure of such a name."""
    for name in measures:
        check_name(name, SERIES[1:], name="measures")


def summary(monitor: CollapseMonitor) -> str:
    """A line on a monitor: its events, and the recall@1 of the probe."""
    steps, probed = monitor.series["step"], monitor.probing.series
    if not steps:
        return "The monitor saw no batch."
    events = ", ".join(f"{event.kind} at step {event.step}" for event in monitor.events) or "no event"
    text = f"The monitor found {events} in {len(steps)} looks, the last at step {steps[-1]:.0f}"
    if not probed["step"]:
        return f"{text}; it had no probe."
    calls, recall = len(probed["step"]), probed["recall"]
    if calls == 1:
        return f"{text}; it asked the probe once, before training: recall@1 {100 * recall[0]:.1f} %."
    return (
        f"{text}; it asked the probe {calls} times: recall@1 {100 * recall[0]:.1f} % at step {probed['step'][0]:.0f}, "
        f"{100 * recall[-1]:.1f} % at step {probed['step'][-1]:.0f}."
    )


class LossWatch:
    """A monitor on a loss while it trains, until `end`; what the monitor saw before is not new.

    Args:
        step: gives the optimiser steps done.
        measures: those to tell of each look.
        probe: what the monitor may ask, see `CollapseMonitor.update`; now, before anything is trained, the first time.

    Attributes:
        monitor: it.
    """

    def __init__(
        self,
        monitor: CollapseMonitor,
        loss: nn.Module,
        step: Callable[[], int],
        measures: Sequence[str] = LOGGED,
        probe: Probe | None = None,
    ) -> None:
        self.monitor, self.measures = monitor, ("step", *measures)
        self._calls = len(monitor.probing.series["step"])  # before it is asked for the first time, here or by a look
        self._handle = monitor.watch(loss, step=step, probe=probe)
        if probe is not None:
            monitor.begin(probe, step=step())
        self._checks, self._events = len(monitor.series["step"]), len(monitor.events)
        self._agreements = 0
        self._event_occurred = False

    def checks(self) -> list[dict[str, float]]:
        """The looks since the last call: "step" and the measures, those that are finite numbers."""
        series = self.monitor.series
        count = len(series["step"])
        first = self._checks if self._checks <= count else 0  # fewer: the monitor began anew
        self._checks = count
        return [
            {name: series[name][record] for name in self.measures if math.isfinite(series[name][record])}
            for record in range(first, count)
        ]

    def calls(self) -> list[dict[str, float]]:
        """The calls of the probe since the last time: "step", "probe_recall", for finer classes "probe_fine_recall"."""
        series = self.monitor.probing.series
        first, self._calls = self._calls, len(series["step"])
        return [
            {"step": series["step"][call]}
            | {
                f"probe_{name}": series[name][call]
                for name in ("recall", "fine_recall")
                if math.isfinite(series[name][call])
            }
            for call in range(first, self._calls)
        ]

    def events(self) -> list[Event]:
        """The events since the last call."""
        first, self._events = self._events, len(self.monitor.events)
        return self.monitor.events[first:]

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

    def end(self, *, warn: bool) -> None:
        """Leave the loss alone and log what was found; `warn` if it was trained with and no batch of it was seen."""
        self._handle.remove()
        log.info(summary(self.monitor))
        if warn and not self.monitor.series["step"]:
            warnings.warn(
                "the monitor needs batches: the loss was never called as loss(embeddings, labels) during training; "
                "pass the module that is called, and call it rather than its forward.",
                stacklevel=3,
            )


def warn_of(event: Event, *, stopping: bool) -> None:
    """Warn of an event: what it is, why, and what to change."""
    warnings.warn(
        f"{event.kind} at step {event.step}: {event.rule}. {' '.join(event.changes)} Last healthy step: "
        f"{event.healthy}." + (" Training stops." if stopping else ""),
        stacklevel=3,
    )
