"""Statistics of two sets against their definitions in plain Python."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
import torch

from trivet.drift.comparison import (
    FREQUENCIES,
    SCALES,
    FourierFeatures,
    largest_statistics,
    mean_distances,
    nearest,
    neighbour_counts,
)
from trivet.drift.permutation import Units


@pytest.fixture
def points() -> torch.Tensor:
    return torch.randn(60, 8, generator=torch.Generator().manual_seed(0))


def test_products_of_features_are_gaussian_kernels(points: torch.Tensor) -> None:
    features = FourierFeatures.of(points, np.random.default_rng(0))
    rows = features(points).reshape(60, len(SCALES), 2 * FREQUENCIES)
    distances = torch.pdist(points)
    left, right = torch.triu_indices(60, 60, 1)
    for number, quantile in enumerate(SCALES):
        scale = torch.quantile(distances, quantile)
        products = (rows[left, number] * rows[right, number]).sum(dim=1)
        error = (products - torch.exp(-((distances / scale) ** 2))).square().mean().sqrt().item()
        assert error < 1.2 / math.sqrt(2 * FREQUENCIES)  # the error of so many draws of a cosine
        assert (rows[:, number].square().sum(dim=1) - 1).abs().max().item() < 1e-5


def test_distances_of_mean_features(points: torch.Tensor) -> None:
    units = Units.of(np.arange(60) >= 40)
    features = FourierFeatures.of(points, np.random.default_rng(0))
    assignments = units.permuted(3, np.random.default_rng(1))
    result = mean_distances(points, units, assignments, features)
    assert result.shape == (4, len(SCALES))
    rows = features.frequencies.T.tolist()
    for assigned, values in zip(assignments.tolist(), result.tolist(), strict=True):
        for scale in range(len(SCALES)):
            total = 0.0
            for frequency in rows[scale * FREQUENCIES : (scale + 1) * FREQUENCIES]:
                angles = [math.fsum(a * b for a, b in zip(frequency, point, strict=True)) for point in points.tolist()]
                for wave in (math.cos, math.sin):
                    now, before = (
                        fmean(wave(angle) for angle, side in zip(angles, assigned, strict=True) if side == wanted)
                        for wanted in (True, False)
                    )
                    total += (now - before) ** 2 / FREQUENCIES
            assert values[scale] == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("same", [True, False])
def test_nearest(points: torch.Tensor, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.drift.comparison.ROWS", 16)
    anchors = points if same else points[30:] + 0.1
    distances, indices = nearest(points, anchors, 3, same=same)
    for i, point in enumerate(points.tolist()):
        expected = sorted(
            (math.dist(point, other), j) for j, other in enumerate(anchors.tolist()) if not (same and i == j)
        )[:3]
        assert indices[i].tolist() == [j for _, j in expected]
        assert distances[i] == pytest.approx([distance for distance, _ in expected], abs=1e-4)


def test_neighbours_of_the_same_set(points: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.drift.comparison.ASSIGNMENTS", 2)
    neighbours = nearest(points, points, 4, same=True)[1]
    is_now = np.random.default_rng(0).random((5, 60)) < 0.3
    result = neighbour_counts(neighbours, is_now)
    for now, values in zip(is_now.tolist(), result.tolist(), strict=True):
        counts = [sum(now[j] == now[i] for j in row) for i, row in enumerate(neighbours.tolist())]
        reference = fmean(count for count, new in zip(counts, now, strict=True) if not new)
        both = reference + fmean(count for count, new in zip(counts, now, strict=True) if new)
        assert values == pytest.approx([both, reference])


CHANGES = {
    "all items moved": lambda new, draw: new + 0.25,
    "a new cluster": lambda new, draw: np.where(np.arange(150)[:, None] < 15, 3 + 0.1 * new, new),
    "scattered far away": lambda new, draw: np.where(np.arange(150)[:, None] < 30, 3 * new, new),
    "half as wide": lambda new, draw: 0.7 * new,
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_kind_of_change_makes_the_largest_statistic_the_actual_one(change: str) -> None:
    draw = np.random.default_rng(0)
    before, new = draw.normal(size=(300, 16)), draw.normal(size=(150, 16))
    points = torch.from_numpy(np.concatenate([before, CHANGES[change](new, draw)])).float()
    units = Units.of(np.arange(450) >= 300)
    statistics = largest_statistics(
        points,
        units,
        units.permuted(99, draw),
        FourierFeatures.of(points, draw),
        permutations=99,
        generator=draw,
    )
    assert statistics.argmax() == 0


def test_equal_points_tell_nothing() -> None:
    points = torch.zeros(20, 3)
    units, draw = Units.of(np.arange(20) >= 12), np.random.default_rng(0)
    features = FourierFeatures.of(points, draw)
    statistics = largest_statistics(points, units, units.permuted(9, draw), features, permutations=9, generator=draw)
    assert np.isfinite(statistics).all()
    assert mean_distances(points, units, units.permuted(2, draw), features) == pytest.approx(np.zeros((3, 2)))
