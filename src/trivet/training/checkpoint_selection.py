"""Selection of the step that is the result of a run: the last, or the best on held-out items if above the start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from trivet.collapse.significance import FLOOR
from trivet.datasets import Dataset, Inputs, Splits
from trivet.metrics import Retrieval, retrieve, retrieve_levels
from trivet.metrics.intervals import Interval, student
from trivet.metrics.points import Metric
from trivet.models import Embedder
from trivet.reports.run_record import Choice, SelectionCheck
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import reporter
from trivet.runtime.record import Record
from trivet.training.class_sample import evaluation_sample
from trivet.training.config import ChoosingConfig, EvaluationConfig
from trivet.training.embed_dataset import embed

SPLITS = ("validation", "val")  # by which a step is chosen, the first that is there
RECALL = "recall@1"
Embed = Callable[[Embedder, Inputs, Callable[[int, int], None]], Floats]
LEVEL = 0.95  # of the one-sided interval of a gain over classes


def selection_split(splits: Splits) -> str | None:
    """The split that a step can be chosen by; None where there is none."""
    return next((name for name in SPLITS if name in splits.evaluation), None)


def monitored_split(splits: Splits) -> str:
    """The split that is looked at during training: the one that a step can be chosen by, else the main one."""
    return selection_split(splits) or next(iter(splits.evaluation))


class Scores(NamedTuple):
    """Measures of the held-out items at a step.

    Attributes:
        values: `(Q, 2)` the measure and recall@1 of each query; 0 where embeddings are not finite.
        classes: `(Q,)` the class of each query.
        recall: level -> mean recall@1; empty where embeddings are not finite.
    """

    values: Floats
    classes: Integers
    recall: dict[str, float]


class SelectionState(Record):
    """The best step and the looks so far; `measure` names what was measured, and of which items."""

    step: int
    checks: list[SelectionCheck]
    measure: list[str | int]


class CheckpointSelection:
    """The best step so far. A checkpoint keeps its state, and its weights.

    A network in training is better than the start if the gain of the measure, a mean over the classes of the items, has
    a one-sided 95 % interval (Student's t) above 0, and its recall@1 is not lower. Among these the highest measure
    counts, and of equal ones the first.

    Items retrieve from each other, as those that are evaluated do; where most are alone of their class, from training
    items as well. New classes must not: a network that is trained on some sets these apart from all others, which says
    nothing of how well it tells others from each other.

    Args:
        config: see `ChoosingConfig`.
        items: what is looked at.
        known: training items to retrieve from as well; None for none.
        level: the label level that counts.
        distance: how embeddings are compared.
        active: whether the items are such that a step can be chosen by them; if not, a look notes nothing.

    Attributes:
        items, known, level: see above.
        shared: embeds the items of a look in several processes, where all of them look; as `embed` does in one.
        checks: in order, with the gain on the start, and the lower end of its interval, None for a single class.
        step: of the best.
        weights: of the best; empty before the first look, and where nothing is chosen.
    """

    def __init__(
        self,
        config: ChoosingConfig,
        items: Dataset,
        known: Dataset | None,
        level: str,
        distance: Metric,
        *,
        active: bool,
    ) -> None:
        self.config, self.active = config, active
        self.level = level
        self.items, self.known, self._distance = items, known, distance
        self.shared: Embed | None = None
        self._start: Scores | None = None
        self.checks: list[SelectionCheck] = []
        self.step = 0
        self.weights: dict[str, Tensor] = {}

    def begin(self, untrained: Embedder) -> None:
        """Measure the network before its first step, which all others are compared with."""
        if self.active:
            self._start = self.scores(untrained)
            self._note(0, untrained, self._start)

    def measure(self, step: int, model: Embedder) -> dict[str, float]:
        """See the network after so many steps; returns the mean recall@1 by level, see `Scores`."""
        scores = self.scores(model, self.shared)
        if self.active:
            self._note(step, model, scores)
        return scores.recall

    @property
    def ended(self) -> int | None:
        """The step at which training ends, as patience is at its end; None while it is not."""
        return patience_end(self.config.patience, self.checks, self.step)

    def best(self) -> SelectionCheck | None:
        """The look at the best step; None before the first."""
        return next((check for check in self.checks if check.step == self.step), None)

    def state(self) -> SelectionState:
        """All that a resumed run needs beside the weights."""
        return SelectionState(step=self.step, checks=self.checks, measure=self._measure)

    def load(self, state: SelectionState, weights: dict[str, Tensor]) -> None:
        """Go on from a state of the same measure of the same items; else the choice begins anew."""
        if state.measure == self._measure:
            self.step, self.checks, self.weights = state.step, list(state.checks), weights

    @property
    def _measure(self) -> list[str | int]:
        known = 0 if self.known is None else len(self.known)
        return [self.config.measure, self.level, self._distance, len(self.items), known]

    def record(self, split: str, steps: int) -> Choice | None:
        """The section "choosing" of the run record; None where there is nothing to choose by."""
        if not self.active:
            return None
        return Choice(
            keep=self.config.keep,
            measure=self.config.measure,
            level=self.level,
            split=split,
            items=len(self.items),
            classes=len(self.items.classes(self.level)),
            known=0 if self.known is None else len(self.known),
            patience=self.config.patience,
            step=self.step,
            ended=self.ended if self.ended != steps else None,
            checks=self.checks,
        )

    def _note(self, step: int, model: Embedder, scores: Scores) -> None:
        assert self._start is not None
        start = self._start.values
        gains = scores.values[:, 0] - start[:, 0]
        means = scores.values.mean(axis=0)
        check = SelectionCheck(
            step=step,
            value=float(means[0]),
            recall=float(means[1]),
            gain=float(gains.mean()),
            low=lower_end(gains, scores.classes),
        )
        highest = max((earlier.value for earlier in self.checks if _better(earlier, start)), default=-math.inf)
        if not self.checks or (_better(check, start) and check.value > highest):
            self.step = step
            self.weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        self.checks.append(check)

    def embed_items(self, model: Embedder, shared: Embed | None) -> tuple[Floats, Floats | None]:
        """The embeddings of the items, and of the training items that they retrieve from as well.

        Args:
            shared: see the class; None where this process embeds all of them.
        """
        made = shared or embed
        embeddings = made(model, self.items.inputs, reporter("embedding held-out items"))
        known = None if self.known is None else made(model, self.known.inputs, reporter("embedding training items"))
        return embeddings, known

    def scores(self, model: Embedder, shared: Embed | None = None) -> Scores:
        """Measure the items, embedded by a network; see `embed_items`."""
        embeddings, known = self.embed_items(model, shared)
        finite = bool(np.isfinite(embeddings).all()) and (known is None or bool(np.isfinite(known).all()))
        if not finite:
            embeddings = np.zeros_like(embeddings)
            known = None if known is None else np.zeros_like(known)
        measures = list(dict.fromkeys((self.config.measure if self.active else RECALL, RECALL)))
        queries = self.items.evaluation_arguments(embeddings)
        if known is None:
            recall = retrieve_levels(**queries, measures=measures, distance=self._distance)
            selected = recall[self.level]
        else:
            selected = self._retrieved(embeddings, known, measures)
            recall = retrieve_levels(**queries, measures=(RECALL,), distance=self._distance)
        values = selected.values[:, [selected.measures.index(name) for name in (measures[0], RECALL)]]
        classes = selected.classes
        if self.level in self.items.relations and len(np.unique(classes)) == 1:  # all are connected, as by tags
            classes = np.arange(len(classes))
        if not finite:
            return Scores(np.zeros_like(values), classes, {})
        return Scores(values, classes, {level: result.mean()[RECALL] for level, result in recall.items()})

    def _retrieved(self, embeddings: np.ndarray, known: np.ndarray, measures: Sequence[str]) -> Retrieval:
        """The items retrieved from each other and from the training items."""
        assert self.known is not None
        labels, names = self.items.labels[self.level], self.items.names[self.level]
        number = {name: label for label, name in enumerate(names)}
        others = np.array([number.get(name, len(names)) for name in self.known.names[self.level]])
        others = others[self.known.labels[self.level]]
        return retrieve(
            embeddings,
            labels,
            gallery=np.concatenate([embeddings, known]),
            gallery_labels=np.concatenate([labels, others]),
            self_rows=np.arange(len(labels)),
            measures=measures,
            distance=self._distance,
        )


def make_selection(
    choosing: ChoosingConfig, evaluation: EvaluationConfig, splits: Splits, *, seed: int
) -> CheckpointSelection:
    """The selection of a step of a run by a sample of the split that is measured while it trains."""
    items = evaluation_sample(splits.evaluation[monitored_split(splits)], evaluation.sample, seed=seed)
    active, level, known = selection_split(splits) is not None, choosing.level or splits.level, None
    labels = items.labels[level]
    alone = np.bincount(labels)[labels] == 1
    if active and items.protocol is None and level not in items.relations and alone.mean() > 0.5:
        known = evaluation_sample(splits.train, evaluation.sample, seed=seed)
    return CheckpointSelection(choosing, items, known, level, evaluation.distance, active=active)


def patience_end(patience: int | None, checks: Sequence[SelectionCheck], best: int) -> int | None:
    """The step of the look at which patience was at its end; None where it is not.

    Args:
        patience: looks without a higher measure; None for no end.
        best: the step of the best.
    """
    if patience is None or not checks:
        return None
    values = [check.value for check in checks]
    last = max(values.index(max(values)), *(position for position, check in enumerate(checks) if check.step == best))
    return checks[-1].step if len(checks) - 1 - last >= patience else None


def _better(check: SelectionCheck, start: Floats) -> bool:
    return check.low is not None and check.low > 0 and bool(check.recall >= start[:, 1].mean())


class ScoreDifference(NamedTuple):
    """A mean gain of the measure on other scores of the same items, and its 90 % interval over classes.

    Attributes:
        low, high: None for a single class; the lower end is that of a one-sided interval of 95 %.
        recall_lower: whether recall@1 is lower beyond doubt, by its interval of the same kind.
    """

    mean: float
    low: float | None
    high: float | None
    recall_lower: bool

    @property
    def better(self) -> bool:
        """True if the measure is higher by a point or more beyond doubt, and recall@1 not lower beyond doubt."""
        return self.low is not None and self.low > 0 and self.mean >= FLOOR and not self.recall_lower


def compare_scores(scores: Scores, others: Scores) -> ScoreDifference:
    """Compare two networks by the scores of the same items, each class as one unit (Student's t)."""
    gains = scores.values - others.values
    mean = float(gains[:, 0].mean())
    measure, recall = (_interval(column, scores.classes) for column in gains.T)
    if measure is None or recall is None:
        return ScoreDifference(mean, None, None, recall_lower=bool(gains[:, 1].mean() < 0))
    return ScoreDifference(mean, measure.low, measure.high, recall_lower=recall.high < 0)


def _interval(gains: Floats, classes: Integers) -> Interval | None:
    """The 90 % interval of a mean gain, by Student's t over the means of the classes; None for a single class."""
    _, members, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return None
    return student(np.bincount(members, weights=gains) / sizes, level=2 * LEVEL - 1)


def lower_end(gains: Floats, classes: Integers) -> float | None:
    """The lower end of the one-sided 95 % interval of a mean gain, by Student's t over the means of the classes.

    Args:
        gains: `(N,)` of each item.
        classes: `(N,)` of each item.

    Returns:
        None for a single class, of which nothing can be told.
    """
    interval = _interval(gains, classes)
    return None if interval is None else interval.low
