"""Near copies across two sets: items that are nearer to an item of the other set than its own items come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import bdtrc
from torch import Tensor

from trivet.runtime.arrays import Booleans, Floats, Integers

RARE = 0.001  # share of items without a copy that may come so near to another
CHANCE = 0.01  # of so many such items among some that have no copy that they count as more than come by chance
QUANTILES = 0.05, 0.5  # between which the distances give the law that is carried on to rarer ones
ENOUGH = 100  # distances from which the law is read
SAMPLE = 2000  # items of the searched set whose nearest others give it
ROWS, COLUMNS = 512, 4096  # of a block of products: 8 MiB
SLACK = 1e-5  # of the squares from which products are subtracted, by which these are rounded

SAME, OTHER = 0, 1  # the rows of distances to items of the same class, and of others

View = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class NearCopies:
    """Near copies among Q items.

    Attributes:
        copy: `(Q,)` whether an item is one.
        original: `(Q,)` the position of the nearest item of the other set; -1 where there is none.
        distances: `(Q,)` to it, Euclidean.
        limits: of the distance to an item of the same class and of another; 0 where too few items tell.
    """

    copy: Booleans
    original: Integers
    distances: Floats
    limits: tuple[float, float]


def find_near_copies(
    views: Callable[[Integers | None], Iterable[View]],
    classes: Integers,
    searched_classes: Integers,
    *,
    seed: int = 0,
) -> NearCopies:
    """Find the items that are near copies of items of a set that is searched.

    How near the items of the searched set come to each other says what is near: the distances D of a sample of them to
    the nearest other of the same class, and to the nearest of another class, at which none equals them. Between their
    5 % and 50 % quantiles log D grows with the logarithm of the rank by a line, which is carried on to 1 in 1,000: an
    item is a near copy of one of another class if it is nearer to it than the limit of other classes, and of one of its
    class if it is nearer than both limits. One of a class that no searched item has must be nearer than both, too: how
    far that class is from the others is not known. Without 100 such distances there is no limit, and nothing is called
    near.

    Args:
        views: gives, for row numbers of the searched set or for None, the Q items, pairs of rows `(Q, d)` and `(M, d)`
            that show these items and the M that are searched; the distance is the least of all pairs.
        classes: `(Q,)` class numbers; -1 for none, which is then another class than each.
        searched_classes: `(M,)` likewise.
        seed: of the sample.

    Source:
        The nearest of N points at random has a distance whose small quantiles follow a power law, whose exponent is
        the number of dimensions in which they spread out: Levina, Bickel, "Maximum Likelihood Estimation of Intrinsic
        Dimension", NIPS 2004. That it is read off quantiles, and by class, is chosen here.
    """
    sample = np.arange(len(searched_classes))
    if len(sample) > SAMPLE:
        sample = np.sort(np.random.default_rng(seed).permutation(sample)[:SAMPLE])
    inside, _ = nearest_by_class(views(sample), searched_classes[sample], searched_classes, leave_out=sample)
    limits = rare_distance(inside[SAME]), rare_distance(inside[OTHER])
    if not limits[OTHER]:
        none = np.full(len(classes), -1)
        return NearCopies(none >= 0, none, np.full(len(classes), np.inf), limits)
    distances, rows = nearest_by_class(views(None), classes, searched_classes, most=limits[OTHER])
    least = min(limit for limit in limits if limit)
    unknown = (classes >= 0) & ~np.isin(classes, searched_classes)
    allowed = np.stack([np.full(len(classes), min(limits)), np.where(unknown, least, limits[OTHER])])
    close = (distances <= allowed) & (allowed > 0)
    best = np.where(close.any(axis=0), np.where(close, distances, np.inf).argmin(axis=0), distances.argmin(axis=0))
    items = np.arange(len(classes))
    return NearCopies(np.asarray(close.any(axis=0)), rows[best, items], distances[best, items], limits)


def more_than_chance(copies: int, items: int) -> bool:
    """Return whether so many near copies among some items are more than come by chance, of which 1 in 1,000 is one.

    True if as many or more have a probability of at most 1 %.

    Example:
        >>> [more_than_chance(count, 1000) for count in (0, 1, 4, 5)]
        [False, False, False, True]
    """
    return copies > 0 and float(bdtrc(copies - 1, items, RARE)) <= CHANCE


def rare_distance(distances: Floats) -> float:
    """The distance below which 1 in 1,000 lies by the law of the 5 % to 50 % quantiles; 0 where they cannot tell.

    Args:
        distances: `(N,)`; of these only the finite ones above 0 count.
    """
    some = distances[np.isfinite(distances) & (distances > 0)]
    if len(some) < ENOUGH:
        return 0.0
    low, high = np.quantile(some, QUANTILES).tolist()
    if high <= low:
        return 0.0
    exponent = math.log(high / low) / math.log(QUANTILES[1] / QUANTILES[0])
    return float(low * (RARE / QUANTILES[0]) ** exponent)


def nearest_by_class(
    views: Iterable[View],
    classes: Integers,
    searched_classes: Integers,
    *,
    leave_out: Integers | None = None,
    most: float = math.inf,
) -> tuple[Floats, Integers]:
    """Distance `(2, Q)` to the nearest item of the same class and of another, and the position of each.

    Products of float32 rows find the nearest, differences measure it. Infinite and -1 where there is none.

    Args:
        views, classes, searched_classes: as of `find_near_copies`.
        leave_out: `(Q,)` the position that each item must not find; those at distance 0 then count as copies and are
            passed over as well.
        most: items at no such distance from any other need not be measured.
    """
    count = len(classes)
    others = np.where(searched_classes < 0, -2, searched_classes)  # no item without a class is of the same
    labels = torch.from_numpy(np.asarray(classes, np.int64)), torch.from_numpy(others)
    without = None if leave_out is None else torch.from_numpy(leave_out)
    distances = torch.full((2, count), torch.inf, dtype=torch.float64)
    rows = torch.full((2, count), -1, dtype=torch.int64)
    for left, right in views:
        _join(distances, rows, left, right, labels, without, most)
    return distances.numpy(), rows.numpy()


def _join(
    distances: Tensor,
    rows: Tensor,
    items: Tensor,
    searched: Tensor,
    labels: tuple[Tensor, Tensor],
    without: Tensor | None,
    most: float,
) -> None:
    """Put what is nearer in one pair of views in the place of what was the nearest."""
    centre = searched[: 16 * ROWS].mean(dim=0, dtype=torch.float64).to(torch.float32)
    blocks = [(at, _block(searched, at, COLUMNS, centre)) for at in range(0, len(searched), COLUMNS)]
    squares = [block.square().sum(dim=1) for _, block in blocks]
    for start in range(0, len(items), ROWS):
        left = _block(items, start, ROWS, centre)
        from_centre = left.square().sum(dim=1)
        bound = most**2 - from_centre + SLACK * (from_centre + max(float(square.max()) for square in squares))
        best = torch.full((2, len(left)), torch.inf)
        numbers = torch.full((2, len(left)), -1, dtype=torch.int64)
        for (at, right), square in zip(blocks, squares, strict=True):
            scores = torch.addmm(square, left, right.T, alpha=-2)
            some: Tensor | slice = slice(None)
            if most < math.inf:
                some = (scores.amin(dim=1) <= bound).nonzero()[:, 0]
                scores = scores[some]
            if without is not None:
                columns = without[start : start + ROWS] - at
                inside = ((columns >= 0) & (columns < len(right))).nonzero()[:, 0]
                scores[inside, columns[inside]] = torch.inf
            if not len(scores):
                continue
            same = labels[0][start : start + ROWS][some, None] == labels[1][None, at : at + COLUMNS]
            for side, mask in ((SAME, ~same), (OTHER, same)):
                least, column = scores.masked_fill(mask, torch.inf).min(dim=1)
                nearer = least < best[side][some]
                best[side, some] = torch.where(nearer, least, best[side][some])
                numbers[side, some] = torch.where(nearer, column + at, numbers[side][some])
        for side in (SAME, OTHER):
            there = (numbers[side] >= 0).nonzero()[:, 0]
            exact = _measured(items, start + there, searched, numbers[side][there])
            if without is not None:
                exact[exact == 0] = torch.inf
            nearer = exact < distances[side, start + there]
            distances[side, start + there[nearer]] = exact[nearer]
            rows[side, start + there[nearer]] = numbers[side][there[nearer]]


def _block(rows: Tensor, start: int, step: int, centre: Tensor) -> Tensor:
    return rows[start : start + step].to(torch.float32) - centre


def _measured(items: Tensor, rows: Tensor, searched: Tensor, numbers: Tensor) -> Tensor:
    """Distances `(n,)` between rows of two sets by differences, which lose no digits."""
    differences = items[rows].to(torch.float64) - searched[numbers].to(torch.float64)
    return differences.square().sum(dim=1).sqrt()
