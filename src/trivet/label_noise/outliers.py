"""Outliers: items far from all others, which may belong to no class at all."""

from __future__ import annotations

import numpy as np

from trivet.label_noise.duplicates import intrinsic_dimension
from trivet.runtime.arrays import Booleans, Floats, Integers

NTH = 5  # the distance to this neighbour is looked at
BEYOND = 2.2  # interquartile ranges above the upper quartile
THINNER = 20  # times less dense around an item than around its neighbours
FEWEST = 20  # items, of which that can be told


def find_outliers(neighbours: Integers, distances: Floats, *, folds: Integers | None = None) -> Booleans:
    """Find items `(N,)` that are far from all others: farther than most items are, and than their own neighbours are.

    With D_5 the distance of an item to its fifth neighbour (the last where there are fewer), both must hold:

        D_5 > Q3 + 2.2 (Q3 - Q1),    (D_5 / d_5)^m > 20,

    Q1 and Q3 being the quartiles of D_5 over all items, d_5 the median of D_5 among the five neighbours, and m the
    dimension in which neighbours spread out (`intrinsic_dimension`), so that the density around the item is less than a
    twentieth of that around them. Of normally distributed distances the first names 1 in 8,000. The second spares the
    items of a class that is merely spread out, and the edges of all classes.

    Args:
        neighbours: `(N, k)` positions of the nearest others, nearest first; k >= 1.
        distances: `(N, k)` from each item to these, Euclidean, not negative.
        folds: `(N,)` which network embedded each item; quartiles are those of a fold. None where one embedded all.

    Returns:
        Of a set, or a fold, of less than 20 items none.

    Source:
        Distance to the k-th neighbour: Ramaswamy, Rastogi, Shim, "Efficient Algorithms for Mining Outliers from Large
        Data Sets", SIGMOD 2000. 2.2: Hoaglin, Iglewicz, "Fine-Tuning Some Resistant Rules for Outlier Labeling", JASA
        82, 1987. Relative to the neighbours: Breunig, Kriegel, Ng, Sander, "LOF", SIGMOD 2000. 20 is chosen here.

    Example:
        >>> line = np.append(np.arange(20.0), 600.0)
        >>> apart = np.abs(line[:, None] - line)
        >>> nearest = np.argsort(apart + 999 * np.eye(21), axis=1)[:, :5]
        >>> np.flatnonzero(find_outliers(nearest, np.take_along_axis(apart, nearest, 1)))
        array([20])
    """
    nth = min(NTH, distances.shape[1])
    far = distances[:, nth - 1]
    around = np.median(far[neighbours[:, :nth]], axis=1)
    fold = np.zeros(len(far), np.int64) if folds is None else folds
    fence = np.full(len(far), np.inf)
    for number in np.unique(fold):
        rows = fold == number
        if rows.sum() >= FEWEST:
            low, high = np.quantile(far[rows], (0.25, 0.75))
            fence[rows] = high + BEYOND * (high - low)
    return np.asarray((far > fence) & (far > THINNER ** (1 / intrinsic_dimension(distances)) * around))
