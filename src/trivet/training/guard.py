"""The guard of a run: its monitor, the best network by its held-out items, and what an event leads to."""

from __future__ import annotations

from torch import nn

from trivet.collapse.advice import not_finite_advice
from trivet.collapse.best_weights import BestWeights
from trivet.collapse.monitor import ALARMS, CollapseMonitor, Event
from trivet.collapse.strategy import SamplingStrategy
from trivet.reports.monitor_record import GuardRecord
from trivet.training.config import GuardConfig

EVERY = 10  # steps between checks of the monitor; twice as many from step 300 on, three times from 600


class Guard:
    """Watches a run. A checkpoint keeps its state, and the weights.

    Args:
        config: with action "stop", the best network by the probe is the result where training is stopped.
        steps: optimiser steps of the run.
        strategy: how it chooses; None if it does not.

    Attributes:
        monitor: sees each batch.
        best: the weights at the best call of the probe; none unless the action is "stop".
        snapshot: the step of the network that is the result in place of the last; None if that is the last.
        stopped_by: the event, or another reason, that ended the training, as a line.
    """

    def __init__(self, config: GuardConfig, *, steps: int, strategy: SamplingStrategy | None = None) -> None:
        self.config = config
        self.monitor = CollapseMonitor(every=EVERY, steps=steps or None, strategy=strategy)
        self.best = BestWeights(self.monitor.probing)
        self.snapshot: int | None = None
        self.stopped_by: str | None = None

    def follow(self, model: nn.Module) -> None:
        """Note the weights it begins with; copy the best at each call of the probe, if that may become the result."""
        self.monitor.follow(model)
        if self.config.action == "stop":
            self.best.follow(model)

    def restore_best(self, model: nn.Module, step: int) -> str | None:
        """Load the best network, if held-out items say that the present one is behind it; returns a line that says so.

        Args:
            step: optimiser steps done, at which the monitor has asked the probe for the last time.
        """
        line = self.best.restore(model, step)
        if self.best.restored is None:
            return None
        self.snapshot = self.best.restored.step
        return line

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
            not_finite_advice(self.monitor.motion),
            None,
            healthy,
        )
        self.monitor.events.append(event)
        return [event]

    def record(self) -> GuardRecord:
        """The section "guard" of a record."""
        return GuardRecord(action=self.config.action, snapshot=self.snapshot, stopped_by=self.stopped_by)


def event_line(event: Event) -> str:
    """An event in one line."""
    return f"{event.title}: {event.rule}"
