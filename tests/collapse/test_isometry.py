from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, permutations, product
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from trivet.collapse import isometry
from trivet.collapse.isometry import (
    batch_hard_loss,
    class_hausdorff_distance,
    diameter,
    diameter_forecast,
    displacement,
    enclosing_radius,
    hausdorff_distance,
    isometric_error,
    nearest_images,
    thickness,
    thickness_bound,
    triplet_separation,
)
from trivet_papers.xu2024 import nearest_separated
from trivet_papers.xu2024.nearest_separated import (
    Problem,
    descend,
    distance_to_separation,
    loss_sandwich,
)

Points = list[list[float]]

# Config R of section 7 of the specification, and another embedding of the same items.
R = [[0.0, 0.0], [2.0, 0.5], [1.0, 1.5], [1.2, 0.2], [3.0, 1.0]]

R_LABELS = [0, 0, 0, 1, 1]

Z = [[0.1, 0.2], [1.5, 0.9], [1.0, 1.1], [1.7, -0.2], [2.6, 0.4]]

R_NEAREST = [[0.54359, 0.3348], [1.55488, 0.95767], [1.00205, 1.02056], [1.67756, -0.2237], [2.63931, 0.47323]]

# points, labels, margin, then L_max, L_mean, d_iso and d_haus, exact.
LINES = [
    ([0, 1, 0.6, 2, 2.5], [0, 0, 1, 1, 1], 0.0, 1.5, 0.66, 0.7666666667, 0.575),
    ([0, 1, 0.6, 2, 2.5], [0, 0, 1, 1, 1], 0.25, 1.75, 0.91, 0.875, 0.6375),
    ([0, 2, 1, 3], [0, 0, 1, 1], 0.0, 1.0, 1.0, 1.0, 0.75),
    ([0, 2, 1, 3], [0, 0, 1, 1], 0.25, 1.25, 1.25, 1.0833333333, 0.8125),
    ([0, 1, 1.5, 2.5], [0, 0, 1, 1], 0.0, 0.5, 0.25, 0.25, 0.125),
    ([0, 1, 1.5, 2.5], [0, 0, 1, 1], 0.25, 0.75, 0.375, 0.375, 0.1875),
    ([0, 0.9, 2, 2.2, 3.7], [0, 0, 1, 1, 0], 0.0, 2.2, 1.12, 1.8, 1.35),
    ([0, 0.9, 2, 2.2, 3.7], [0, 0, 1, 1, 0], 0.25, 2.45, 1.27, 1.8833333333, 1.4125),
]


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


def hausdorff(a: Points, b: Points) -> float:
    def one_way(c: Points, d: Points) -> float:
        return max(min(math.dist(x, y) for y in d) for x in c)

    return max(one_way(a, b), one_way(b, a))


def exact_on_a_line(x: list[float], labels: list[int], margin: float, measure: str) -> float:
    """In a fixed order of the images all distances are linear in them: one linear program for each order."""
    n = len(x)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    best = math.inf
    for order in permutations(range(n)):
        if measure == "isometric" and order[0] > order[-1]:
            continue  # a reflection changes no distance
        place = {item: at for at, item in enumerate(order)}

        def length(i: int, j: int, place: dict[int, int] = place) -> Any:
            row = np.zeros(n + 1)
            if i != j:
                row[i], row[j] = (1.0, -1.0) if place[i] > place[j] else (-1.0, 1.0)
            return row

        radius = np.eye(n + 1)[n]
        rows = [(-length(a, b), 0.0) for a, b in pairwise(order)]
        rows += [(length(a, p) - length(a, k), -margin) for a, p, k in triplets(labels)]
        if measure == "isometric":
            for i, j in pairs:
                rows += [(length(i, j) - radius, abs(x[i] - x[j])), (-length(i, j) - radius, -abs(x[i] - x[j]))]
        else:
            for i in range(n):
                rows += [(np.eye(n + 1)[i] - radius, x[i]), (-np.eye(n + 1)[i] - radius, -x[i])]
        found = linprog(
            radius, A_ub=np.stack([row for row, _ in rows]), b_ub=[limit for _, limit in rows], bounds=(None, None)
        )
        if found.success:
            best = min(best, found.fun)
    return best


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


def test_one_class_is_separated() -> None:
    points, labels = array(R), np.zeros(5, int)
    assert triplet_separation(points, labels, margin=3.0) == isometry.Separation(True, math.inf)
    assert batch_hard_loss(points, labels, margin=3.0) == 0
    found = distance_to_separation(points, labels, margin=3.0)
    assert (found.value, found.lower_bound) == (0, 0)
    assert found.witness.tolist() == R


def test_distances_between_embeddings() -> None:
    f, g, labels = array(R), array(Z), np.array(R_LABELS)
    assert hausdorff_distance(f[:3], g[:3]) == pytest.approx(0.6403124237, abs=1e-10)
    assert hausdorff_distance(f[3:], g[3:]) == pytest.approx(0.7211102551, abs=1e-10)
    assert class_hausdorff_distance(f, g, labels) == pytest.approx(0.7211102551, abs=1e-10)
    assert displacement(f, g) == pytest.approx(0.7211102551, abs=1e-10)
    assert isometric_error(f, g) == pytest.approx(0.8881061777, abs=1e-10)
    assert hausdorff_distance(f, g[:2]) == pytest.approx(hausdorff(R, Z[:2]), rel=1e-12)
    assert hausdorff_distance(g[:2], f) == pytest.approx(hausdorff(R, Z[:2]), rel=1e-12)
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


@pytest.mark.parametrize(("line", "labels", "margin", "most", "mean", "d_iso", "d_haus"), LINES)
def test_exact_values_on_a_line(
    line: list[float], labels: list[int], margin: float, most: float, mean: float, d_iso: float, d_haus: float
) -> None:
    points, classes = np.array(line, dtype=float)[:, None], np.array(labels)
    assert batch_hard_loss(points, classes, margin=margin) == pytest.approx(most, abs=1e-10)
    assert batch_hard_loss(points, classes, margin=margin, reduction="mean") == pytest.approx(mean, abs=1e-10)
    for measure, exact in (("isometric", d_iso), ("hausdorff", d_haus)):
        assert exact_on_a_line(line, labels, margin, measure) == pytest.approx(exact, abs=1e-9)
    found = loss_sandwich(points, classes, margin=margin, starts=8)
    for nearest, exact in ((found.isometric, d_iso), (found.hausdorff, d_haus)):
        assert nearest.lower_bound <= exact + 1e-9
        assert exact - 1e-8 <= nearest.value <= 1.05 * exact  # a local search may end 4 % above
    assert all(found.proven().values())


@pytest.mark.parametrize(
    ("margin", "most", "mean", "d_haus", "d_iso"),
    [
        (0.0, 1.2071524383, 0.9013484993, 0.63842428, 0.61395797),
        (0.1, 1.3071524383, 1.0013484993, 0.67692062, 0.65447751),
    ],
)
def test_reference_values_in_the_plane(margin: float, most: float, mean: float, d_haus: float, d_iso: float) -> None:
    points, labels = array(R), np.array(R_LABELS)
    assert batch_hard_loss(points, labels, margin=margin) == pytest.approx(most, abs=1e-10)
    assert batch_hard_loss(points, labels, margin=margin, reduction="mean") == pytest.approx(mean, abs=1e-10)
    found = loss_sandwich(points, labels, margin=margin, starts=12)
    assert found.hausdorff.value == pytest.approx(d_haus, rel=1e-4)
    assert found.isometric.value == pytest.approx(d_iso, rel=1e-4)
    assert found.hausdorff.lower_bound == pytest.approx(most / 4, abs=1e-10)
    assert found.isometric.lower_bound == pytest.approx(most / 2, abs=1e-10)
    assert all(found.proven().values())
    for nearest in (found.hausdorff, found.isometric):
        assert triplet_separation(nearest.witness, labels, margin=margin).separated
    if margin == 0:
        tight = [0, 1, 3, 4]  # the place of the third point is not determined
        np.testing.assert_allclose(found.hausdorff.witness[tight], array(R_NEAREST)[tight], atol=1e-4)
        assert diameter(found.hausdorff.witness) == pytest.approx(2.100288, abs=1e-4)


# labels i mod 2, RandomState(seed).randn(20, 2): L_max, L_mean, d_haus of three starts, diameter
TWENTY = [
    (0, 3.6878, 2.5520, 1.8564, 5.2633),
    (1, 3.3239, 2.3040, 1.4564, 4.1035),
    (2, 3.5093, 2.2736, 1.5494, 3.9141),
    (3, 4.3608, 2.5559, 1.8493, 4.6601),
]


@pytest.mark.parametrize(("seed", "most", "mean", "d_haus", "size"), TWENTY)
def test_twenty_points_in_the_plane(seed: int, most: float, mean: float, d_haus: float, size: float) -> None:
    points, labels = np.random.RandomState(seed).randn(20, 2), np.arange(20) % 2
    assert batch_hard_loss(points, labels) == pytest.approx(most, abs=5e-5)
    assert batch_hard_loss(points, labels, reduction="mean") == pytest.approx(mean, abs=5e-5)
    assert diameter(points) == pytest.approx(size, abs=5e-5)
    assert diameter_forecast(size, most).vacuous
    found = distance_to_separation(points, labels, starts=4, steps=500)
    assert found.lower_bound <= found.value <= 1.05 * d_haus
    assert found.value == pytest.approx(class_hausdorff_distance(points, found.witness, labels), rel=1e-12)
    assert triplet_separation(found.witness, labels).separated
    assert abs(diameter(found.witness) - size) <= 2 * found.value


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize(("n", "d"), [(5, 2), (8, 3), (14, 3)])
def test_witness_and_bounds_whatever_the_scale(n: int, d: int, margin: float) -> None:
    points, labels = np.random.default_rng(n).normal(size=(n, d)), np.arange(n) % 3
    found = loss_sandwich(points, labels, margin=margin, starts=3, steps=150)
    for nearest, value in (
        (found.hausdorff, class_hausdorff_distance(points, found.hausdorff.witness, labels)),
        (found.isometric, isometric_error(points, found.isometric.witness)),
    ):
        assert triplet_separation(nearest.witness, labels, margin=margin).separated
        assert nearest.value == value
        assert 0 < nearest.lower_bound <= nearest.value
    assert all(found.proven().values())
    assert found.hausdorff.value == pytest.approx(displacement(points, found.hausdorff.witness), rel=1e-9)
    again = distance_to_separation(1000 * points, labels, margin=1000 * margin, starts=3, steps=150)
    assert again.value == pytest.approx(1000 * found.hausdorff.value, rel=1e-3)


def test_sets_that_need_no_search() -> None:
    separated, labels = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
    found = loss_sandwich(separated, labels, margin=2.0)
    assert found.loss == found.isometric.value == found.hausdorff.value == 0
    assert math.isnan(found.isometric_per_loss)
    for margin in (0.5, 3.0):  # all equal: the classes have to be driven apart
        nearest = distance_to_separation(np.zeros((4, 2)), labels, margin=margin, starts=1)
        assert triplet_separation(nearest.witness, labels, margin=margin).separated
        assert nearest.value == pytest.approx(margin / 2, rel=1e-6)


def test_classes_of_one_item_are_driven_a_margin_apart() -> None:
    line, labels = [0.0, 0.9, 1.0, 3.0], [0, 1, 2, 2]
    for measure in ("hausdorff", "isometric"):
        exact = exact_on_a_line(line, labels, 1.0, measure)
        found = distance_to_separation(np.array(line)[:, None], np.array(labels), margin=1.0, measure=measure)
        assert exact - 1e-8 <= found.value <= 1.01 * exact


def test_proven_inequalities_do_not_wait_for_the_search() -> None:
    labels = np.arange(14) % 2
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(14, 2))
        found = loss_sandwich(points, labels, starts=1, steps=1)
        assert all(found.proven().values())
        assert found.isometric.value <= isometric_error(points, found.hausdorff.witness) + 1e-12


def test_points_are_made_separated() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(9) % 3
    points = generator.normal(size=(9, 2))
    for margin in (0.0, 0.5):
        problem = Problem(points, labels, margin)
        for z in (*problem.simple("hausdorff"), *problem.simple("isometric")):
            assert triplet_separation(z, labels, margin=margin).separated
        for spread in (1.0, 0.1):
            repaired = problem.repaired(spread * points)
            assert repaired is not None
            assert triplet_separation(repaired, labels, margin=margin).separated
    assert problem.repaired(np.zeros((9, 2))) is None


def test_search_matches_images_within_a_class() -> None:
    points = np.array([*range(7), *range(12, 19)], dtype=float)[:, None]
    labels = np.repeat([0, 1], 7)
    swapped = np.concatenate([points[:7][::-1] - 1, points[7:][::-1] + 1])
    problem = Problem(points, labels, 0.0)
    assert displacement(points, swapped) == 7
    assert displacement(points, problem.search("hausdorff", swapped[None], 1)) < 1.1


def test_same_seed_same_witness() -> None:
    first, second, other = (
        distance_to_separation(array(R), np.array(R_LABELS), starts=6, seed=seed) for seed in (1, 1, 2)
    )
    assert first.witness.tolist() == second.witness.tolist()
    assert first.witness.tolist() != other.witness.tolist()


def test_gradient_of_the_penalty_is_that_of_the_penalty() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(14, 3)), np.arange(14) % 3
    problem = Problem(points, labels, 0.2)
    z = generator.normal(size=(2, 14, 3))
    z[1] = 0.3 * z[1] + 1.5 * np.eye(3)[labels]  # a part of the anchors has no loss
    for measure in ("hausdorff", "isometric"):
        variable = torch.from_numpy(z.copy()).requires_grad_()
        upper = torch.triu_indices(14, 14, 1)
        for one in variable:
            distances = ((one[:, None] - one).square().sum(-1) + 1e-16).sqrt()
            same = torch.from_numpy(labels[:, None] == labels)
            farthest = distances.masked_fill(~same, -torch.inf).amax(1)
            nearest = distances.masked_fill(same, torch.inf).amin(1)
            if measure == "hausdorff":
                errors = torch.linalg.vector_norm(one - torch.from_numpy(points), dim=1)
            else:
                errors = (distances - torch.from_numpy(problem.distances)).abs()[upper[0], upper[1]]
            hinges = (farthest - nearest + 0.2 + 0.01).relu().sum()
            (0.1 * torch.logsumexp(errors / 0.1, 0) + 7 * hinges).backward()
        found = problem.gradient(measure, z, temperature=0.1, weight=7.0, slack=0.01)
        np.testing.assert_allclose(found, variable.grad, rtol=1e-6, atol=1e-6)


def test_forecast() -> None:
    assert diameter_forecast(17.1, 1.29).bound == pytest.approx(14.52)
    assert not diameter_forecast(17.1, 1.29).vacuous
    assert diameter_forecast(2.0, 1.0).vacuous
    assert not diameter_forecast(2.0, 1.0, factor=1.5).vacuous
    assert diameter_forecast(3.338656, 1.409210).bound == pytest.approx(0.520236, abs=1e-6)


LABELS = np.array(R_LABELS)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: triplet_separation(array(R), LABELS, margin=-0.1), "margin must be finite and at least 0: got -0.1"),
        (lambda: batch_hard_loss(array(R), LABELS, margin=math.nan), "margin must be finite"),
        (lambda: batch_hard_loss(array(R), LABELS, reduction="sum"), "reduction = 'sum' is not known"),
        (lambda: batch_hard_loss(array(R), LABELS[:4]), r"labels must hold one class per embedding: got shape \(4,\)"),
        (lambda: triplet_separation(np.full((5, 2), np.nan), LABELS), "embeddings must be finite"),
        (lambda: diameter(np.zeros((0, 2))), "at least one row"),
        (lambda: diameter(np.arange(3)[:, None]), "floating point"),
        (lambda: thickness(np.random.default_rng(0).normal(size=(9, 6))), "d <= 5: got d = 6; use"),
        (lambda: thickness_bound(array(R), restarts=-1), "restarts must be finite and at least 0: got -1"),
        (lambda: hausdorff_distance(array(R), np.zeros((0, 2))), "at least one row"),
        (lambda: hausdorff_distance(array(R), np.zeros((3, 1))), "the same dimension: got 2 and 1"),
        (lambda: displacement(array(R), array(R)[:4]), r"same items in one space: got shapes \(5, 2\) and \(4, 2\)"),
        (lambda: isometric_error(array(R), array(R)[:4]), r"same items: got shapes"),
        (lambda: class_hausdorff_distance(array(R), np.zeros((5, 1)), LABELS), "same items in one space"),
        (lambda: distance_to_separation(array(R), LABELS, measure="iso"), "did you mean 'isometric'"),
        (lambda: distance_to_separation(array(R), LABELS, starts=0), "starts and steps must be at least 1: got 0"),
        (lambda: diameter_forecast(1.0, -1.0), "loss must be finite and at least 0: got -1.0"),
        (lambda: diameter_forecast(math.inf, 1.0), "diameter must be finite"),
        (lambda: descend(array(R), LABELS, reduction="mean"), "reduction = 'mean' is not known"),
        (lambda: descend(array(R), LABELS, steps=0), "steps must be at least 1 and step above 0: got 0 and 0.02"),
        (lambda: descend(array(R), LABELS, step=math.inf), "step above 0: got 1000 and inf"),
        (lambda: descend(array(R), LABELS, margin=-1), "margin must be finite"),
        (lambda: isometry.hardest_triplet(array(R), np.ones(5, int)), "at least two classes: got one"),
        (lambda: isometry.separation_boundaries(np.zeros((5, 3)), LABELS), "points of the plane: got dimension 3"),
        (lambda: isometry.separation_boundaries(array(R), LABELS, resolution=0), r"lie in \(0, 1\] radians: got 0"),
        (lambda: isometry.separation_boundaries(array(R), LABELS, margin=-1), "margin must be finite"),
        (
            lambda: nearest_separated.distance_on_a_line(array(R), LABELS),
            r"at most 6 points of a line: got shape \(5, 2\)",
        ),
        (lambda: nearest_separated.distance_on_a_line(np.zeros((7, 1)), np.arange(7)), "at most 6 points"),
        (lambda: nearest_separated.distance_on_a_line(array(R), LABELS, measure="iso"), "did you mean 'isometric'"),
    ],
)
def test_errors(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("reduction", ["sum", "max"])
def test_a_step_of_descent_is_the_gradient(reduction: str) -> None:
    points, classes = np.random.default_rng(0).normal(size=(7, 3)), np.arange(7) % 3
    variable = torch.from_numpy(points).requires_grad_()
    distances = ((variable[:, None] - variable).square().sum(-1) + 1e-16).sqrt()
    same = torch.from_numpy(classes[:, None] == classes)
    hinges = (distances.masked_fill(~same, -torch.inf).amax(1) - distances.masked_fill(same, torch.inf).amin(1)) + 0.3
    (hinges.relu().sum() if reduction == "sum" else hinges.max()).backward()
    found = descend(points, classes, reduction=reduction, steps=1, step=0.1, margin=0.3)
    np.testing.assert_allclose(found.points, points - 0.1 * variable.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert found.losses[0] == pytest.approx(batch_hard_loss(points, classes, margin=0.3), rel=1e-12)


def test_descent_without_loss_stays() -> None:
    assert descend(array(R), np.zeros(5, int), margin=1.0).steps == 0
    line = np.array([[0.0], [1.0], [5.0], [6.0]])
    found = descend(line, np.array([0, 0, 1, 1]), margin=4.0, steps=9)
    assert (found.steps, found.losses.tolist()) == (0, [0.0]) or found.losses[0] > 0
    assert descend(line, np.array([0, 0, 1, 1])).points.tolist() == line.tolist()


# N: diameter after 50 and 1000 steps over that before, mean of 5 seeds, for the sum over anchors and the worst triplet

# N, per class, d, then means of 5 seeds: diameter, L_max, L_mean, diameter - 2 L_max


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


@pytest.mark.parametrize(("line", "labels", "margin", "most", "mean", "d_iso", "d_haus"), LINES[2:6])
def test_exact_distance_on_a_line(
    line: list[float], labels: list[int], margin: float, most: float, mean: float, d_iso: float, d_haus: float
) -> None:
    points, classes = 3 * np.array(line, dtype=float)[:, None] + 7, np.array(labels)
    for measure, exact in (("isometric", d_iso), ("hausdorff", d_haus)):
        found = nearest_separated.distance_on_a_line(points, classes, margin=3 * margin, measure=measure)
        assert found == pytest.approx(3 * exact, abs=1e-8)
