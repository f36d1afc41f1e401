"""The neighbours that labels are judged by, against sorting all distances in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trivet.label_noise import neighbourhoods
from trivet.label_noise.neighbourhoods import LabelledPoints, find_neighborhoods


@pytest.fixture(params=[(512, 4096), (7, 4)], ids=["all at once", "few at once"], autouse=True)
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhoods, "ROWS", request.param[0])
    monkeypatch.setattr(neighbourhoods, "COLUMNS", request.param[1])


@pytest.mark.parametrize("k", [1, 6])
def test_neighbours_are_the_nearest_of_the_fold(k: int) -> None:
    random = np.random.default_rng(2)
    points, labels, folds = random.normal(size=(40, 3)), random.integers(0, 3, 40), np.arange(40) % 2
    setting = LabelledPoints.of(points, labels, folds=folds, distance="euclidean")
    found = find_neighborhoods(setting, k)
    for i in range(40):
        others = sorted((math.dist(points[i], points[j]), j) for j in range(40) if j != i and folds[j] == folds[i])
        assert found.indices[i].tolist() == [j for _, j in others[:k]]
        assert np.allclose(found.distances[i], [d for d, _ in others[:k]], rtol=1e-12)
        assert math.isclose(found.to_positive[i], min(d for d, j in others if labels[j] == labels[i]), rel_tol=1e-6)
        assert math.isclose(found.to_negative[i], min(d for d, j in others if labels[j] != labels[i]), rel_tol=1e-6)


def test_neighbours_of_near_duplicates_far_from_the_origin() -> None:
    points = 1e4 + 1e-3 * np.random.default_rng(3).normal(size=(30, 4))
    setting = LabelledPoints.of(points, np.arange(30) % 2, folds=None, distance="euclidean")
    found = find_neighborhoods(setting, 1).indices[:, 0]
    for i, j in enumerate(found.tolist()):
        assert j == min((math.dist(points[i], points[o]), o) for o in range(30) if o != i)[1]


def test_of_equal_points_the_first_come_first() -> None:
    points = np.repeat([[0.0, 0.0], [3.0, 4.0]], 20, axis=0)
    found = find_neighborhoods(LabelledPoints.of(points, np.arange(40) % 4, folds=None, distance="euclidean"), 5)
    assert found.indices[0].tolist() == [1, 2, 3, 4, 5]
    assert found.indices[39].tolist() == [20, 21, 22, 23, 24]
    assert not found.distances.any()


def test_a_lone_item_is_alone_in_its_fold() -> None:
    setting = LabelledPoints.of(
        np.eye(6), np.array([0, 0, 1, 1, 1, 2]), folds=np.array([0, 1, 0, 0, 1, 1]), distance="cosine"
    )
    assert setting.lone.tolist() == [True, True, False, False, True, True]
