from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from trivet_papers.xu2024 import isometry
from trivet_papers.xu2024.isometry import (
    batch_hard_loss,
    class_hausdorff_distance,
    diameter,
    diameter_bound,
    displacement,
    enclosing_radius,
    isometric_error,
    nearest_images,
    thickness,
    thickness_bound,
    triplet_separation,
)

Points = list[list[float]]

# Config R of section 7 of the specification, and another embedding of the same items.
R = [[0.0, 0.0], [2.0, 0.5], [1.0, 1.5], [1.2, 0.2], [3.0, 1.0]]

R_LABELS = [0, 0, 0, 1, 1]

Z = [[0.1, 0.2], [1.5, 0.9], [1.0, 1.1], [1.7, -0.2], [2.6, 0.4]]


def array(points: Points) -> Any:
    return np.array(points, dtype=float)


def triplets(labels: list[int]) -> list[tuple[int, int, int]]:
    rows = range(len(labels))
    return [(a, p, n) for a, p, n in product(rows, repeat=3) if labels[a] == labels[p] != labels[n]]


def losses(points: Points, labels: list[int], margin: float) -> tuple[float, float]:
    """L_max and L_mean from all triplets."""
    by_anchor = [0.0] * len(points)
    for a, p, n in triplets(labels):
        hinge = math.dist(points[a], points[p]) - math.dist(points[a], points[n]) + margin
        by_anchor[a] = max(by_anchor[a], hinge)
    return max(by_anchor), fmean(by_anchor)


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 2, 2], [5, 5, -1, -1, -1, -1, 5], [0, 1, 2, 3, 4, 5, 6]])
def test_losses_and_gap_equal_the_definition(labels: list[int], margin: float) -> None:
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(7, 3)) * (0.3 if seed == 4 else 1.0)
        most, mean = losses(points.tolist(), labels, margin)
        assert batch_hard_loss(points, np.array(labels), margin=margin) == pytest.approx(most, rel=1e-12, abs=1e-15)
        found = batch_hard_loss(torch.from_numpy(points), torch.tensor(labels), margin=margin, reduction="mean")
        assert found == pytest.approx(mean, rel=1e-12, abs=1e-15)
        gap = min(
            math.dist(points[a], points[n]) - math.dist(points[a], points[p]) - margin for a, p, n in triplets(labels)
        )
        separation = triplet_separation(points, np.array(labels), margin=margin)
        assert separation.worst_gap == pytest.approx(gap, rel=1e-12)
        assert separation.separated == (gap >= 0)


@pytest.mark.parametrize(
    ("line", "margin", "expected"),
    [
        ([0.0, 1, 2, 3], 0.0, True),
        ([0.0, 1, 2, 3], 0.01, False),
        ([0.0, 1, 1.9, 3], 0.0, False),
        ([4.0, 4, 4, 4], 0.0, True),
        ([4.0, 4, 4, 4], 0.01, False),
    ],
)
def test_separation_on_a_line(line: list[float], margin: float, expected: bool) -> None:
    points, labels = np.array(line)[:, None], np.array([0, 0, 1, 1])
    assert triplet_separation(points, labels, margin=margin).separated is expected
    for scale in (1e-9, 1e9):
        assert triplet_separation(scale * points, labels, margin=scale * margin).separated is expected


def test_distances_between_embeddings() -> None:
    f, g, labels = array(R), array(Z), np.array(R_LABELS)
    by_class = [class_hausdorff_distance(f[k], g[k], labels[k]) for k in (slice(3), slice(3, None))]
    assert by_class == pytest.approx([0.6403124237, 0.7211102551], abs=1e-10)
    assert class_hausdorff_distance(f, g, labels) == pytest.approx(0.7211102551, abs=1e-10)
    assert displacement(f, g) == pytest.approx(0.7211102551, abs=1e-10)
    assert isometric_error(f, g) == pytest.approx(0.8881061777, abs=1e-10)
    errors = [abs(math.dist(R[i], R[j]) - math.dist(Z[i], Z[j])) for i, j in product(range(5), repeat=2)]
    assert isometric_error(f, g) == pytest.approx(max(errors), rel=1e-12)


def test_what_the_distances_do_not_see() -> None:
    f, g = np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])
    assert class_hausdorff_distance(f, g, np.array([0, 0])) == 0
    assert class_hausdorff_distance(f, g, np.array([0, 1])) == 1
    assert displacement(f, g) == 1
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    assert isometric_error(array(R), array(R) @ rotation + 5) < 1e-14
    in_space = np.concatenate([array(R), np.zeros((5, 1))], axis=1)
    assert isometric_error(array(R), in_space) == 0


def test_nearest_images_keep_separation_and_move_points_no_farther() -> None:
    labels = np.arange(10) % 3
    generator = np.random.default_rng(0)
    for _ in range(20):
        f = generator.normal(size=(10, 2))
        g = 0.1 * generator.normal(size=(10, 2)) + 2 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
        assert triplet_separation(g, labels).separated
        matched = nearest_images(f, g, labels)
        assert triplet_separation(matched, labels).separated
        assert displacement(f, matched) <= class_hausdorff_distance(f, g, labels) + 1e-12
        for i, image in enumerate(matched):
            candidates = [math.dist(f[i], g[j]) for j in range(10) if labels[j] == labels[i]]
            assert math.dist(f[i], image) == pytest.approx(min(candidates), rel=1e-12)


def test_reference_sizes() -> None:
    assert diameter(array(R)) == pytest.approx(3.1622776602, abs=1e-10)
    assert thickness(array(R)) == pytest.approx(1.2874526192, abs=1e-10)
    solid = np.array([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 1], [2, -1, 0.5]])
    assert thickness(solid) == pytest.approx(1.3416407865, abs=1e-10)
    assert thickness_bound(solid, restarts=5) == pytest.approx(1.3416407865, abs=1e-9)
    assert diameter(solid) == pytest.approx(3.6400549446, abs=1e-10)
    assert diameter(array(R)[:1]) == 0


@pytest.mark.parametrize("d", [2, 3, 4])
def test_thickness_equals_its_bound_and_no_direction_is_narrower(d: int) -> None:
    generator = np.random.default_rng(d)
    points = generator.normal(size=(12, d))
    exact = thickness(points)
    assert thickness_bound(points, restarts=10) == pytest.approx(exact, rel=1e-9)
    units = generator.normal(size=(2000, d))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    widths = np.ptp(points @ units.T, axis=0)
    assert exact <= widths.min() + 1e-12
    assert widths.min() <= 1.3 * exact
    assert thickness(3 * points + 100) == pytest.approx(3 * exact, rel=1e-9)


def test_directions_improve_step_by_step_and_from_several_starts() -> None:
    sets = [np.random.default_rng(seed).normal(size=(12, 4)) for seed in range(8)]
    alone = [thickness_bound(points, restarts=0) / thickness(points) for points in sets]
    assert min(alone) >= 1 - 1e-9
    assert sum(ratio <= 1 + 1e-9 for ratio in alone) >= 6  # one start finds another valley in one set
    assert thickness_bound(sets[1]) == pytest.approx(thickness(sets[1]), rel=1e-9)


def test_thickness_of_boxes() -> None:
    for sides in ([2.0], [3.0, 1e-5], [5.0, 1.0, 2.0], [2.0, 3.0, 0.5, 1.0, 4.0]):
        corners = np.array(list(product(*([0.0, side] for side in sides))))
        assert thickness(corners) == pytest.approx(min(sides), rel=1e-9)
        assert thickness_bound(corners, restarts=2) == pytest.approx(min(sides), rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 3), (32, 32), (20, 128)])
def test_thickness_is_0_where_points_cannot_fill_the_space(n: int, d: int) -> None:
    points = np.random.default_rng(0).normal(size=(n, d))
    assert thickness(points) == 0
    assert thickness_bound(points) == 0
    flat = np.random.default_rng(1).normal(size=(3 * d, d)) @ np.diag([0.0, *[1.0] * (d - 1)])
    assert thickness(flat) == 0


def test_enclosing_radius() -> None:
    assert enclosing_radius(np.array([[0.0, 0], [6, 8]])) == 5
    assert enclosing_radius(np.array([[0.0, 0], [6, 8], [3, 4], [4, 4]])) == pytest.approx(5, rel=1e-6)
    angles = np.array([0.0, 2.0, 4.0, 4.5])
    circle = 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1) + 50
    assert enclosing_radius(circle) == pytest.approx(3, rel=1e-6)
    assert enclosing_radius(np.full((4, 3), 0.7)) == 0
    assert enclosing_radius(np.ones((1, 3))) == 0


def test_bound_of_the_diameter() -> None:
    assert diameter_bound(17.1, 1.29) == pytest.approx(14.52)
    assert diameter_bound(2.0, 1.0) == 0
    assert diameter_bound(3.338656, 1.409210) == pytest.approx(0.520236, abs=1e-6)


LABELS = np.array(R_LABELS)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: triplet_separation(array(R), LABELS, margin=-0.1),
            "margin must be a finite number of at least 0: got -0.1",
        ),
        (lambda: batch_hard_loss(array(R), LABELS, margin=math.nan), "margin must be a finite number"),
        (lambda: batch_hard_loss(array(R), LABELS, reduction="sum"), "reduction = 'sum' is not known"),
        (lambda: batch_hard_loss(array(R), LABELS[:4]), r"labels must hold one class per embedding: got shape \(4,\)"),
        (lambda: triplet_separation(np.full((5, 2), np.nan), LABELS), "embeddings must be finite"),
        (lambda: diameter(np.zeros((0, 2))), "at least one row"),
        (lambda: diameter(np.arange(3)[:, None]), "floating point"),
        (lambda: thickness(np.random.default_rng(0).normal(size=(9, 6))), "d <= 5: got d = 6; use"),
        (lambda: displacement(array(R), array(R)[:4]), r"same items in one space: got shapes \(5, 2\) and \(4, 2\)"),
        (lambda: isometric_error(array(R), array(R)[:4]), r"same items: got shapes"),
        (lambda: class_hausdorff_distance(array(R), np.zeros((5, 1)), LABELS), "same items in one space"),
        (lambda: isometry.hardest_triplet(array(R), np.ones(5, int)), "at least two classes: got one"),
    ],
)
def test_errors(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_hardest_triplet_is_the_worst_of_all() -> None:
    for seed in range(5):
        points, labels = np.random.default_rng(seed).normal(size=(8, 2)), [0, 0, 1, 1, 1, 2, 2, 2]
        found = isometry.hardest_triplet(points, np.array(labels), margin=0.2)
        violations = {
            (a, p, n): math.dist(points[a], points[p]) - math.dist(points[a], points[n]) + 0.2
            for a, p, n in triplets(labels)
        }
        assert found.violation == pytest.approx(max(violations.values()), rel=1e-12)
        assert violations[found.anchor, found.positive, found.negative] == max(violations.values())
    apart = np.array([[0.0], [1.0], [5.0], [6.0]])
    assert isometry.hardest_triplet(apart, np.array([0, 0, 1, 1])).violation == -3


@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_boundary_is_that_of_the_union_of_discs(margin: float) -> None:
    generator = np.random.default_rng(3)
    points, labels = generator.normal(size=(9, 2)), np.array([7, 7, 7, 7, 7, 2, 2, 2, 5])
    points[1] = points[0]  # equal discs
    borders = isometry.separation_boundaries(points, labels, margin=margin)
    assert [len(arcs) > 0 for arcs in borders] == [True, margin > 0, True]
    for label, arcs in zip((2, 5, 7), borders, strict=True):
        own = [p for p, y in zip(points.tolist(), labels, strict=True) if y == label]
        reach = [max(math.dist(x, p) for p in own) + margin for x in own]
        for arc in arcs:
            for z in arc:
                room = [math.dist(x, z) - r for x, r in zip(own, reach, strict=True)]
                assert min(room) == pytest.approx(0, abs=1e-9)
        # The border encloses the area of the union: each arc (its centre to the left) adds half of x dy - y dx.
        twice = sum(float((arc[:-1, 0] * arc[1:, 1] - arc[:-1, 1] * arc[1:, 0]).sum()) for arc in arcs)
        low, high = (end(own, axis=0) + side * max(reach) for end, side in ((np.min, -1), (np.max, 1)))
        spots = generator.uniform(low, high, size=(40000, 2))
        inside = (np.linalg.norm(spots[:, None] - np.array(own), axis=2) < np.array(reach)).any(axis=1)
        assert twice / 2 == pytest.approx(np.prod(high - low) * inside.mean(), rel=0.02, abs=1e-12)
