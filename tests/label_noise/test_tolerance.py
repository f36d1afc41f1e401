"""The noise rate that a strategy stands, by its skew and by where its scores break."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from trivet.label_noise import Estimate, PickCounts, SkewEstimate, estimate_skew, implied_tolerance, strategy_tolerance


def skewed(skew: float, *, low: float | None = None, high: float | None = None) -> SkewEstimate:
    """An estimate of 10 bins, one of which holds `skew` times its share."""
    picks = np.full(10, (10 - skew) / 9)
    picks[0] = skew
    found = estimate_skew([PickCounts(picks, np.ones(10), 10.0)])
    return replace(found, skew=Estimate(skew, (low or skew, high or skew)))


@pytest.mark.parametrize(("skew", "rate"), [(1.05, 0.78178211), (2, 0.29289322), (5, 0.10557281), (10, 0.0513167)])
def test_the_bound_of_a_skew(skew: float, rate: float) -> None:
    found = strategy_tolerance(skewed(skew), num_classes=10, samples_per_class=140)
    assert found is not None
    assert found.by == "skew"
    assert found.rate.value == pytest.approx(rate, abs=1e-8)


def test_no_strategy_stands_more_than_uniform_picking() -> None:
    found = strategy_tolerance(skewed(1.0), num_classes=10, samples_per_class=2)
    assert found is not None
    # w = (s - 1) / ((K - 1) s) = 1 / 18, q_{+1} <= (K - 1) w / (1 + w), and q_{+1} = 2 p - (10 / 9) p^2.
    p = found.uniform
    assert 2 * p - 10 / 9 * p**2 == pytest.approx((1 / 2) / (19 / 18), abs=1e-9)
    assert found.rate.value == p


def test_the_interval_turns_around() -> None:
    found = strategy_tolerance(skewed(3.0, low=2.0, high=5.0), num_classes=100, samples_per_class=50)
    assert found is not None
    assert found.rate.value == pytest.approx(0.18350342, abs=1e-8)
    assert found.rate.interval == pytest.approx((0.10557281, 0.29289322), abs=1e-8)


def test_gamma_takes_the_place_of_the_skew() -> None:
    estimate = replace(skewed(9.0), gamma=Estimate(0.5, (0.2, 1.0)))
    found = strategy_tolerance(estimate, num_classes=100, samples_per_class=50)
    assert found is not None
    assert (found.by, found.skew) == ("gamma", Estimate(2.0, (1.0, 5.0)))
    assert found.rate.value == pytest.approx(0.29289322, abs=1e-8)


def test_without_picks_there_is_no_tolerance() -> None:
    nothing = estimate_skew([PickCounts(np.zeros(10), np.zeros(10), 0.0)])
    assert nothing.skew is None
    assert strategy_tolerance(nothing, num_classes=5, samples_per_class=5) is None


@pytest.mark.parametrize(
    ("scores", "rate", "skew", "beyond"),
    [
        ([1.0, 1.0, 0.9], 0.45, 1 / (1 - 0.55**2), False),
        ([1.0, 0.9, 1.0], 0.6, 1.1904761905, True),  # the last point above counts
        ([0.9, 0.9, 0.9], 0.0, math.inf, False),
        ([0.95, 0.0, 0.0], 0.0, math.inf, False),
    ],
)
def test_where_a_method_breaks(scores: list[float], rate: float, skew: float, beyond: bool) -> None:
    found = implied_tolerance([0.0, 0.3, 0.6], scores, [1.0, 1.0, 1.0])
    assert found.rate.value == pytest.approx(rate)
    assert found.skew.value == pytest.approx(skew)
    assert found.beyond is beyond
    assert found.rate.interval == (found.rate.value, found.rate.value)


def test_runs_give_an_interval() -> None:
    generator = np.random.default_rng(0)
    scores = np.array([1.0, 0.97, 0.9]) + generator.normal(scale=0.02, size=(6, 3))
    found = implied_tolerance([0.0, 0.3, 0.6], scores, np.ones((6, 3)))
    assert found.rate.interval[0] < found.rate.value < found.rate.interval[1]
    assert found == implied_tolerance([0.0, 0.3, 0.6], scores, np.ones((6, 3)))


@pytest.mark.parametrize(
    ("rates", "scores", "toplines", "words"),
    [
        ([0.0, 0.3], [1.0], [1.0, 1.0], "a column per noise rate"),
        ([0.3, 0.0], [1.0, 1.0], [1.0, 1.0], "increase within 0 and 1"),
        ([0.0, 0.3], [1.0, 1.0], [1.0, 0.0], "toplines and share above 0"),
    ],
)
def test_what_cannot_be_used_is_said(
    rates: list[float], scores: list[float], toplines: list[float], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        implied_tolerance(rates, scores, toplines)
