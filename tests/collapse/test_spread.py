from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
import torch

from trivet.collapse import fine_coarse_index
from trivet.collapse.spread import class_spread


def definition(points: list[list[float]], coarse: list[int], fine: list[int]) -> float:
    def centroid(keep: Callable[[int], bool]) -> list[float]:
        rows = [point for place, point in enumerate(points) if keep(place)]
        return [fmean(column) for column in zip(*rows, strict=True)]

    fine_distances = []
    for outer in set(coarse):
        inside = {f for c, f in zip(coarse, fine, strict=True) if c == outer}
        centroids = [centroid(lambda i, o=outer, f=f: coarse[i] == o and fine[i] == f) for f in inside]
        fine_distances += [math.dist(a, b) for a, b in combinations(centroids, 2)]
    outer_centroids = [centroid(lambda i, o=outer: coarse[i] == o) for outer in set(coarse)]
    return fmean(fine_distances) / fmean(math.dist(a, b) for a, b in combinations(outer_centroids, 2))


@pytest.mark.parametrize("shared", [False, True], ids=["nested", "a fine class in two coarse classes"])
def test_equals_the_definition(shared: bool) -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(60, 3))
    fine = np.concatenate([np.arange(9), generator.integers(0, 9, 51)])
    coarse = generator.integers(0, 3, 60) if shared else np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])[fine]
    expected = definition(points.tolist(), coarse.tolist(), fine.tolist())
    assert fine_coarse_index(points, coarse, fine) == pytest.approx(expected, rel=1e-12)
    moved = fine_coarse_index(torch.from_numpy(1e4 + 5 * points[::-1].copy()), 9 - coarse[::-1], 100 + fine[::-1])
    assert moved == pytest.approx(expected, rel=1e-9)


def test_collapsed_classes_have_index_0_and_merged_ones_infinity() -> None:
    fine = np.array([0, 1, 2, 3])
    assert fine_coarse_index(np.array([[0.0], [0], [1], [1]]), fine // 2, fine) == 0
    assert fine_coarse_index(np.array([[-1.0], [1], [-1], [1]]), fine // 2, fine) == math.inf
    several = np.repeat(fine, [1, 2, 3, 5])
    assert math.isnan(fine_coarse_index(np.full((11, 3), 0.1), several // 2, several))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fine_coarse_index(np.eye(3), np.zeros(3, int), np.arange(3)), "coarse must hold at least two"),
        (lambda: fine_coarse_index(np.zeros((0, 2)), np.zeros(0, int), np.zeros(0, int)), "coarse must hold"),
        (lambda: fine_coarse_index(np.eye(3), np.arange(3), np.arange(3)), "fine must split"),
        (lambda: fine_coarse_index(np.eye(3), np.arange(3), np.arange(2)), r"fine must .* shape \(2,\)"),
        (lambda: fine_coarse_index(np.eye(3), np.arange(3) > 0, np.arange(3)), "coarse must .* bool"),
        (lambda: fine_coarse_index(np.eye(3), np.zeros(3), np.arange(3)), "coarse must .* float64"),
        (lambda: fine_coarse_index(np.eye(3, dtype=int), np.arange(3), np.arange(3)), "floating point"),
        (lambda: fine_coarse_index(np.full((3, 1), np.nan), np.arange(3), np.arange(3)), "NaN"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_class_spread_is_that_of_the_pairs() -> None:
    generator = np.random.default_rng(1)
    points, labels = 1e3 + generator.normal(size=(50, 3)), generator.integers(0, 5, 50)
    labels[0] = 7  # a class of one item
    found = class_spread(points, labels)
    for place, label in enumerate(sorted(set(labels.tolist()))):
        rows = [points[i].tolist() for i in range(50) if labels[i] == label]
        rest = [points[i].tolist() for i in range(50) if labels[i] != label]
        within = [math.dist(a, b) ** 2 for a, b in combinations(rows, 2)]
        between = [math.dist(a, b) ** 2 for a in rows for b in rest]
        expected = math.sqrt(fmean(within)) if within else math.nan
        assert found.within[place] == pytest.approx(expected, rel=1e-9, nan_ok=True)
        assert found.between[place] == pytest.approx(math.sqrt(fmean(between)), rel=1e-9)
        assert found.ratio[place] == pytest.approx(expected / math.sqrt(fmean(between)), rel=1e-9, nan_ok=True)


def test_class_spread_of_points_and_of_one_class() -> None:
    labels = np.array([0, 0, 1, 1])
    assert class_spread(np.array([[0.1], [0.1], [0.7], [0.7]]), labels).ratio.tolist() == [0, 0]
    assert np.isnan(class_spread(np.full((4, 2), 0.1), labels).ratio).all()
    one = class_spread(np.array([[0.0], [3.0]]), np.array([5, 5]))
    assert one.within.tolist() == [3]
    assert np.isnan(one.between).all()
    with pytest.raises(ValueError, match="at least one item: got none"):
        class_spread(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
