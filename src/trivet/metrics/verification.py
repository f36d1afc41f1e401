"""Verification: do two items have the same class? A threshold on their distance decides: ROC, TAR at FAR, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from trivet.distances import Array, as_classes
from trivet.metrics.intervals import NONE, OVERS, Average, Difference, Interval, Over, check_options, clipped
from trivet.metrics.points import Metric, as_numpy, as_points, distances_of_pairs
from trivet.metrics.positive_ranks import TIE
from trivet.metrics.roc import Roc
from trivet.metrics.verification_pairs import ACCURACY, AREA, VerificationPairs, rate_name
from trivet.runtime.arrays import Booleans, Floats, Integers

NEITHER = 2  # the half of a pair that lies across both


@dataclass(frozen=True)
class Verification:
    """Quality of distances as a test of pairs of one class ("positive") against pairs of two ("negative").

    Pairs whose distances differ by at most 1e-13 of themselves are tied, and tied pairs count as if put in random
    order. So an embedding that is constant, or knows nothing of the classes, has a `roc_auc` and an `accuracy` of 0.5,
    and f as its TAR at a FAR of f.
    """

    roc_auc: float  # chance that a positive pair is nearer than a negative one, in [0, 1]
    # {f: share of positive pairs accepted where a share f of the negatives is}; None below 1 / negative_pairs, as
    # there not even one negative pair would be accepted
    tar_at_far: dict[float, float | None]
    # Pairs up to this distance are the same class; chosen on one half. Both are None where a half lacks a kind of pair.
    threshold: float | None
    accuracy: float | None  # on the other half: mean of the shares of positives and of negatives that are right
    positive_pairs: int
    negative_pairs: int
    sampled: bool  # whether these are a random sample of the pairs there are
    # What intervals and values of each class are found from; None of `verify_pairs`, which does not know the items.
    pairs: VerificationPairs | None = field(default=None, compare=False, repr=False)

    def measures(self) -> dict[str, float | None]:
        """The measures by name: "roc-auc", "tar@far=F" for each F, "verification-accuracy"."""
        rates = {rate_name(far): share for far, share in self.tar_at_far.items()}
        return {AREA: self.roc_auc, **rates, ACCURACY: self.accuracy}

    def per_class(self) -> dict[str, Floats]:
        """Measure -> that of each class `(C,)`, in the order of the labels, NaN for a class that lacks the pairs.

        The pairs of a class are its positive pairs, and the negative ones that one of its items is in; distances of a
        FAR and threshold are those of all. Empty for `verify_pairs`, which does not know the items.
        """
        return {} if self.pairs is None else self.pairs.per_class()

    def mean(self, average: Average = "micro") -> dict[str, float | None]:
        """Each measure; with "macro" the mean over the classes that have it, None where none has."""
        if average == "micro":
            return self.measures()
        by_class = {name: values[~np.isnan(values)] for name, values in self.per_class().items()}
        return {name: float(by_class[name].mean()) if len(by_class.get(name, ())) else None for name in self.measures()}

    def intervals(self, average: Average = "micro", *, level: float = 0.95) -> dict[str, dict[str, Interval]]:
        """Measure -> interval over "queries" (other items of these classes) and over "classes" (other classes).

        Items or classes vary, never pairs, as the pairs of an item go together; see `VerificationPairs` for the weights
        of pairs. The threshold of the accuracy is held fixed, the distance of a FAR is not. NaN for a measure that is
        missing, a TAR of fewer than ten accepted negative pairs, and fewer than two items or classes; empty for
        `verify_pairs`, which does not know the items.

        Args:
            average: "micro", of the measures; "macro", of the means over the classes of `per_class`.
            level: the coverage, in (0, 1).
        """
        check_options(average, level)
        if self.pairs is None:
            return {}
        variances = {over: self.pairs.variances(over, average) for over in OVERS}
        return {
            name: {
                over: NONE if value is None else variances[over][name].intervals([value], level=level)[0]
                for over in OVERS
            }
            for name, value in self.mean(average).items()
        }

    def differences(self, other: Verification, *, level: float = 0.95) -> dict[str, dict[Over, Difference]]:
        """Measure -> over -> this less that of another embedding, of the same items in the same order."""
        if self.pairs is None or other.pairs is None:
            return {}
        differences: dict[str, dict[Over, Difference]] = {}
        mine, others = self.measures(), other.measures()
        for over in OVERS:
            for name, variance in self.pairs.variances(over, "micro", less=other.pairs).items():
                first, second = mine[name], others[name]
                if first is not None and second is not None:
                    (interval,) = variance.intervals([first - second], level=level, bounded=False)
                    difference = Difference(first - second, clipped(interval, -1, 1))
                    differences.setdefault(name, {})[over] = difference
        return differences


def verify(
    embeddings: Array,
    labels: Array,
    *,
    distance: Metric = "euclidean",
    fars: Sequence[float] = (1e-2, 1e-3, 1e-4),
    most_pairs: int = 2_000_000,
    seed: int = 0,
) -> Verification:
    """Verification over all pairs of two items, or over a random sample of them where they are too many.

    With more than `most_pairs` pairs, at most half as many positive and half as many negative ones are drawn, each
    uniformly without replacement; a kind that has fewer is taken whole.

    The threshold is the best one for the pairs within one half of the classes, drawn at random, and the accuracy is
    that of the pairs within the other half, so no class serves both. It takes two classes of at least two items and
    two more of any size.

    Args:
        embeddings: `(N, d)` floating point; compared in float64, by differences of rows.
        labels: `(N,)` of any integer dtype.
        distance: "euclidean", or "cosine" (1 - cosine similarity; a row of zeros has similarity 0 to other rows).
        fars: false accept rates, each in (0, 1).
        most_pairs: at least 2.
        seed: of the sample and of the halves.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, no two items share a class, all items do, or an
            option is out of range.

    Source:
        Huang et al., "Labeled Faces in the Wild", 2007 (a threshold chosen on other people); Klare et al., "Pushing
        the Frontiers of Unconstrained Face Detection and Recognition: IARPA Janus Benchmark A", CVPR 2015 (TAR at FAR).

    Example:
        >>> result = verify(np.array([[0.0], [1.0], [4.0], [5.5]]), np.array([0, 0, 1, 1]), fars=(0.25,))
        >>> result.roc_auc, result.tar_at_far, result.positive_pairs, result.negative_pairs
        (1.0, {0.25: 1.0}, 2, 4)
    """
    points = as_points(embeddings, distance=distance)
    classes = as_classes(labels, count=len(points)).numpy()
    _check_fars(fars)
    if most_pairs < 2:
        raise ValueError(f"most_pairs must be at least 2: got {most_pairs}.")
    generator = np.random.default_rng(seed)
    order = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes)
    ends = np.repeat(np.cumsum(sizes), sizes)  # (N,) where the class of each row, in this order, ends
    rows = np.arange(len(classes))
    # The partners of a row are consecutive: those of its class after it, and those of all later classes.
    partners = [(rows + 1, ends - rows - 1), (ends, len(rows) - ends)]
    positives, negatives = totals = [int(count.sum()) for _, count in partners]
    if not positives:
        raise ValueError(
            f"two items must share a class: each of the {len(rows)} items has a class of its own; add more items."
        )
    if not negatives:
        raise ValueError(
            f"the items must have at least two classes: all {len(rows)} have the same one; add another class."
        )
    most = [most_pairs // 2] * 2 if sum(totals) > most_pairs else totals
    half = _halves(sizes, generator)[classes]  # first, so that they are the same whatever is sampled
    counts = [min(pair) for pair in zip(totals, most, strict=True)]
    pairs = [
        _numbered(first, count, _distinct(total, wanted, generator))
        for (first, count), total, wanted in zip(partners, totals, counts, strict=True)
    ]
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    half = half[order]
    verification, group, accepted = _verification(
        _distances(points, order[left], points, order[right], distance),
        np.arange(len(left)) < counts[0],
        np.where(half[left] == half[right], half[left], NEITHER),
        fars,
        sampled=counts != totals,
    )
    resolved = tuple(far for far, share in verification.tar_at_far.items() if share is not None)
    # Positions of at most 2^31 items, as there are many pairs.
    sides = left.astype(np.int32), right.astype(np.int32)
    return replace(
        verification,
        pairs=VerificationPairs(*sides, counts[0], group.astype(np.int32), accepted, order, sizes, half == 1, resolved),
    )


def verify_pairs(
    left: Array,
    right: Array,
    same: Array,
    *,
    distance: Metric = "euclidean",
    fars: Sequence[float] = (1e-2, 1e-3, 1e-4),
    seed: int = 0,
) -> Verification:
    """Verification over a given list of pairs.

    The threshold is the best one for a random half of the positive and of the negative pairs, and the accuracy is that
    of the others. A class may be in both halves; where that matters use `verify`.

    Args:
        left, right: `(P, d)` floating point, the two items of each pair.
        same: `(P,)` bool, or integers 0 and 1; whether the two are of one class.
        distance, fars, seed: as in `verify`.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is no positive or no negative pair, or an
            option is out of range.

    Source:
        Huang et al., "Labeled Faces in the Wild", 2007: 6000 given pairs.

    Example:
        >>> left, right = np.zeros((4, 1)), np.array([[0.1], [2.0], [0.3], [3.0]])
        >>> result = verify_pairs(left, right, np.array([True, False, True, False]), fars=(0.5,))
        >>> result.roc_auc, result.accuracy, result.tar_at_far
        (1.0, 1.0, {0.5: 1.0})
    """
    firsts, seconds = as_points(left, distance=distance), as_points(right, distance=distance)
    if firsts.shape != seconds.shape:
        raise ValueError(
            f"left and right must hold the two items of each pair: got shapes {tuple(firsts.shape)} and "
            f"{tuple(seconds.shape)}; give both one row for each pair."
        )
    positive = _as_bools(same, count=len(firsts))
    _check_fars(fars)
    if positive.all() or not positive.any():
        raise ValueError(
            f"same must contain same-class and different-class pairs: got {int(positive.sum())} and "
            f"{int((~positive).sum())}; add pairs of the missing kind."
        )
    generator = np.random.default_rng(seed)
    half = np.empty(len(positive), dtype=np.int64)
    for kind in (positive, ~positive):
        half[kind] = generator.permutation(int(kind.sum())) % 2
    rows = np.arange(len(positive))
    return _verification(_distances(firsts, rows, seconds, rows, distance), positive, half, fars, sampled=False)[0]


def _verification(
    distances: Floats, positive: Booleans, half: Integers, fars: Sequence[float], *, sampled: bool
) -> tuple[Verification, Integers, Booleans | None]:
    """The measures; the group of each pair in the curve; whether it is accepted, where a threshold was found."""
    curve = Roc.of(distances, positive)
    negatives = int(curve.false[-1])
    threshold = accuracy = accepted = None
    choosing, judging = half == 0, half == 1
    if all(0 < positive[split].sum() < split.sum() for split in (choosing, judging)):
        threshold = Roc.of(distances[choosing], positive[choosing]).best_threshold()
        accepted = distances <= threshold * (1 + TIE)
        accuracy = float(accepted[judging & positive].mean() + (~accepted[judging & ~positive]).mean()) / 2
    verification = Verification(
        roc_auc=curve.area,
        # The slack is for a rate like 1 / 49, of which 49 make less than 1 in floating point.
        tar_at_far={far: curve.true_at(far) if far * negatives > 1 - 1e-9 else None for far in fars},
        threshold=threshold,
        accuracy=accuracy,
        positive_pairs=int(curve.true[-1]),
        negative_pairs=negatives,
        sampled=sampled,
    )
    return verification, curve.group, accepted


def _distances(left: Tensor, rows: Integers, right: Tensor, columns: Integers, distance: Metric) -> Floats:
    """Distances `(P,)` of rows of `left` to rows of `right`."""
    distances = distances_of_pairs(left, torch.from_numpy(rows), right, torch.from_numpy(columns))
    # Between unit rows D = 2 - 2 S.
    values: Floats = (distances if distance == "euclidean" else distances.square() / 2).numpy()
    return values


def _numbered(first: Integers, count: Integers, numbers: Integers) -> tuple[Integers, Integers]:
    """The two rows of pairs by their numbers: row i has `count[i]` pairs, with row `first[i]` and those after it."""
    ends = np.cumsum(count)
    rows = np.searchsorted(ends, numbers, side="right")
    return rows, first[rows] + numbers - (ends - count)[rows]


def _distinct(total: int, count: int, generator: np.random.Generator) -> Integers:
    """`count` of the numbers 0 .. total - 1, every such set equally likely; in rising order."""
    if count == total:
        return np.arange(total)
    if total <= 4 * count:
        return np.sort(generator.permutation(total)[:count])
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < count:
        more = generator.integers(total, size=count + count // 4)
        numbers = np.union1d(numbers, more)
    # Whatever their number, the numbers drawn are no likelier than others; nor is a random part of them.
    return np.sort(generator.permutation(numbers)[:count])


def _halves(sizes: Integers, generator: np.random.Generator) -> Integers:
    """The half `(C,)`, 0 or 1, of each class: as many of the classes that have positive pairs in each, or one more."""
    shuffled = generator.permutation(len(sizes))
    shuffled = shuffled[np.argsort(sizes[shuffled] < 2, kind="stable")]
    halves = np.empty(len(sizes), dtype=np.int64)
    halves[shuffled] = np.arange(len(sizes)) % 2
    return halves


def _as_bools(same: Array, *, count: int) -> Booleans:
    values = as_numpy(same)
    if values.shape != (count,):
        raise ValueError(f"same must hold one value for each of the {count} pairs: got shape {values.shape}.")
    if values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"same must be True or False, or 1 or 0: got {values.dtype} from {values.min()} to {values.max()}; "
            "compare the labels of the two items with ==."
        )
    return values.astype(np.bool_)


def _check_fars(fars: Sequence[float]) -> None:
    if not all(0 < far < 1 for far in fars):
        raise ValueError(f"fars must lie between 0 and 1: got {tuple(fars)}; for 0.1 % give 0.001.")
