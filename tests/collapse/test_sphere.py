"""Alignment and uniformity, against plain Python over the pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from trivet.collapse import sphere as module
from trivet.collapse.sphere import alignment, uniformity

RANDOM = np.random.default_rng(0)
POINTS, LABELS = RANDOM.standard_normal((70, 4)), RANDOM.integers(0, 9, 70)


def units(points: np.ndarray) -> list[list[float]]:
    return [[x / math.hypot(*row) for x in row] for row in points.tolist()]


def test_alignment_is_the_mean_over_positive_pairs() -> None:
    rows = units(POINTS)
    squares = [
        math.dist(rows[i], rows[j]) ** 2 for i, j in itertools.combinations(range(70), 2) if LABELS[i] == LABELS[j]
    ]
    assert alignment(POINTS, LABELS) == pytest.approx(sum(squares) / len(squares), rel=1e-12)


def test_alignment_of_equal_rows_and_of_none() -> None:
    assert alignment(np.full((6, 3), 0.7), np.array([0, 0, 0, 1, 1, 1])) == 0
    assert math.isnan(alignment(POINTS[:3], np.arange(3)))


def test_uniformity_is_the_log_of_the_mean_kernel() -> None:
    kernel = [math.exp(-2 * math.dist(a, b) ** 2) for a, b in itertools.combinations(units(POINTS), 2)]
    assert uniformity(POINTS) == pytest.approx(math.log(sum(kernel) / len(kernel)), rel=1e-12)
    assert uniformity(np.full((6, 3), 0.7)) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.array([[1.0], [-1.0]])) == pytest.approx(-8)


def test_uniformity_of_a_sample_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    points = RANDOM.standard_normal((900, 4))
    whole = uniformity(points)
    monkeypatch.setattr(module, "ROWS", 300)
    assert uniformity(points) == uniformity(points)
    assert uniformity(points) != whole
    assert uniformity(points) == pytest.approx(whole, abs=0.1)
