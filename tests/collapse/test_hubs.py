"""Hubs and items that nobody finds."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
import torch

from trivet.collapse.hubs import displaced_items, displacement, hubness, nearest_others


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


def apart(after: np.ndarray, before: np.ndarray) -> list[int]:
    return displaced_items(torch.from_numpy(after), torch.from_numpy(before), far=0.2, near=1.5).tolist()


def test_single_items_that_were_moved_are_displaced() -> None:
    random = np.random.default_rng(0)
    before = random.standard_normal((300, 8))
    after, moved = before + 0.05 * random.standard_normal((300, 8)), [3, 70, 71, 200]
    after[moved] = random.standard_normal((4, 8))
    assert apart(after, before) == moved
    assert apart(before, before) == []
    assert apart(before + random.standard_normal((300, 8)), before) == []  # as far as this, but all of them
    after[:100] = 50 * random.standard_normal((100, 8))
    assert apart(after, before) == []  # a third are no single items


def test_items_in_the_middle_take_places_among_neighbours_until_they_are_left_out() -> None:
    random = np.random.default_rng(0)
    before, moved = random.standard_normal((300, 40)), list(range(0, 180, 20))
    after = before.copy()
    after[moved] = 0.01 * random.standard_normal((9, 40))
    assert apart(after, before) == moved


def test_items_that_training_moved_to_another_class_are_not_displaced() -> None:
    random, labels = np.random.default_rng(0), np.repeat(np.arange(10), 30)
    means = 9 * random.standard_normal((10, 16))
    before = means[labels] + random.standard_normal((300, 16))
    labels[::50] = (labels[::50] + 1) % 10
    assert apart(means[labels] + random.standard_normal((300, 16)), before) == []
    swapped = before.copy()
    swapped[::50] += (means[labels] - means[np.repeat(np.arange(10), 30)])[::50]
    assert apart(swapped, before) == list(range(0, 300, 50))  # the same six, by themselves


def test_two_items_find_each_other() -> None:
    found = hubness(torch.eye(2, dtype=torch.float64))
    assert (found.skewness, found.unfound, found.nearest.tolist()) == (0, 0, [[1], [0]])


def test_without_faiss_the_same_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    points, rows = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), np.arange(50)
    near = nearest_others(points, rows, 5)
    monkeypatch.setattr("trivet.collapse.hubs.installed", lambda *_: False)
    assert np.array_equal(nearest_others(points, rows, 5), near)
