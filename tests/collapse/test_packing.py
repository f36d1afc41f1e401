from __future__ import annotations

import math

import pytest
import torch

from trivet.collapse.packing import most_points


def least_distance(points: torch.Tensor) -> float:
    distances = torch.cdist(points, points)
    return float(distances.fill_diagonal_(math.inf).min())


@pytest.mark.parametrize("count", range(2, 40))
def test_points_on_a_circle_are_counted_exactly(count: int) -> None:
    side = 2 * math.sin(math.pi / count)
    assert most_points(2, side) == count
    assert most_points(2, min(2.0, side * 1.0001)) <= max(2, count - 1)


@pytest.mark.parametrize("count", range(2, 12))
def test_a_simplex_is_the_most_that_lie_so_far_apart(count: int) -> None:
    side = math.sqrt(2 * count / (count - 1))
    corners = torch.nn.functional.normalize(torch.eye(count, dtype=torch.float64) - 1 / count)
    assert least_distance(corners) == pytest.approx(side)
    for dim in (count - 1, count, 100):
        assert most_points(dim, side) == (count if dim > 1 else 2)


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_the_axes_are_the_most_at_right_angles(dim: int) -> None:
    assert most_points(dim, math.sqrt(2)) == 2 * dim


@pytest.mark.parametrize(("dim", "kissing"), [(3, 12), (4, 24), (8, 240), (24, 196_560)])
def test_no_fewer_than_the_spheres_that_kiss(dim: int, kissing: int) -> None:
    """Conway and Sloane, "Sphere Packings, Lattices and Groups", table 1.5."""
    assert kissing <= most_points(dim, 1.0) < 1000 * kissing


def test_edges() -> None:
    assert most_points(1, 0.1) == 2
    assert most_points(5, 0) == math.inf
    assert most_points(300, 1e-3) == math.inf
    with pytest.raises(ValueError, match=r"dim must be at least 1 and distance lie in \[0, 2\]: got dim = 0"):
        most_points(0, 1.0)


def test_small_caps_in_many_dimensions_are_beyond_counting() -> None:
    """Their share of the sphere is 0 in floating point, or too small for its inverse to be a number."""
    counts = [most_points(384, distance / 10_000) for distance in range(3000, 3400)]
    assert counts[0] == math.inf
    assert counts[-1] < math.inf
    assert counts == sorted(counts, reverse=True)
