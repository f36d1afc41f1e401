"""Hubs and items that nobody finds."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
import torch

from trivet.collapse.hubs import displacement, far_outliers, hubness, nearest_others


def ranked(points: list[list[float]], number: int) -> list[int]:
    """The others, the nearest first."""
    others = [other for other in range(len(points)) if other != number]
    return sorted(others, key=lambda other: math.dist(points[number], points[other]))


def definition(points: list[list[float]], k: int) -> tuple[float, float, list[set[int]]]:
    """Skewness of the k-occurrences, share of those that are 0, and the nearest of each."""
    nearest = [set(ranked(points, number)[:k]) for number in range(len(points))]
    counts = [sum(number in near for near in nearest) for number in range(len(points))]
    mean = fmean(counts)
    variance = fmean((count - mean) ** 2 for count in counts)
    return fmean((count - mean) ** 3 for count in counts) / variance**1.5, counts.count(0) / len(points), nearest


@pytest.mark.parametrize(("d", "k"), [(2, 10), (40, 3), (40, 10)])
def test_equals_the_definition(d: int, k: int) -> None:
    before, moves = np.random.default_rng(0).standard_normal((2, 60, d))
    after = before + 0.3 * moves
    both = [torch.from_numpy(rows) for rows in (after, before)]
    found, other = (hubness(rows, k=k) for rows in both)
    skewness, unfound, nearest = definition(after.tolist(), k)
    assert (found.skewness, found.unfound) == (pytest.approx(skewness), unfound)
    assert [set(rows) for rows in found.nearest.tolist()] == nearest
    orders = [[ranked(rows.tolist(), number) for number in range(60)] for rows in (after, before)]
    means = [
        min(
            fmean(there[number].index(near) + 1 for near in here[number][:k])
            for here, there in (orders, reversed(orders))
        )
        for number in range(60)
    ]
    assert displacement(*both, found.nearest, other.nearest).tolist() == pytest.approx(means)


def test_equally_near_items_share_a_rank() -> None:
    points = torch.tensor([[0.0], [1.0], [-1.0], [1.0], [5.0]], dtype=torch.float64)
    near = np.array([[1], [3], [0], [1], [1]])
    assert displacement(points, points, near, near).tolist() == [2, 1, 1, 1, 1.5]


def test_single_items_that_were_moved_are_far_out() -> None:
    random = np.random.default_rng(0)
    before = random.standard_normal((300, 8))
    after, moved = before + 0.05 * random.standard_normal((300, 8)), [3, 70, 71, 200]
    after[moved] = random.standard_normal((4, 8))

    def apart(points: np.ndarray) -> list[int]:
        both = [torch.from_numpy(rows) for rows in (points, before)]
        ranks = displacement(*both, *(hubness(rows).nearest for rows in both))
        return np.flatnonzero(far_outliers(ranks, far=0.2)).tolist()

    assert apart(after) == moved
    assert apart(before) == []
    assert apart(before + random.standard_normal((300, 8))) == []  # as far as this, but all of them


def test_two_items_find_each_other() -> None:
    found = hubness(torch.eye(2, dtype=torch.float64))
    assert (found.skewness, found.unfound, found.nearest.tolist()) == (0, 0, [[1], [0]])


def test_without_faiss_the_same_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    points, rows = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), np.arange(50)
    near = nearest_others(points, rows, 5)
    monkeypatch.setattr("trivet.collapse.hubs.installed", lambda *_: False)
    assert np.array_equal(nearest_others(points, rows, 5), near)
