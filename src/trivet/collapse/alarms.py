"""The rules by which checks of batches, and a probe, become events."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trivet.collapse.advice import class_advice, harm_advice, network_advice, norm_advice, not_finite_advice
from trivet.collapse.batch_measures import NEIGHBOR_MEASURES, SUM_MEASURES
from trivet.collapse.batch_risk import features, risk, settled
from trivet.collapse.forecast import forecast
from trivet.collapse.probe import FINER, Probe, ProbeResult, ProbeTracker
from trivet.collapse.significance import rank_biased_words
from trivet.collapse.strategy import SamplingStrategy
from trivet.collapse.thresholds import THRESHOLDS, Threshold, exploding_norm
from trivet.collapse.weight_motion import FirstWeights, WeightMotion
from trivet.runtime.json_numbers import json_section, with_nan
from trivet.runtime.text import event_title

EventKind = Literal["network-collapse", "class-collapse", "harm", "dead-sampler", "exploding-norm", "not-finite"]
SERIES = ("step", *SUM_MEASURES, "loss", *NEIGHBOR_MEASURES, "active", "risk")
"""What is kept of each check, in this order; `risk` is that of `trivet.collapse.batch_risk` at that check."""

_CHOSEN = "chosen on the selection runs of studies/gauntlet.py"
ALARMS: dict[str, Threshold] = {
    "risk": Threshold(0.8, "risk", "at least, at two consecutive checks: the network is about to collapse", _CHOSEN),
    "healthy": Threshold(0.5, "risk", "below: not suspicious", "our choice"),
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
    "dead": Threshold(
        5, "checks", "consecutive checks at which almost no term has a gradient: the sampler is dead", "our choice"
    ),
}
"""Name -> threshold of the monitor's own rules; the others are those of `THRESHOLDS`."""
ADD_PROBE = "Give the monitor a probe of held-out items (docs/collapse.md): only they can tell whether this is a loss."
CALM = 5  # checks that are judged together where classes are: few items of a batch share a fine class
DOUBTS = 2  # standard errors that are enough to ask the probe
ERRORS = 3  # standard errors beyond which a loss of fine recall is none of chance, though many checks are asked
FIRST = 4  # optimiser steps before which no check is judged: the first steps of an optimiser shake every network
FIRST_OF_SIDES = 20  # of pairs, by batches alone: until two networks met, positives lie as far apart as negatives


@dataclass(frozen=True)
class Event:
    """Something went wrong, or is about to.

    Attributes:
        step: optimiser steps done when it was seen.
        kind: what it is.
        evidence: measure -> value, those the event rests on.
        rule: the comparison that decided, in words with its numbers.
        changes: one to three things to change, the most effective first.
        forecast: probability of `trivet.collapse.forecast` at that step, in [0, 1]; None without a forecast.
        healthy: optimiser steps done when nothing was suspicious last.
        suspected: whether batches alone say so, which hold training items: only held-out ones can tell.
    """

    step: int
    kind: EventKind
    evidence: dict[str, float]
    rule: str
    changes: tuple[str, ...]
    forecast: float | None
    healthy: int
    suspected: bool = False

    @property
    def title(self) -> str:
        """Its kind and step, in words."""
        return event_title(self.kind, self.step, suspected=self.suspected)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Event:
        """Read what `as_json` gave."""
        return cls(**{**values, "evidence": with_nan(values["evidence"]), "changes": tuple(values["changes"])})


class Judge:
    """Judge of a run: its checks so far, and the verdicts of the rules of `ALARMS` on them.

    Args:
        steps: updates of the whole run, if known.
        strategy: how the training chooses, for the advice; None if that is not known.
        warn: called with a sentence where the probe cannot be used.

    Attributes:
        events: all so far; a kind is reported once.
        series: name -> values, one for each check; names are `SERIES`.
        updates: so far.
        probing: what the probe showed.
        fault: what the probe failed with, and at which step: it is not asked again.
        related: whether the labels of the last batch were another relation than classes.
        two_sided: whether the last batch had items of both sides of pairs.
        first_weights: those of the network as the run began, for the advice; None if it is not known.
    """

    def __init__(
        self,
        steps: int | None = None,
        *,
        strategy: SamplingStrategy | None = None,
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        self.steps, self._strategy, self._warn = steps, strategy, warn
        self.events: list[Event] = []
        self.updates, self._step = 0, 0  # updates, and the optimiser steps before the last check
        self.probing = ProbeTracker()
        self.fault: str | None = None
        self.related = self.two_sided = False
        self.first_weights: FirstWeights | None = None
        self.forget()

    @property
    def motion(self) -> WeightMotion | None:
        """Distance of the weights from those the run began with; None if that is not known."""
        try:
            return None if self.first_weights is None else self.first_weights.motion()
        except Exception:  # weights that cannot be read, such as those of a sharded network, say nothing
            return None

    def forget(self) -> None:
        """Begin the series anew."""
        self.series: dict[str, list[float]] = {name: [] for name in SERIES}
        self._best = (0.0, 0.0, 0.0)  # the best fine recall so far, its standard error, and its step
        self._top = 0.0  # the best recall of the batches so far

    def record(self, row: Sequence[float]) -> None:
        """Note what a check holds, in the order of `SERIES` without the last, which follows from it."""
        for name, value in zip(SERIES, row, strict=False):
            self.series[name].append(value)
        self.series["risk"].append(risk(features(self.series)))

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, as JSON."""
        names = ("updates", "_best", "_top", "fault", "series", "events")
        return json_section(**{name: getattr(self, name) for name in names}, probing=self.probing.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.updates, self._best, self._top = state["updates"], tuple(state["_best"]), state["_top"]
        self.fault, self.series = state["fault"], with_nan(state["series"])
        self.probing.load_state_dict(state["probing"])
        self.events = [Event.from_json(event) for event in state["events"]]

    def judge(self, step: int, *, not_finite: bool, probe: Probe | None = None) -> None:
        """Judge the last check; `self.events` has what it brings.

        Args:
            step: optimiser steps done before it.
            not_finite: whether the loss or an embedding was no finite number since the check before.
            probe: asked where there is a suspicion; without one the batches alone are judged.
        """
        self._step = step
        if not_finite:
            self._report(
                "not-finite",
                {name: self.series[name][-1] for name in ("loss", "norm")},
                "the loss or an embedding is not a finite number",
                not_finite_advice(self.motion),
            )
            return
        norms = self._now("norm", "norm_tail")
        if (rule := exploding_norm(**norms)) is not None:
            self._report(
                "exploding-norm",
                norms,
                rule,
                norm_advice(self.motion),
            )
        if step < FIRST:
            return
        inside, suspicious = self._lost_inside(), self._suspicious()
        if probe is None:
            self._judge_network()
            if inside is not None and all(event.kind != "network-collapse" for event in self.events):
                self._judge_classes(*inside)
        else:
            self.judge_probe(probe, step, suspicious=suspicious or inside is not None)
        self._judge_sampler()

    def judge_probe(self, probe: Probe, step: int, *, suspicious: bool = False) -> None:
        """Ask the probe if that is due, and judge it.

        Args:
            step: optimiser steps done.
            suspicious: whether batches are, so that it is due earlier.
        """
        if self.fault is None and self.probing.due(suspicious=suspicious or self.probing.fell, steps=self.steps):
            self._step = step
            self.measure_probe(probe, step)
            if self.fault is None:
                self._judge_probe()

    def close(self, probe: Probe | None, step: int) -> str | None:
        """Ask the probe for the last time and judge it; returns `closing()`.

        Args:
            step: optimiser steps done.
        """
        last = self.probing.last or self.probing.reference
        if probe is not None and self.fault is None and last is not None and last.step != step:
            self._step = step
            self.measure_probe(probe, step)
            if self.fault is None:
                self._judge_probe(ended=True)
        return self.closing()

    def closing(self) -> str | None:
        """Sentence on how held-out items ended, and why they were not judged to the end; None without a second call."""
        known = self.probing.closing()
        if known is not None:
            if self.probing.last is not None and self.probing.last.not_finite:
                known += " It ends with embeddings that are not finite."
            elif self.probing.collapse() is not None:
                known += " It ends as a network collapse."
            elif self._inside_lost(ended=True):
                known += " It ends as a class collapse."
        if self.fault is None:
            return known
        if known is None:
            return f"Held-out items were not judged: the probe failed, {self.fault}"
        return f"{known} Later steps were not judged: the probe failed, {self.fault}"

    def _now(self, *names: str) -> dict[str, float]:
        """Medians of the last checks."""
        return {name: settled(self.series[name], len(self.series["step"]) - 1) for name in names}

    def _suspicious(self) -> bool:
        """Return whether batches shrink, or lose the recall that they had."""
        recall = self._now("recall")["recall"]
        if recall > self._top:
            self._top = recall
        return self.series["risk"][-1] >= ALARMS["healthy"].value or self._top - recall >= ALARMS["fall"].value

    def _accused(self) -> bool:
        """Return whether the batches alone say that the network is about to collapse."""
        risks = self.series["risk"][-2:]
        return len(risks) > 1 and all(value >= ALARMS["risk"].value for value in risks)

    def measure_probe(self, probe: Probe, step: int) -> None:
        """Ask the probe; one that fails is not asked again, and batches alone are judged from then on."""
        try:
            self.probing.measure(probe, step)
        except Exception as error:  # a fault of the probe must not end the training either
            reason = " ".join(str(error).split()).rstrip(".")
            self.fault = f"{type(error).__name__} at step {step}: {reason}."
            self._warn(f"the probe could not be used: {self.fault}")

    def _judge_network(self) -> None:
        """By the batches alone: is the network about to collapse?"""
        if not self._accused() or (self.two_sided and self._step < FIRST_OF_SIDES):
            return
        evidence = features(self.series)
        assert evidence is not None
        evidence = self._now("relative_spread") | evidence
        positives, negatives, _ = pair_words(related=self.related)
        side = " of the narrower side" if self.two_sided else ""
        self._report(
            "network-collapse",
            evidence,
            f"risk of {100 * self.series['risk'][-1]:.0f} %, at least {100 * ALARMS['risk'].value:.0f} % at two "
            f"consecutive checks: items{side} are {evidence['relative_spread']:.2g} times as far from their centre as "
            f"from 0, and {positives} {evidence['within_between']:.2f} times as far apart as {negatives}",
            (ADD_PROBE, *self._network_changes()[:2]),
            suspected=True,
        )

    def _judge_probe(self, *, ended: bool = False) -> None:
        """By the probe, which was just asked, beside the start and the best of the run.

        No single call is enough. What the last two show is reported once of each kind, the gravest first: harm takes
        the place of a collapse that came back. While a run goes on, what rises again is waited for.
        """
        probing = self.probing
        now, start, best = probing.last, probing.reference, probing.best
        if now is None or start is None or best is None:
            return
        items_text = f"of {probing.items} held-out items"
        if now.not_finite:
            self._report(
                "not-finite",
                _evidence(now, start),
                f"{items_text} {now.not_finite} have embeddings that are not finite",
                not_finite_advice(self.motion),
                healthy=best.step,
            )
            return
        positives, negatives, _ = pair_words(related=now.by_chance is not None)
        collapse = probing.collapse()
        stays = probing.stays_below(start, ended=ended)
        if collapse is not None:
            self._report(
                "network-collapse",
                _evidence(now, start),
                f"{items_text}, at two calls of the probe in a row: {collapse}",
                self._network_changes(),
                healthy=best.step,
            )
        elif self._inside_lost(ended=ended):
            self._report(
                "class-collapse",
                _evidence(now, best) | {"within_between": now.within_between},
                f"{items_text} recall@1 by the finer classes is {_change(now.fine_recall, best.fine_recall)} at step "
                f"{best.step}, and {positives} are {now.within_between:.2f} times as far apart as {negatives}",
                class_advice(self._strategy)[1],
                healthy=best.step,
            )
        elif stays:
            target = "their class" if now.by_chance is None else "a positive"
            named = " and ".join(
                f"recall@1 by {comparison.level} is {_change(comparison.score, comparison.reference_score)} at the "
                f"start (99 % interval of the difference {100 * comparison.low:+.1f} to "
                f"{100 * comparison.high:+.1f} points{rank_biased_words(comparison.rank_biased)})"
                for comparison in stays
            )
            self._report(
                "harm",
                _evidence(now, start),
                f"{items_text} fewer find {target} than at the start, at two calls of the probe in a row: {named}",
                harm_advice(self.motion),
                healthy=best.step,
            )
        elif all(_is_point(result, start) for result in (probing.before, now)):
            self._report(
                "network-collapse",
                _evidence(now, start),
                f"{items_text} the relative spread is {now.relative_spread:.2g}, at the start "
                f"{start.relative_spread:.2g}; recall@1 is {_change(now.recall, start.recall)} at the start, so they "
                "are told apart still. A loss with a margin "
                "hardly sees such distances, and int8 or approximate search may not",
                self._network_changes(),
                healthy=best.step,
                suspected=True,
            )

    def _network_changes(self) -> tuple[str, ...]:
        """Changes to make against a collapse of the network."""
        pretrained = self.first_weights is not None and self.first_weights.pretrained
        return network_advice(self._strategy, self.motion, pretrained=pretrained)[1]

    def _inside_lost(self, *, ended: bool) -> bool:
        """Return whether, by the probe, tight classes lost what is inside them since the start or the best call."""
        probing = self.probing
        if probing.last is None or not probing.last.within_between < ALARMS["tight"].value:
            return False
        earlier = (probing.reference, probing.best)
        drops = [drop for other in earlier for drop in probing.stays_below(other, ended=ended)]
        return any(drop.level == FINER for drop in drops)

    def _lost_inside(self) -> tuple[float, float, bool] | None:
        """(fine recall of the batches now, at its best, lost for certain) where it was lost and classes are tight."""
        last = zip(self.series["fine_recall"][-CALM:], self.series["fine_items"][-CALM:], strict=True)
        known = [(share, items) for share, items in last if items > 0]
        if len(known) < CALM:
            return None
        items = sum(count for _, count in known)
        recall = sum(share * count for share, count in known) / items
        error = math.sqrt(recall * (1 - recall) / items)
        if recall - error > self._best[0] - self._best[1]:
            self._best = (recall, error, self.series["step"][-1])
        best, before, _ = self._best
        now = self._now("within", "between")
        # An embedding that shrinks to a point loses fine recall too, but its classes do not come apart.
        if not now["within"] < ALARMS["tight"].value * now["between"]:
            return None
        both = math.hypot(error, before)
        if best - recall <= max(ALARMS["doubt"].value, DOUBTS * both):
            return None
        return recall, best, best - recall > max(ALARMS["lost"].value, ERRORS * both)

    def _judge_classes(self, recall: float, best: float, certain: bool) -> None:
        """By the batches alone: have classes lost what is inside them?"""
        if not certain:
            return
        now = self._now("within", "between")
        ratio = now["within"] / now["between"]
        self._report(
            "class-collapse",
            {"fine_recall": recall, "best_fine_recall": best, "within_between": ratio},
            f"the nearest positive has the same finer class for {100 * recall:.1f} % of the items, down from "
            f"{100 * best:.1f} % (limit: {100 * ALARMS['lost'].value:.0f} points), and items of the same class are "
            f"{ratio:.2f} times as far apart as items of different classes",
            (ADD_PROBE, *class_advice(self._strategy)[1][:2]),
            healthy=int(self._best[2]),
            suspected=True,
        )

    def _judge_sampler(self) -> None:
        checks = int(ALARMS["dead"].value)
        recent, recall = self.series["active"][-checks:], self.series["recall"][-1]
        if len(recent) < checks or not all(value < THRESHOLDS["active"].value for value in recent):
            return
        if not recall < THRESHOLDS["learned"].value:
            return
        _, _, nearest = pair_words(related=self.related)
        self._report(
            "dead-sampler",
            {"active": recent[-1], "recall": recall},
            f"under {100 * THRESHOLDS['active'].value:.0f} % of the terms had a gradient at the last {checks} checks, "
            f"although {nearest} for only {100 * recall:.1f} %",
            ("Use harder negatives, or a larger margin.", "Use all positives and negatives of a batch."),
            healthy=int(([0.0] + self.series["step"])[-checks - 1]),
        )

    def _report(
        self,
        kind: EventKind,
        evidence: dict[str, float],
        rule: str,
        changes: tuple[str, ...],
        *,
        healthy: int | None = None,
        suspected: bool = False,
    ) -> None:
        """Add an event, unless one of its kind is as certain; nothing was suspicious last where the risk was low."""
        if any(event.kind == kind and (suspected or not event.suspected) for event in self.events):
            return
        ahead = forecast(self.series, self.steps)
        if healthy is None:
            checks = zip(self.series["step"][:-1], self.series["risk"], strict=False)
            healthy = max((int(then) for then, chance in checks if not chance >= ALARMS["healthy"].value), default=0)
        probability = None if ahead is None else ahead.probability
        self.events.append(Event(self._step, kind, evidence, rule, changes, probability, healthy, suspected))


def pair_words(*, related: bool) -> tuple[str, str, str]:
    """Words for pairs that belong together, those that do not, and a nearest item that does."""
    if related:
        return "positives", "negatives", "the nearest item is a positive"
    return "items of the same class", "items of different classes", "the nearest item has the same class"


def _evidence(now: ProbeResult, other: ProbeResult) -> dict[str, float]:
    """The numbers of a check and of an earlier one; without those that are not known."""
    values = {name: getattr(now, name) for name in ("recall", "fine_recall", "relative_spread")}
    values |= {f"{name}_at_step_{other.step}": getattr(other, name) for name in values}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _is_point(now: ProbeResult | None, start: ProbeResult) -> bool:
    """Return whether all items lie at one point, and less than half as far apart as they began."""
    if now is None:
        return False
    narrowed = now.relative_spread < THRESHOLDS["narrowed"].value * start.relative_spread
    return narrowed and now.relative_spread < THRESHOLDS["point"].value


def _change(now: float, before: float) -> str:
    return f"{100 * now:.1f} %, against {100 * before:.1f} %"
