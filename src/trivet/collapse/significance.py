"""The test of recall@1 beside chance, and beside other embeddings of the same items: better, worse, or neither."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trivet.metrics.intervals import Interval, middle, student
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps

QUERIES_LEVEL, CLASSES_LEVEL = 0.999, 0.99  # of the two intervals of a difference
FEWEST = 5  # classes from which they are drawn too
FLOOR = 0.01  # a smaller difference of two recalls is none
DECISIVE = 0.1  # from such a difference on, classes that were not drawn could hardly turn it
PERMUTED_LEVEL = 0.99  # share of the permutations of the labels between both ends
PERMUTATIONS = 2000
ENTRIES = 2**23  # of permuted labels held at once: 64 MiB


UNTRAINED, ZERO_SHOT, RAW = "untrained network", "zero-shot backbone", "raw inputs"  # what a run is compared with


@dataclass(frozen=True)
class Comparison:
    """Recall@1 or MAP@R of an embedding beside that of a reference, on the same queries; shares in [0, 1].

    Attributes:
        reference: its name.
        level: the label level.
        queries: how many.
        score, reference_score: the measure of both.
        low, high: interval of `difference`: from the lower to the higher end of two Student-t intervals, of 99.9 % over
            queries and, with five classes or more, of 99 % over classes; of 10 points or more, the first alone.
    """

    reference: str
    level: str
    queries: int
    score: float
    reference_score: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """The measure of the embedding less that of the reference."""
        return self.score - self.reference_score

    @property
    def worse(self) -> bool:
        """Return whether the embedding is worse beyond doubt: the whole interval is below 0, and a point or more is
        lost."""
        return self.high < 0 and self.difference <= -FLOOR

    @property
    def better(self) -> bool:
        """Return whether it is better beyond doubt."""
        return self.low > 0 and self.difference >= FLOOR

    @property
    def doubtful(self) -> bool:
        """Return whether it did less well, but may be as good on other items."""
        return self.difference <= -FLOOR and not self.worse


def comparison_json(comparison: Comparison, measure: str = "recall") -> dict[str, float | str]:
    """Its fields, the scores named by the measure, and the outcome: of "recall" in words, of others whether worse."""
    values: dict[str, float | str] = {
        "reference": comparison.reference,
        "level": comparison.level,
        "queries": comparison.queries,
        measure: comparison.score,
        f"reference_{measure}": comparison.reference_score,
        "low": comparison.low,
        "high": comparison.high,
        "difference": comparison.difference,
    }
    if measure != "recall":
        return values | {"worse": comparison.worse}
    open_ = "open" if comparison.doubtful else "equal"
    return values | {"outcome": "worse" if comparison.worse else "better" if comparison.better else open_}


def in_words(reference: str) -> str:
    """Its name in a sentence; that of a file stays as it is."""
    return f"the {reference}" if reference in (UNTRAINED, ZERO_SHOT, RAW) else reference


def compare(
    hits: Floats,
    others: Floats,
    classes: Integers,
    *,
    reference: str,
    level: str,
    over_queries: float = QUERIES_LEVEL,
    over_classes: float = CLASSES_LEVEL,
    decisive: float = DECISIVE,
) -> Comparison:
    """Compare a measure on the same queries; the interval is that of `difference_ends`.

    Few classes give so wide an interval that the loss of a quarter may be left open. A difference of 10 points or more
    is judged over queries alone: it is a fact of these classes, and others that are drawn instead seldom turn it.

    Args:
        hits: `(Q,)` in [0, 1], recall@1, or another measure, of each query in the embedding.
        others: `(Q,)`, in the reference.
        classes: `(Q,)` the class of each query.
        over_queries, over_classes: the confidence of the interval, see there.
        decisive: the difference from which classes are not asked; infinite for never.
    """
    gains = hits - others
    class_level = over_classes if abs(float(gains.mean())) < decisive else None
    low, high = difference_ends(gains, classes, over_queries=over_queries, over_classes=class_level)
    return Comparison(
        reference=reference,
        level=level,
        queries=len(hits),
        score=float(hits.mean()),
        reference_score=float(others.mean()),
        low=low,
        high=high,
    )


def difference_ends(
    differences: Floats, classes: Integers, *, over_queries: float, over_classes: float | None
) -> tuple[float, float]:
    """From the lower to the higher end of two Student-t intervals of a mean, within [-1, 1].

    One is over queries; with five classes or more, the other is over classes, all queries of a class together. Two more
    queries, one that each side wins, keep the first honest where there are few.

    Args:
        differences: `(Q,)` in [-1, 1], a measure of each query less that in another embedding.
        classes: `(Q,)` the class of each query.
        over_queries, over_classes: the confidence of each, in (0, 1); None for queries alone.

    Source:
        Agresti, Min, "Simple improved confidence intervals for comparing matched proportions", 2005 (the two queries).
    """
    ends = [student(np.concatenate([differences, [1.0, -1.0]]), level=over_queries)]
    _, members = np.unique(classes, return_inverse=True)
    sizes = np.bincount(members)
    if over_classes is not None and len(sizes) >= FEWEST:
        sums = np.bincount(members, weights=differences)
        # A ratio of two sums over the drawn classes, about its value.
        mean = float(differences.mean())
        about = student((sums - mean * sizes) / sizes.mean(), level=over_classes)
        ends.append(Interval(mean + about.low, mean + about.high))
    return max(-1.0, min(end.low for end in ends)), min(1.0, max(end.high for end in ends))


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
