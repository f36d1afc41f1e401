"""The rule by which an embedding is better or worse than another of the same items, and the test beside chance.

All that judges asks it: diagnosis, the result of a run, comparisons of runs, the monitor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from trivet.metrics.intervals import (
    OVERS,
    Over,
    Variance,
    middle,
    symmetrical_interval,
    variance_of_mean,
)
from trivet.metrics.relation_levels import LevelRelation
from trivet.metrics.retrieval import Retrieval
from trivet.metrics.sampling_variance import sampling_variances
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps

LEVEL = 0.99  # of the intervals of a difference
FEWEST = 5  # classes from which they are drawn too
FLOOR = 0.01  # a smaller difference is none
GALLERY = 1.3  # variance of a difference over that where the gallery stays: its mean in studies/intervals.py
RANKED = 1000  # queries up to which rank-biased precision is compared too; of more, recall@1 tells enough
DECISIVE = 0.1  # from such a difference on, classes that were not drawn could hardly turn it
ROUNDING = 1e-9  # of a difference
PERMUTED_LEVEL = 0.99  # share of the permutations of the labels between both ends
PERMUTATIONS = 2000
ENTRIES = 2**23  # of permuted labels held at once: 64 MiB


OPEN = "too few to be sure"
OF_CLASSES = " for other items of these classes"  # after an interval
UNTRAINED, ZERO_SHOT, RAW = "untrained network", "zero-shot backbone", "raw inputs"  # what a run is compared with


@dataclass(frozen=True)
class Comparison:
    """Recall@1 or MAP@R of an embedding beside that of a reference, on the same queries; shares in [0, 1].

    Attributes:
        reference: its name.
        level: the label level.
        queries: how many.
        score, reference_score: the measure of both.
        low, high: interval of `difference`, see `interval_of`.
        known_classes: whether it is over other items of these classes alone, as the embedding was trained on them.
        rank_biased: rank-biased precision of the same queries, where recall@1 is lower but leaves open whether by
            chance; None where it decides, or is no measure of an embedding beside what it was before.
    """

    reference: str
    level: str
    queries: int
    score: float
    reference_score: float
    low: float
    high: float
    known_classes: bool = False
    rank_biased: Comparison | None = None

    @property
    def difference(self) -> float:
        """The measure of the embedding less that of the reference."""
        return self.score - self.reference_score

    @property
    def worse(self) -> bool:
        """Return whether the embedding is worse beyond doubt: a point or more is lost, and the whole interval is below
        0, or that of rank-biased precision."""
        certain = self.high < 0 or (self.rank_biased is not None and self.rank_biased.high < 0)
        return certain and self.difference <= -FLOOR

    @property
    def better(self) -> bool:
        """Return whether it is better beyond doubt."""
        return self.low > 0 and self.difference >= FLOOR

    @property
    def doubtful(self) -> bool:
        """Return whether it did less well, but may be as good on other items."""
        return self.difference <= -FLOOR and not self.worse


def comparison_json(comparison: Comparison, measure: str = "recall") -> dict[str, Any]:
    """Its fields, the scores named by the measure, and the outcome: of "recall" in words, of others whether worse."""
    values: dict[str, Any] = {
        "reference": comparison.reference,
        "level": comparison.level,
        "queries": comparison.queries,
        measure: comparison.score,
        f"reference_{measure}": comparison.reference_score,
        "low": comparison.low,
        "high": comparison.high,
        "difference": comparison.difference,
    }
    values["known_classes"] = comparison.known_classes
    if measure != "recall":
        return values | {"worse": comparison.worse}
    ranked = comparison.rank_biased
    values["rank_biased"] = ranked and {
        "value": ranked.score,
        "reference_value": ranked.reference_score,
        "difference": ranked.difference,
        "low": ranked.low,
        "high": ranked.high,
    }
    open_ = "open" if comparison.doubtful else "equal"
    return values | {"outcome": "worse" if comparison.worse else "better" if comparison.better else open_}


def doubt_words(outcome: str, difference: float, ends: tuple[float, float], sampled: str) -> str:
    """Words that follow an interval: whether the difference is none, or open; nothing where it is beyond doubt.

    Args:
        outcome: see `comparison_json`.
        difference, ends: as shares.
        sampled: how many classes or items the interval is over, such as "5 classes".
    """
    if outcome in ("better", "worse"):
        return ""
    if ends[0] >= -FLOOR and ends[1] <= FLOOR:
        return "; no difference of a point"
    certain = ends[0] > 0 or ends[1] < 0
    return "; less than a point" if certain and abs(difference) < FLOOR else f"; {sampled}: {OPEN}"


class Ends(Protocol):
    """Fields of a comparison that `rank_biased_words` reads."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def rank_biased_words(ranked: Ends | None, *, below: bool = False) -> str:
    """Words after the interval of recall@1: that of rank-biased precision, where it was compared and is a loss.

    Args:
        below: whether the text has said that what is lost is above 0.
    """
    if ranked is None or ranked.high >= 0:
        return ""
    ends = (
        f"{-100 * ranked.high:.1f} to {-100 * ranked.low:.1f}"
        if below
        else f"{signed_points(ranked.low)} to {signed_points(ranked.high)}"
    )
    return f"; of rank-biased precision {ends}"


def signed_points(difference: float) -> str:
    """A difference in points, with its sign; to two digits where one would show none."""
    text = f"{100 * difference:+.1f}"
    return text if text.strip("+-") != "0.0" or not difference else f"{100 * difference:+.2f}"


def in_words(reference: str) -> str:
    """Its name in a sentence; that of a file stays as it is."""
    return f"the {reference}" if reference in (UNTRAINED, ZERO_SHOT, RAW) else reference


def compare(
    now: Sequence[Retrieval],
    others: Sequence[Retrieval],
    *,
    reference: str,
    level: str,
    measure: str = "recall@1",
    known_classes: bool = False,
) -> Comparison:
    """Compare a measure of the same queries in embeddings and in a reference, each side by the mean of its embeddings.

    Args:
        now, others: of the same queries in the same order: one each, or as many as runs differ in their seeds alone.
        reference: its name.
        level: the label level.
        measure: recall@1, or another of these retrievals.
        known_classes: whether the embeddings were trained on the classes: others than these do not matter then.
    """
    return compare_groups(
        [(now, others)], reference=reference, level=level, measure=measure, known_classes=known_classes
    )


def compare_with_reference(
    now: Retrieval,
    reference: Retrieval,
    *,
    name: str,
    level: str,
    measure: str = "recall@1",
    known_classes: bool = False,
) -> Comparison:
    """Compare as `compare` does, with what an embedding was before, or is made from.

    Where recall@1 is lower but leaves open whether by chance, rank-biased precision may tell, see `Comparison`. It is
    recall@1 in a gallery half as large, and varies less. Training raises it more than recall@1: so it shows a loss, but
    no gain.

    Args:
        now, reference: of the same queries in the same order.
        name: of the reference.
        level, measure, known_classes: as in `compare`.
    """

    def compared(measure: str, *sides: Retrieval) -> Comparison:
        return compare(sides[:1], sides[1:], reference=name, level=level, measure=measure, known_classes=known_classes)

    first = compared(measure, now, reference)
    if measure != "recall@1" or not _open_loss(first):
        return first
    return replace(first, rank_biased=compared("rbp", now.by(["rbp"]), reference.by(["rbp"])))


def _open_loss(comparison: Comparison) -> bool:
    """Return whether rank-biased precision is worth a look."""
    return comparison.doubtful and comparison.queries <= RANKED


def compare_groups(
    groups: Sequence[tuple[Sequence[Retrieval], Sequence[Retrieval]]],
    *,
    reference: str,
    level: str,
    measure: str = "recall@1",
    known_classes: bool = False,
) -> Comparison:
    """Compare as `compare` does, over several sets of other items, such as folds, whose variances add up."""
    scores, units, variances = [], [], []
    for now, others in groups:
        retrievals = [each.only([measure]) for each in (*now, *others)]
        counted = np.logical_and.reduce([each.counted for each in retrievals])
        means = [float(each.values[counted].mean()) if counted.any() else math.nan for each in retrievals]
        scores.append((np.mean(means[: len(now)]), np.mean(means[len(now) :])))
        weights = [1 / len(now)] * len(now) + [-1 / len(others)] * len(others)
        variances.append(sampling_variances(retrievals, weights, ("micro",)))
        units.append((int(counted.sum()), len(np.unique(retrievals[0].classes[counted]))))
    queries, classes = np.sum(units, axis=0).tolist()
    shares = np.array(units)[:, 0] / max(1, queries)
    added: dict[Over, Variance] = {}
    for over in OVERS:
        of = [each[over, "micro"] for each in variances]
        degrees = classes - 1 if over == "classes" else sum(each.degrees for each in of)
        added[over] = Variance(sum(np.square(shares) * [each.values[0] for each in of])[None], degrees, queries)
    score, reference_score = (shares @ np.array(scores)).tolist()
    first = groups[0][0][0]
    related = first.task is not None and isinstance(first.task.levels[first.level], LevelRelation)
    low, high = interval_of(
        score - reference_score,
        added,
        classes=classes,
        known_classes=known_classes,
        single=related and queries < 2 * classes,
    )
    return Comparison(reference, level, queries, score, reference_score, low, high, known_classes)


def compare_values(
    values: Floats,
    others: Floats,
    classes: Integers,
    *,
    reference: str,
    level: str,
    confidence: float = LEVEL,
    rank_biased: tuple[Floats, Floats] | None = None,
) -> Comparison:
    """Compare where there is nothing but a measure of each query: how much the gallery adds is taken as usual.

    Args:
        values, others: `(Q,)` in [0, 1], a measure of each query in the embedding, and in the reference.
        classes: `(Q,)` the class of each query.
        confidence: of the interval, in (0, 1).
        rank_biased: rank-biased precision likewise, if the measure is recall@1; see `compare_with_reference`.
    """
    gains = (values - others)[:, None]
    variances: dict[Over, Variance] = {}
    for over in OVERS:
        alone = variance_of_mean(gains, classes, over=over, average="micro")
        variances[over] = replace(alone, values=GALLERY * alone.values)
    score, reference_score = float(values.mean()), float(others.mean())
    low, high = interval_of(score - reference_score, variances, classes=len(np.unique(classes)), confidence=confidence)
    compared = Comparison(reference, level, len(values), score, reference_score, low, high)
    if rank_biased is None or not _open_loss(compared):
        return compared
    ranked = compare_values(*rank_biased, classes, reference=reference, level=level, confidence=confidence)
    return replace(compared, rank_biased=ranked)


def interval_of(
    difference: float,
    variances: Mapping[Over, Variance],
    *,
    classes: int,
    confidence: float = LEVEL,
    known_classes: bool = False,
    single: bool = False,
) -> tuple[float, float]:
    """From the lower to the higher end of two Student-t intervals of a difference, within [-1, 1].

    One is over other items of these classes; with five classes or more, and less than 10 points, the other is over
    other classes, unless the embedding was trained on these. Few classes give so wide an interval that the loss of a
    quarter would be left open, while 10 points are a fact of these classes that others seldom turn. Two more queries,
    one that each side wins, keep the first honest where there are few. Where each class has a single query, as most
    groups of pairs have, nothing is known of other items of it: only that over other classes is left, of five or more.

    Args:
        variances: of the difference, over items and over classes.
        classes: of the queries.
        confidence: of each, in (0, 1).
        known_classes: see `compare`.
        single: take classes to have a single query, though some have more.

    Source:
        Agresti, Min, "Simple improved confidence intervals for comparing matched proportions", 2005 (the two queries).
    """
    low, high = difference, difference
    others = classes >= FEWEST and abs(difference) < DECISIVE - ROUNDING and not known_classes
    alone = classes >= FEWEST and (single or math.isnan(float(variances["queries"].values[0])))
    overs: Sequence[Over] = ("classes",) if alone else OVERS[: 2 if others else 1]
    for over in overs:
        of = variances[over]
        variance = float(of.values[0]) + (2 / (of.units + 2) ** 2 if over == overs[0] else 0.0)
        end = symmetrical_interval(difference, variance, degrees=of.degrees, units=of.units, level=confidence)
        if math.isnan(end.low):
            return -1.0, 1.0
        low, high = min(low, end.low), max(high, end.high)
    return max(-1.0, low), min(1.0, high)


def recall_by_chance(nearest: Integers, queries: Integers, classes: Integers, *, seed: int = 0) -> tuple[float, float]:
    """Between which values recall@1 lies in 99 % of the permutations of the labels: an exact test, for any neighbours.

    Two items that are each other's nearest hit or miss together, and many may have one neighbour; permuted labels keep
    that, where a binomial interval would not.

    Args:
        nearest: `(Q,)` the row of the nearest other item of each query.
        queries: `(Q,)` the rows of the queries.
        classes: `(N,)` class numbers.
        seed: of the 2,000 permutations.
    """
    generator = np.random.default_rng(seed)
    recalls = np.empty(PERMUTATIONS)
    step = max(1, ENTRIES // len(classes))
    for start in steps(range(0, PERMUTATIONS, step), "permutations of the labels, in blocks"):
        count = min(step, PERMUTATIONS - start)
        labels = generator.permuted(np.broadcast_to(classes, (count, len(classes))), axis=1)
        recalls[start : start + count] = (labels[:, nearest] == labels[:, queries]).mean(axis=1)
    ends = middle(recalls, level=PERMUTED_LEVEL)
    return ends.low, ends.high
