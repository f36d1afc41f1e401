"""Items out of scope: those farther from a reference than its own items are, and the new clusters among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from trivet.drift.comparison import nearest
from trivet.drift.permutation import Units, p_value, share_differences, step_down
from trivet.metrics.intervals import Interval, share_interval
from trivet.runtime.arrays import Booleans, Floats, Integers

INSIDE = 0.95  # share of the anchors that lie within the limit of each other
ANCHORS = 10_000  # items of the reference that distances are measured to, and as many others that are measured
FEWEST = 20  # anchors
SOUGHT = 10_000  # new items among which clusters are sought
LINKS = 3  # new items that one of a cluster is nearer to than to any of the reference
CLUSTERS = 20  # that are tested
CORE = 0.9  # share of the items of a cluster within its radius


@dataclass(frozen=True, eq=False)
class Scope:
    """Distances of items to the nearest of a sample of the reference, and the limit beyond which few of these lie.

    Attributes:
        items: `(Q,)` positions of what is measured: items of the reference that are no anchors, then new ones.
        distances: `(Q,)` of each to its nearest anchor.
        limit: 95 % of the anchors are as near to their nearest other.
    """

    items: Integers
    distances: Floats
    limit: float

    @property
    def far(self) -> Booleans:
        """Mask of the measured items beyond the limit."""
        return np.asarray(self.distances > self.limit)


@dataclass(frozen=True)
class ScopeShare:
    """Shares of items beyond the limit.

    Attributes:
        now, reference: of the new items, and of those of the reference that are no anchors.
        excess: the share of new items out of scope, but for chance and those within the limit: (now - reference) / (1 -
            reference).
        interval: of the excess, 95 %.
        p: of the one-sided permutation test of the difference.
    """

    now: float
    reference: float
    excess: float
    interval: Interval
    p: float


@dataclass(frozen=True, eq=False)
class NewCluster:
    """A cluster of new items: new, or grown where the reference has some items there as well.

    Attributes:
        rows: `(n,)` its items, counted among the new ones, the most central first.
        share: of the new items that were not used to find it.
        reference: of the items of the reference that lie there as well.
        p: adjusted for the number of clusters.
    """

    rows: Integers
    share: float
    reference: float
    p: float


def measure_scope(points: Tensor, units: Units, generator: np.random.Generator) -> Scope | None:
    """Measure how far items lie from the reference; None where it has too few items to tell.

    Half of the units of the reference, of at most 10,000 items, are anchors. The others are measured like new items, so
    that by chance these lie no farther.

    Source:
        Laxhammar, Falkman, "Conformal Prediction for Distribution-Independent Anomaly Detection in Streaming Vessel
        Data", 2010 (the distance to the nearest as a conformal measure).
    """
    is_now = units.is_now
    order = generator.permutation(np.flatnonzero(~units.now))
    rank = np.full(len(units), -1)
    rank[order] = np.arange(len(order))
    halves = rank[units.unit]
    reference = np.flatnonzero(~is_now)
    of_anchors = halves[reference] % 2 == 0
    anchors = _first(reference[of_anchors], halves, ANCHORS)
    others = _first(reference[~of_anchors], halves, ANCHORS)
    if len(anchors) < FEWEST or not len(others):
        return None
    near = points[torch.from_numpy(anchors)]
    inside, _ = nearest(near, near, 1, same=True)
    items = np.concatenate([others, np.flatnonzero(is_now)])
    distances, _ = nearest(points[torch.from_numpy(items)], near, 1)
    return Scope(items, distances[:, 0], float(np.quantile(inside, INSIDE)))


def _first(items: Integers, order: Integers, most: int) -> Integers:
    """At most so many items, by the order of their units."""
    return np.sort(items[np.argsort(order[items], kind="stable")[:most]])


def scope_share(scope: Scope, units: Units, permutations: int, generator: np.random.Generator) -> ScopeShare:
    """Test and estimate how many more new items lie beyond the limit than items of the reference do.

    The ends of the interval join those of both shares, each widened as items of a unit are alike.

    Source:
        Newcombe, "Interval Estimation for the Difference Between Independent Proportions", 1998, method 10.
    """
    measured = units.subset(scope.items)
    far = csr_array(scope.far[None].astype(np.float64))
    differences = share_differences(measured, far, permutations, generator)
    now, low_now, high_now = _share(scope.far, measured, measured.is_now)
    reference, low, high = _share(scope.far, measured, ~measured.is_now)
    inside = max(1 - reference, 1e-9)
    difference = now - reference
    ends = (
        difference - np.hypot(now - low_now, high - reference),
        difference + np.hypot(high_now - now, reference - low),
    )
    interval = Interval(max(-1.0, float(ends[0] / inside)), min(1.0, float(ends[1] / inside)))
    return ScopeShare(now, reference, difference / inside, interval, p_value(differences[:, 0]))


def _share(far: Booleans, units: Units, items: Booleans) -> tuple[float, float, float]:
    """A share over some items, and its 95 % interval over other units."""
    value = float(far[items].mean())
    _, unit = np.unique(units.unit[items], return_inverse=True)
    deviations = np.bincount(unit, far[items] - value)
    count = len(deviations)
    variance = float(np.square(deviations).sum() / items.sum() ** 2 * count / max(1, count - 1))
    ends = share_interval(value, variance, degrees=max(1, count - 1), units=count, level=0.95)
    return value, ends.low, ends.high


def find_new_clusters(
    points: Tensor, units: Units, scope: Scope, *, permutations: int, generator: np.random.Generator
) -> list[NewCluster]:
    """Find and test clusters of new items that lie apart from the reference, those with the least p value first.

    In half of the new units those items are sought that are nearer to three others of them than to any anchor. Linked
    with these they form clusters: what lies as near to their mean as nine tenths of them do. The other half of the new
    units tests whether more of it lies there than of the reference.
    """
    is_now = units.is_now[scope.items]
    order = generator.permutation(np.flatnonzero(units.now))
    seeking = np.zeros(len(units), np.bool_)
    seeking[order[: len(order) // 2]] = True
    half = seeking[units.unit[scope.items]]
    sought = np.flatnonzero(half)
    if len(sought) > SOUGHT:
        sought = np.sort(generator.permutation(sought)[:SOUGHT])
    regions = _regions(points[torch.from_numpy(scope.items)], sought, scope)
    if not regions:
        return []
    tested = units.subset(scope.items[~half])
    inside = np.stack([region for region, _ in regions])
    members = csr_array(inside[:, ~half].astype(np.float64))
    differences = share_differences(tested, members, permutations, generator)
    deviation = differences.std(axis=0)
    values = step_down(differences / np.where(deviation > 0, deviation, 1))
    new = np.cumsum(is_now) - 1
    clusters = []
    for (region, distances), value in zip(regions, values.tolist(), strict=True):
        rows = np.flatnonzero(region & is_now)
        share, others = float(region[~half & is_now].mean()), float(region[~is_now].mean())
        clusters.append(NewCluster(new[rows[np.argsort(distances[rows])]], share, others, value))
    return sorted(clusters, key=lambda cluster: (cluster.p, -cluster.share))


def _regions(points: Tensor, sought: Integers, scope: Scope) -> Sequence[tuple[Booleans, Floats]]:
    """Masks of the measured items in each of the largest clusters of those sought, and their distances to its mean."""
    if len(sought) <= LINKS:
        return []
    rows = points[torch.from_numpy(sought)]
    distances, neighbours = nearest(rows, rows, LINKS, same=True)
    isolated = distances[:, -1] < scope.distances[sought]
    links = np.repeat(isolated, LINKS) & isolated[neighbours.ravel()]
    ends = np.repeat(np.arange(len(rows)), LINKS)[links], neighbours.ravel()[links]
    graph = csr_array((np.ones(len(ends[0])), ends), shape=(len(rows), len(rows)))
    component = connected_components(graph, directed=False)[1]
    regions = []
    for number in np.argsort(-np.bincount(component), kind="stable")[:CLUSTERS]:
        members = rows[torch.from_numpy(component == number)]
        if len(members) <= LINKS:
            break
        centre = members.mean(dim=0)
        radius = float(torch.quantile((members - centre).norm(dim=1), CORE))
        to_centre = (points - centre).norm(dim=1).numpy()
        regions.append((to_centre <= radius, to_centre))
    return regions
