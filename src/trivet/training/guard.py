"""The guard of a run: its monitor, the best network that held-out items have seen, and what an event leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from trivet.collapse.monitor import ALARMS, CollapseMonitor, Event
from trivet.collapse.probe import Probe, ProbeResult
from trivet.collapse.strategy import SamplingStrategy
from trivet.distances import Array
from trivet.reports.monitor_record import GuardRecord
from trivet.runtime.json_numbers import as_json
from trivet.runtime.record import Record
from trivet.training.config import GuardConfig

EVERY = 10  # steps between checks of the monitor; twice as many from step 300 on, three times from 600


class GuardState(Record):
    """The best call of the probe, and the state of the monitor, as these write them."""

    best: Mapping[str, Any] | None
    monitor: Mapping[str, Any]


class Guard:
    """Watches a run. A checkpoint keeps its state, and the weights.

    Args:
        config: with action "stop", the network is copied at each call of the probe: the best is the result where
            training is stopped.
        steps: optimiser steps of the run.
        strategy: how it chooses; None if it does not.

    Attributes:
        monitor: sees each batch.
        best: the best call of the probe so far; None before one.
        weights: of the network then; empty unless the action is "stop".
        snapshot: the step of the network that is the result in place of the last; None if that is the last.
        stopped_by: the event, or another reason, that ended the training, as a line.
    """

    def __init__(self, config: GuardConfig, *, steps: int, strategy: SamplingStrategy | None = None) -> None:
        self.config = config
        self.monitor = CollapseMonitor(every=EVERY, steps=steps, strategy=strategy)
        self.best: ProbeResult | None = None
        self.weights: dict[str, Tensor] = {}
        self.snapshot: int | None = None
        self.stopped_by: str | None = None
        self._newest: dict[str, Tensor] = {}

    def watching(self, probe: Probe, model: nn.Module) -> Probe:
        """The probe, which also copies the network where it may become the result."""

        def copy_and_probe() -> Sequence[Array]:
            if self.config.action == "stop":
                self._newest = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
            return probe()

        return copy_and_probe

    def update_best(self) -> None:
        """Keep the network that was just probed, if it is the best so far."""
        probing = self.monitor.probing
        newest = probing.last or probing.reference
        if self._newest and newest is not None and newest is probing.best and newest is not self.best:
            self.best, self.weights = newest, self._newest
        self._newest = {}

    def restore_best(self, probe: Probe, model: nn.Module, step: int) -> str | None:
        """Load the best network, if held-out items say that the present one is behind it; returns a line that says so.

        Args:
            step: optimiser steps done.
        """
        probing = self.monitor.probing
        if probing.last is None or probing.last.step != step:
            probing.measure(probe, step)
            self.update_best()
        if self.best is None or probing.last is None or not probing.behind(self.best):
            return None
        model.load_state_dict(self.weights)
        self.snapshot = self.best.step
        return (
            f"the network of step {self.snapshot} is the result: recall@1 of {probing.items} held-out items is "
            f"{100 * self.best.score:.1f} % with it, and {100 * probing.last.score:.1f} % at the end"
        )

    def refuse(self, step: int) -> list[Event]:
        """Add the event that the loss refused embeddings that were not finite; returns it if it is new."""
        if any(event.kind == "not-finite" for event in self.monitor.events):
            return []
        series = self.monitor.series
        checks = zip(series["step"], series["risk"], strict=False)
        healthy = max((int(at) for at, risk in checks if not risk >= ALARMS["healthy"].value), default=0)
        event = Event(
            step,
            "not-finite",
            {},
            "embeddings are not finite",
            ("Lower the learning rate, or warm it up.", "Clip the norm of the gradient.", "Check for corrupt inputs."),
            None,
            healthy,
        )
        self.monitor.events.append(event)
        return [event]

    def state(self) -> GuardState:
        """All that a resumed run needs beside the weights."""
        return GuardState(best=as_json(self.best), monitor=self.monitor.state_dict())

    def load(self, state: GuardState) -> None:
        """Go on from a state."""
        self.best = None if state.best is None else ProbeResult.from_json(state.best)
        self.monitor.load_state_dict(state.monitor)

    def record(self) -> GuardRecord:
        """The section "guard" of a record."""
        return GuardRecord(action=self.config.action, snapshot=self.snapshot, stopped_by=self.stopped_by)


def event_line(event: Event) -> str:
    """An event in one line."""
    return f"{event.title}: {event.rule}"
