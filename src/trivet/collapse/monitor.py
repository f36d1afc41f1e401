"""The monitor: while a network trains, is it on its way to collapse, and since which step?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trivet.collapse.alarms import ALARMS, FIRST, SERIES, Event, EventKind, Judge
from trivet.collapse.batch_measures import related_pairs
from trivet.collapse.forecast import Forecast, forecast
from trivet.collapse.monitor_buffer import MonitorBatch, MonitorBuffer
from trivet.collapse.probe import Probe, ProbeTracker
from trivet.collapse.strategy import SamplingStrategy
from trivet.collapse.weight_motion import FirstWeights, WeightMotion
from trivet.distances.device import precise
from trivet.losses.engine.step_stats import StepStats
from trivet.mining.batch import Labels
from trivet.mining.relations import Classes, Relation, TwoSided
from trivet.runtime.json_numbers import json_section
from trivet.runtime.training_warning import warn

__all__ = ["ALARMS", "FIRST", "SERIES", "CollapseMonitor", "Event", "EventKind"]

MEASURED = 5  # updates whose median a check is
RARER = 300  # updates after which checks are rarer by `every`, up to three times: what comes late comes slowly


class CollapseMonitor:
    """Watch the batches of a training loop, with any loss, and say when they begin to collapse.

    An update notes the loss, and whether all numbers are finite, on the device. The last five before a check are
    measured, large ones in O(N d) and small ones all at once; a check reads that back, with what needs the distances of
    at most 256 rows, and asks the rules of `ALARMS`. The checks depend on the number of updates alone, so a run that is
    repeated or resumed has the same.

    Batches are of training items, and of networks in training mode: what they suggest need not be so. With a probe of
    held-out items they only raise a suspicion, and the probe decides: see `trivet.collapse.probe.ProbeTracker`, and
    docs/collapse_method.md for the rules. Without one the monitor judges by the batches alone, and cannot see harm.

    Args:
        every: updates between two checks, up to the 300th; then twice, and from the 600th on three times as many. The
            first `every` updates are all looked at.
        steps: updates of the whole run, if known: a probe is then asked no less often than at each quarter of it.
        strategy: how the training chooses, so that advice leaves out what is so already.
        on_event: called with each event.
        log: called at each check with (measures, step), as the `log_metrics` of a logger.

    Attributes:
        events: all so far; a kind is reported once.
        series: name -> values, one for each check; names are `SERIES`.
        probing: what the probe showed, and what it cost.

    Raises:
        ValueError: if `every` or `steps` is below 1. No other method raises anything: what cannot be used is warned of
            once.

    Example:
        >>> monitor = CollapseMonitor()
        >>> points = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
        >>> for step in range(60):
        ...     events = monitor.update(points * 0.8**step + 1, torch.arange(32) % 4, loss=0.2)
        >>> [event.kind for event in monitor.events]
        ['network-collapse']
    """

    def __init__(
        self,
        *,
        every: int = 10,
        steps: int | None = None,
        strategy: SamplingStrategy | None = None,
        on_event: Callable[[Event], None] | None = None,
        log: Callable[[Mapping[str, float], int], None] | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, the updates between checks: got {every}.")
        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, the updates of the whole run, or None: got {steps}.")
        self.every = every
        self._on_event, self._log = on_event, log
        self._judge = Judge(steps, strategy=strategy, warn=self._warn)
        self._buffer = MonitorBuffer()
        self._width: int | None = None
        self._usual: tuple[object, ...] | None = None  # what the last batch that could be used looked like
        self._warned: set[str] = set()

    @property
    def steps(self) -> int | None:
        """Updates of the whole run, if known; it may be set when the run begins."""
        return self._judge.steps

    @steps.setter
    def steps(self, count: int | None) -> None:
        self._judge.steps = count

    @property
    def events(self) -> list[Event]:
        """All so far."""
        return self._judge.events

    @property
    def series(self) -> dict[str, list[float]]:
        """Measures of the checks."""
        return self._judge.series

    @property
    def probing(self) -> ProbeTracker:
        """Results of the probe, and their cost."""
        return self._judge.probing

    @property
    def motion(self) -> WeightMotion | None:
        """Distance of the weights of the network that is followed from its first ones; None if that is not known."""
        return self._judge.motion

    def follow(self, network: nn.Module) -> None:
        """Note the weights of a network that is not trained yet: advice names the rate only where they move far.

        What is asked of a run that goes on elsewhere is not noted, as it did not begin with these weights.
        """
        if self.probing.reference is not None:
            return
        try:
            self._judge.first_weights = FirstWeights(network)
        except Exception as error:  # a fault of the monitor must not end the training that it watches
            self._warn(f"the weights could not be followed: {type(error).__name__}: {error}.")

    def begin(self, probe: Probe, *, step: int = 0) -> None:
        """Ask the probe now, before anything is trained; without this, the first update does.

        Args:
            probe: see `update`.
            step: optimiser steps done.
        """
        judge = self._judge
        if judge.probing.reference is None and judge.fault is None:
            judge.measure_probe(probe, step)

    def update(
        self,
        embeddings: Tensor | None,
        labels: Labels | None = None,
        loss: Tensor | float | None = None,
        *,
        fine: Tensor | None = None,
        active: Callable[[], float] | float | None = None,
        items: int = 0,
        step: int | None = None,
        probe: Probe | None = None,
    ) -> list[Event]:
        """See a batch, before the optimiser's step; returns the events it brought.

        Args:
            embeddings: `(N, d)`, as the loss got them; no gradient is kept. None where they cannot be had, and where
                they cannot be used: the probe is then asked by its own schedule, and judges alone.
            labels: `(N,)` integer, or a relation of N items, of which at most 256 are measured.
            loss: of this batch.
            fine: `(N,)` integer: classes inside the classes, by which a class collapse is seen; not of a relation.
            active: share of the terms of the loss that are not zero, or what gives it when there is a check.
            items: those of a batch that is None, if known: over many steps they decide how often the probe is asked.
            step: optimiser steps done before this batch. Default: the updates before it.
            probe: gives `(embeddings, labels)`, or `(embeddings, labels, fine)`, of some hundred held-out items, the
                same each time, in evaluation mode and without gradients. It is called at the first update and where
                there is a suspicion; over many steps that costs at most 2 % of them.
        """
        judge = self._judge
        step = judge.updates if step is None else step
        judge.updates += 1
        if isinstance(labels, Classes):
            labels = labels.items
        judge.related = isinstance(labels, Relation)
        if probe is not None:
            self.begin(probe, step=step)
        before = len(judge.events)
        checked = False
        try:
            if (embeddings is None and probe is not None) or not self._usable(embeddings, labels, fine, step):
                judge.probing.count(items)
                if probe is not None:
                    judge.judge_probe(probe, step)
            else:
                assert embeddings is not None
                judge.probing.count(embeddings.shape[0])
                embeddings, labels, fine = _precise(embeddings, labels, fine)
                left = self._left()
                batch = _batch(embeddings, labels, fine) if left < MEASURED else []
                judge.two_sided = len(batch) > 2 and judge.related
                all_rows = bool(batch) and len(batch[0]) == len(embeddings)
                self._buffer.add_update(None if all_rows else embeddings, loss)
                if batch:
                    self._buffer.add_batch(batch)
                    if not left:
                        self._check(batch, active, step, probe)
                        checked = True
        except Exception as error:  # a fault of the monitor must not end the training that it watches
            self._warn(f"the collapse monitor could not use a batch: {type(error).__name__} at step {step}: {error}.")
        if checked and self._log is not None:
            self._log({name: values[-1] for name, values in judge.series.items() if name != "step"}, step)
        events = judge.events[before:]
        if self._on_event is not None:
            for event in events:
                self._on_event(event)
        return events

    def close(self, probe: Probe | None = None, *, step: int | None = None) -> str | None:
        """Ask the probe for the last time, after training; returns one sentence on how held-out items ended.

        It is beside the start: "Recall@1 by the labels of 300 held-out items ends 7.9 points (99 % interval 5.1 to
        10.8) below its start: ...". A probe that failed is named. None if it was not asked after the start. Its last
        call may bring events, as any other.

        Args:
            probe: see `update`.
            step: optimiser steps done. Default: the updates.
        """
        judge = self._judge
        before = len(judge.events)
        sentence = judge.close(probe, judge.updates if step is None else step)
        if self._on_event is not None:
            for event in judge.events[before:]:
                self._on_event(event)
        return sentence

    def closing(self) -> str | None:
        """The sentence of `close`, by what is known now."""
        return self._judge.closing()

    def watch(
        self, loss: nn.Module, *, step: Callable[[], int] | None = None, probe: Probe | None = None
    ) -> torch.utils.hooks.RemovableHandle:
        """Update whenever `loss(embeddings, labels)` is called in training; `.remove()` the handle to end that.

        Args:
            loss: any module whose first two arguments are `(N, d)` embeddings and `(N,)` labels, or a relation, and
                that returns its value. Calls without gradients, as in an evaluation, are not seen. Nor are those of a
                copy of the loss, made by `copy` or `pickle`.
            step: gives the optimiser steps done. Default: the calls so far.
            probe: see `update`.
        """
        return loss.register_forward_hook(_Watcher(self, step, probe), with_kwargs=True)

    def forecast(self) -> Forecast | None:
        """Follow the shrinking of the batches to the end of the run, if `steps` is known; None before two checks."""
        return forecast(self.series, self.steps)

    def as_json(self) -> dict[str, Any]:
        """{"series", "events", "forecast", "probe", "closing"} for a record; None where a number is not finite."""
        return json_section(
            series=self.series,
            events=self.events,
            forecast=self.forecast(),
            probe=self.probing.summary(),
            closing=self.closing(),
        )

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, of plain numbers, texts, lists and dicts that JSON can hold."""
        warned = {"width": self._width, "warned": sorted(self._warned)}
        return self._judge.state_dict() | self._buffer.state_dict() | warned

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._width, self._warned, self._usual = state["width"], set(state["warned"]), None
        self._judge.load_state_dict(state)
        self._buffer.load_state_dict(state)

    def _usable(self, embeddings: Tensor | None, labels: Labels | None, fine: Tensor | None, step: int) -> bool:
        """Return whether a batch can be used; what was said of one holds for all like it."""
        kind = None
        if isinstance(embeddings, Tensor):
            of_levels = type(labels), _shape(labels), type(fine), _shape(fine)
            kind = (embeddings.shape, embeddings.dtype, of_levels)
            if kind == self._usual:
                return True
        if (fault := _fault(embeddings, labels, fine)) is not None:
            self._warn(f"{fault}; this batch is skipped.")
            return False
        assert embeddings is not None
        if labels is None:
            self._warn(
                "the monitor needs labels to suspect a collapse: got none; only spread, norm and loss are watched."
            )
        if self._width not in (None, embeddings.shape[1]):
            self._warn(
                f"embeddings must keep their size: got {embeddings.shape[1]} numbers each at step {step} after "
                f"{self._width}; the monitor starts over."
            )
            self._judge.forget()
            self._buffer.forget()
        self._width, self._usual = embeddings.shape[1], kind
        return True

    def _left(self) -> int:
        """Updates until the next check; 0 for one that is measured and checked."""
        judge = self._judge
        gap = self.every * min(3, 1 + judge.updates // RARER)
        return 0 if len(judge.series["step"]) < self.every else -judge.updates % gap

    def _check(
        self, batch: MonitorBatch, active: Callable[[], float] | float | None, step: int, probe: Probe | None
    ) -> None:
        """Read what was kept, the last of it this batch, and judge."""
        values, judge = self._buffer.read(batch), self._judge
        share = active() if callable(active) else active
        last = math.nan if share is None else float(share)
        judge.record([float(step), *values.running, values.loss, *values.compared, last])
        judge.judge(step, not_finite=not values.finite, probe=None if judge.fault else probe)

    def _warn(self, sentence: str) -> None:
        kind = sentence.partition(":")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            warn(sentence)


def _fault(embeddings: object, labels: object, fine: object) -> str | None:
    """Fault of a batch in words, if there is one."""
    if not isinstance(embeddings, Tensor) or embeddings.ndim != 2 or not embeddings.is_floating_point():
        return f"embeddings must be floating point of shape (N, d): got {_shape(embeddings)}"
    if len(embeddings) < 2:
        return f"a batch must hold at least two items: got {len(embeddings)}"
    if isinstance(labels, Relation):
        if len(labels) != len(embeddings):
            return f"a relation must hold the items of the batch: got {len(labels)} for {len(embeddings)} embeddings"
        if fine is not None:
            return f"fine must be None beside a relation, as these are classes in classes: got {_shape(fine)}"
        labels = None
    for name, values in (("labels", labels), ("fine", fine)):
        if values is not None and (not isinstance(values, Tensor) or values.shape != embeddings.shape[:1]):
            count = len(embeddings)
            return f"{name} must be a tensor of one class per embedding: got {_shape(values)} for {count} embeddings"
    return None


def _precise(
    embeddings: Tensor, labels: Labels | None, fine: Tensor | None
) -> tuple[Tensor, Labels | None, Tensor | None]:
    """A batch that can be used, on a device with float64."""
    rows = precise(embeddings)
    if isinstance(labels, Relation):
        labels = labels if rows is embeddings else labels.to(rows.device)
    elif labels is not None:
        labels = precise(labels)
    return rows, labels, None if fine is None else precise(fine)


def _shape(values: object) -> tuple[int, ...] | str:
    if isinstance(values, Relation):
        return (len(values),)
    return tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__


def _batch(embeddings: Tensor, labels: Labels | None, fine: Tensor | None) -> MonitorBatch:
    """Embeddings and pairs of a batch, to be measured."""
    if isinstance(labels, Relation):
        rows, related = related_pairs(labels)
        batch = [embeddings[rows.to(embeddings.device)], related]
        if isinstance(labels, TwoSided):
            right = labels.items[rows] >= labels.first_of_right
            batch += [right.to(torch.int8)] if 0 < int(right.sum()) < len(right) else []
        return batch
    return [embeddings, *(level for level in (labels, fine) if level is not None)]


class _Watcher:
    """The hook of a watched loss. A copy of it does nothing, so that a copied or pickled loss carries no monitor."""

    def __init__(
        self,
        monitor: CollapseMonitor | None = None,
        step: Callable[[], int] | None = None,
        probe: Probe | None = None,
    ) -> None:
        self._monitor, self._step, self._probe = monitor, step, probe

    def __reduce__(self) -> tuple[type[_Watcher], tuple[()]]:
        return _Watcher, ()

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> None:
        if self._monitor is None or not torch.is_grad_enabled() or not module.training:
            return
        inputs = [*args, *(kwargs[name] for name in ("embeddings", "labels") if name in kwargs)]
        last = getattr(module, "last", None)
        record = last if isinstance(last, StepStats) else None
        self._monitor.update(
            inputs[0] if inputs else (),  # type: ignore[arg-type]  # what is no tensor is warned of
            inputs[1] if len(inputs) > 1 else None,
            value if isinstance(value, Tensor | float) else None,
            active=None if record is None else lambda: record.active_fraction,
            step=None if self._step is None else self._step(),
            probe=self._probe,
        )
