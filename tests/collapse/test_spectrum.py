"""Effective rank, against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trivet.collapse import spectrum as module
from trivet.collapse.spectrum import effective_rank, singular_values

RANDOM = np.random.default_rng(0)


def test_it_is_the_entropy_of_the_spectrum() -> None:
    points = RANDOM.standard_normal((40, 6)) * [5, 3, 1, 0.3, 0.1, 0.01]
    centred = points - points.mean(axis=0)
    values = [math.sqrt(max(0.0, value)) for value in np.linalg.eigvalsh(centred.T @ centred)]
    shares = [value / sum(values) for value in values]
    assert effective_rank(points) == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)), rel=1e-9)


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
def test_the_covariance_gives_the_same_values(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    points = RANDOM.standard_normal(shape)
    direct = singular_values(points)
    monkeypatch.setattr(module, "DIRECT", 0)
    # The last value of few points is 0, and is the root of a rounding error here.
    np.testing.assert_allclose(singular_values(points), direct, atol=1e-6)


def test_scale_shift_and_rotation_change_nothing() -> None:
    points = RANDOM.standard_normal((60, 5)) * [3, 2, 1, 1, 0.2]
    turn, _ = np.linalg.qr(RANDOM.standard_normal((5, 5)))
    assert effective_rank(1e-8 * points @ turn + 1e-3) == pytest.approx(effective_rank(points), rel=1e-6)


def test_equal_rows_have_rank_0() -> None:
    assert effective_rank(np.full((9, 4), 0.3)) == 0
    assert effective_rank(np.ones((1, 4))) == 0


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="at least one item: got none"):
        singular_values(np.zeros((0, 3)))
