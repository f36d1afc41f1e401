"""A probe: held-out items that are embedded while a network trains, and what they kept and lost since it began."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.collapse.batch_measures import pair_codes
from trivet.collapse.distances import WIDE_SPOT, about_sides, centred, occupied_spots, relative_spread
from trivet.collapse.relation_chance import recall_by_permutations, sides_of
from trivet.collapse.rules import EmbeddingShape, above_chance, network_collapse, retrieval_lost
from trivet.collapse.significance import (
    FLOOR,
    LEVEL,
    Comparison,
    compare_values,
    rank_biased_words,
    recall_by_chance,
)
from trivet.collapse.spectrum import singular_values
from trivet.collapse.spread import stranger_share
from trivet.collapse.thresholds import THRESHOLDS
from trivet.distances import Array, as_classes
from trivet.metrics.relation_levels import LevelRelation
from trivet.metrics.retrieval import retrieve
from trivet.mining.batch import Labels
from trivet.mining.relations import Classes, Relation, signature_of
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.json_numbers import json_section, with_nan
from trivet.runtime.text import counted

Probe = Callable[[], Sequence[Any]]
"""Gives embeddings `(M, d)` and labels `(M,)` of the same held-out items each time; also finer classes `(M,)`.

Either may be a relation of the items, such as tags, or pairs of two sides, whose embeddings follow each other.
"""

SHARE = 0.02  # of the cost of the steps, that a probe may take on average
STEP_COST = 3  # forward passes that a step of an item costs: its own, and twice that backward
SUSPICIOUS, CALM = 2, 4  # times as many updates as at the last call: when the next one is due whatever it costs
CHUNKS = 4  # of a run whose length is known: it is asked no less often than at each
FIRST = 6  # updates before the second call, as the first steps of an optimiser shake every network
SERIES = ("step", "recall", "fine_recall", "relative_spread", "within_between", "strangers")
"""The numbers of a result, in this order."""
GAIN = ("gain_low", "gain_high")
"""The interval of 99 % of what recall@1, at the level that counts, gained since the start."""
NEIGHBOURS = 10
SAME_CLASS, OTHER = 1, 6  # a stranger has at most so many of its class among the nearest, and so many of another
CHOOSING = 0.95  # confidence of the intervals by which two results are compared where nothing is accused
LEVELS = "the labels", "the finer classes"  # in a sentence
FINER = LEVELS[1]
RESULTS = ("reference", "best", "before", "last")
SHAPE = ("mean_distance", "first_axis", "spots", "precision", "centred_recall")
"""The numbers of a result that no series has."""


class ItemScores(NamedTuple):
    """Scores of each item of a probe at one level, `(M,)`; of a relation, of those that have a positive."""

    hits: Floats  # what it adds to recall@1
    rank_biased: Floats  # and to rank-biased precision


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Measures of one call of a probe."""

    step: int  # optimiser steps done
    recall: float  # recall@1 at the level of the labels, in [0, 1], each item against all others
    fine_recall: float  # the same at the finer level; NaN without one
    # The shape of two sides is that of the items less the mean of their side, as in `Measures`.
    relative_spread: float  # deviation from the centre over the norm, in [0, 1]
    mean_distance: float  # of all pairs
    first_axis: float  # share of the variance along one line, in [0, 1]
    spots: float  # occupied ones, counted widely, over the effective number of classes
    precision: float  # eps of the dtype that the embedding came in
    centred_recall: float  # of two sides, recall@1 with each less its mean; NaN of other labels
    within_between: float  # mean distance of pairs of one class over that of pairs of two; 1 where all distances are 0
    strangers: float  # share of items with at most one of their ten nearest of their class and six or more of one other
    scores: tuple[ItemScores, ...]  # of the items, at each level
    nearest: Integers  # `(M,)` the row of the nearest other item
    # of a relation, recall@1 of items that are all equal, and up to where it comes by chance, NaN if it is far above;
    # None of classes, which tell
    by_chance: tuple[float, float] | None = None
    not_finite: int = 0  # items with a number that is not finite; all are then measured as equal

    @property
    def score(self) -> float:
        """The recall that counts: at the finer level where there is one."""
        return self.recall if math.isnan(self.fine_recall) else self.fine_recall

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProbeResult:
        """Read what `as_json` gave."""
        scores = tuple(ItemScores(*(np.array(column) for column in columns)) for columns in values["scores"])
        nearest = np.array(values["nearest"], dtype=np.int64)
        numbers = {name: with_nan(values[name]) for name in (*SERIES, *SHAPE)}
        chances = values.get("by_chance")
        by_chance = None if chances is None else tuple(with_nan(chances))
        return cls(**numbers, scores=scores, nearest=nearest, by_chance=by_chance, not_finite=values["not_finite"])

    def shape(self, start: ProbeResult) -> EmbeddingShape:
        """Its shape beside that at the start of the run."""
        return EmbeddingShape(
            relative_spread=self.relative_spread,
            precision=self.precision,
            shrinkage=self.mean_distance / start.mean_distance if start.mean_distance > 0 else None,
            narrowing=self.relative_spread / start.relative_spread if start.relative_spread > 0 else None,
            first_axis=self.first_axis if start.first_axis <= THRESHOLDS["line"].value else None,
            spots=self.spots if start.spots >= THRESHOLDS["spots"].value else None,
        )

    def values(self) -> list[float]:
        """The numbers, in the order of `SERIES`."""
        return [float(getattr(self, name)) for name in SERIES]


class ProbeLevel(NamedTuple):
    """The M items of a probe at one level: who belongs together, and what is a unit of the sample."""

    labels: Labels | Integers  # classes `(M,)`, or the relation
    groups: Integers  # `(M,)` the class of each, or the group that a relation connects, of those that have a positive
    positive: Tensor  # `(M, M)`
    negative: Tensor  # `(M, M)`
    codes: npt.NDArray[np.int8] | None  # `(M, M)`, see `pair_codes`; None of classes
    rows: Integers  # of the items that have a positive; all of classes
    sides: Sequence[Integers] = ()  # the rows of each side of a relation, or all

    @property
    def checksum(self) -> int:
        """A checksum of the relation; 0 of classes, which their groups tell."""
        return 0 if self.codes is None else signature_of(self.codes)

    @property
    def share(self) -> float:
        """The chance that an item and another, or itself, belong together: 1 over the effective number of classes."""
        positives = self.positive.sum() + (0 if self.codes is None else len(self.positive))
        return float(positives) / self.positive.numel()

    @classmethod
    def of_labels(cls, labels: Labels | Integers, count: int) -> ProbeLevel:
        """The level of labels, or of a relation, of so many items.

        Raises:
            ValueError: if they are not one for each item, no item has a positive, or all have one class.
        """
        if isinstance(labels, Classes):
            labels = labels.items
        if not isinstance(labels, Relation):
            classes = as_classes(labels, count=count).cpu().numpy()
            sizes = np.unique(classes, return_counts=True)[1]
            if len(sizes) < 2 or sizes.max() < 2:
                raise ValueError(
                    "a probe needs items of two classes at least, and two items of one: got "
                    f"{counted(count, 'item')} of {counted(len(sizes), 'class')}; hold out others."
                )
            same = torch.from_numpy(classes[:, None] == classes)
            return cls(classes, classes, same, ~same, None, np.arange(count))
        if len(labels) != count:
            raise ValueError(
                f"a relation must hold the items of the embeddings: got {len(labels)} for {count}; take relation[rows]."
            )
        relation = labels.to("cpu")
        codes = pair_codes(relation).fill_diagonal_(-1)
        rows = (codes == 1).any(dim=1).nonzero()[:, 0]
        if not len(rows):
            raise ValueError(
                f"a probe needs items that belong together: none of {count} has a positive in this "
                f"{type(relation).__name__}; hold out others."
            )
        groups = LevelRelation(relation, relation.items, relation.items, torch.arange(count)).queries
        sides = sides_of(relation)
        return cls(relation, groups[rows].numpy(), codes == 1, codes == 0, codes.numpy(), rows.numpy(), sides)

    def scores(self, points: Tensor) -> ItemScores:
        """Scores of the items `(M, d)`."""
        return ItemScores(*retrieve(points, self.labels, measures=("recall@1", "rbp")).values[self.rows].T)

    def by_chance(self, recall: float, neighbors: Integers) -> tuple[float, float] | None:
        """Recall@1 of items that are all equal, and up to where it comes by chance; see `ProbeResult`."""
        if self.codes is None:
            return None
        positives, negatives = (mask[self.rows].sum(dim=1).double() for mask in (self.positive, self.negative))
        chance = float((positives / (positives + negatives)).mean())
        if _is_far_above(recall, chance):
            return chance, math.nan
        nearest, rows = neighbors[self.rows], self.rows
        return chance, recall_by_permutations(nearest, rows, self.codes, self.sides, answerable=True)[1]


def measure_probe(step: int, embeddings: Array, levels: Sequence[Labels | Integers | ProbeLevel]) -> ProbeResult:
    """Measure a probe in O(M^2 d); embeddings that are not finite have lost everything.

    Args:
        embeddings: `(M, d)`.
        levels: class numbers `(M,)`, or a relation of M items: of the labels, and perhaps of the finer classes.
    """
    tensor = torch.as_tensor(embeddings).detach().cpu()
    points, kind = tensor.double(), tensor.dtype
    if not_finite := int((~points.isfinite()).any(dim=1).sum()):
        points = torch.zeros_like(points)
    known = [level if isinstance(level, ProbeLevel) else ProbeLevel.of_labels(level, len(points)) for level in levels]
    first, squared = known[0], _squared_distances(points)
    scores = tuple(level.scores(points) for level in known)
    recall, fine_recall = [float(level.hits.mean()) for level in scores] + [math.nan] * (2 - len(scores))
    distances, others = squared.sqrt(), ~torch.eye(len(points), dtype=torch.bool)
    within = distances[first.positive & others].mean()
    between = distances[first.negative].mean()
    shape, centred_recall = points, math.nan
    if len(first.sides) > 1:
        shape = about_sides(points, first.sides)
        centred_recall = float(first.scores(shape).hits.mean())
        distances = _squared_distances(shape).sqrt()
        for side in first.sides:  # whose items are not compared with each other
            squared[np.ix_(side, side)] = torch.inf
    values = singular_values(shape)
    around = squared.topk(min(NEIGHBOURS, len(points) - 1), largest=False).indices.numpy()
    strangers = math.nan  # of a relation there is no other class
    if first.codes is None:
        strangers = stranger_share(first.groups[around], first.groups, same=SAME_CLASS, other=OTHER)
    return ProbeResult(
        step=step,
        recall=recall,
        fine_recall=fine_recall,
        relative_spread=relative_spread(points, shape),
        mean_distance=float(distances[others].mean()),
        first_axis=float(values[0] ** 2 / (values**2).sum()) if values.any() else 0.0,
        spots=occupied_spots(shape, within=WIDE_SPOT) * first.share,
        precision=torch.finfo(kind).eps,
        centred_recall=centred_recall,
        within_between=float(within / between) if between > 0 else 1.0,
        strangers=strangers,
        scores=scores,
        nearest=squared.argmin(dim=1).numpy(),
        by_chance=first.by_chance(recall, around),
        not_finite=not_finite,
    )


def _squared_distances(points: Tensor) -> Tensor:
    """Squared distances `(M, M)` of all items, infinite to itself."""
    rows = centred(points)
    squares = rows.square().sum(dim=1)
    squared = torch.addmm(squares, rows, rows.T, alpha=-2).add_(squares[:, None]).clamp_min_(0)
    return squared.fill_diagonal_(torch.inf)


def _is_far_above(recall: float, chance: float) -> bool:
    """Return whether recall@1 is so far above that of equal items that permutations would not tell more."""
    return recall > 2 * chance + FLOOR


@dataclass(frozen=True)
class ProbeSummary:
    """Items and relative cost of a probe, the numbers before training, and those of each call."""

    items: int
    cost: float
    start: dict[str, float]
    series: dict[str, list[float]]


class ProbeTracker:
    """Schedule of a probe, and its results compared with the start and the best of the run so far.

    The probe is asked before anything is trained, or at the first update: that is the reference. Then it is asked where
    batches are suspicious, if the updates have doubled since the last time (6, 12, 24, ...), or if all calls so far
    cost at most 2 % of all steps; where nothing is suspicious, at four times the updates (6, 24, 96, ...), or at 1 % of
    the cost. Where the length of the run is known, a quarter of it after the last call, too. The cost is estimated: a
    call counts each of its items once, forward, and a step three times. So calls are dense at first, where collapses
    begin, and over many steps cost at most 2 % of them; a short run of known length makes about five all the same.

    Attributes:
        series: name -> values, one for each result; names are `SERIES` and `GAIN`.
        reference: the result before anything was trained; None before it.
        best: that with the highest recall, at the finer level where there is one; the reference at first.
        last: the last one after the reference.
        before: the one before the last.
        levels: class numbers `(M,)` of the items: of the labels, and perhaps of the finer classes; of a relation, the
            groups of those that have a positive.
        on_best: called with each result that is the best so far, while the network is the one that gave it.
    """

    def __init__(self) -> None:
        self.series: dict[str, list[float]] = {name: [] for name in (*SERIES, *GAIN)}
        self.on_best: Callable[[ProbeResult], None] | None = None
        self.reference: ProbeResult | None = None
        self.best: ProbeResult | None = None
        self.last: ProbeResult | None = None
        self.before: ProbeResult | None = None
        self.levels: list[Integers] = []
        self._checksum = 0  # of the relation
        self._updates, self._called, self._spent, self._trained = 0, 0, 0, 0
        self._fell: bool | None = None  # of the last result, once it is known: the intervals take time

    @property
    def items(self) -> int:
        """Items of the probe; 0 before it was asked."""
        return len(self.levels[0]) if self.levels else 0

    @property
    def chance(self) -> float:
        """Recall@1 of items that are all equal."""
        if self.reference is not None and self.reference.by_chance is not None:
            return self.reference.by_chance[0]
        sizes = np.bincount(self.levels[0])
        return float((sizes * (sizes - 1)).sum() / (self.items * (self.items - 1)))

    @property
    def cost(self) -> float:
        """Cost of the calls over that of the steps, as the items of both suggest; 0 before the first step."""
        return self._spent / (STEP_COST * self._trained) if self._trained else 0.0

    def least_cost(self, steps: int, items: int) -> tuple[int, float]:
        """Calls that a run of so many steps makes at least, and their cost over that of the steps, likewise.

        Args:
            steps: of the whole run; 0 if not known.
            items: of each step; 0 if not known.
        """
        calls = 2 + math.ceil(max(0, steps - FIRST) / max(1, math.ceil(steps / CHUNKS)))
        return calls, calls * self.items / (STEP_COST * steps * items) if steps and items else 0.0

    def count(self, items: int) -> None:
        """Note an update of so many items."""
        self._updates += 1
        self._trained += items

    def due(self, *, suspicious: bool, steps: int | None = None) -> bool:
        """Return whether to call the probe at this update.

        Args:
            steps: updates of the whole run, if known.
        """
        if self.reference is None:
            return True
        factor, share = (SUSPICIOUS, SHARE) if suspicious else (CALM, SHARE / 2)
        chunk = math.inf if steps is None else self._called + steps / CHUNKS
        if self._updates >= max(FIRST, min(chunk, factor * self._called)):
            return True
        return self._spent + self.items <= share * STEP_COST * self._trained

    def measure(self, probe: Probe, step: int) -> ProbeResult:
        """Call the probe and measure what it gives.

        Raises:
            ValueError: if it is no embeddings with labels, of two items or more, or these are other items than before.
        """
        output = probe()
        if not 2 <= len(output) <= 3:
            raise ValueError(
                f"a probe must give (embeddings, labels) or (embeddings, labels, fine): got {len(output)}."
            )
        embeddings, *labels = output
        if getattr(embeddings, "ndim", None) != 2 or len(embeddings) < 2:
            shape = getattr(embeddings, "shape", None)
            what = type(embeddings).__name__ if shape is None else f"shape {tuple(shape)}"
            raise ValueError(f"a probe must give an array or tensor (M, d) of two items or more: got {what}.")
        levels = [ProbeLevel.of_labels(values, len(embeddings)) for values in labels]
        groups, checksum = [level.groups for level in levels], levels[0].checksum
        if self.reference is None:
            self.levels, self._checksum = groups, checksum
        elif (len(levels), checksum) != (len(self.levels), self._checksum) or not np.array_equal(
            groups[0], self.levels[0]
        ):
            raise ValueError(
                f"a probe must give the same items in the same order each time: got {len(groups[0])}, with other "
                f"labels than the {self.items} of the first call."
            )
        result = measure_probe(step, embeddings, levels)
        if self.reference is None and result.not_finite:
            raise ValueError(
                f"embeddings of a probe must be finite before training: those of {result.not_finite} of "
                f"{len(embeddings)} items are not; look at the items and the weights."
            )
        return self.record(result)

    def record(self, result: ProbeResult) -> ProbeResult:
        """Note what the probe showed, and return it; the first is the reference."""
        self._called = self._updates
        self._spent += self.items
        self._fell = None
        if self.reference is None:
            self.reference = result
        else:
            self.before, self.last = self.last, result
        if self.best is None or result.score > self.best.score:
            self.best = result
            if self.on_best is not None:
                self.on_best(result)
        gain = self._compared_with(result, self.reference)
        ends = (0.0, 0.0) if result is self.reference else (gain.low, gain.high)
        for name, value in zip((*SERIES, *GAIN), (*result.values(), *ends), strict=True):
            self.series[name].append(value)
        return result

    def __getstate__(self) -> dict[str, Any]:
        """All but what is called, of which a copy has nothing."""
        return {**vars(self), "on_best": None}

    def behind(self, other: ProbeResult) -> bool:
        """Return whether the last result is worse than another by a point or more, and by more than chance at 95 %.

        It is asked at the level that counts, to choose between two networks and not to accuse one.
        """
        return self.last is not None and self._compared_with(self.last, other, confidence=CHOOSING).worse

    def ahead(self, other: ProbeResult) -> bool:
        """Return whether it is better, likewise."""
        return self.last is not None and self._compared_with(self.last, other, confidence=CHOOSING).better

    def _compared_with(
        self,
        result: ProbeResult,
        other: ProbeResult,
        number: int = -1,
        *,
        confidence: float = LEVEL,
    ) -> Comparison:
        """Recall@1 of a result beside that of another, at the level of classes of that number."""
        return self._compared(result.scores[number], other, number, confidence=confidence)

    def _compared(
        self, scores: ItemScores, other: ProbeResult, number: int, *, confidence: float = LEVEL
    ) -> Comparison:
        before = other.scores[number]
        return compare_values(
            scores.hits,
            before.hits,
            self.levels[number],
            reference=f"step {other.step}",
            level=LEVELS[: len(self.levels)][number],
            confidence=confidence,
            rank_biased=(scores.rank_biased, before.rank_biased),
        )

    @property
    def fell(self) -> bool:
        """Return whether the last result may be worse than the start, which the next one will tell."""
        if self._fell is None:
            self._fell = bool(self._losses([self.last], self.reference, confidence=CHOOSING))
        return self._fell

    def stays_below(self, other: ProbeResult | None, *, ended: bool = False) -> list[Comparison]:
        """Comparisons at the levels where the last two results are below an earlier one, beyond chance, if recall did
        not rise by a point.

        Recall@1 is a point lower at both, and the mean of both is worse, see `Comparison`.

        Args:
            ended: whether no more results will come: the last alone is then compared, and may have risen.
        """
        if other is self.before or other is self.last:
            return []
        return self._losses([self.before, self.last], other, ended=ended)

    def _losses(
        self,
        results: Sequence[ProbeResult | None],
        other: ProbeResult | None,
        *,
        confidence: float = LEVEL,
        ended: bool = False,
    ) -> list[Comparison]:
        """The levels at which results, one after the other, together have less than another; see `stays_below`."""
        some = [result for result in results if result is not None]
        if other is None or len(some) < len(results):
            return []
        drops = []
        for number in range(len(self.levels)):
            recalls = [float(result.scores[number].hits.mean()) for result in (*some, other)]
            rises = recalls[-2] >= recalls[0] + FLOOR
            if max(recalls[:-1]) > recalls[-1] - FLOOR or (rises and not ended):
                continue
            compared = some[-1:] if ended else some
            columns = zip(*(result.scores[number] for result in compared), strict=True)
            mean = ItemScores(*(np.mean(column, axis=0) for column in columns))
            drops.append(self._compared(mean, other, number, confidence=confidence))
        return [drop for drop in drops if drop.worse]

    def collapse(self) -> str | None:
        """The rule by which the last two results are a network collapse beside the start, of the last; None if one is
        none.
        """
        rules = [self._collapse(result) for result in (self.before, self.last)]
        return rules[-1] if all(rules) else None

    def _collapse(self, result: ProbeResult | None) -> str | None:
        start = self.reference
        if result is None or start is None:
            return None
        comparison = self._compared_with(result, start, 0)
        high = self._chance_high(result)
        lost = retrieval_lost(
            result.recall,
            self.chance,
            chance_high=high,
            comparisons=[comparison],
            centred_recall=None if math.isnan(result.centred_recall) else result.centred_recall,
        )
        verdict = network_collapse(lost, result.shape(start), above=above_chance(result.recall, high))
        return None if verdict is None else verdict[1]

    def closing(self) -> str | None:
        """Sentence on how held-out items ended beside their start; None before the second call."""
        now, start, best = self.last, self.reference, self.best
        if now is None or start is None or best is None:
            return None
        level = LEVELS[len(self.levels) - 1]
        change = self._compared_with(now, start)
        gain = change.difference
        if change.worse or change.better:
            sign = -1 if change.worse else 1
            near, far = sorted((100 * sign * change.low, 100 * sign * change.high))
            ends = f"{near:.1f} to {far:.1f}{rank_biased_words(change.rank_biased, below=True)}"
            side = "below" if change.worse else "above"
            where = f"{100 * abs(gain):.1f} points (99 % interval {ends}) {side} its start"
        else:
            where = f"as it began{' or lower' if change.doubtful else ''}, as far as can be told "
            where += f"({100 * gain:+.1f} points, 99 % interval {100 * change.low:+.1f} to {100 * change.high:+.1f})"
        text = (
            f"Recall@1 by {level} of {self.items} held-out items ends {where}: {100 * start.score:.1f} % at step "
            f"{start.step}, {100 * now.score:.1f} % at step {now.step}"
        )
        if best.step > start.step and self.behind(best):
            text += f"; it was best at step {best.step}, {100 * best.score:.1f} %"
        chance = self._chance_high(now)
        if chance is not None and not above_chance(max(self.series["recall"]), chance):
            text += (
                f". By the labels it never was better than chance, up to {100 * chance:.1f} %: what was learned "
                "cannot be told by these items"
            )
        return f"{text}."

    def _chance_high(self, result: ProbeResult) -> float | None:
        """Up to where its recall@1 comes by chance; None if it is far above: not worth 2,000 permutations."""
        if _is_far_above(result.recall, self.chance):
            return None
        if result.by_chance is not None:
            return result.by_chance[1]
        return recall_by_chance(result.nearest, np.arange(len(result.nearest)), self.levels[0])[1]

    def summary(self) -> ProbeSummary | None:
        """Summary for a record; None before the first call."""
        if self.reference is None:
            return None
        start = dict(zip(SERIES, self.reference.values(), strict=True))
        return ProbeSummary(self.items, self.cost, start, self.series)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, as JSON."""
        counts = (self._updates, self._called, self._spent, self._trained)
        results = {name: getattr(self, name) for name in RESULTS}
        return json_section(
            series=self.series, levels=self.levels, checksum=self._checksum, counts=counts, results=results
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.series = with_nan(state["series"])
        self.levels = [np.array(classes, dtype=np.int64) for classes in state["levels"]]
        self._checksum = state["checksum"]
        self._updates, self._called, self._spent, self._trained = state["counts"]
        self._fell = None
        for name, result in state["results"].items():
            setattr(self, name, None if result is None else ProbeResult.from_json(result))
