"""Planted changes: assignments of the items at hand in which a cluster is new, which measure the power of a test."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trivet.drift.permutation import Units
from trivet.runtime.arrays import Booleans, Floats

SHARES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 1.0)  # of the new items, in the planted cluster
DRAWS = 40  # of each share
POWER = 0.8  # share of the draws in which a change must come to light


def plant_clusters(points: Tensor, units: Units, generator: np.random.Generator) -> Booleans:
    """Assignments `(SHARES * DRAWS, U)` in which the items around one at random are all new, and the others at random.

    They are the units nearest to that item, as many as are a share of the new items; the new set has as many units as
    it has. The draws of a share follow each other, and all shares have the same items in the middle.
    """
    count, members = int(units.now.sum()), int(units.is_now.sum())
    sizes = units.sizes
    result = np.zeros((len(SHARES), DRAWS, len(units)), np.bool_)
    centres = points[torch.from_numpy(generator.integers(len(points), size=DRAWS))]
    distances = torch.addmm(points.square().sum(dim=1, keepdim=True), points, centres.T, alpha=-2).T.numpy()
    for draw in range(DRAWS):
        nearest = np.full(len(units), np.inf, distances.dtype)
        np.minimum.at(nearest, units.unit, distances[draw])
        order = np.argsort(nearest, kind="stable")
        ends = np.searchsorted(np.cumsum(sizes[order]), np.array(SHARES) * members - 1e-6) + 1
        rest = generator.permutation(len(units))
        for number, end in enumerate(np.minimum(ends, count).tolist()):
            chosen = result[number, draw]
            chosen[order[:end]] = True
            others = rest[~chosen[rest]]
            chosen[others[: count - end]] = True
    return result.reshape(-1, len(units))


def power_of(statistics: Floats, null: Floats, level: float) -> dict[float, float]:
    """Share of a planted cluster -> share of the draws whose p value is at most the level.

    Args:
        statistics: `(SHARES * DRAWS,)` of the planted assignments.
        null: `(B,)` of the permutations.
    """
    larger = len(null) - np.searchsorted(np.sort(null), statistics, side="left")
    recognised = (1 + larger) / (1 + len(null)) <= level
    return dict(zip(SHARES, recognised.reshape(len(SHARES), -1).mean(axis=1).tolist(), strict=True))


def detectable_share(power: dict[float, float]) -> float | None:
    """The least share from which on all have a power of 80 %; None if the largest has not."""
    least = None
    for share in reversed(power):
        if power[share] < POWER:
            break
        least = share
    return least


def equivalent_share(statistics: Floats, statistic: float) -> float | None:
    """The share of a planted cluster whose median statistic is the given one, interpolated; None beyond the largest.

    Args:
        statistics: `(SHARES * DRAWS,)` of the planted assignments.
    """
    medians = np.maximum.accumulate(np.median(statistics.reshape(len(SHARES), -1), axis=1))
    if statistic > medians[-1]:
        return None
    return float(np.interp(statistic, medians, SHARES))
