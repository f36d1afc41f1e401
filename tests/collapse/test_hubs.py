"""Hubs and items that nobody finds."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
import torch

from trivet.collapse.hubs import hubness, nearest_others, shared_neighbors


def definition(points: list[list[float]], k: int) -> tuple[float, float, list[set[int]]]:
    """Skewness of the k-occurrences, share of those that are 0, and the nearest of each."""
    counts, nearest = [0] * len(points), []
    for number, point in enumerate(points):
        others = [other for other in range(len(points)) if other != number]
        near = sorted(others, key=lambda other: math.dist(point, points[other]))[:k]
        nearest.append(set(near))
        for other in near:
            counts[other] += 1
    mean = fmean(counts)
    variance = fmean((count - mean) ** 2 for count in counts)
    return fmean((count - mean) ** 3 for count in counts) / variance**1.5, counts.count(0) / len(points), nearest


@pytest.mark.parametrize(("d", "k"), [(2, 10), (40, 3), (40, 10)])
def test_equals_the_definition(d: int, k: int) -> None:
    points, moved = np.random.default_rng(0).standard_normal((2, 60, d))
    found, other = (hubness(torch.from_numpy(rows), k=k) for rows in (points, points + 0.3 * moved))
    skewness, unfound, nearest = definition(points.tolist(), k)
    assert (found.skewness, found.unfound) == (pytest.approx(skewness), unfound)
    assert [set(rows) for rows in found.nearest.tolist()] == nearest
    *_, others = definition((points + 0.3 * moved).tolist(), k)
    shares = [len(one & another) / k for one, another in zip(nearest, others, strict=True)]
    assert shared_neighbors(found.nearest, other.nearest).tolist() == pytest.approx(shares)


def test_two_items_find_each_other() -> None:
    found = hubness(torch.eye(2, dtype=torch.float64))
    assert (found.skewness, found.unfound, found.nearest.tolist()) == (0, 0, [[1], [0]])


def test_without_faiss_the_same_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    points, rows = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), np.arange(50)
    near = nearest_others(points, rows, 5)
    monkeypatch.setattr("trivet.collapse.hubs.installed", lambda *_: False)
    assert np.array_equal(nearest_others(points, rows, 5), near)
