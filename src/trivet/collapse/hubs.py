"""Hubs: how unevenly items are among the nearest of others, and who is among the nearest of nobody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.metrics.points import spans
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.extras import installed, load

NEIGHBOURS = 10
BLOCK = 256  # rows that are compared with all at a time where faiss is not installed


@dataclass(frozen=True, eq=False)
class Hubness:
    """Unevenness of the ten nearest of all items; N items.

    Attributes:
        skewness: of how many items have an item among their ten nearest; 0 where all have as many.
        unfound: share of the items that are among nobody's ten nearest, in [0, 1].
        nearest: `(N, k)` the rows of the nearest of each.

    Source:
        Radovanovic, Nanopoulos, Ivanovic, "Hubs in space", JMLR 2010, section 2 (the skewness of k-occurrences, and
        antihubs).
    """

    skewness: float
    unfound: float
    nearest: Integers


def hubness(points: Tensor, *, k: int = NEIGHBOURS) -> Hubness:
    """Unevenness of the neighbours of all items, by their `k` nearest others, or all where there are fewer.

    Args:
        points: `(N, d)`, N >= 2. Of equal rows the first are nearest: give them in random order.
    """
    rows = np.arange(len(points))
    near = nearest_others(points, rows, min(k, len(points) - 1))
    counts = np.bincount(near.ravel(), minlength=len(points)).astype(np.float64)
    offsets = counts - counts.mean()
    deviation = float(offsets.std())
    return Hubness(
        skewness=float((offsets**3).mean() / deviation**3) if deviation else 0.0,
        unfound=float((counts == 0).mean()),
        nearest=near,
    )


def displacement(points: Tensor, known: Tensor, nearest: Integers, others: Integers) -> Floats:
    """Mean rank `(N,)` that the nearest of each item in one embedding have in another, the smaller of both directions.

    From (k + 1) / 2, where all k are the nearest in the other, too, to N / 2, as by chance: an item that was moved to a
    hub, far away or to the middle has new neighbours, and is far from those that it had. Equally near items share the
    mean of their ranks.

    Args:
        points, known: `(N, d)`, `(N, d')`, the same items in both.
        nearest, others: `(N, k)` of both, see `Hubness`.
    """
    smaller: Floats = np.minimum(_mean_ranks(points, others), _mean_ranks(known, nearest))
    return smaller


def displaced_items(points: Tensor, known: Tensor, *, far: float, near: float, k: int = NEIGHBOURS) -> Integers:
    """Rows, ascending, of single items that lie elsewhere in an embedding than in another, while all others stay.

    Items are far out if the logarithm of their `displacement` is above the upper quartile by more than three times the
    distance of the quartiles, and at least a share of the way from the least to chance. They are left out, and the
    others are asked again, until none is far out. Where nine in ten of the rest then do not keep nearly all of their
    neighbours, the embedding changed as a whole, and no item is displaced: a trained network may part classes so well
    that the few items which it moves to another one are far out, too.

    Args:
        points, known: `(N, d)`, `(N, d')`, the same items in both. Of equal rows the first are nearest.
        far: that share, in (0, 1).
        near: the most that the ninth decile of the displacement of the rest may be, over the least, above 1.

    Source:
        Tukey, "Exploratory data analysis", 1977 (the outer fence: values that are far out).
    """
    rest, least = np.arange(len(points)), (k + 1) / 2
    while len(rest) > len(points) / 2 and len(rest) > 2 * k:
        both = points[rest], known[rest]
        ranks = displacement(*both, *(hubness(rows, k=k).nearest for rows in both))
        low, high = np.quantile(np.log(ranks), [0.25, 0.75])
        outliers = (np.log(ranks) > high + 3 * (high - low)) & (ranks > least + far * (len(ranks) / 2 - least))
        if not outliers.any():
            unmoved = np.quantile(ranks, 0.9) <= near * least
            return np.setdiff1d(np.arange(len(points)), rest) if unmoved else rest[:0]
        rest = rest[~outliers]
    return rest[:0]


def _mean_ranks(points: Tensor, others: Integers) -> Floats:
    """Mean rank `(N,)` of some other rows `(N, k)` among all others, by their distance to each row."""
    rows = _for_products(points)
    squares, ranks = rows.square().sum(dim=1), np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(rows)))
        # (B, N), less a number of each row, without the digits of rounding.
        distances = (squares - 2 * (rows[block] @ rows.T)).numpy().round(12)
        distances[np.arange(len(block)), block] = np.inf
        to_others = np.take_along_axis(distances, others[block], axis=1)
        distances.sort(axis=1)
        # Of equal distances the mean of the first rank and the last.
        arrays = torch.from_numpy(distances), torch.from_numpy(to_others)
        first, last = (torch.searchsorted(*arrays, right=right).numpy() for right in (False, True))
        ranks[block] = (first + last + 1).mean(axis=1) / 2
    return ranks


def _for_products(points: Tensor) -> Tensor:
    """Points about their mean, scaled so that no embedding is too small or too large for products."""
    points = points - points.mean(dim=0)
    return points / (float(points.abs().max()) or 1.0)


def nearest_others(points: Tensor, queries: Integers, k: int, *, among: Integers | None = None) -> Integers:
    """The k nearest other rows `(Q, k)` of some rows, of all or of some rows `among (M,)`, by float32 distances."""
    rows = np.ascontiguousarray(_for_products(points).float().numpy())
    gallery = rows if among is None else rows[among]
    count = min(k + 1, len(gallery))
    if installed("faiss"):
        _, near = load("faiss").knn(rows[queries], gallery, count)
    else:  # half as fast
        anchors, everyone = torch.from_numpy(rows[queries]), torch.from_numpy(gallery)
        distances = (torch.cdist(anchors[start:stop], everyone) for start, stop in spans(len(anchors), BLOCK))
        nearest = [block.topk(count, largest=False).indices for block in distances]
        near = torch.cat(nearest).numpy()
    if among is not None:
        near = among[near]
    others = near != queries[:, None]
    # Among many equal rows an item itself may be missing; then the last one is too many.
    others[others.all(axis=1) & (count > k), -1] = False
    neighbors: Integers = near[others].reshape(len(queries), k)
    return neighbors
