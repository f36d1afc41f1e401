"""Items out of scope and new clusters, against definitions and in planted data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trivet.drift.permutation import Units
from trivet.drift.scope import find_new_clusters, measure_scope, scope_share


def made(count: int = 400, far: int = 0, close: int = 0) -> tuple[torch.Tensor, Units]:
    """400 items of a reference and 300 new ones, of which some are scattered far away, or in a cluster far away."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(count + 300, 6))
    rows[count : count + far] *= 5
    rows[count + far : count + far + close] = 6 + 0.2 * rows[count + far : count + far + close]
    return torch.from_numpy(rows).float(), Units.of(np.arange(count + 300) >= count)


def test_distances_are_to_the_nearest_of_half_of_the_reference() -> None:
    points, units = made()
    scope = measure_scope(points, units, np.random.default_rng(0))
    assert scope is not None
    others = [i for i in scope.items.tolist() if i < 400]
    assert scope.items.tolist() == [*others, *range(400, 700)]
    assert len(others) == 200
    anchors = [i for i in range(400) if i not in {*others}]
    rows = points.tolist()
    for i, distance in zip(scope.items.tolist(), scope.distances.tolist(), strict=True):
        assert distance == pytest.approx(sorted(math.dist(rows[i], rows[j]) for j in anchors)[0], abs=1e-4)
    inside = [sorted(math.dist(rows[i], rows[j]) for j in anchors if j != i)[0] for i in anchors]
    assert scope.limit == pytest.approx(np.quantile(inside, 0.95), abs=1e-4)
    assert scope.far.tolist() == [distance > scope.limit for distance in scope.distances.tolist()]


def test_a_group_is_not_divided_between_anchors_and_others() -> None:
    points, _ = made()
    groups = np.arange(700) // 7
    units = Units.of(np.arange(700) >= 400, groups)
    scope = measure_scope(points, units, np.random.default_rng(0))
    assert scope is not None
    measured = {*scope.items.tolist()}
    for group in range(57):
        assert len({item in measured for item in np.flatnonzero(groups == group).tolist() if item < 400}) == 1


def test_too_small_a_reference_gives_no_scope() -> None:
    points, units = made(38)
    assert measure_scope(points, units, np.random.default_rng(0)) is None
    assert measure_scope(*made(40), np.random.default_rng(0)) is not None


@pytest.mark.parametrize("far", [0, 60])
def test_the_excess_share(far: int) -> None:
    points, units = made(far=far)
    scope = measure_scope(points, units, np.random.default_rng(0))
    assert scope is not None
    share = scope_share(scope, units, 199, np.random.default_rng(0))
    assert share.now == scope.far[200:].mean()
    assert share.reference == scope.far[:200].mean()
    assert share.excess == pytest.approx((share.now - share.reference) / (1 - share.reference))
    assert share.interval.low < share.excess < share.interval.high
    assert share.interval.low <= far / 300 <= share.interval.high
    assert (share.p <= 0.01) == (far > 0)
    assert (share.interval.low > 0) == (far > 0)


def test_groups_that_are_far_together_widen_the_interval_and_raise_p() -> None:
    points, units = made(close=30)
    grouped = Units.of(units.is_now, np.where(np.arange(700) < 400, -1, 10 + (np.arange(700) - 400) // 30))
    shares = []
    for each in (units, grouped):
        scope = measure_scope(points, each, np.random.default_rng(0))
        assert scope is not None
        shares.append(scope_share(scope, each, 199, np.random.default_rng(0)))
    widths = [share.interval.high - share.interval.low for share in shares]
    assert widths[1] > 2 * widths[0]
    assert shares[1].p > 5 * shares[0].p


def test_a_new_cluster_is_recognised_with_its_items() -> None:
    points, units = made(far=20, close=24)
    scope = measure_scope(points, units, np.random.default_rng(0))
    assert scope is not None
    (cluster,) = find_new_clusters(points, units, scope, permutations=199, generator=np.random.default_rng(0))
    planted = {*range(20, 44)}
    assert {*cluster.rows.tolist()} <= planted
    assert len(cluster.rows) >= 18
    centre = points[420:444].mean(dim=0)
    distances = (points[400 + torch.from_numpy(cluster.rows)] - centre).norm(dim=1)
    assert distances[:6].mean() < distances[-6:].mean()
    assert cluster.share == pytest.approx(24 / 300, abs=0.04)
    assert cluster.reference == 0


def test_scattered_items_and_clusters_of_the_reference_are_no_new_clusters() -> None:
    points, units = made(far=60)
    old = points.clone()
    old[:30] = 6 + 0.2 * old[:30]  # the reference has such a cluster as well
    old[400:424] = 6 + 0.2 * old[400:424]
    for rows in (points, old):
        scope = measure_scope(rows, units, np.random.default_rng(0))
        assert scope is not None
        draw = np.random.default_rng(0)
        clusters = find_new_clusters(rows, units, scope, permutations=199, generator=draw)
        assert min((cluster.p for cluster in clusters), default=1.0) > 0.05
