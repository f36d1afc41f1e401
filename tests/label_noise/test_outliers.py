"""Outliers are far from the bulk and from their neighbours; a spread-out class and a rare kind are none."""

from __future__ import annotations

import math
from statistics import median, quantiles

import numpy as np
from tests.label_noise.test_duplicates import nearest

from trivet.label_noise import find_outliers


def definition(neighbours: list[list[int]], distances: list[list[float]]) -> list[int]:
    far = [row[4] for row in distances]
    low, _, high = quantiles(far, n=4, method="inclusive")
    last = len(distances[0]) - 1
    dimension = 1 / median(sum(math.log(row[last] / one) for one in row[:last]) / (last - 1) for row in distances)
    return [
        i
        for i, row in enumerate(neighbours)
        if far[i] > high + 2.2 * (high - low) and (far[i] / median(far[j] for j in row[:5])) ** dimension > 20
    ]


def made() -> np.ndarray:
    """Two classes, one three times as wide, a rare kind of six items far away (600 to 605), and two lone ones."""
    random = np.random.default_rng(0)
    rows = [random.normal(size=(500, 4)), 30 + 3 * random.normal(size=(100, 4)), -40 + 0.5 * random.normal(size=(6, 4))]
    return np.concatenate([*rows, [[15.0] * 4], [[90.0, 0, 0, 0]]])


def test_equals_the_definition() -> None:
    neighbours, distances = nearest(made(), 8)
    found = np.flatnonzero(find_outliers(neighbours, distances)).tolist()
    assert found == definition(neighbours.tolist(), distances.tolist())
    assert {606, 607} <= set(found)
    assert not set(range(600, 606)) & set(found)
    assert sum(500 <= i < 600 for i in found) <= 3
    assert sum(i < 500 for i in found) <= 1


def test_few_items_have_none_and_folds_have_their_own_quartiles() -> None:
    points = np.append(np.arange(18.0), 900.0)[:, None]
    assert not find_outliers(*nearest(points, 6)).any()
    points = np.append(np.arange(19.0), 900.0)[:, None]
    neighbours, distances = nearest(points, 6)
    assert np.flatnonzero(find_outliers(neighbours, distances)).tolist() == [19]
    both = np.concatenate([neighbours, neighbours + 20]), np.concatenate([distances, 1000 * distances])
    found = find_outliers(*both, folds=np.repeat([0, 1], 20))
    assert np.flatnonzero(found).tolist() == [19, 39]


def test_the_tails_of_one_normal_distribution_are_hardly_ever_outliers() -> None:
    random = np.random.default_rng(2)
    for dimension in (1, 2, 4, 8, 30):
        assert find_outliers(*nearest(random.normal(size=(1000, dimension)), 10)).sum() <= 6
