from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from itertools import product
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from trivet.metrics import intervals
from trivet.metrics.intervals import Average, Difference, Interval, Over, across_folds, bootstrap, paired_difference

CASES: list[tuple[Over, Average]] = [*product(("queries", "classes"), ("micro", "macro"))]
Floats = npt.NDArray[np.float64]


def queries() -> tuple[Floats, npt.NDArray[np.int64]]:
    """Values of 12 classes of 2 to 13 queries, which have something in common."""
    generator = np.random.default_rng(0)
    classes = generator.permutation(np.repeat(np.arange(12), np.arange(2, 14)))
    return generator.normal(size=12)[classes] + generator.normal(size=len(classes)), 100 - 7 * classes


def scipy_bootstrap(values: Floats, classes: npt.NDArray[np.int64], over: Over, average: Average) -> Any:
    groups = [values[classes == c] for c in sorted(set(classes.tolist()))]
    sums, sizes = np.array([group.sum() for group in groups]), np.array([len(group) for group in groups])

    def mean_of_means(*samples: Floats, axis: int) -> Floats:
        return np.asarray(np.mean([sample.mean(axis=axis) for sample in samples], axis=0))

    def mean_of_classes(drawn: npt.NDArray[np.int64], axis: int) -> Floats:
        if average == "macro":
            return np.asarray((sums / sizes)[drawn].mean(axis=axis))
        return np.asarray(sums[drawn].sum(axis=axis) / sizes[drawn].sum(axis=axis))

    data, statistic = {
        ("queries", "micro"): ((values,), np.mean),
        ("queries", "macro"): (groups, mean_of_means),
    }.get((over, average), ((np.arange(len(groups)),), mean_of_classes))
    return stats.bootstrap(
        data, statistic, n_resamples=8000, method="percentile", rng=np.random.default_rng(1), vectorized=True
    )


@pytest.mark.parametrize(("over", "average"), CASES)
def test_agrees_with_scipy(over: Over, average: Average) -> None:
    values, classes = queries()
    (found,) = bootstrap(values, classes, over=over, average=average, resamples=8000)
    expected = scipy_bootstrap(values, classes, over, average)
    # The ends are quantiles of 8000 draws, wrong by about 0.03 standard errors on each side.
    slack = 0.17 * expected.standard_error
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=slack)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=slack)


@pytest.mark.parametrize(("over", "average"), CASES)
def test_every_draw_is_one_that_can_be(over: Over, average: Average) -> None:
    values, classes = np.array([0.0, 1.0, 5.0]), np.array([4, 4, 9])
    if over == "classes":
        units = {"micro": [[0.0, 1.0], [5.0]], "macro": [[0.5], [5.0]]}[average]
        possible = {fmean([*a, *b]) for a, b in product(units, repeat=2)}
    elif average == "micro":
        possible = {fmean(drawn) for drawn in product(values.tolist(), repeat=3)}
    else:
        possible = {fmean([fmean(drawn), 5.0]) for drawn in product([0.0, 1.0], repeat=2)}
    found = intervals._resampled_means(values[:, None], classes, over, average, 500, 0)
    assert found is not None
    assert {round(mean, 12) for mean in found[:, 0].tolist()} == {round(mean, 12) for mean in possible}


@pytest.mark.parametrize(("over", "average"), CASES)
def test_the_seed_alone_decides(over: Over, average: Average, monkeypatch: pytest.MonkeyPatch) -> None:
    values, classes = queries()
    first, again, other = (
        bootstrap(values, classes, over=over, average=average, resamples=50, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other
    monkeypatch.setattr(intervals, "COUNTS", 200)  # a few resamples at a time
    (parts,) = bootstrap(values, classes, over=over, average=average, resamples=50, seed=3)
    assert (parts.low, parts.high) == pytest.approx((first[0].low, first[0].high), rel=1e-12)


@pytest.mark.parametrize(("over", "average"), CASES)
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3])
def test_constant_values_leave_no_doubt(over: Over, average: Average, value: float) -> None:
    classes = np.repeat(np.arange(9), np.arange(1, 10))
    assert bootstrap(np.full(45, value), classes, over=over, average=average) == [Interval(value, value)]


def test_too_little_to_resample_is_nan() -> None:
    values = np.array([0.2, 0.4, 0.9])
    for over, average in CASES[2:]:
        (found,) = bootstrap(values, np.zeros(3, int), over=over, average=average)
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    for few in ([], [0.5], [math.nan, math.nan], [math.nan, 0.5]):
        (found,) = bootstrap(np.array(few), np.zeros(len(few), int), over="queries", average="micro")
        assert math.isnan(found.low)
    assert bootstrap(np.zeros((3, 0)), np.zeros(3, int), over="queries", average="micro") == []
    assert len(bootstrap(np.zeros((0, 2)), np.zeros(0, int), over="queries", average="micro")) == 2
    # The two values of one class are left after the other class is dropped.
    (found,) = bootstrap(np.array([1.0, 2.0, math.nan]), np.array([0, 0, 1]), over="classes", average="macro")
    assert math.isnan(found.low)


@pytest.mark.parametrize(("over", "average"), CASES)
def test_each_measure_leaves_out_its_own_queries(over: Over, average: Average) -> None:
    values, classes = queries()
    table = np.stack([values, values**2, -values, np.full(len(values), np.nan)], axis=1)
    table[classes == classes[0], 1] = np.nan
    table[::3, 2] = np.nan
    found = bootstrap(table, classes, over=over, average=average, resamples=60)
    assert math.isnan(found[3].low)
    for column in range(3):
        kept = ~np.isnan(table[:, column])
        (alone,) = bootstrap(table[kept, column], classes[kept], over=over, average=average, resamples=60)
        assert (found[column].low, found[column].high) == pytest.approx((alone.low, alone.high), rel=1e-12)


def test_measures_of_the_same_queries_share_the_draws() -> None:
    values, classes = queries()
    single, double = bootstrap(np.stack([values, 2 * values], axis=1), classes, over="queries", average="macro")
    assert (double.low, double.high) == pytest.approx((2 * single.low, 2 * single.high), rel=1e-12)


@pytest.mark.parametrize(("over", "average"), CASES)
def test_paired_difference_is_that_of_the_two_means(over: Over, average: Average) -> None:
    a, classes = queries()
    b = a - 0.3 + 0.1 * np.random.default_rng(5).normal(size=len(a))
    ((found,), (alone,)) = (
        paired_difference(a, b, classes, over=over, average=average),
        bootstrap(a, classes, over=over, average=average),
    )
    if average == "micro":
        expected = fmean(a.tolist()) - fmean(b.tolist())
    else:
        expected = fmean(fmean((a - b)[classes == c].tolist()) for c in set(classes.tolist()))
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert 0 < found.interval.low < found.value < found.interval.high
    assert found.interval.high - found.interval.low < (alone.high - alone.low) / 4


def test_paired_difference_takes_queries_that_both_have() -> None:
    a = np.array([[1.0, 1.0], [2.0, math.nan], [math.nan, math.nan], [4.0, 4.0]])
    b = np.array([[0.5, 1.0], [math.nan, 2.0], [3.0, 3.0], [3.5, math.nan]])
    one, two = paired_difference(a, b, np.array([0, 0, 1, 1]), over="queries", average="macro")
    # In the first measure only one query of each class is left, in the second one query.
    assert one == Difference(0.5, Interval(0.5, 0.5))
    assert two.value == 0
    assert math.isnan(two.interval.low)
    (none,) = paired_difference(a[2:3, 0], b[2:3, 0], np.array([0]), over="queries", average="micro")
    assert math.isnan(none.value)


def test_takes_tensors_of_labels_and_hits_that_are_bool() -> None:
    hits, classes = np.array([True, False, True, True]), torch.tensor([5, 5, 2, 2], dtype=torch.int16)
    (found,) = bootstrap(hits, classes, over="queries", average="micro")
    assert found == bootstrap(hits.astype(np.float32), classes.numpy(), over="queries", average="micro")[0]
    assert (found.low, found.high) == (0.25, 1)


def test_memory_does_not_grow_with_the_resamples() -> None:
    values, classes = np.random.default_rng(0).random((20_000, 10)), np.arange(20_000) // 6
    tracemalloc.start()
    bootstrap(values, classes, over="queries", average="micro", resamples=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 90 * 2**20  # all counts at once are 153 MiB


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


ZEROS, ONE_CLASS = np.zeros(3), np.zeros(3, int)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bootstrap(ZEROS, ONE_CLASS[:2], over="queries", average="micro"), "classes must hold one class"),
        (lambda: bootstrap(ZEROS, ZEROS, over="queries", average="micro"), "classes must be integers"),
        (lambda: bootstrap(ZEROS[0], ONE_CLASS, over="queries", average="micro"), r"shape \(Q,\) or \(Q, m\)"),
        (lambda: bootstrap(np.array(["a"] * 3), ONE_CLASS, over="queries", average="micro"), "must be numbers"),
        (lambda: bootstrap(ZEROS + np.inf, ONE_CLASS, over="queries", average="micro"), "got infinity"),
        (lambda: bootstrap(ZEROS, ONE_CLASS, over="items", average="micro"), "got 'items'"),
        (lambda: bootstrap(ZEROS, ONE_CLASS, over="queries", average="mean"), "got 'mean'"),
        (lambda: bootstrap(ZEROS, ONE_CLASS, over="queries", average="micro", resamples=0), "at least 1: got 0"),
        (lambda: bootstrap(ZEROS, ONE_CLASS, over="queries", average="micro", level=95), "give 0.95"),
        (
            lambda: paired_difference(ZEROS, ZEROS[:2], ONE_CLASS, over="queries", average="micro"),
            r"got shapes \(3,\) and \(2,\)",
        ),
        (lambda: across_folds([0.5]), r"at least two folds: got shape \(1,\)"),
        (lambda: across_folds([0.5, math.nan]), "must be finite"),
        (lambda: across_folds([0.5, 0.5], level=1), "level must lie"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
