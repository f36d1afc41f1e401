"""Exact and near duplicates: items that a set holds twice, with the same label or with different ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from trivet.label_noise.neighbourhoods import Neighborhoods
from trivet.runtime.arrays import Booleans, Floats, Integers

WITHIN = 10  # the distance to this neighbour is the scale around an item
NEAR = 0.3  # of that scale, and of the median distance to the nearest neighbour
BY_CHANCE = 0.001  # share of items without a duplicate that may come so near to another


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Duplicates among N items.

    Attributes:
        exact: `(N,)` whether another item has the same content.
        near: `(N,)` whether another item with other content is a near duplicate.
        other_label: `(N,)` whether one of an item's duplicates, of either kind, has another label.
        twin: `(N,)` the position of a duplicate, of another label if there is one, exact before near, and of near ones
            the nearest; -1 where there is none.
    """

    exact: Booleans
    near: Booleans
    other_label: Booleans
    twin: Integers


def find_duplicates(
    neighbours: Integers,
    distances: Floats,
    labels: Integers,
    *,
    content: Sequence[Hashable] | None = None,
    folds: Integers | None = None,
) -> Duplicates:
    """Find the items that are duplicates of others, by content and by the distances to their nearest neighbours.

    Exact duplicates have equal contents. Two items at distance D are near duplicates where

        D <= t min(D_10(i), D_10(j))    and    D <= t M,

    D_10 being the distance of an item to its tenth neighbour (the last where there are fewer), M the median distance to
    the first, and t = 0.3 or less: among points spread evenly in m dimensions around an item,
    P(D_1 <= t D_10) = 1 - (1 - t^m)^9, which is to be 0.001 at most. The tenth neighbour keeps the items of a dense
    cluster apart, the median those of an empty region.

    Args:
        neighbours: `(N, k)` positions of the nearest others, nearest first.
        distances: `(N, k)` from each item to these, Euclidean, not negative.
        labels: `(N,)` class numbers.
        content: N values, equal for equal items: texts, or digests of pictures; None where only distances are known.
        folds: `(N,)` which network embedded each item; M is that of a fold. None where one embedded all.

    Returns:
        No near duplicates where k < 3, or where M is 0, as in a collapsed embedding.

    Source:
        Distance relative to the median of the nearest: cleanlab's Datalab (0.13 of it in cosine distance, which between
        unit rows is 0.36 of it in Euclidean distance). m: see `intrinsic_dimension`. The rest is chosen here.

    Example:
        >>> line = np.array([0.0, 1.0, 2.0, 3.0, 3.0])
        >>> apart = np.abs(line[:, None] - line)
        >>> nearest = np.argsort(apart + 9 * np.eye(5), axis=1)[:, :4]
        >>> found = find_duplicates(nearest, np.take_along_axis(apart, nearest, 1), np.arange(5), content=line.tolist())
        >>> found.exact, found.twin
        (array([False, False, False,  True,  True]), array([-1, -1, -1,  4,  3]))
    """
    count, k = neighbours.shape
    close = _near(neighbours, distances, np.zeros(count, np.int64) if folds is None else folds)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i, value in enumerate(content or ()):
        groups[value].append(i)
    exact, twin = np.zeros(count, np.bool_), np.full(count, -1)
    other = np.zeros(count, np.bool_)
    group = np.arange(count)
    for members in groups.values():
        if len(members) == 1:
            continue
        group[members] = members[0]
        exact[members] = True
        first: dict[int, int] = {}  # of each label the first two items
        second: dict[int, int] = {}
        for i in members:
            (second if labels[i] in first else first).setdefault(int(labels[i]), i)
        for i in members:
            different = next((j for label, j in first.items() if label != labels[i]), None)
            other[i] = different is not None
            same = first[int(labels[i])]
            twin[i] = different if different is not None else same if same != i else second[int(labels[i])]
    close &= group[neighbours] != group[:, None]
    differs = close & (labels[neighbours] != labels[:, None])
    near = np.asarray(close.any(axis=1))
    for rows, which in ((near & (twin < 0), close), (differs.any(axis=1) & ~other, differs)):
        twin[rows] = neighbours[rows, which[rows].argmax(axis=1)] if k else -1
    return Duplicates(exact, near, np.asarray(other | differs.any(axis=1)), twin)


def conflicting(around: Neighborhoods, classes: Integers) -> Booleans:
    """Return whether an equal item `(N,)` among the neighbours of each has another label."""
    return np.asarray(((around.distances == 0) & (classes[around.indices] != classes[:, None])).any(axis=1))


def intrinsic_dimension(distances: Floats) -> float:
    """In how many dimensions the neighbours of an item spread out: the median over items of 8 / sum_j log(D_10 / D_j).

    Args:
        distances: `(N, k)` to the nearest others, nearest first; of more than ten the first ten are used.

    Returns:
        A number above 0, however small; 1 where k < 3 or no item has neighbours at different distances above 0.

    Source:
        Levina, Bickel, "Maximum Likelihood Estimation of Intrinsic Dimension", NIPS 2004, equation 9, and the unbiased
        form of its discussion; they take the mean over items, here the median, which duplicates do not change.
    """
    last = min(WITHIN, distances.shape[1])
    if last < 3:
        return 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.log(distances[:, [last - 1]] / distances[:, : last - 1]).sum(axis=1) / (last - 2)
    inverse = inverse[np.isfinite(inverse) & (inverse > 0)]
    return float(1 / np.median(inverse)) if len(inverse) else 1.0


def _near(neighbours: Integers, distances: Floats, folds: Integers) -> Booleans:
    """Return whether each neighbour `(N, k)` is a near duplicate by its distance."""
    count, k = neighbours.shape
    if count == 0 or k < 3:
        return np.zeros((count, k), np.bool_)
    last = min(WITHIN, k)
    scale = distances[:, last - 1]
    typical = np.zeros(count)
    for fold in np.unique(folds):
        typical[folds == fold] = np.median(distances[folds == fold, 0])
    by_chance = 1 - (1 - BY_CHANCE) ** (1 / (last - 1))
    most = min(NEAR, by_chance ** (1 / intrinsic_dimension(distances)))
    limit = most * np.minimum(np.minimum(scale[:, None], scale[neighbours]), typical[:, None])
    return np.asarray((distances <= limit) & (typical[:, None] > 0))
