"""`[guard] forecast`: before the first step of a run, would it collapse, and which single change would prevent that?"""

from __future__ import annotations

import numpy as np

from trivet.collapse.forecast import Forecast
from trivet.collapse.monitor import CollapseMonitor, EventKind
from trivet.commands.forecast.run import outlook_of, pooled, probe_steps
from trivet.commands.train.preventions import in_words, preventions
from trivet.reports.forecast_record import Changes, Foreseen, TrialSteps
from trivet.runtime.progress import report
from trivet.training.components import Components, class_sizes, first_task
from trivet.training.config import RunConfig
from trivet.training.loop import NotFiniteError, fit

FORESEEN_KINDS: tuple[EventKind, ...] = ("network-collapse", "harm")


def foresee(components: Components) -> Foreseen:
    """Make the first steps of a run and throw them away: with its own settings and, if these look bad, with others.

    The steps are those of `trivet forecast`. Collapse is foreseen where embeddings are not finite; where held-out items
    show that it has come, by the rules of the monitor; and where the whole interval of the forecast lies above 1/2,
    unless held-out items are told apart better than before, by a point and more than chance at 95 %. Then each change
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
    monitor, level = CollapseMonitor(every=1), components.splits.level
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
    forecast = None if predicted is None else pooled([predicted])
    outlook = None if forecast is None else outlook_of(forecast.interval)
    trial = recall is not None and any(event.kind in FORESEEN_KINDS for event in monitor.events)
    return TrialSteps(
        changes=changes,
        forecast=forecast,
        outlook=outlook,
        recall=recall,
        foreseen=not finite or trial or (outlook == "likely" and not learns),
    )


def _sentence(unchanged: TrialSteps, proposal: TrialSteps | None, steps: int) -> str:
    text = f"This run will probably collapse: after {steps} trial steps "
    if unchanged.forecast is None:
        text += "the embeddings are not finite, or all equal"
    else:
        low, high = unchanged.forecast.interval
        text += f"the forecast is {100 * unchanged.probability:.0f} % "
        text += f"(90 % interval {100 * low:.0f} to {100 * high:.0f} %)"
        if unchanged.recall is not None:
            before, after = unchanged.recall
            text += f", and recall@1 of held-out items went from {100 * before:.1f} % to {100 * after:.1f} %"
    if proposal is None:
        return f"{text}; none of the changes that were tried helps enough."
    changes = {name: change for name, change in proposal.changes.items() if change[1] is not None}
    return f"{text}; with {in_words(changes)} it is {100 * proposal.probability:.0f} %."
