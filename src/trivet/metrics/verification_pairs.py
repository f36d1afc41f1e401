"""Per-item and per-class parts of verification: the intervals of its measures, and its values for each class.

To the first order a measure follows the weights of its pairs. Where item i counts w_i times, the pair (i, j) weighs
w_i + w_j - 1, whatever its kind; where class c does, a pair within it weighs w_c, and one of c and c' w_c + w_c' - 1
(the Hajek projection of a statistic of pairs). So an item, or a class, counts by its own pairs.

Source:
    Hoeffding, "A class of statistics with asymptotically normal distribution", Annals of Mathematical Statistics 1948;
    Hajek, "Asymptotic normality of simple linear rank statistics", Annals of Mathematical Statistics 1968.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trivet.metrics.intervals import Average, Over, Variance, class_degrees, stratified_variance
from trivet.runtime.arrays import Booleans, Floats, Integers

Rows = npt.NDArray[np.int32]

AREA, ACCURACY = "roc-auc", "verification-accuracy"
UNITS = 4096  # whose removal is measured at once
STEPS = 160  # distances at which accepted pairs are counted: about 7 % apart in FAR where pairs abound


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
        for far, (group, fraction) in zip(self.fars, self._points(), strict=True):
            ranks = self.group[: self.positives]
            let_in = (ranks <= group) + fraction * (ranks == group + 1)
            shares = np.full(len(self.sizes), math.nan)
            np.divide(np.bincount(positive_classes, let_in, len(self.sizes)), counts, out=shares, where=counts > 0)
            shares_of[rate_name(far)] = shares
        if self.accepted is not None:
            shares_of[ACCURACY] = self._accuracy().means()[0]
        return shares_of

    def variances(self, over: Over, average: Average, *, less: VerificationPairs | None = None) -> dict[str, Variance]:
        """The variance of each measure over items or classes; of what it is less that of the same items in `less`."""
        units, count = len(self.order), len(self.sizes)

        def changes(over: Over) -> dict[str, Floats]:
            influences = self.influences(over, average)
            if less is None:
                return influences
            others = less.influences(over, average)
            return {name: column - others[name] for name, column in influences.items() if name in others}

        influences = changes(over)
        if (units if over == "queries" else count) < 2:
            return {name: Variance(np.full(1, math.nan), 1, units) for name in influences}
        # The accuracy is that of the classes of a half.
        judged = len(np.unique(self.classes[self.judging]))
        degrees = {
            name: max(0.5, units - count if over == "queries" else class_degrees(judged if name == ACCURACY else count))
            for name in influences
        }
        if over == "classes":
            strata = np.zeros(count, np.int64)
            variances = {name: stratified_variance(column[:, None], strata) for name, column in influences.items()}
        else:
            # The only positive pair of a class of two cannot be told from what the class is.
            pairs = self.sizes == 2
            several = ~pairs[self.classes]
            alone = changes("classes") if pairs.any() else {}
            variances = {
                name: stratified_variance(column[several, None], self.classes[several])
                for name, column in influences.items()
            }
            for name, column in alone.items():
                deviations = column - column.mean()
                variances[name] += np.square(deviations[pairs]).sum() * count / max(1, count - 1)
        return {name: Variance(values, degrees[name], units) for name, values in variances.items()}

    def influences(self, over: Over, average: Average) -> dict[str, Floats]:
        """The influence value of each item or class `(U,)` on each measure; its sum may be anything.

        The threshold of the accuracy is held fixed; the distance of a FAR is found anew without each item or class.
        """
        values = {AREA: self._area(average).values(over, average)}
        if self.accepted is not None:
            values[ACCURACY] = self._accuracy().values(over, average)
        units, count = len(self.order), len(self.sizes)
        weights = np.full(units, 1 / units) if average == "micro" else 1 / (count * np.repeat(self.sizes, self.sizes))
        if over == "classes":
            weights = np.full(count, 1 / count)
        losses = self.losses(over, average)
        rates = {rate_name(far): column for far, column in zip(self.fars, losses.T, strict=True)}
        return {name: column * weights for name, column in values.items()} | rates

    def losses(self, over: Over, average: Average) -> Floats:
        """TAR at each FAR less that without each item or class `(U, F)`; 0 where the pairs of a kind weigh nothing.

        With "macro" TAR is the mean over the classes that have positive pairs. Up to 160 distances, and some about each
        FAR, are looked at, between which the counts are interpolated; fewer than that are looked at one by one.
        """
        if not self.fars:
            return np.empty((len(self.order) if over == "queries" else len(self.sizes), 0))
        units = len(self.order) if over == "queries" else len(self.sizes)
        classes, split = self.classes, self.positives
        positive_classes = classes[self.left[:split]]
        weights = (
            np.ones(split)
            if average == "micro"
            else 1 / np.bincount(positive_classes, minlength=len(self.sizes))[positive_classes]
        )
        last = self._looked_at()
        step = np.searchsorted(last, self.group)
        positions = self.left, self.right
        left, right = positions if over == "queries" else (classes[side] for side in positions)

        def counts(which: slice, unit: Rows | Integers, weight: Floats | None) -> Floats:
            positions = unit[which].astype(np.int64) * len(last) + step[which]
            return np.bincount(positions, weight, units * len(last)).astype(np.float64, copy=False).reshape(units, -1)

        true = counts(slice(split), left, weights)
        false = counts(slice(split, None), left, None) + counts(slice(split, None), right, None)
        if over == "queries":
            true = true + counts(slice(split), right, weights)
        table = np.concatenate([true, false], axis=1)
        np.cumsum(true, axis=1, out=table[:, : len(last)])
        np.cumsum(false, axis=1, out=table[:, len(last) :])
        del true, false
        # A pair of items is in the rows of both, a negative pair of classes too.
        total = table.sum(axis=0) / 2
        if over == "classes":
            total[: len(last)] *= 2
        every = _rates(total[None, : len(last)], total[None, len(last) :], self.fars)
        losses = np.empty((units, len(self.fars)))
        for start in range(0, units, UNITS):
            without = total - table[start : start + UNITS]
            rates = _rates(without[:, : len(last)], without[:, len(last) :], self.fars)
            losses[start : start + UNITS] = np.nan_to_num(every - rates)
        return losses

    def _points(self) -> list[tuple[int, float]]:
        """Last group accepted whole at each FAR, -1 for none, and the fraction of the next that is."""
        false = np.cumsum(np.bincount(self.group[self.positives :], minlength=int(self.group.max()) + 1))
        points = []
        for far in self.fars:
            wanted = far * false[-1] * (1 + 1e-12)  # a whole number may be rounded down
            group = int(np.searchsorted(false, wanted, side="right")) - 1
            before = false[group] if group >= 0 else 0
            points.append((group, float(min(1.0, max(0.0, (wanted - before) / (false[group + 1] - before))))))
        return points

    def _looked_at(self) -> Integers:
        """The last group accepted at each of the distances that count, rising; after the last of them all are."""
        groups = int(self.group.max()) + 1
        if groups <= STEPS:
            return np.arange(groups)
        false = np.cumsum(np.bincount(self.group[self.positives :], minlength=groups))
        levels = false[-1] * np.geomspace(max(min(self.fars) / 8, 0.5 / false[-1]), 1, STEPS)
        spaced = np.searchsorted(false, levels, side="right") - 1
        exact = [group + more for group, _ in self._points() for more in (0, 1)]
        return np.unique([*(group for group in [*spaced.tolist(), *exact] if 0 <= group < groups), groups - 1])

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
        self.positions = pairs.left[positive], pairs.right[positive]
        self.other_positions = pairs.left[negative], pairs.right[negative]
        self.self_rows = classes[self.positions[0]]
        self.sides = classes[self.other_positions[0]], classes[self.other_positions[1]]

    def values(self, over: Over, average: Average) -> Floats:
        """Values of each item or class, with the mean that `VerificationPairs.values` says."""
        count, items = len(self.sizes), int(self.sizes.sum())
        if average == "micro":
            means = self.right.mean(), self.both[0].mean()
            measure = (means[0] + means[1]) / 2
            positive_change = self.factor * (self.right - means[0]) / len(self.right)
            left_change = self.factor * (self.both[0] - means[1]) / len(self.both[0])
            right_change, added = left_change, np.zeros(count)
            together = left_change
        else:
            shares, (positive_means, negative_means), counts = self.means()
            known = ~np.isnan(shares)
            if not known.any():
                return np.full(items if over == "queries" else count, math.nan)
            measure = shares[known].mean()
            weights = [np.where(known, self.factor / np.maximum(n, 1) / known.sum(), 0.0) for n in counts]
            positive_change = weights[0][self.self_rows] * (self.right - positive_means[self.self_rows])
            left_change, right_change = (
                weights[1][side] * (score - negative_means[side])
                for side, score in zip(self.sides, self.both, strict=True)
            )
            added = np.where(known, shares - measure, 0.0) / known.sum()
            together = left_change + right_change
        if over == "queries":
            change = np.zeros(items)
            for positions, changes in ((self.positions, positive_change), (self.other_positions, together)):
                for side in positions:
                    change += np.bincount(side, changes, items)
            scale = items if average == "micro" else count * np.repeat(self.sizes, self.sizes)
            return np.asarray(measure + scale * change)
        # A class is drawn with its own value; the negative pairs it is in change that of the other class.
        change = (
            added + np.bincount(self.sides[1], left_change, count) + np.bincount(self.sides[0], right_change, count)
        )
        if average == "micro":
            change += np.bincount(self.self_rows, positive_change, count)
        return np.asarray(measure + count * change)

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


def _rates(true: Floats, false: Floats, fars: tuple[float, ...]) -> Floats:
    """TAR `(B, F)` by the pairs of each kind accepted at rising distances `(B, K)`, at the last of which all are.

    A pair may weigh less than nothing, so a count may fall; what was accepted stays accepted.
    """
    totals = true[:, -1:], false[:, -1:]
    usable = (totals[0] > 1e-9) & (totals[1] > 1e-9)
    y, x = (
        np.pad(np.where(usable, counts / np.where(usable, total, 1), 0), ((0, 0), (1, 0)))
        for counts, total in zip((true, false), totals, strict=True)
    )
    y, x = (np.clip(np.maximum.accumulate(side, axis=1), 0, 1) for side in (y, x))
    rows, rates = np.arange(len(x)), np.empty((len(x), len(fars)))
    for column, far in enumerate(fars):
        point = (x <= far * (1 + 1e-12)).sum(axis=1) - 1
        after = np.minimum(point + 1, x.shape[1] - 1)
        width = x[rows, after] - x[rows, point]
        fraction = np.clip((far - x[rows, point]) / np.where(width > 0, width, 1), 0, 1)
        rates[:, column] = y[rows, point] + fraction * (y[rows, after] - y[rows, point])
    return np.where(usable, rates, math.nan)
