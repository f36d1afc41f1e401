"""What the guard of a run decides on an event: warn, stop, or which repair; `job` carries it out. And its state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from trivet.collapse.monitor import ALARMS, CollapseMonitor, Event
from trivet.collapse.probe import Probe, ProbeResult
from trivet.collapse.thresholds import THRESHOLDS
from trivet.distances import Array
from trivet.training.config import GuardAction, RunConfig
from trivet.training.repairs import TRAINED, Repair, difference, repaired, with_changes

AT_ONCE, SOON = 0.05, 20  # of the steps, and at least so many, within which a loss came at once


class Guard:
    """What was seen of a run, and what was done about it. A checkpoint keeps its state.

    Attributes:
        class_sizes: training items of each class.
        given: the settings of the user, which repairs leave as they are.
        asked: whether a repair was asked for when the run was resumed, whatever the settings say.
        monitor: of the attempt that goes on.
        repairs: those made so far.
        abandoned: what the monitor saw of each attempt before a repair.
        unrepaired: events that were to be repaired and were not: {"step", "kind", "why"}.
        pending: the event that the next repair is for.
        held: the attempt with the best call of the probe so far, and what that showed; None before one.
        weights: of the network then; empty unless repairs may be made.
        kept: the attempt whose network is the result, as the last one ended worse; None if that is the last.
        undone: [first, end] for each attempt that was kept: the repairs whose changes no attempt from `end` on has.
    """

    def __init__(self, given: RunConfig, class_sizes: Sequence[int]) -> None:
        self.given, self.class_sizes = given, class_sizes
        self.asked = False
        self.repairs: list[Repair] = []
        self.monitor = self._new_monitor()
        self.abandoned: list[dict[str, Any]] = []
        self.unrepaired: list[dict[str, Any]] = []
        self.pending: Event | None = None
        self.held: tuple[int, ProbeResult] | None = None
        self.weights: dict[str, Tensor] = {}
        self.kept: int | None = None
        self.undone: list[list[int]] = []
        self._asked: dict[str, Tensor] | None = None

    def _new_monitor(self) -> CollapseMonitor:
        """That of an attempt, which goes on from where the last repair returned to."""
        return CollapseMonitor(every=self.given.guard.every, steps=self.given.training.num_steps - self.since)

    def watching(self, ask: Probe, model: nn.Module) -> Probe:
        """The probe, and a copy of the network each time it is asked, where repairs may be made: it may be the best."""

        def asked() -> Sequence[Array]:
            if self.action == "repair":
                self._asked = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
            return ask()

        return asked

    def hold(self) -> None:
        """Keep the network that was just asked, if it is the best so far."""
        best = self.monitor.probing.best
        if self._asked is None or best is None:
            return
        newest = self.monitor.probing.last or self.monitor.probing.reference
        if best is newest and (self.held is None or best.score > self.held[1].score):
            self.held, self.weights = (self.attempt, best), self._asked
        self._asked = None

    def judged(self) -> str | None:
        """Note as `kept` the attempt of the best network held, if the one just asked, at the end, is behind it.

        Returns a line that says so; None where the last network stays.
        """
        probing = self.monitor.probing
        if self.held is None or probing.last is None or not probing.behind(self.held[1]):
            return None
        self.kept, best = self.held
        self.undone.append([self.kept, self.attempt])
        attempt = self.kept
        return (
            f"the network of step {best.step} is kept, before repair {attempt + 1}"
            if attempt < self.attempt
            else f"the network of step {best.step} is kept"
        ) + (
            f": recall@1 of {probing.items} held-out items is {100 * best.score:.1f} % with it, and "
            f"{100 * probing.last.score:.1f} % at the end"
        )

    @property
    def action(self) -> GuardAction:
        """What to do about an event."""
        return "repair" if self.asked else self.given.guard.action

    @property
    def attempt(self) -> int:
        """From 0; each repair begins another."""
        return len(self.repairs)

    @property
    def since(self) -> int:
        """The step at which this attempt began."""
        return self.repairs[-1].returned_to if self.repairs else 0

    @property
    def settings(self) -> RunConfig:
        """The settings in force."""
        return self._settings_of(self.attempt)

    @property
    def healthy(self) -> int:
        """The last step at which nothing was suspicious; after an event, that to which it may be repaired."""
        events, series = self.monitor.events, self.monitor.series
        if events:
            return self._latest(self.pending or events[0])
        calm = ALARMS["healthy"].value
        looks = zip(series["step"], series["risk"], strict=False)
        return max((int(step) for step, risk in looks if not risk >= calm), default=self.since)

    def _latest(self, event: Event) -> int:
        # An attempt that was unhealthy from its first look on began at a checkpoint that was so, too.
        return event.healthy if event.healthy > self.since or not self.since else self.since - 1

    def _changed_before(self, attempt: int) -> dict[str, Any]:
        """Setting -> value of what repairs before an attempt changed; None for a setting that is gone."""
        undone = {place for first, end in self.undone if end <= attempt for place in range(first, end)}
        counted = [repair for place, repair in enumerate(self.repairs[:attempt]) if place not in undone]
        return {name: new for repair in counted for name, (_, new) in repair.changes.items()}

    def _settings_of(self, attempt: int) -> RunConfig:
        return with_changes(self.given, self._changed_before(attempt))

    def _best_attempt(self) -> int:
        """The last attempt, or the latest whose best call of the probe after its start beats that by more than chance.

        More than chance: two standard errors of the difference of two shares. Without a probe it is the last one.
        """
        shares = []
        for place, seen in enumerate([*self.abandoned, self.monitor.as_json()]):
            probe = seen.get("probe") or {"items": 1, "series": {}}
            names = [n for n in ("fine_recall", "recall") if any(v is not None for v in probe["series"].get(n, []))]
            values = probe["series"][names[0]] if names else []
            share = max(values[1 if place == 0 else 0 :], default=0.0)
            shares.append((share, share * (1 - share) / probe["items"]))
        chosen = len(shares) - 1
        for place in range(chosen - 1, -1, -1):
            gain = shares[place][0] - shares[chosen][0]
            if gain > 2 * math.sqrt(shares[place][1] + shares[chosen][1]):
                chosen = place
        return chosen

    def plan(self, event: Event, checkpoints: Sequence[int]) -> Repair | str:
        """The repair for an event, or why there is none.

        Args:
            checkpoints: the steps of which there is one.
        """
        if self.attempt >= self.given.guard.max_repairs:
            return f"guard.max_repairs = {self.given.guard.max_repairs} repairs were made"
        latest = self._latest(event)
        if self._at_once(event):
            latest = 0
        returned_to = max((step for step in checkpoints if step <= latest), default=None)
        if returned_to is None:
            return f"there is no healthy checkpoint (at step {latest} or before)"
        probing = self.monitor.probing
        repair = repaired(
            self._settings_of(self._best_attempt()),
            event.kind,
            self.repairs,
            attempts=[self._settings_of(attempt) for attempt in range(self.attempt + 1)],
            class_sizes=self.class_sizes,
            probed=probing.reference is not None,
            at_once=self._at_once(event),
            wrong_labels=probing.best is not None and probing.best.strangers > THRESHOLDS["strangers"].value,
        )
        if repair is None:
            return "no change that may help is left"
        new, _, why = repair
        return Repair(event.step, returned_to, event.kind, difference(self.settings, new), why)

    def _at_once(self, event: Event) -> bool:
        """Whether a probe saw it within the first steps: then it began with the first."""
        within = event.step <= max(SOON, AT_ONCE * self.given.training.num_steps)
        return self.monitor.probing.reference is not None and within and event.kind in TRAINED

    def refused(self, step: int) -> list[Event]:
        """Note that the loss took no embeddings at a step, as they were not finite; returns the event if it is new."""
        if any(event.kind == "not-finite" for event in self.monitor.events):
            return []
        event = Event(
            step,
            "not-finite",
            {},
            "embeddings are not finite",
            ("Lower the learning rate, or warm it up.", "Clip the norm of the gradient.", "Check for corrupt inputs."),
            None,
            self.healthy,
        )
        self.monitor.events.append(event)
        return [event]

    def begin(self, repair: Repair) -> None:
        """Note a repair; a new monitor watches from here on."""
        self.abandoned.append(self.monitor.as_json())
        self.repairs.append(repair)
        self.pending = None
        self._watch_anew()

    def go_on(self) -> None:
        """Training goes on from the attempt that was kept; what the monitor saw of the last one does not count."""
        self._watch_anew()

    def _watch_anew(self) -> None:
        self.kept = None
        probing = self.monitor.probing.begin_again()
        self.monitor = self._new_monitor()
        self.monitor.probing = probing

    def leave(self, event: Event, why: str) -> str:
        """Note that an event is not repaired; returns a line that says so."""
        self.unrepaired.append({"step": event.step, "kind": event.kind, "why": why})
        return f"not repaired: {event_line(event)}; {why}"

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs, as JSON."""
        return {
            "asked": self.asked,
            "repairs": [repair.as_json() for repair in self.repairs],
            "abandoned": self.abandoned,
            "unrepaired": self.unrepaired,
            "pending": None if self.pending is None else self.pending.as_json(),
            "held": None if self.held is None else [self.held[0], self.held[1].as_json()],
            "kept": self.kept,
            "undone": self.undone,
            "monitor": self.monitor.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`; an empty one, of a checkpoint without a guard, changes nothing."""
        if not state:
            return
        self.repairs = [Repair.from_json(repair) for repair in state["repairs"]]
        self.abandoned, self.unrepaired = list(state["abandoned"]), list(state["unrepaired"])
        self.pending = None if state["pending"] is None else _event(state["pending"])
        self.asked = state["asked"]
        held = state.get("held")  # not in the checkpoints of a run before there was a probe
        self.held = None if held is None else (held[0], ProbeResult.from_json(held[1]))
        self.kept = state.get("kept")
        before = [] if self.kept is None else [[self.kept, self.attempt]]  # of a checkpoint that does not say
        self.undone = [list(places) for places in state.get("undone", before)]
        self.monitor = self._new_monitor()
        self.monitor.load_state_dict(state["monitor"])

    def as_json(self) -> dict[str, Any]:
        """The section "guard" of a record: {"action", "repairs", "settings", "not_repaired", "kept"}."""
        return {
            "action": self.action,
            "repairs": [repair.as_json() for repair in self.repairs],
            "settings": self._changed_before(self.attempt),
            "not_repaired": self.unrepaired,
            "kept": None
            if self.kept is None or self.held is None
            else {"attempt": self.kept, "step": self.held[1].step},
        }

    def seen(self) -> dict[str, Any]:
        """The section "monitor" of a record: {"attempts": [{"series", "events", "forecast"}, ...]}."""
        return {"attempts": [*self.abandoned, self.monitor.as_json()]}


def _event(values: Mapping[str, Any]) -> Event:
    evidence = {name: math.nan if value is None else value for name, value in values["evidence"].items()}
    return Event(**{**values, "evidence": evidence, "changes": tuple(values["changes"])})


def event_line(event: Event) -> str:
    """An event in one line."""
    return f"{event.kind.replace('-', ' ')} detected at step {event.step}: {event.rule}"
