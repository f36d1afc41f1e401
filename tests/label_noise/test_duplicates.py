"""Duplicates are told by content and by distance, and not where points come near by chance."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest

from trivet.label_noise import Duplicates, find_duplicates


def nearest(points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    apart = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    order = np.argsort(apart + np.diag(np.full(len(points), np.inf)), axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(apart, order, axis=1)


def definition(
    neighbours: list[list[int]], distances: list[list[float]], labels: list[int], content: list[str]
) -> list[tuple[bool, bool, bool]]:
    """Exact, near, and with another label, of each item, in plain Python."""
    count, last = len(labels), min(10, len(distances[0]))
    scale = [row[last - 1] for row in distances]
    typical = median(row[0] for row in distances)
    inverse = median(
        sum(math.log(row[last - 1] / one) for one in row[: last - 1]) / (last - 2) for row in distances if row[0] > 0
    )
    most = min(0.3, (1 - 0.999 ** (1 / (last - 1))) ** inverse)
    found = []
    for i in range(count):
        exact = [j for j in range(count) if j != i and content[j] == content[i]]
        near = [
            j
            for j, apart in zip(neighbours[i], distances[i], strict=True)
            if content[j] != content[i] and apart <= most * min(scale[i], scale[j], typical)
        ]
        found.append((bool(exact), bool(near), any(labels[j] != labels[i] for j in exact + near)))
    return found


def made(dimension: int = 12, k: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """150 points, of which 0 and 1, 2 and 3, 4 and 5 are near; 10 to 13 have one content, 10 and 11 one label."""
    random = np.random.default_rng(0)
    points = random.normal(size=(150, dimension))
    points[[1, 3, 5]] = points[[0, 2, 4]] + 0.05 * random.normal(size=(3, dimension))
    points[11:14] = points[10]
    labels = random.integers(0, 3, 150)
    labels[[0, 1, 2, 3, 4, 5]] = [0, 0, 1, 2, 1, 1]
    labels[[10, 11, 12, 13]] = [0, 0, 1, 2]
    content = [f"item {i}" for i in range(150)]
    content[11] = content[12] = content[13] = content[10]
    return *nearest(points, k), labels, content


@pytest.mark.parametrize("k", [15, 10, 5])
def test_equals_the_definition(k: int) -> None:
    neighbours, distances, labels, content = made(k=k)
    found = find_duplicates(neighbours, distances, labels, content=content)
    expected = definition(neighbours.tolist(), distances.tolist(), labels.tolist(), content)
    assert list(zip(found.exact, found.near, found.other_label, strict=True)) == expected
    assert found.near[:6].all()
    assert found.near.sum() == 6
    assert found.twin[:6].tolist() == [1, 0, 3, 2, 5, 4]
    assert found.twin[10:14].tolist() == [12, 12, 10, 10]  # of another label before one of the same
    assert np.flatnonzero(found.other_label[[0, 1, 2, 3, 4, 5, 10, 11]]).tolist() == [2, 3, 6, 7]
    assert (found.twin >= 0).tolist() == (found.exact | found.near).tolist()
    # Without contents the copies are near: their distance is 0.
    alone = find_duplicates(neighbours, distances, labels)
    assert alone.near[10:14].all()
    assert not alone.exact.any()


@pytest.mark.parametrize(("around", "near"), [(1.0, True), (0.9, False)])
def test_the_surroundings_of_both_items_count(around: float, near: bool) -> None:
    neighbours = (np.arange(30)[:, None] + np.arange(1, 11)) % 30
    distances = np.tile(np.linspace(1, 1.09, 10), (30, 1))
    distances[0, 0] = 0.29  # to item 1
    neighbours[1, 0] = 0
    distances[1] = np.linspace(around - 0.09, around, 10)
    distances[1, 0] = 0.29
    found = find_duplicates(neighbours, distances, np.arange(30))
    assert found.near.tolist() == [near, near] + 28 * [False]


@pytest.mark.parametrize("dimension", [1, 2, 3, 8, 30])
def test_points_spread_evenly_or_in_clusters_are_hardly_ever_duplicates(dimension: int) -> None:
    random = np.random.default_rng(1)
    for points in (
        random.random((1000, dimension)),
        np.concatenate([random.normal(size=(500, dimension)), 20 + 0.01 * random.normal(size=(500, dimension))]),
    ):
        found = find_duplicates(*nearest(points, 12), np.zeros(1000, int))
        assert found.near.sum() <= 4


def test_a_collapsed_embedding_shows_none_and_folds_have_their_own_scale() -> None:
    none = find_duplicates(*nearest(np.zeros((30, 3)), 12), np.zeros(30, int))
    assert not none.near.any()
    assert (none.twin == -1).all()
    neighbours, distances, labels, _ = made()
    # A second network that makes everything a hundredth as large.
    both = np.concatenate([neighbours, neighbours + 150]), np.concatenate([distances, distances / 100])
    folds = np.repeat([0, 1], 150)
    found: Duplicates = find_duplicates(*both, np.tile(labels, 2), folds=folds)
    assert found.near.tolist() == 2 * find_duplicates(neighbours, distances, labels).near.tolist()
