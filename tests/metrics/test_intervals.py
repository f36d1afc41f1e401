from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from trivet.metrics.intervals import (
    Average,
    Interval,
    Over,
    across_folds,
    check_options,
    share_interval,
    symmetrical_interval,
    variance_of_mean,
)

CASES: list[tuple[Over, Average]] = [*product(("queries", "classes"), ("micro", "macro"))]
Floats = npt.NDArray[np.float64]


def queries() -> tuple[Floats, npt.NDArray[np.int64]]:
    """Values of 12 classes of 2 to 13 queries, which have something in common."""
    generator = np.random.default_rng(0)
    classes = generator.permutation(np.repeat(np.arange(12), np.arange(2, 14)))
    return generator.normal(size=12)[classes] + generator.normal(size=len(classes)), 100 - 7 * classes


@pytest.mark.parametrize(("over", "average"), CASES)
def test_variance_of_a_mean_is_that_of_a_bootstrap(over: Over, average: Average) -> None:
    values, classes = queries()
    groups = [values[classes == number] for number in sorted(set(classes.tolist()))]
    generator = np.random.default_rng(1)
    sizes = np.array([len(group) for group in groups])
    if over == "classes":
        drawn = generator.integers(12, size=(4000, 12))
        sums, sizes = np.array([group.sum() for group in groups])[drawn], sizes[drawn]
    else:  # as many of each class as it has, with the n / (n - 1) that a bootstrap lacks
        changes = [(generator.choice(group, (4000, len(group))) - group.mean()).sum(axis=1) for group in groups]
        sums = np.stack(
            [
                group.sum() + change * math.sqrt(len(group) / (len(group) - 1))
                for group, change in zip(groups, changes, strict=True)
            ],
            axis=1,
        )
    means = (sums / sizes).mean(axis=1) if average == "macro" else sums.sum(axis=1) / sizes.sum(axis=-1)
    variance = variance_of_mean(values[:, None], classes, over=over, average=average)
    correction = 12 / 11 if over == "classes" else 1
    assert variance.values[0] == pytest.approx(np.var(means) * correction, rel=0.08)
    counts = [len(group) for group in groups]
    units = sum(counts) ** 2 / sum(count**2 for count in counts) if average == "micro" else 12
    assert variance.degrees == pytest.approx(len(values) - 12 if over == "queries" else units - 1)


def test_two_classes_of_unlike_sizes_have_half_a_degree_at_least() -> None:
    values, classes = np.random.default_rng(0).random((100, 1)), np.arange(100) // 97
    of_classes = variance_of_mean(values, classes, over="classes", average="micro")
    assert of_classes.degrees == 0.5
    assert math.isfinite(of_classes.intervals([0.5], level=0.95)[0].high)
    assert variance_of_mean(values, classes, over="classes", average="macro").degrees == 1


def test_too_little_has_no_variance() -> None:
    for over, average in CASES:
        (interval,) = variance_of_mean(np.full((1, 1), 0.5), np.zeros(1, int), over=over, average=average).intervals(
            [0.5], level=0.95
        )
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)
    assert np.isnan(variance_of_mean(np.eye(3), np.zeros(3, int), over="classes", average="micro").values).all()


@pytest.mark.parametrize(("hits", "count"), [(1, 20), (7, 40), (99, 100)])
def test_share_of_independent_queries_has_the_interval_of_wilson(hits: int, count: int) -> None:
    share = hits / count
    interval = share_interval(share, share * (1 - share) / count, degrees=1e9, units=10**9, level=0.9)
    expected = stats.binomtest(hits, count).proportion_ci(0.9, method="wilson")
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_shares_at_the_ends() -> None:
    assert share_interval(1.0, 0.0, degrees=30, units=100, level=0.95) == Interval(
        pytest.approx(1 - 2.042**2 * 0.015 / (1 + 2.042**2 * 0.015), abs=1e-4), 1.0
    )
    low = share_interval(0.0, 0.0, degrees=30, units=100, level=0.95)
    assert low.low == 0 < low.high < 0.07
    for value in (0.0, 0.3, 1.0):
        interval = share_interval(value, 0.02, degrees=0.5, units=10, level=0.99)
        assert 0 <= interval.low <= value <= interval.high <= 1
    # A mean of classes above 1 is no share.
    assert share_interval(1.1, 0.01, degrees=9, units=100, level=0.95) == symmetrical_interval(
        1.1, 0.01, degrees=9, units=100, level=0.95
    )


def test_across_folds_is_the_interval_of_students_t() -> None:
    folds = [0.61, 0.64, 0.58, 0.66]
    mean, interval = across_folds(folds)
    half = 3.182446305 * stdev(folds) / 2  # t with 3 degrees of freedom, from a table
    assert mean == pytest.approx(fmean(folds), abs=1e-12)
    assert (interval.low, interval.high) == pytest.approx((fmean(folds) - half, fmean(folds) + half), abs=1e-9)
    narrow = across_folds(folds, level=0.5)[1]
    half = 0.764892328 * stdev(folds) / 2
    assert (narrow.low, narrow.high) == pytest.approx((fmean(folds) - half, fmean(folds) + half), abs=1e-9)
    assert across_folds([0.25, 0.25]) == (0.25, Interval(0.25, 0.25))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: check_options("mean", 0.95), "got 'mean'"),
        (lambda: check_options("micro", 95), "give 0.95"),
        (lambda: across_folds([0.5]), r"at least two folds: got shape \(1,\)"),
        (lambda: across_folds([0.5, math.nan]), "must be finite"),
        (lambda: across_folds([0.5, 0.5], level=1), "level must lie"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
