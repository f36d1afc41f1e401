"""`[guard] forecast`: before the first step of a run, would it collapse, and which single change would prevent that?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median_low
from typing import Any

import numpy as np

from trivet.collapse.forecast import Forecast
from trivet.collapse.monitor import CollapseMonitor, EventKind
from trivet.commands.forecast.run import probe_steps
from trivet.reports.forecast_record import Changes, Foreseen, TrialSteps
from trivet.reports.monitor_record import Chance
from trivet.runtime.json_numbers import as_json
from trivet.runtime.progress import report
from trivet.training.components import Components, class_sizes, first_task
from trivet.training.config import RunConfig
from trivet.training.loop import NotFiniteError, fit

FORESEEN_KINDS: tuple[EventKind, ...] = ("network-collapse", "harm")
FINE_TUNING = 3e-5  # the highest rate that is proposed for a pretrained network under Adam, as in examples/
WIDE = 32  # dimensions
SAMPLES = 4  # of a class in a batch, for easy positives: so that there is a choice
MANY = 50  # items of a class, from which on it may hold more than one thing
SMALL, LARGE = 64, 128  # items of a batch, up to which it is filled with more of each class, or with more classes
WARMUP = 0.05  # of the steps

Settings = dict[str, Any]
"""All settings of a run as its TOML file has them: section -> key -> value."""


def foresee(components: Components) -> Foreseen:
    """Make the first steps of a run and throw them away: with its own settings and, if these look bad, with others.

    The steps are those of `trivet forecast`. Collapse is foreseen where embeddings are not finite; where held-out items
    show that it has come, by the rules of the monitor; and where the forecast is a point, "likely", unless held-out
    items are told apart better than before, by a point and more than chance at 95 %. Then each change
    that may prevent it, of the rate, the width, the choice of triplets with the batch, is tried alone. The first with
    which nothing is foreseen and the forecast is "unlikely" is proposed, else of those with which nothing is foreseen
    that with the lowest forecast, if it is at most half of the first.
    """
    steps = probe_steps(components.config, None)
    train, level = components.splits.train, components.splits.level
    candidates = preventions(components.config, class_sizes=class_sizes(components.config, train, level))
    most = steps * (1 + len(candidates))
    unchanged = _tried(components, components.config, {}, steps, 0, most)
    tried, proposal = [unchanged], None
    if unchanged.foreseen:
        for settings, changes in candidates:
            tried.append(_tried(components, settings, changes, steps, steps * len(tried), most))
            if tried[-1].outlook == "unlikely" and not tried[-1].foreseen:
                proposal = tried[-1]
                break
        else:
            likely = unchanged.probability / 2
            helping = [trial for trial in tried[1:] if not trial.foreseen and trial.probability <= likely]
            proposal = min(helping, key=lambda trial: trial.probability, default=None)
    report("trial steps", most, most)
    return Foreseen(
        steps=steps,
        sentence=_sentence(unchanged, proposal, steps) if unchanged.foreseen else None,
        changes=proposal.changes if proposal is not None else {},
        tried=tried,
    )


def _tried(
    components: Components, settings: RunConfig, changes: Changes, steps: int, done: int, most: int
) -> TrialSteps:
    """The first steps with some settings."""
    planned = components.config.training.num_steps
    monitor, level = CollapseMonitor(every=1, steps=planned), components.splits.level
    made = 0

    def after_step() -> None:
        nonlocal made
        made += 1
        report("trial steps", done + made, most)

    learner, batches = first_task(
        settings, components.items, level, steps=steps, after_step=after_step, monitor=monitor
    )
    probe, recall, learns = None, None, False
    if components.probe_items is not None:
        probe = components.probe_items.probe_of(learner.model, cosine=settings.evaluation.distance == "cosine")
        learner.probe = probe
        monitor.begin(probe)
    predicted: Forecast | None = None
    finite = True
    try:
        if not fit(learner, batches, workers=settings.training.workers):
            raise KeyboardInterrupt
        predicted = monitor.forecast()
    except NotFiniteError:
        finite = False
    finite = finite and bool(np.isfinite(monitor.series["norm"]).all())
    if probe is not None and monitor.probing.reference is not None:
        start = monitor.probing.reference
        recall = [start.recall, monitor.probing.measure(probe, steps).recall]
        learns = monitor.probing.ahead(start)
    outlook = None if predicted is None else predicted.outlook
    trial = recall is not None and any(event.kind in FORESEEN_KINDS for event in monitor.events)
    return TrialSteps(
        changes=changes,
        forecast=None if predicted is None else Chance.read(as_json(predicted)),
        sentence=None if predicted is None else predicted.sentence,
        outlook=outlook,
        recall=recall,
        foreseen=not finite or trial or (outlook == "likely" and not learns),
    )


def _sentence(unchanged: TrialSteps, proposal: TrialSteps | None, steps: int) -> str:
    text = f"This run will probably collapse: after {steps} trial steps "
    if unchanged.forecast is None:
        text += "the embeddings are not finite, or all equal"
    else:
        text += f"a point is foreseen with a probability of {100 * unchanged.probability:.0f} %"
        if unchanged.recall is not None:
            before, after = unchanged.recall
            text += f", and recall@1 of held-out items went from {100 * before:.1f} % to {100 * after:.1f} %"
    if proposal is None:
        return f"{text}; none of the changes that were tried helps enough."
    changes = {name: change for name, change in proposal.changes.items() if change[1] is not None}
    return f"{text}; with {in_words(changes)} it is {100 * proposal.probability:.0f} %."


def preventions(config: RunConfig, *, class_sizes: Sequence[int]) -> list[tuple[RunConfig, Changes]]:
    """The settings with each single change that may keep the network from collapsing.

    A change that makes settings which are refused, or asks for more classes or items of one than there are, is left
    out.

    Args:
        class_sizes: training items of each class.

    Returns:
        The settings, and what is different.
    """
    changed = []
    for change in (_slower, _wider, _easy_positives):
        values = _settings(config)
        if not change(values, class_sizes):
            continue
        try:
            new = type(config).parse(values, source="the settings with a change")
        except ValueError:
            continue
        enough = new.batch.needed_classes <= len(class_sizes) and (min(class_sizes) > 1 or not new.needs_positives)
        changes = difference(config, new)
        if enough and changes:
            changed.append((new, changes))
    return changed


def difference(config: RunConfig, other: RunConfig) -> Changes:
    """Changes from some settings to others."""
    changes: Changes = {}
    old, new = _settings(config), _settings(other)
    for section in {**old, **new}:
        before, after = old.get(section, {}), new.get(section, {})
        if isinstance(before, dict):
            for key in {**before, **after}:
                if before.get(key) != after.get(key):
                    changes[f"{section}.{key}"] = [before.get(key), after.get(key)]
    return changes


def in_words(changes: Changes) -> str:
    """The changes in one line."""
    return ", ".join(
        f"{name} removed" if new is None else f"{name} = {json.dumps(new, ensure_ascii=False)}"
        for name, (_, new) in changes.items()
    )


def _settings(config: RunConfig) -> Settings:
    return config.model_dump(mode="json", exclude_none=True)


def _slower(values: Settings, class_sizes: Sequence[int]) -> bool:
    """A tenth of the learning rate, and a warm-up."""
    training = values["training"]
    before = training["learning_rate"]
    training["learning_rate"] = float(f"{before / 10:.6g}")
    if "backbone_learning_rate" in training:
        lowered = training["backbone_learning_rate"] * training["learning_rate"] / before
        training["backbone_learning_rate"] = float(f"{lowered:.6g}")
    if _fine_tunes(values):
        key = "backbone_learning_rate" if "backbone_learning_rate" in training else "learning_rate"
        training[key] = min(training[key], FINE_TUNING)
    if training["warmup_steps"] != "all":
        training["warmup_steps"] = max(training["warmup_steps"], round(WARMUP * training["steps"]))
    return True


def _fine_tunes(values: Settings) -> bool:
    """True if all weights of a pretrained network are trained, by an optimiser that scales its steps itself."""
    model = values["model"]
    pretrained = model.get("pretrained") or model.get("weights") is not None or model["name"].startswith("text:")
    all_weights = model.get("freeze", "none") != "all" and not model.get("lora")
    return bool(pretrained and all_weights and values["training"]["optimizer"] in ("adam", "adamw"))


def _wider(values: Settings, class_sizes: Sequence[int]) -> bool:
    """More dimensions, in which classes have room to pass each other."""
    narrow: bool = values["model"]["embedding_dim"] < WIDE
    values["model"]["embedding_dim"] = WIDE
    return narrow


def _easy_positives(values: Settings, class_sizes: Sequence[int]) -> bool:
    """A loss of easy positives, which draw no distant items together, with a batch that suits them.

    For small classes multi-similarity, which weights all negatives of a batch; for large ones the selectively
    contrastive loss, which does not pull the positive while the negative is closer.
    """
    loss = values["loss"]
    name, negatives = "multi-similarity", "multi-similarity"
    if median_low(class_sizes) >= MANY:
        name, negatives = "selectively-contrastive", "hard"
    positives = loss["positives"]
    if loss["name"] == name and (positives if isinstance(positives, str) else positives["name"]) == "easy":
        return False
    options = ("trim", "trim_positives_only", "disjoint", "prefixes")
    values["loss"] = {"name": name, "positives": "easy", "negatives": negatives} | {
        key: loss[key] for key in options if key in loss
    }
    values["model"]["normalize"] = True  # as these losses do, so that neighbours are theirs
    _more_samples(values["batch"], class_sizes)
    return True


def _more_samples(batch: Settings, class_sizes: Sequence[int]) -> None:
    """At least four of a class in a batch of about the same size, as far as half of the classes have so many.

    Then more classes in a batch that holds less than a quarter of them, more of each in a small one that holds all.
    """
    most, classes = median_low(class_sizes), len(class_sizes)
    size = batch.get("size")
    if size is not None:  # shuffled batches have no such number: batches of as many classes as may be take their place
        used = min(size, classes)
        batch |= {"num_classes": used, "samples_per_class": min(size // used, most), "size": None, "mined": None}
    else:
        size = batch["num_classes"] * batch["samples_per_class"]
    samples = batch["samples_per_class"] = max(batch["samples_per_class"], min(SAMPLES, most))
    batch["num_classes"] = max(2, min(batch["num_classes"], round(size / samples)))
    if 4 * batch["num_classes"] < classes:
        batch["num_classes"] = max(batch["num_classes"], min(classes, LARGE // samples))
    elif batch["num_classes"] >= classes:
        batch["samples_per_class"] = max(samples, min(SMALL // batch["num_classes"], most))
