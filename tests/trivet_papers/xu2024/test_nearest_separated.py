from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.trivet_papers.xu2024.test_isometry import R_LABELS, R, array

from trivet_papers.xu2024.claims.collapse import TWENTY
from trivet_papers.xu2024.claims.sizes import LINES
from trivet_papers.xu2024.isometry import (
    Separation,
    batch_hard_loss,
    class_hausdorff_distance,
    diameter,
    diameter_bound,
    displacement,
    isometric_error,
    triplet_separation,
)
from trivet_papers.xu2024.nearest_separated import (
    Problem,
    descend,
    distance_on_a_line,
    distance_to_separation,
    loss_sandwich,
)

R_NEAREST = [[0.54359, 0.3348], [1.55488, 0.95767], [1.00205, 1.02056], [1.67756, -0.2237], [2.63931, 0.47323]]


def test_one_class_is_separated() -> None:
    points, labels = array(R), np.zeros(5, int)
    assert triplet_separation(points, labels, margin=3.0) == Separation(True, math.inf)
    assert batch_hard_loss(points, labels, margin=3.0) == 0
    found = distance_to_separation(points, labels, margin=3.0)
    assert (found.value, found.lower_bound) == (0, 0)
    assert found.witness.tolist() == R


@pytest.mark.parametrize(("line", "labels", "margin", "exact_values"), LINES)
def test_exact_values_on_a_line(
    line: list[float], labels: list[int], margin: float, exact_values: tuple[float, ...]
) -> None:
    most, mean, d_iso, d_haus = exact_values
    points, classes = np.array(line, dtype=float)[:, None], np.array(labels)
    assert batch_hard_loss(points, classes, margin=margin) == pytest.approx(most, abs=1e-10)
    assert batch_hard_loss(points, classes, margin=margin, reduction="mean") == pytest.approx(mean, abs=1e-10)
    for measure, exact in (("isometric", d_iso), ("hausdorff", d_haus)):
        for scale, shift in ((1, 0), (3, 7)):
            found = distance_on_a_line(scale * points + shift, classes, margin=scale * margin, measure=measure)
            assert found == pytest.approx(scale * exact, abs=1e-8)
    found = loss_sandwich(points, classes, margin=margin, starts=4)
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


@pytest.mark.parametrize("seed", TWENTY)
def test_twenty_points_in_the_plane(seed: int) -> None:
    most, mean, d_haus, size, _ = TWENTY[seed]
    points, labels = np.random.RandomState(seed).randn(20, 2), np.arange(20) % 2
    assert batch_hard_loss(points, labels) == pytest.approx(most, abs=5e-5)
    assert batch_hard_loss(points, labels, reduction="mean") == pytest.approx(mean, abs=5e-5)
    assert diameter(points) == pytest.approx(size, abs=5e-5)
    assert diameter_bound(size, most) <= 0
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
    line, labels = np.array([[0.0], [0.9], [1.0], [3.0]]), np.array([0, 1, 2, 2])
    for measure in ("hausdorff", "isometric"):
        exact = distance_on_a_line(line, labels, margin=1.0, measure=measure)
        found = distance_to_separation(line, labels, margin=1.0, measure=measure)
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


LABELS = np.array(R_LABELS)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: distance_to_separation(array(R), LABELS, measure="iso"), "did you mean 'isometric'"),
        (lambda: distance_to_separation(array(R), LABELS, starts=0), "starts and steps must be at least 1: got 0"),
        (lambda: descend(array(R), LABELS, reduction="mean"), "reduction = 'mean' is not known"),
        (lambda: descend(array(R), LABELS, steps=0), "steps must be at least 1 and step above 0: got 0 and 0.02"),
        (lambda: descend(array(R), LABELS, step=math.inf), "step above 0: got 1000 and inf"),
        (lambda: descend(array(R), LABELS, margin=-1), "margin must be a finite number"),
        (
            lambda: distance_on_a_line(array(R), LABELS),
            r"at most 6 points of a line: got shape \(5, 2\)",
        ),
        (lambda: distance_on_a_line(np.zeros((7, 1)), np.arange(7)), "at most 6 points"),
        (lambda: distance_on_a_line(array(R), LABELS, measure="iso"), "did you mean 'isometric'"),
    ],
)
def test_errors(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
