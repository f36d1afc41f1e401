"""The guard of a run acts on what its monitor reports: warn, stop, or go back and change the fewest settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any

from torch import Tensor, nn

from trivet.collapse.diagnosis import THRESHOLDS
from trivet.collapse.monitor import ALARMS, CollapseMonitor, Event, EventKind
from trivet.collapse.probe import Look, Probe
from trivet.geometry import Array
from trivet.training.config import GuardAction, RunConfig

MARGIN = 0.2  # the least that a repair sets, in the unit of the distance
FAST, RATE = 0.01, 1e-3  # a learning rate above the first is lowered to the second, at least tenfold, before all else
FINE_TUNING = 3e-5  # the highest rate that a repair leaves to a pretrained network under Adam, as in examples/
FLAT, WIDE = 8, 32  # dimensions: fewer than the first are made the second
FEWEST, SAMPLES = 4, 8  # of a class in a batch, for easy positives: so that there is a choice, and a good one
MANY = 50  # items of a class, from which on it may hold more than one thing
SMALL, LARGE = 64, 128  # items of a batch, up to which it is filled with more of each class, or with more classes
WARMUP = 0.05  # of the steps
AT_ONCE, SOON = 0.05, 20  # of the steps, and at least so many, within which a loss came at once

Settings = dict[str, Any]
"""All settings of a run as its TOML file has them: section -> key -> value."""


@dataclass(frozen=True)
class Repair:
    """A return to a checkpoint with other settings.

    Attributes:
        step: optimiser steps done when the event was seen.
        returned_to: the step of the checkpoint.
        kind: what the event was.
        changes: setting -> [old, new], named section.key; None where a setting is absent.
        why: a sentence.
    """

    step: int
    returned_to: int
    kind: EventKind
    changes: dict[str, list[Any]]
    why: str

    def as_json(self) -> dict[str, Any]:
        """The fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Repair:
        """What `as_json` gave."""
        return cls(**values)


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
        self.held: tuple[int, Look] | None = None
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
        return with_changes(self.given, self.changed())

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

    def changed(self) -> dict[str, Any]:
        """Setting -> value of what repairs changed; None for a setting that is gone."""
        return self._changed_before(self.attempt)

    def _changed_before(self, attempt: int) -> dict[str, Any]:
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
        changes = _difference(_settings(self.settings), _settings(new))
        return Repair(event.step, returned_to, event.kind, changes, why)

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
        return f"not repaired: {said(event)}; {why}"

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
        self.held = None if held is None else (held[0], Look.from_json(held[1]))
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
            "settings": self.changed(),
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


def said(event: Event) -> str:
    """An event in one line."""
    return f"{event.kind.replace('-', ' ')} detected at step {event.step}: {event.rule}"


def changes_said(repair: Repair) -> str:
    """The changes of a repair in one line."""
    return in_words(repair.changes)


def in_words(changes: Mapping[str, Sequence[Any]]) -> str:
    """Setting -> [old, new] in one line."""
    return ", ".join(
        f"{name} removed" if new is None else f"{name} = {json.dumps(new, ensure_ascii=False)}"
        for name, (_, new) in changes.items()
    )


def with_changes(config: RunConfig, changed: Mapping[str, Any]) -> RunConfig:
    """The settings with others in place of some.

    Args:
        changed: section.key -> value, None to leave the setting out.

    Raises:
        ValueError: if they do not go together.
    """
    if not changed:
        return config
    values = _settings(config)
    for name, value in changed.items():
        section, _, key = name.partition(".")
        if value is None:
            values.get(section, {}).pop(key, None)
        else:
            values.setdefault(section, {})[key] = value
    values = {name: section for name, section in values.items() if section != {}}
    return type(config).parse(values, source="the settings after a repair")


def repaired(
    config: RunConfig,
    kind: EventKind,
    done: Sequence[Repair],
    *,
    class_sizes: Sequence[int],
    attempts: Sequence[RunConfig] = (),
    probed: bool = False,
    at_once: bool = False,
    wrong_labels: bool = False,
) -> tuple[RunConfig, dict[str, list[Any]], str] | None:
    """The least change of the settings that may prevent an event, by the ladder of its kind.

    Where the cause shows, what removes it comes first: cleaning where labels are wrong, and where it all happened at
    once to a network that begins pretrained, smaller steps. A network that begins random has nothing to lose then, and
    collapses at once by what is chosen, not by the steps.

    The first rung that applies to the settings as they are is taken. One that makes settings which are refused, do not
    fit the classes or are those of an earlier attempt is passed over, and one that was taken for such an event before
    comes last.

    Args:
        config: the settings in force.
        done: the repairs made so far.
        class_sizes: training items of each class.
        attempts: the settings of the attempts so far, each of which came to an event.
        probed: whether a probe judges the attempts: then the positives are changed alone before the loss is.
        at_once: whether the network collapsed or lost what it knew within the first steps.
        wrong_labels: whether held-out items lie among items of one other class.

    Returns:
        The new settings, what is different, setting -> [old, new], and why, a sentence; None if no rung is left.
    """
    tried = {repair.why for repair in done if repair.kind == kind}
    again = None
    seen = [_settings(config), *map(_settings, attempts)]
    first = [_cleaned] if wrong_labels and kind in TRAINED else []
    first += [_frozen_statistics, _slower] if at_once and kind in TRAINED and _begun(config) else []
    for rung in (*first, *LADDERS[kind]):
        if rung in TENTATIVE and not probed:
            continue
        values = _settings(config)
        why = rung(values, class_sizes)
        new = None if why is None else _usable(type(config), values, class_sizes)
        if why is None or new is None or _settings(new) in seen:
            continue
        found = new, _difference(_settings(config), _settings(new)), why
        if why not in tried:
            return found
        again = again or found
    return again


def _usable(kind: type[RunConfig], values: Settings, class_sizes: Sequence[int]) -> RunConfig | None:
    """The settings that a rung made; None if they are refused, or ask for more classes or items of one than there are.

    Batches that need positives need two items of each class.
    """
    try:
        config = kind.parse(values, source="the settings after a repair")
    except ValueError:
        return None
    enough = config.batch.needed_classes <= len(class_sizes) and (min(class_sizes) > 1 or not config.needs_positives)
    return config if enough else None


def _settings(config: RunConfig) -> Settings:
    return config.model_dump(mode="json", exclude_none=True)


def _difference(old: Settings, new: Settings) -> dict[str, list[Any]]:
    found = {}
    for section in {**old, **new}:
        before, after = old.get(section, {}), new.get(section, {})
        if isinstance(before, dict):
            for key in {**before, **after}:
                if before.get(key) != after.get(key):
                    found[f"{section}.{key}"] = [before.get(key), after.get(key)]
    return found


def preventions(config: RunConfig, *, class_sizes: Sequence[int]) -> list[tuple[RunConfig, dict[str, list[Any]]]]:
    """The settings with each single change that may keep the network from collapsing, and what is different.

    They are: smaller steps with a warm-up, a wider embedding, and easy positives with a batch that suits them.
    """
    found = []
    for rung in (_slower, _wide, _choose):
        values = _settings(config)
        why = rung(values, class_sizes)
        new = None if why is None else _usable(type(config), values, class_sizes)
        if new is not None and (changes := _difference(_settings(config), _settings(new))):
            found.append((new, changes))
    return found


Rung = Callable[[Settings, Sequence[int]], str | None]
"""Changes the settings in place and says why; None where it does not apply."""


def _more_dimensions(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if values["model"]["embedding_dim"] >= FLAT:
        return None
    values["model"]["embedding_dim"] = WIDE
    return (
        "In few dimensions classes block each other, and the easiest way to lower every triplet's loss is to collapse "
        "to a point."
    )


def _wide(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if values["model"]["embedding_dim"] >= WIDE:
        return None
    values["model"]["embedding_dim"] = WIDE
    return "A wider embedding leaves classes room to pass each other."


def _cleaned(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if "cleaning" in values:
        return None
    values["cleaning"] = {"action": "drop"}
    return "Held-out items lie among items of one other class: labels are wrong, and hard triplets are made of these."


def _easy_positives(values: Settings, class_sizes: Sequence[int]) -> str | None:
    """The same loss with easy positives, if it takes them."""
    loss = values["loss"]
    if "positives" not in loss or _name(loss["positives"]) == "easy":
        return None
    loss["positives"] = "easy"
    _more_samples(values, FEWEST, class_sizes)
    return "Easy positives do not pull distant items of a class, so that no hard triplet draws everything to a point."


def _easy_positives_of_many(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if _easy_positives(values, class_sizes) is None:
        return None
    _more_samples(values, SAMPLES, class_sizes)
    return "Easy positives pull the nearest item of a class alone, so that what is inside it stays apart."


def _choose(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if median_low(class_sizes) >= MANY:
        return _selectively(values, class_sizes, samples=FEWEST)
    if not _easily(values, "multi-similarity", "multi-similarity", FEWEST, class_sizes):
        return None
    return (
        "For small classes this loss weights all negatives of a batch, and easy positives do not pull distant items: "
        "no single hard triplet can draw everything to a point."
    )


def _selectively(values: Settings, class_sizes: Sequence[int], *, samples: int = SAMPLES) -> str | None:
    if not _easily(values, "selectively-contrastive", "hard", samples, class_sizes):
        return None
    return (
        "The selectively contrastive loss does not pull the positive while the negative is closer, and easy positives "
        "do not draw a class to one spot."
    )


def _easily(values: Settings, name: str, negatives: str, samples: int, class_sizes: Sequence[int]) -> bool:
    """Another loss, of easy positives; what it has no option for is left out. False where it is this one already."""
    loss = values["loss"]
    if loss["name"] == name and _name(loss["positives"]) == "easy":
        return False
    kept = ("trim", "trim_positives_only", "disjoint", "prefixes")
    values["loss"] = {"name": name, "positives": "easy", "negatives": negatives} | {
        key: loss[key] for key in kept if key in loss
    }
    values["model"]["normalize"] = True  # as these losses do, so that neighbours are theirs
    _more_samples(values, samples, class_sizes)
    _fill(values, class_sizes)
    return True


def _slower_if_fast(values: Settings, class_sizes: Sequence[int]) -> str | None:
    rate = values["training"]["learning_rate"]
    return _slower(values, class_sizes, most=RATE) if rate > FAST else None


def _slower(values: Settings, class_sizes: Sequence[int], *, most: float = math.inf) -> str | None:
    training = values["training"]
    before = training["learning_rate"]
    training["learning_rate"] = min(most, float(f"{before / 10:.6g}"))
    if "backbone_learning_rate" in training:
        lowered = training["backbone_learning_rate"] * training["learning_rate"] / before
        training["backbone_learning_rate"] = float(f"{lowered:.6g}")
    if _fine_tunes(values):
        key = "backbone_learning_rate" if "backbone_learning_rate" in training else "learning_rate"
        training[key] = min(training[key], FINE_TUNING)
    training["warmup_steps"] = max(training["warmup_steps"], round(WARMUP * training["steps"]))
    return "Smaller steps and a warm-up avoid jumps that cannot be undone."


def _fine_tunes(values: Settings) -> bool:
    """Whether all weights of a pretrained network are trained, by an optimiser that scales its steps itself."""
    model = values["model"]
    begun = model.get("pretrained") or model.get("weights") is not None or model["name"].startswith("text:")
    whole = model.get("freeze", "none") != "all" and not model.get("lora")
    return bool(begun and whole and values["training"]["optimizer"] in ("adam", "adamw"))


def _begun(config: RunConfig) -> bool:
    """Whether the network begins with what it was trained for, or with its inputs as they are."""
    model = config.model
    pretrained = model.pretrained or getattr(model, "weights", None) is not None
    return pretrained or model.name == "residual" or model.name.startswith("text:")


def _frozen_statistics(values: Settings, class_sizes: Sequence[int]) -> str | None:
    """Keeps the batch-norm statistics of a backbone that has any to keep."""
    model = values["model"]
    if model.get("batch_norm") != "train" or not (model.get("pretrained") or model.get("weights")):
        return None
    model["batch_norm"] = "frozen"
    return "The batch-norm statistics that a pretrained network brings are those of far more images than a batch has."


def _slower_and_normalized(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if values["loss"].get("normalize") is False and not values["model"]["normalize"]:
        values["loss"]["normalize"] = True
    return _slower(values, class_sizes)


def _normalized(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if values["model"]["normalize"]:
        return None
    values["model"]["normalize"] = True
    return "Embeddings of length 1 can neither shrink to the origin nor grow without bound."


def _larger_k(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if _name(values["loss"]["positives"]) != "easy":
        return None
    _more_samples(values, 2 * values["batch"]["samples_per_class"], class_sizes)
    return "With more items of a class in a batch the nearest positive is closer, so less is pulled together."


def _harder(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if _name(values["loss"]["negatives"]) in ("semihard-hardest", "violating", "hard"):
        return None
    values["loss"]["negatives"] = "semihard-hardest"
    return "The nearest negative beyond the positive is the most likely to have a gradient, and there usually is one."


def _wider(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if "margin" not in values["loss"]:
        return None
    values["loss"]["margin"] = max(MARGIN, 2 * values["loss"]["margin"])
    return "With a larger margin more triplets still have a gradient."


def _violating(values: Settings, class_sizes: Sequence[int]) -> str | None:
    if _name(values["loss"]["negatives"]) in ("violating", "hard"):
        return None
    values["loss"]["negatives"] = "violating"
    return "Any negative that violates the margin is used, even one closer than the positive."


TRAINED: tuple[EventKind, ...] = ("network-collapse", "class-collapse", "harm")
"""Events that come of what training does to the items, not of numbers or a sampler that gave out."""

TENTATIVE: tuple[Rung, ...] = (_easy_positives, _easy_positives_of_many)
"""Changes that may not be enough: worth an attempt only where a probe tells whether they were."""

# The least change first.
LADDERS: dict[EventKind, tuple[Rung, ...]] = {
    "network-collapse": (_slower_if_fast, _more_dimensions, _easy_positives, _choose, _normalized, _slower),
    "harm": (_frozen_statistics, _slower),
    "class-collapse": (_more_dimensions, _easy_positives_of_many, _selectively, _larger_k, _slower),
    "dead-sampler": (_harder, _wider, _violating),
    "exploding-norm": (_slower_and_normalized, _normalized),
    "not-finite": (_slower,),
}


def _name(selector: str | Mapping[str, Any]) -> str:
    return selector if isinstance(selector, str) else str(selector["name"])


def _more_samples(values: Settings, samples: int, class_sizes: Sequence[int]) -> None:
    """At least `samples` of a class in a batch of about the same size, as far as half of the classes have so many."""
    batch, most = values["batch"], median_low(class_sizes)
    size = batch.get("size")
    if size is not None:  # shuffled batches have no such number: batches of as many classes as may be take their place
        classes = min(size, len(class_sizes))
        batch |= {"num_classes": classes, "samples_per_class": min(size // classes, most), "size": None, "mined": None}
    else:
        size = batch["num_classes"] * batch["samples_per_class"]
    batch["samples_per_class"] = max(batch["samples_per_class"], min(samples, most))
    batch["num_classes"] = max(2, min(batch["num_classes"], round(size / batch["samples_per_class"])))


def _fill(values: Settings, class_sizes: Sequence[int]) -> None:
    """More classes in a batch that holds less than a quarter of them, more of each in a small one that holds all."""
    batch = values["batch"]
    samples, classes = batch["samples_per_class"], len(class_sizes)
    if 4 * batch["num_classes"] < classes:
        batch["num_classes"] = max(batch["num_classes"], min(classes, LARGE // samples))
    elif batch["num_classes"] >= classes:
        batch["samples_per_class"] = max(samples, min(SMALL // batch["num_classes"], median_low(class_sizes)))
