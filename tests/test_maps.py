"""The maps of pages: items in the plane, as they are, by PCA and by t-SNE."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.commands.displayed_items import plane_coordinates


def test_by_t_sne_groups_that_lie_apart_do_so_in_the_plane() -> None:
    draw = np.random.default_rng(0)
    groups = np.arange(100) % 2
    points = 20 * np.eye(2, 4)[groups] + draw.normal(size=(100, 4))
    maps = plane_coordinates(points.astype(np.float32), seed=3)
    assert list(maps) == ["PCA", "t-SNE"]
    assert maps == plane_coordinates(points.astype(np.float32), seed=3)
    places = np.array(maps["t-SNE"])
    assert places.shape == (100, 2)
    distances = np.linalg.norm(places[:, None] - places, axis=2) + 1e9 * np.eye(100)
    assert (groups[distances.argmin(1)] == groups).all()
    assert not np.allclose(places, maps["PCA"])


def test_by_pca_the_axes_are_those_of_most_spread() -> None:
    points = np.array([[0, 100, 0], [0, -100, 0], [0, 0, 10], [0, 0, -10], [1, 0, 0], [-1, 0, 0]]) + 5
    (places,) = plane_coordinates(points, seed=0).values()  # of so few there is no other map
    assert np.abs(places) == pytest.approx(np.array([[100, 0], [100, 0], [0, 10], [0, 10], [0, 0], [0, 0]]))
    line = np.array(plane_coordinates(np.arange(4.0)[:, None], seed=0)["PCA"])
    assert abs(line).tolist() == [[1.5, 0], [0.5, 0], [0.5, 0], [1.5, 0]]


def test_what_lies_in_the_plane_stays_as_it_is_and_equal_items_have_no_map_of_neighbours() -> None:
    points = np.arange(24.0).reshape(12, 2)
    assert plane_coordinates(points, seed=0) == {"as is": points.tolist()}
    assert list(plane_coordinates(np.ones((12, 3)), seed=0)) == ["PCA"]
