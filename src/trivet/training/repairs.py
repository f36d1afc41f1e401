"""Repairs: the least change of the settings that may prevent an event, by the ladder of its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any

from trivet.collapse.monitor import EventKind
from trivet.training.config import RunConfig

MARGIN = 0.2  # the least that a repair sets, in the unit of the distance
FAST, RATE = 0.01, 1e-3  # a learning rate above the first is lowered to the second, at least tenfold, before all else
FINE_TUNING = 3e-5  # the highest rate that a repair leaves to a pretrained network under Adam, as in examples/
FLAT, WIDE = 8, 32  # dimensions: fewer than the first are made the second
FEWEST, SAMPLES = 4, 8  # of a class in a batch, for easy positives: so that there is a choice, and a good one
MANY = 50  # items of a class, from which on it may hold more than one thing
SMALL, LARGE = 64, 128  # items of a batch, up to which it is filled with more of each class, or with more classes
WARMUP = 0.05  # of the steps

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
        found = new, difference(config, new), why
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


def difference(config: RunConfig, other: RunConfig) -> dict[str, list[Any]]:
    """Setting -> [its value, that in the other settings] of those that differ, named section.key; None for absent."""
    found = {}
    old, new = _settings(config), _settings(other)
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
        if new is not None and (changes := difference(config, new)):
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
