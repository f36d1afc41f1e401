"""Per-item and per-class parts of verification: the intervals of its measures, and its values for each class.

To the first order a measure follows the weights of its pairs. Where item i counts w_i times, the pair (i, j) weighs
w_i + w_j - 1, whatever its kind; where class c does, a pair within it weighs w_c, and one of c and c' w_c + w_c' - 1
(the Hajek projection of a statistic of pairs). So an item, or a class, counts by its own pairs.

What a pair does beyond its items is then in both of them, though it varies once. TAR rests on the few pairs that are
accepted, or on the few that are not, and ROC AUC near 0.5 on what pairs do by chance, so much of their variance is of
this kind: over items half of the squares of their pairs are taken off, between too wide and too narrow. The accuracy is
of half of the classes, whose threshold varies too: it counts whole. A low TAR is that of so many pairs, not of so many
items.

Source:
    Hoeffding, "A class of statistics with asymptotically normal distribution", Annals of Mathematical Statistics 1948;
    Hajek, "Asymptotic normality of simple linear rank statistics", Annals of Mathematical Statistics 1968.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trivet.metrics.intervals import (
    Average,
    Over,
    Variance,
    degrees_of_classes,
    effective_number,
    stratified_variance,
)
from trivet.runtime.arrays import Booleans, Floats, Integers

Rows = npt.NDArray[np.int32]

AREA, ACCURACY = "roc-auc", "verification-accuracy"
FEWEST = 10  # negative pairs accepted at a FAR, below which its distance is hardly known


@dataclass(frozen=True, eq=False)
class VerificationPairs:
    """The pairs of N items of C classes that were compared, the positive ones first; items stand class by class.

    Every measure of a class is of its positive pairs against the negative pairs that one of its items is in: its ROC
    AUC, the share of its positive pairs accepted at the distance of the FAR of all, and the mean of the shares of
    both that are right at the threshold.
    """

    left: Rows  # (P,) places of the two items, in the order of classes
    right: Rows
    positives: int  # the first so many pairs are of one class
    group: Rows  # (P,) rank of the distance, equal for tied pairs
    accepted: Booleans | None  # (P,) up to the threshold; None where there is none
    order: Integers  # (N,) the item at each place
    sizes: Integers  # (C,) items of each class
    judging: Booleans  # (N,) the half that the accuracy is of
    fars: tuple[float, ...]  # those the negative pairs resolve

    @property
    def classes(self) -> Integers:
        """`(N,)` class of the item at each place."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def per_class(self) -> dict[str, Floats]:
        """Each measure of each class `(C,)`; NaN for a class without the pairs it takes."""
        classes = self.classes
        positive_classes = classes[self.left[: self.positives]]
        shares_of = {AREA: self._area("macro").means()[0]}
        counts = np.bincount(positive_classes, minlength=len(self.sizes))
        for far in self.fars:
            accepted = self._accepted_at(far)[: self.positives]
            shares = np.full(len(self.sizes), math.nan)
            np.divide(np.bincount(positive_classes, accepted, len(self.sizes)), counts, out=shares, where=counts > 0)
            shares_of[rate_name(far)] = shares
        if self.accepted is not None:
            shares_of[ACCURACY] = self._accuracy().means()[0]
        return shares_of

    def variances(self, over: Over, average: Average, *, less: VerificationPairs | None = None) -> dict[str, Variance]:
        """The variance of each measure over items or classes; of what it is less that of the same items in `less`.

        NaN for a TAR of fewer than `FEWEST` accepted negative pairs, and for fewer than two items or classes.
        """
        units, count, classes = len(self.order), len(self.sizes), self.classes
        rates = {rate_name(far): far for far in self.fars}

        def differences(of: Callable[[VerificationPairs], dict[str, Floats]]) -> dict[str, Floats]:
            if less is None:
                return of(self)
            others = of(less)
            return {name: each - others[name] for name, each in of(self).items() if name in others}

        def by_class(pairs: VerificationPairs) -> dict[str, Floats]:
            return pairs.influences("classes", average)

        changes = differences(by_class if over == "classes" else lambda pairs: pairs.pair_changes(average))
        if (units if over == "queries" else count) < 2:
            return {name: Variance(np.full(1, math.nan), 1, units) for name in changes}
        # The accuracy is that of the classes of a half.
        judged = np.bincount(classes[self.judging], minlength=count)
        degrees = {
            name: max(0.5, units - count)
            if over == "queries"
            else degrees_of_classes(judged[judged > 0] if name == ACCURACY else self.sizes, average)
            for name in changes
        }
        variances: dict[str, Floats]
        if over == "classes":
            strata = np.zeros(count, np.int64)
            variances = {name: stratified_variance(column[:, None], strata) for name, column in changes.items()}
        else:
            # The only positive pair of a class of two cannot be told from what the class is.
            pairs = self.sizes == 2
            several = ~pairs[classes]
            variances = {
                name: stratified_variance(self._of_items(each)[several, None], classes[several])
                for name, each in changes.items()
            }
            for name, column in differences(by_class).items() if pairs.any() else ():
                deviations = column - column.mean()
                variances[name] += np.square(deviations[pairs]).sum() * count / max(1, count - 1)
            for name in variances.keys() - {ACCURACY}:
                twice = self._counted_twice(changes[name])
                variances[name] = np.maximum(variances[name] / 2, variances[name] - twice)
        negatives = len(self.left) - self.positives
        return {
            name: Variance(
                np.full(1, math.nan) if name in rates and rates[name] * negatives < FEWEST else values,
                degrees[name],
                self._units(rates[name], average) if name in rates else units,
            )
            for name, values in variances.items()
        }

    def _counted_twice(self, changes: Floats) -> float:
        """Half of the squares of what the pairs `(P,)` change a measure by; none of classes of up to three items, whose
        pairs can hardly be told from them."""
        positive_classes, count = self.classes[self.left[: self.positives]], len(self.sizes)
        sums = np.bincount(positive_classes, changes[: self.positives], count)
        means = sums / np.maximum(np.bincount(positive_classes, minlength=count), 1)
        squares = np.square(changes)
        squares[: self.positives] = np.square(changes[: self.positives] - means[positive_classes])
        several = (self.sizes > 3)[self.classes].astype(np.float64)
        return float(squares @ (several[self.left] + several[self.right])) / 4

    def _units(self, far: float, average: Average) -> float:
        """Units that a TAR is a share of: positive pairs where few are accepted; items above one half, where an outlier
        fails with all of its pairs. Pairs of unlike weights count as fewer, see `effective_number`."""
        if self._accepted_at(far)[: self.positives].mean() >= 0.5:
            return len(self.order)
        return effective_number(self._weights(average))

    def _weights(self, average: Average) -> Floats:
        """Weight of each positive pair; their sum is 1."""
        split = self.positives
        if average == "micro":
            return np.full(split, 1 / split)
        classes = self.classes[self.left[:split]]
        pairs = np.bincount(classes, minlength=len(self.sizes))
        return np.asarray(1 / (np.count_nonzero(pairs) * pairs[classes]))

    def influences(self, over: Over, average: Average) -> dict[str, Floats]:
        """The influence value of each item or class `(U,)` on each measure, what it adds where it counts more; their
        sum is 0.

        The threshold of the accuracy is held fixed; the distance of a FAR moves with the negative pairs.
        """
        if over == "queries":
            return {name: self._of_items(changes) for name, changes in self.pair_changes(average).items()}
        values = {AREA: self._area(average).class_changes(average)}
        if self.accepted is not None:
            values[ACCURACY] = self._accuracy().class_changes(average)
        return values | {rate_name(far): self._rate_of_classes(far, average) for far in self.fars}

    def pair_changes(self, average: Average) -> dict[str, Floats]:
        """Change `(P,)` of each measure with each pair that counts more; in "macro" of the positive ones within their
        classes."""
        values = {AREA: self._area(average).pair_changes(average)}
        if self.accepted is not None:
            values[ACCURACY] = self._accuracy().pair_changes(average)
        return values | {rate_name(far): self._rate_of_pairs(far, average) for far in self.fars}

    def _of_items(self, changes: Floats) -> Floats:
        """Sum over the pairs of each item `(N,)`."""
        return np.asarray(sum(np.bincount(side, changes, len(self.order)) for side in (self.left, self.right)))

    def _rate_of_classes(self, far: float, average: Average) -> Floats:
        """Influence of each class on TAR: by the positive pairs it has accepted, and by the negative ones."""
        split, count = self.positives, len(self.sizes)
        changes = self._rate_of_pairs(far, average)
        sides = self.classes[self.left], self.classes[self.right]
        of_class = np.bincount(sides[0][:split], changes[:split], count)
        if average == "macro":
            pairs = np.bincount(sides[0][:split], minlength=count)
            present = pairs > 0
            means = np.bincount(sides[0][:split], self._accepted_at(far)[:split], count) / np.maximum(pairs, 1)
            of_class += np.where(present, means - means[present].mean(), 0) / present.sum()
        return np.asarray(of_class + sum(np.bincount(side[split:], changes[split:], count) for side in sides))

    def _rate_of_pairs(self, far: float, average: Average) -> Floats:
        """Change `(P,)` of TAR with each pair; in "macro" of the positive ones within their classes.

        Each negative pair accepted beyond the FAR costs the slope of the ROC there. That is taken over two standard
        deviations of as many accepted pairs to either side, since between two pairs the curve is steep or level.
        """
        split = self.positives
        shares, weights = self._accepted_at(far), self._weights(average)
        centres: Floats | float = shares[:split].mean()
        if average == "macro":
            classes, count = self.classes[self.left[:split]], len(self.sizes)
            pairs = np.bincount(classes, minlength=count)
            centres = (np.bincount(classes, shares[:split], count) / np.maximum(pairs, 1))[classes]
        changes = np.empty(len(shares))
        changes[:split] = weights * (shares[:split] - centres)
        changes[split:] = -self._slope(far, weights) * (shares[split:] - shares[split:].mean())
        return changes

    def _slope(self, far: float, weights: Floats) -> float:
        """TAR gained by each further negative pair accepted at this FAR, the positive pairs weighing so much."""
        false = self._nearer_negatives
        true = np.cumsum(np.bincount(self.group[: self.positives], weights, len(false)))
        middle = far * false[-1]
        around = min(middle, max(1.0, 2 * math.sqrt(middle)))
        ends = middle - around, min(float(false[-1]), middle + around)
        low, high = np.interp(ends, np.r_[0, false], np.r_[0, true])
        return float((high - low) / (ends[1] - ends[0]))

    @cached_property
    def _nearer_negatives(self) -> Integers:
        """Negative pairs up to the distance of each group of tied pairs."""
        return np.cumsum(np.bincount(self.group[self.positives :], minlength=int(self.group.max()) + 1))

    def _accepted_at(self, far: float) -> Floats:
        """Share of each pair `(P,)` that is accepted at this FAR: of those tied at the last distance a part."""
        false = self._nearer_negatives
        wanted = far * false[-1] * (1 + 1e-12)  # a whole number may be rounded down
        group = int(np.searchsorted(false, wanted, side="right"))  # the first that is not accepted whole
        before = false[group - 1] if group else 0
        fraction = min(1.0, max(0.0, (wanted - before) / (false[group] - before)))
        return np.asarray((self.group < group) + fraction * (self.group == group))

    def _area(self, average: Average) -> _Scores:
        """Score a positive pair by the share of negative ones farther, a negative pair by that of positive ones
        nearer."""
        classes, split, groups = self.classes, self.positives, int(self.group.max()) + 1
        near, far = self.group[:split].astype(np.int64), self.group[split:].astype(np.int64)
        if average == "micro":
            right, wrong = _placements(near, far, groups)
            both = wrong, wrong
        else:
            negatives = np.concatenate([classes[side[split:]] * groups + far for side in (self.left, self.right)])
            right, wrong = _placements(classes[self.left[:split]] * groups + near, negatives, groups)
            both = wrong[: len(far)], wrong[len(far) :]
        return _Scores(self, slice(split), slice(split, None), right, both, 1.0)

    def _accuracy(self) -> _Scores:
        assert self.accepted is not None
        judged = self.judging[self.left] & self.judging[self.right]
        numbers = np.flatnonzero(judged)
        positive, negative = numbers[numbers < self.positives], numbers[numbers >= self.positives]
        rejected = (~self.accepted[negative]).astype(np.float64)
        right = self.accepted[positive].astype(np.float64)
        return _Scores(self, positive, negative, right, (rejected, rejected), 0.5)


class _Scores:
    """Scores of the pairs, where the measure is the mean of the means of positive and of negative pairs.

    Args:
        positive, negative: the pairs that count.
        right: of each positive pair; with "macro" within its class.
        both: of each negative pair, in the measure of the class of its left and of its right item.
        factor: by how much the measure grows with the mean of either kind when a pair weighs more. One half, but one
            for the ROC AUC, where the scores of each kind are over the pairs of the other.
    """

    def __init__(
        self,
        pairs: VerificationPairs,
        positive: slice | Integers,
        negative: slice | Integers,
        right: Floats,
        both: tuple[Floats, Floats],
        factor: float,
    ) -> None:
        classes = pairs.classes
        self.sizes, self.right, self.both, self.factor = pairs.sizes, right, both, factor
        self.positive, self.negative, self.count = positive, negative, len(pairs.left)
        self.self_rows = classes[pairs.left[positive]]
        self.sides = classes[pairs.left[negative]], classes[pairs.right[negative]]

    def pair_changes(self, average: Average) -> Floats:
        """Change `(P,)` of the measure with each pair; NaN where no class has both kinds of pairs."""
        changes = np.zeros(self.count)
        positive, (left, right), _ = self._changes(average)
        changes[self.positive], changes[self.negative] = positive, left if average == "micro" else left + right
        return changes

    def class_changes(self, average: Average) -> Floats:
        """Influence of each class `(C,)`, which is drawn with its value; NaN likewise.

        The negative pairs it is in change that of the other class.
        """
        positive, (left, right), added = self._changes(average)
        count = len(self.sizes)
        changes = added + np.bincount(self.sides[1], left, count) + np.bincount(self.sides[0], right, count)
        if average == "micro":
            changes += np.bincount(self.self_rows, positive, count)
        return np.asarray(changes)

    def _changes(self, average: Average) -> tuple[Floats, tuple[Floats, Floats], Floats]:
        """Changes by the positive pairs; by the negative ones, of the class of either item; the share of each class."""
        count = len(self.sizes)
        if average == "micro":
            change = self.factor * (self.both[0] - self.both[0].mean()) / len(self.both[0])
            positive = self.factor * (self.right - self.right.mean()) / len(self.right)
            return positive, (change, change), np.zeros(count)
        shares, (positive_means, negative_means), counts = self.means()
        known = ~np.isnan(shares)
        if not known.any():
            nan = np.full(count, math.nan)
            return nan[self.self_rows], (nan[self.sides[0]], nan[self.sides[1]]), nan
        weights = [np.where(known, self.factor / np.maximum(n, 1) / known.sum(), 0.0) for n in counts]
        left, right = (
            weights[1][side] * (score - negative_means[side]) for side, score in zip(self.sides, self.both, strict=True)
        )
        added = np.where(known, shares - shares[known].mean(), 0.0) / known.sum()
        return weights[0][self.self_rows] * (self.right - positive_means[self.self_rows]), (left, right), added

    def means(self) -> tuple[Floats, tuple[Floats, Floats], tuple[Integers, Integers]]:
        """The measure of each class `(C,)`, NaN where one lacks a kind; the mean scores of either kind, 0 without any;
        the pairs of either kind."""
        count = len(self.sizes)
        left, right = (np.bincount(side, minlength=count) for side in self.sides)
        counts = np.bincount(self.self_rows, minlength=count), left + right
        known = (counts[0] > 0) & (counts[1] > 0)

        def total(classes: Integers, scores: Floats) -> Floats:
            return np.asarray(np.bincount(classes, np.where(known[classes], scores, 0.0), count))

        sums = (
            total(self.self_rows, self.right),
            total(self.sides[0], self.both[0]) + total(self.sides[1], self.both[1]),
        )
        means = sums[0] / np.maximum(counts[0], 1), sums[1] / np.maximum(counts[1], 1)
        return np.where(known, (means[0] + means[1]) / 2, math.nan), means, counts


def rate_name(far: float) -> str:
    """The name of the TAR at this FAR."""
    return f"tar@far={far:g}"


def _placements(near: Integers, far: Integers, groups: int) -> tuple[Floats, Floats]:
    """Share of farther negatives in its section for each positive pair, and of nearer positives for each negative one.

    A part is a class, or all: cell `part * groups + group` for each pair; a tie counts half. Where a part lacks the
    other kind the shares mean nothing.
    """
    cells, numbers = np.unique(np.concatenate([near, far]), return_inverse=True)
    of_near, of_far = numbers[: len(near)], numbers[len(near) :]
    starts = np.flatnonzero(np.diff(cells // groups, prepend=-1))
    section = np.cumsum(np.diff(cells // groups, prepend=-1) != 0) - 1

    def up_to(of: Integers) -> tuple[Floats, Integers]:
        """Pairs of this kind and section nearer than each cell, a tie counting half; those of this kind in the
        section."""
        here = np.bincount(of, minlength=len(cells))
        totals = np.add.reduceat(here, starts)
        before = np.cumsum(here) - here - (np.cumsum(totals) - totals)[section]
        return before + here / 2, totals[section]

    nearer, positives = up_to(of_near)
    others, negatives = up_to(of_far)
    return (1 - others / np.maximum(negatives, 1))[of_near], (nearer / np.maximum(positives, 1))[of_far]
