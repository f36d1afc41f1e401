"""The monitor: while a network trains, is it on its way to collapse, and since which step?"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from trivet.collapse.advice import class_advice, harm_advice, network_advice
from trivet.collapse.diagnosis import THRESHOLDS, Threshold
from trivet.collapse.forecast import Forecast, forecast, settled
from trivet.collapse.probe import FINER, Look, Probe, Probing
from trivet.collapse.result import FLOOR
from trivet.collapse.running import COMPARED, RUNNING, compared_measures, running_measures
from trivet.rows.record import StepRecord

EventKind = Literal["network-collapse", "class-collapse", "harm", "dead-sampler", "exploding-norm", "not-finite"]
SERIES = ("step", *RUNNING, "loss", *COMPARED, "active", "risk")
"""What is kept of each look, in this order; `risk` is the probability of the forecast at that look."""

_CHOSEN = "chosen on the selection runs of benchmarks/gauntlet.py"
ALARMS: dict[str, Threshold] = {
    "risk": Threshold(0.8, "risk", "at least, at two consecutive checks: the network is about to collapse", _CHOSEN),
    "healthy": Threshold(0.5, "risk", "below: not suspicious, so a repair may return here", "our choice"),
    "lost": Threshold(
        0.12, "fine_recall", "lost since its best, beyond three standard errors: tight classes collapse", _CHOSEN
    ),
    "tight": Threshold(
        0.5, "within_between", "below: distances within classes are small compared with those between", _CHOSEN
    ),
    "doubt": Threshold(
        0.06, "fine_recall", "lost since its best, beyond two standard errors: ask the probe", "half of lost"
    ),
    "fall": Threshold(0.1, "recall", "lost in the batches since its best: ask the probe", "our choice, set in advance"),
    "halved": Threshold(
        0.5, "relative_spread", "of the probe, over that at the start, below: it narrows", "our choice, set in advance"
    ),
    "unlearned": Threshold(
        100, "updates", "at least, with three calls of the probe at chance: nothing is learned", "our choice"
    ),
    "dead": Threshold(
        5, "looks", "consecutive checks at which almost no term has a gradient: the sampler is dead", "our choice"
    ),
}
"""Name -> threshold of the monitor's own rules; the others are those of `THRESHOLDS`."""
MEASURED = 5  # updates whose median a look is
SMALL = 2**16  # numbers of a batch up to which it is kept and measured with others
RARER = 300  # updates after which looks are rarer by `every`, up to three times: what comes late comes slowly
CALM = 5  # looks that are judged together where classes are: few items of a batch share a fine class
DOUBTS = 2  # standard errors that are enough to ask the probe
ERRORS = 3  # standard errors beyond which a loss of fine recall is none of chance, though many looks are asked
FIRST = 4  # optimiser steps before which no look is judged: the first steps of an optimiser shake every network


@dataclass(frozen=True)
class Event:
    """Something went wrong, or is about to.

    Attributes:
        step: optimiser steps done when it was seen.
        kind: what it is.
        evidence: measure -> value, those the event rests on.
        rule: the comparison that decided, in words with its numbers.
        changes: one to three things to change, the most effective first.
        forecast: probability of a collapse of the network by the end of the run, in [0, 1]; None without a forecast.
        healthy: optimiser steps done when nothing was suspicious last; a repair returns there.
    """

    step: int
    kind: EventKind
    evidence: dict[str, float]
    rule: str
    changes: tuple[str, ...]
    forecast: float | None
    healthy: int

    def as_json(self) -> dict[str, Any]:
        """The fields; None where a number is not finite."""
        return dataclasses.asdict(self) | {
            "evidence": {name: _finite(value) for name, value in self.evidence.items()},
            "changes": list(self.changes),
        }


class _Batch(NamedTuple):
    embeddings: Tensor
    labels: Tensor | None
    fine: Tensor | None

    @property
    def kind(self) -> tuple[torch.Size, torch.device, bool, bool]:
        return self.embeddings.shape, self.embeddings.device, self.labels is None, self.fine is None


class CollapseMonitor:
    """Watch the batches of a training loop, with any loss, and say when they begin to collapse.

    An update notes the loss, and whether all numbers are finite, on the device. The last five before a look are
    measured in O(N d), small ones all at once; a look reads that back, with what needs the distances of at most 256
    rows, and asks the rules of `ALARMS`. The looks depend on the number of updates alone, so a run that is repeated or
    resumed has the same.

    Batches are of training items, and of networks in training mode: what they suggest need not be so. With a probe of
    held-out items they only raise a suspicion, and the probe decides: see `trivet.collapse.probe.Probing`, and
    docs/collapse.md for the rules. Without one the monitor judges by the batches alone, and cannot see harm.

    Args:
        every: updates between two looks, up to the 300th; then twice, and from the 600th on three times as many. The
            first `every` updates are all looked at.
        steps: updates of the whole run, if known: a probe is then asked no less often than at each quarter of it.
        on_event: called with each event.
        log: called at each look with (measures, step), as the `log_metrics` of a logger.

    Attributes:
        events: all so far; a kind is reported once.
        series: name -> values, one for each look; names are `SERIES`.
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
        on_event: Callable[[Event], None] | None = None,
        log: Callable[[Mapping[str, float], int], None] | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, the updates between checks: got {every}.")
        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, the updates of the whole run, or None: got {steps}.")
        self.every, self.steps = every, steps
        self.events: list[Event] = []
        self.series: dict[str, list[float]] = {name: [] for name in SERIES}
        self._on_event, self._log = on_event, log
        self._updates = 0
        self._losses: list[Tensor] = []  # of the updates since the last look
        self._totals: list[Tensor] = []  # of their embeddings: not finite where one of these is not
        self._measured: list[Tensor] = []  # running measures of the updates just before a look
        self._waiting: list[_Batch] = []  # small ones that are yet to be measured
        self._width: int | None = None
        self._best = (0.0, 0.0, 0.0)  # the best fine recall so far, its standard error, and its step
        self._top = 0.0  # the best recall of the batches so far
        self._said: set[str] = set()
        self.probing = Probing()
        self._faulty = False  # whether the probe failed: it is not asked again

    def begin(self, probe: Probe, *, step: int = 0) -> None:
        """Ask the probe now, before anything is trained; without this, the first update does.

        Args:
            probe: see `update`.
            step: optimiser steps done.
        """
        if self.probing.reference is None and not self._faulty:
            self._ask(probe, step)

    def update(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        loss: Tensor | float | None = None,
        *,
        fine: Tensor | None = None,
        active: Callable[[], float] | float | None = None,
        step: int | None = None,
        probe: Probe | None = None,
    ) -> list[Event]:
        """See a batch, before the optimiser's step; returns the events it brought.

        Args:
            embeddings: `(N, d)`, as the loss got them; no gradient is kept.
            labels: `(N,)` integer.
            loss: of this batch.
            fine: `(N,)` integer: classes inside the classes, by which a class collapse is seen.
            active: share of the terms of the loss that are not zero, or what gives it when there is a look.
            step: optimiser steps done before this batch. Default: the updates before it.
            probe: gives `(embeddings, labels)`, or `(embeddings, labels, fine)`, of some hundred held-out items, the
                same each time, in evaluation mode and without gradients. It is called at the first update and where
                there is a suspicion; over many steps that costs at most 2 % of them.
        """
        step = self._updates if step is None else step
        self._updates += 1
        if probe is not None:
            self.begin(probe, step=step)
        probe = None if self._faulty else probe
        before = len(self.events)
        looked = False
        try:
            if self._usable(embeddings, labels, fine, step):
                self._note(embeddings, loss)
                left = self._left()
                if left < MEASURED:
                    with torch.autocast(embeddings.device.type, enabled=False):  # distances need all their digits
                        self._keep(embeddings, labels, fine)
                        if not left:
                            self._look(embeddings, labels, fine, active, step, probe)
                            looked = True
        except Exception as error:  # a fault of the monitor must not end the training that it watches
            self._say(f"the collapse monitor could not use a batch: {type(error).__name__} at step {step}: {error}.")
        if looked and self._log is not None:
            self._log({name: values[-1] for name, values in self.series.items() if name != "step"}, step)
        events = self.events[before:]
        if self._on_event is not None:
            for event in events:
                self._on_event(event)
        return events

    def watch(
        self, loss: nn.Module, *, step: Callable[[], int] | None = None, probe: Probe | None = None
    ) -> torch.utils.hooks.RemovableHandle:
        """Update whenever `loss(embeddings, labels)` is called in training; `.remove()` the handle to end that.

        Args:
            loss: any module whose first two arguments are `(N, d)` embeddings and `(N,)` labels, and that returns its
                value. Calls without gradients, as in an evaluation, are not seen. Nor are those of a copy of the loss,
                made by `copy` or `pickle`.
            step: gives the optimiser steps done. Default: the calls so far.
            probe: see `update`.
        """
        return loss.register_forward_hook(_Watcher(self, step, probe), with_kwargs=True)

    def forecast(self) -> Forecast | None:
        """How the run will end, as far as its steps so far tell; None before there are enough, or without labels."""
        return forecast(self.series)

    def as_json(self) -> dict[str, Any]:
        """{"series", "events", "forecast", "probe"} for a record; None where a number is not finite."""
        ahead = self.forecast()
        return {
            "series": {name: [_finite(value) for value in values] for name, values in self.series.items()},
            "events": [event.as_json() for event in self.events],
            "forecast": None if ahead is None else ahead.as_json(),
            "probe": self.probing.as_json(),
        }

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, of plain numbers, texts, lists and dicts that JSON can hold."""
        self._measure()
        return {
            "updates": self._updates,
            "width": self._width,
            "best": list(self._best),
            "top": self._top,
            "probing": self.probing.state_dict(),
            "faulty": self._faulty,
            "said": sorted(self._said),
            "series": {name: [_finite(value) for value in values] for name, values in self.series.items()},
            "losses": [_finite(float(value)) for value in self._losses],
            "totals": [_finite(float(value)) for value in self._totals],
            "measured": [[_finite(value) for value in row.tolist()] for row in self._measured],
            "events": [event.as_json() for event in self.events],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._updates, self._width = state["updates"], state["width"]
        self._best = (state["best"][0], state["best"][1], state["best"][2])
        self._said = set(state["said"])
        if "probing" in state:  # not in that of a run before there was a probe
            self._top, self._faulty = state["top"], state["faulty"]
            self.probing.load_state_dict(state["probing"])
        self.series = {name: [_number(value) for value in values] for name, values in state["series"].items()}
        self._losses, self._totals = (
            [torch.tensor(_number(value)) for value in state.get(name, [])] for name in ("losses", "totals")
        )
        self._measured = [torch.tensor([_number(value) for value in row]) for row in state.get("measured", [])]
        self.events = [
            Event(
                **{
                    **event,
                    "evidence": {name: _number(value) for name, value in event["evidence"].items()},
                    "changes": tuple(event["changes"]),
                }
            )
            for event in state["events"]
        ]

    def _usable(self, embeddings: Tensor, labels: Tensor | None, fine: Tensor | None, step: int) -> bool:
        if not isinstance(embeddings, Tensor) or embeddings.ndim != 2 or not embeddings.is_floating_point():
            shape = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
            self._say(f"embeddings must be floating point of shape (N, d): got {shape}; this batch is skipped.")
            return False
        if len(embeddings) < 2:
            self._say(f"a batch must hold at least two items: got {len(embeddings)}; this batch is skipped.")
            return False
        for name, values in (("labels", labels), ("fine", fine)):
            if values is not None and (not isinstance(values, Tensor) or values.shape != embeddings.shape[:1]):
                shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                self._say(
                    f"{name} must be a tensor of one class per embedding: got {shape} for {len(embeddings)} "
                    "embeddings; this batch is skipped."
                )
                return False
        if labels is None:
            self._say(
                "the monitor needs labels to forecast a collapse: got none; only spread, norm and loss are watched."
            )
        if self._width not in (None, embeddings.shape[1]):
            self._say(
                f"embeddings must keep their size: got {embeddings.shape[1]} numbers each at step {step} after "
                f"{self._width}; the monitor starts over."
            )
            self.series = {name: [] for name in SERIES}
            self._losses, self._totals, self._measured, self._waiting = [], [], [], []
            self._best, self._top = (0.0, 0.0, 0.0), 0.0
        self._width = embeddings.shape[1]
        return True

    def _note(self, embeddings: Tensor, loss: Tensor | float | None) -> None:
        """Keep what is needed of a batch without a look, on its device."""
        self.probing.count(len(embeddings))
        self._totals.append(embeddings.detach().sum(dtype=torch.float32))
        if loss is not None:
            self._losses.append(loss.detach().clone() if isinstance(loss, Tensor) else torch.tensor(loss))

    def _left(self) -> int:
        """Updates until the next look; 0 for one that is looked at."""
        gap = self.every * min(3, 1 + self._updates // RARER)
        return 0 if len(self.series["step"]) < self.every else -self._updates % gap

    def _keep(self, embeddings: Tensor, labels: Tensor | None, fine: Tensor | None) -> None:
        """Measure a batch, or, as some cost little more than one, keep a copy of a small one until the next look."""
        labels, fine = (None if values is None else values.to(embeddings.device) for values in (labels, fine))
        if embeddings.numel() > SMALL:
            self._measure()
            self._measured.append(running_measures(embeddings, labels, fine))
        else:
            points = embeddings.detach().to(torch.float32, copy=True)
            levels = (None if values is None else values.to(torch.int64, copy=True) for values in (labels, fine))
            self._waiting.append(_Batch(points, *levels))

    def _measure(self) -> None:
        """Measure the batches that were kept, at once if they are of one kind."""
        waiting, self._waiting = self._waiting, []
        alike = len({one.kind for one in waiting}) == 1
        for group in [waiting] if alike else [[one] for one in waiting]:
            self._measured += running_measures(*map(_stacked, zip(*group, strict=True))).unbind()

    def _look(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        fine: Tensor | None,
        active: Callable[[], float] | float | None,
        step: int,
        probe: Probe | None,
    ) -> None:
        """Measure a batch, and judge."""
        device = embeddings.device
        labels, fine = (None if values is None else values.to(device) for values in (labels, fine))
        self._measure()
        running = torch.stack([row.to(device) for row in self._measured]).cpu().double()
        losses, totals = _read(self._losses, device), _read(self._totals, device)
        self._measured, self._losses, self._totals = [], [], []
        compared = [math.nan] * len(COMPARED)
        if labels is not None:
            compared = compared_measures(embeddings, labels, fine).tolist()
        share = active() if callable(active) else active
        last = math.nan if share is None else float(share)
        # Of some updates the median: a single odd batch is no news.
        seen, loss = running.nanmedian(dim=0).values.tolist(), float(losses.nanmedian())
        row = [float(step), *seen, loss, *compared, last]
        for name, number in zip(SERIES, row, strict=False):
            self.series[name].append(number)
        ahead = self.forecast()
        self.series["risk"].append(math.nan if ahead is None else ahead.probability)
        # The norm is not finite where an embedding is not.
        norms = running[:, RUNNING.index("norm")]
        finite = all(bool(values.isfinite().all()) for values in (losses, totals, norms))
        self._judge(step, not_finite=not finite, probe=probe)

    def _judge(self, step: int, *, not_finite: bool, probe: Probe | None = None) -> None:
        looks = len(self.series["step"])
        last = {name: values[-1] for name, values in self.series.items()}
        if not_finite:
            self._tell(
                step,
                "not-finite",
                {"loss": last["loss"], "norm": last["norm"]},
                "the loss or an embedding is not a finite number",
                (
                    "Lower the learning rate, or warm it up.",
                    "Clip the norm of the gradient.",
                    "Check the inputs for values that are not finite.",
                ),
            )
            return
        tail, scale = THRESHOLDS["norm"].value, THRESHOLDS["scale"].value
        norm, norm_tail = (settled(self.series[name], looks - 1) for name in ("norm", "norm_tail"))
        if norm_tail > tail or norm > scale:
            rule = f"largest norm {norm_tail:.3g} times the median, over {tail:g}"
            if norm > scale:
                rule = f"root mean square norm {norm:.3g}, over {scale:g}"
            self._tell(
                step,
                "exploding-norm",
                {"norm": norm, "norm_tail": norm_tail},
                rule,
                (
                    "Normalise the embeddings.",
                    "Lower the learning rate, or warm it up.",
                    "Clip the norm of the gradient.",
                ),
            )
        if step < FIRST:
            return
        inside, suspicious = self._lost_inside(), self._suspicious()
        if probe is None:
            self._judge_network(step)
            if inside is not None and not self._told("network-collapse"):
                self._judge_classes(step, *inside)
        elif self.probing.due(suspicious=suspicious or inside is not None or self.probing.fell, steps=self.steps):
            self._ask(probe, step)
            if not self._faulty and not self._told("network-collapse", "class-collapse", "harm"):
                self._judge_probe(step, doubted=inside is not None)
        self._judge_sampler(step, last)

    def _suspicious(self) -> bool:
        """Whether batches shrink, or lose the recall that they had."""
        recall = settled(self.series["recall"], len(self.series["step"]) - 1)
        if recall > self._top:
            self._top = recall
        return self.series["risk"][-1] >= ALARMS["healthy"].value or self._top - recall >= ALARMS["fall"].value

    def _accused(self) -> bool:
        """Whether the batches alone say that the network is about to collapse."""
        risk, limit = self.series["risk"], ALARMS["risk"].value
        return len(risk) > 1 and risk[-1] >= limit and risk[-2] >= limit

    def _ask(self, probe: Probe, step: int) -> None:
        """Ask the probe; one that fails is not asked again, and batches alone are judged from then on."""
        try:
            self.probing.ask(probe, step)
        except Exception as error:  # a fault of the probe must not end the training either
            self._faulty = True
            self._say(f"the probe could not be used: {type(error).__name__} at step {step}: {error}")

    def _judge_network(self, step: int) -> None:
        """By the batches alone: is the network about to collapse?"""
        risk, limit = self.series["risk"], ALARMS["risk"].value
        if not self._accused():
            return
        ahead = self.forecast()
        assert ahead is not None
        self._tell(
            step,
            "network-collapse",
            ahead.evidence,
            f"forecast of {100 * risk[-1]:.0f} %, at least {100 * limit:.0f} % at two consecutive checks: items "
            f"are {ahead.evidence['relative_spread']:.2g} times as far from their centre as from 0, and items of "
            "the same class "
            f"{ahead.evidence['within_between']:.2f} times as far apart as items of different classes",
            network_advice(None)[1],
        )

    def _judge_probe(self, step: int, *, doubted: bool) -> None:
        """By the probe, which was just asked, beside the start and the best of the run.

        Args:
            doubted: whether the batches lose what is inside their classes.
        """
        probing = self.probing
        now, start, best = probing.last, probing.reference, probing.best
        assert now is not None
        assert start is not None
        assert best is not None
        accused = self._accused()
        narrow = _narrow(now, start)
        stuck = self._stuck(now, start)
        beside_best = probing.beside(best, "the best step")
        lost, stays = probing.lost(), probing.stays_below(start)
        fallen = [one for one in beside_best if one.worse]
        inside = any(one.level == FINER for one in fallen) or any(
            one.comparison.level == FINER for one in probing.stays_below(best)
        )
        tight = now.within_between < ALARMS["tight"].value
        held_out = f"of {probing.items} held-out items"
        if narrow and (lost or (accused and (stuck or fallen or now.recall < start.recall + FLOOR))):
            self._tell(
                step,
                "network-collapse",
                _beside(now, start),
                f"{held_out}, which are {now.relative_spread:.2g} times as far from their centre as from 0, at the "
                f"start {start.relative_spread:.2g} times, recall@1 is {_change(now.recall, start.recall)}",
                network_advice(None)[1],
                healthy=start.step if _narrow(best, start) else best.step,
            )
        elif tight and ((inside and doubted) or any(one.comparison.level == FINER for one in stays)):
            self._tell(
                step,
                "class-collapse",
                _beside(now, best) | {"within_between": now.within_between},
                f"{held_out} recall@1 by the finer classes is {_change(now.fine_recall, best.fine_recall)} at step "
                f"{best.step}, and items of the same class are {now.within_between:.2f} times as far apart as items of "
                "different classes",
                class_advice(None)[1],
                healthy=best.step,
            )
        elif stays:
            named = " and ".join(
                f"{measure} by {one.level} is {_change(one.recall, one.reference_recall)} at the start (interval of "
                f"the difference {100 * one.low:+.1f} to {100 * one.high:+.1f} points)"
                for measure, one in stays
            )
            self._tell(
                step,
                "harm",
                _beside(now, start),
                f"{held_out} fewer find their class than at the start, at two calls of the probe in a row: {named}",
                harm_advice(),
                healthy=best.step,
            )
        else:
            self._judge_chance(step, now, best)

    def _stuck(self, now: Look, start: Look) -> bool:
        """Whether items stay at one point, or narrow and hardly told apart, for twice as many updates."""
        before, point = self.probing.before, THRESHOLDS["point"].value
        if before is None or self.probing.ahead(before):
            return False
        if max(now.relative_spread, before.relative_spread) < point:
            return now.relative_spread < 2 * before.relative_spread
        halfway = self.probing.chance + THRESHOLDS["halfway"].value * (1 - self.probing.chance)
        return _narrow(now, start) and _narrow(before, start) and now.recall < halfway

    def _judge_chance(self, step: int, now: Look, best: Look) -> None:
        """Whether the probe has never been better than chance, and does not become so."""
        if self._updates < ALARMS["unlearned"].value or len(self.probing.series["step"]) < 4:
            return
        high = self.probing.by_chance()
        if high is not None and best.recall <= high:
            self._tell(
                step,
                "harm",
                {"recall": now.recall, "chance_high": high},
                f"of {self.probing.items} held-out items recall@1 is {100 * now.recall:.1f} %, no better than chance, "
                f"which reaches {100 * high:.1f} %, and at no call of the probe was it better",
                harm_advice(),
                healthy=best.step,
            )

    def _lost_inside(self) -> tuple[float, float, bool] | None:
        """(fine recall of the batches now, at its best, lost for certain) where it was lost and classes are tight."""
        last = zip(self.series["fine_recall"][-CALM:], self.series["fine_items"][-CALM:], strict=True)
        known = [(share, items) for share, items in last if items > 0]
        if len(known) < CALM:
            return None
        items = sum(count for _, count in known)
        kept = sum(share * count for share, count in known) / items
        error = math.sqrt(kept * (1 - kept) / items)
        if kept - error > self._best[0] - self._best[1]:
            self._best = (kept, error, self.series["step"][-1])
        best, before, _ = self._best
        within, between = (settled(self.series[name], len(self.series["step"]) - 1) for name in ("within", "between"))
        # An embedding that shrinks to a point loses fine recall too, but its classes do not come apart.
        if not within < ALARMS["tight"].value * between:
            return None
        both = math.hypot(error, before)
        if best - kept <= max(ALARMS["doubt"].value, DOUBTS * both):
            return None
        return kept, best, best - kept > max(ALARMS["lost"].value, ERRORS * both)

    def _judge_classes(self, step: int, kept: float, best: float, certain: bool) -> None:
        """By the batches alone: have classes lost what is inside them?"""
        if not certain:
            return
        within, between = (settled(self.series[name], len(self.series["step"]) - 1) for name in ("within", "between"))
        self._tell(
            step,
            "class-collapse",
            {"fine_recall": kept, "best_fine_recall": best, "within_between": within / between},
            f"the nearest positive has the same finer class for {100 * kept:.1f} % of the items, down from "
            f"{100 * best:.1f} % (limit: {100 * ALARMS['lost'].value:.0f} points), and items of the same class are "
            f"{within / between:.2f} times as far apart as items of different classes",
            class_advice(None)[1],
            healthy=int(self._best[2]),
        )

    def _judge_sampler(self, step: int, last: Mapping[str, float]) -> None:
        looks = int(ALARMS["dead"].value)
        recent = self.series["active"][-looks:]
        if len(recent) < looks or not all(value < THRESHOLDS["active"].value for value in recent):
            return
        if not last["recall"] < THRESHOLDS["learned"].value:
            return
        self._tell(
            step,
            "dead-sampler",
            {"active": last["active"], "recall": last["recall"]},
            f"under {100 * THRESHOLDS['active'].value:.0f} % of the terms had a gradient at the last {looks} checks, "
            f"although the nearest item has the same class for only {100 * last['recall']:.1f} %",
            ("Use harder negatives, or a larger margin.", "Use all positives and negatives of a batch."),
            healthy=int(([0.0] + self.series["step"])[-looks - 1]),
        )

    def _tell(
        self,
        step: int,
        kind: EventKind,
        evidence: Mapping[str, float],
        rule: str,
        changes: tuple[str, ...],
        *,
        healthy: int | None = None,
    ) -> None:
        """Add an event, unless there is one of its kind; nothing was suspicious last where the risk was low."""
        if self._told(kind):
            return
        ahead = self.forecast()
        if healthy is None:
            looks = zip(self.series["step"][:-1], self.series["risk"], strict=False)
            healthy = max((int(then) for then, risk in looks if not risk >= ALARMS["healthy"].value), default=0)
        self.events.append(
            Event(
                step,
                kind,
                dict(evidence),
                rule,
                changes,
                None if ahead is None else ahead.probability,
                healthy,
            )
        )

    def _told(self, *kinds: EventKind) -> bool:
        return any(event.kind in kinds for event in self.events)

    def _say(self, sentence: str) -> None:
        kind = sentence.partition(":")[0]
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(sentence, stacklevel=4)


def _beside(now: Look, other: Look) -> dict[str, float]:
    """The numbers of a look and of an earlier one; without those that are not known."""
    found = {name: getattr(now, name) for name in ("recall", "fine_recall", "relative_spread")}
    found |= {f"{name}_at_step_{other.step}": getattr(other, name) for name in found}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _narrow(one: Look, start: Look) -> bool:
    """Whether items lie in a narrow cone, or in half of the one that they began in."""
    return one.relative_spread < max(ALARMS["halved"].value * start.relative_spread, THRESHOLDS["cone"].value)


def _change(now: float, before: float) -> str:
    return f"{100 * now:.1f} %, against {100 * before:.1f} %"


def _stacked(parts: Sequence[Tensor | None]) -> Any:
    """Tensors of one shape as one more; None of None."""
    known = [part for part in parts if part is not None]
    return torch.stack(known) if known else None


def _read(values: list[Tensor], device: torch.device) -> Tensor:
    """Numbers `(n,)` from a device, at once."""
    if not values:
        return torch.zeros(0, dtype=torch.float64)
    return torch.stack([value.to(device).float().reshape(()) for value in values]).cpu().double()


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

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        if self._monitor is None or not torch.is_grad_enabled() or not module.training:
            return
        given = [*args, *(kwargs[name] for name in ("embeddings", "labels") if name in kwargs)]
        last = getattr(module, "last", None)
        record = last if isinstance(last, StepRecord) else None
        self._monitor.update(
            given[0] if given else None,  # type: ignore[arg-type]  # what is no tensor is warned of
            given[1] if len(given) > 1 else None,
            value if isinstance(value, Tensor | float) else None,
            active=None if record is None else lambda: record.active_fraction,
            step=None if self._step is None else self._step(),
            probe=self._probe,
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
