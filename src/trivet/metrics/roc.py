"""ROC curve: the accepted shares of two kinds of pairs or queries as the distance threshold grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trivet.metrics.positive_ranks import TIE
from trivet.runtime.arrays import Booleans, Floats, Integers


@dataclass(frozen=True)
class Roc:
    """Pairs accepted as the largest accepted distance grows: none, then one group of tied pairs after the other."""

    least: Floats  # (T,) smallest and largest distance of each group
    most: Floats
    true: Integers  # (T + 1,) positive pairs accepted, from 0 to all
    false: Integers  # (T + 1,) negative pairs accepted, from 0 to all
    group: Integers  # (P,) the group of each pair, 0 .. T - 1

    @classmethod
    def of(cls, distances: Floats, positive: Booleans) -> Roc:
        """The curve of P pairs, at least one of them positive and one negative."""
        assert positive.any()
        assert not positive.all()
        order = np.argsort(distances, kind="stable")
        ordered = distances[order]
        # A group reaches from its smallest distance, not from pair to pair: many pairs close together are no tie.
        after = np.searchsorted(ordered, ordered * (1 + TIE), side="right").tolist()
        starts, start = [], 0
        while start < len(after):
            starts.append(start)
            start = after[start]
        stops = np.array([*starts[1:], len(after)])
        true = np.concatenate([[0], np.cumsum(positive[order])[stops - 1]])
        false = np.concatenate([[0], stops]) - true
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(stops, prepend=0))
        return cls(least=ordered[starts], most=ordered[stops - 1], true=true, false=false, group=group)

    @property
    def area(self) -> float:
        """Chance that a random positive pair is nearer than a random negative one, a tie counting half."""
        twice = int(np.diff(self.false) @ (self.true[1:] + self.true[:-1]))
        return twice / (2 * int(self.true[-1]) * int(self.false[-1]))

    def true_at(self, false: float) -> float:
        """The largest share of positives accepted when a share `false` in [0, 1] of the negatives is."""
        # Of several points at one share of negatives this takes the last.
        return float(np.interp(false, self.false / self.false[-1], self.true / self.true[-1]))

    def false_at(self, true: float) -> float:
        """The least share of negatives accepted when a share `true` in (0, 1] of the positives is."""
        return false_at(self.true, self.false, true)

    def best_threshold(self) -> float:
        """The distance up to which to accept for the best balanced accuracy: the lowest such, midway between groups."""
        # The shares accepted of positives less negatives, in whole numbers, so that equal ones are equal.
        gain = self.true[1:] * self.false[-1] - self.false[1:] * self.true[-1]
        group = int(gain.argmax())
        following = self.least[min(group + 1, len(self.least) - 1)]
        return float(max(self.most[group], (self.most[group] + following) / 2))


def false_at(accepted: Integers | Floats, wrongly: Integers | Floats, true: float) -> float:
    """The least share of what is `wrongly` accepted, of counts or weights `(T + 1,)`, at a share `true` of the rest."""
    x, y = accepted / accepted[-1], wrongly / wrongly[-1]
    point = int(np.searchsorted(x, true, side="left"))  # the first that reaches it
    return float(y[point - 1] + (y[point] - y[point - 1]) * (true - x[point - 1]) / (x[point] - x[point - 1]))
