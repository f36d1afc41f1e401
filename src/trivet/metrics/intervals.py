"""Confidence intervals of measures and paired differences: bootstrap of queries or classes, Student's t of folds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trivet.distances import Array, as_classes
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import report

Over = Literal["queries", "classes"]
Average = Literal["micro", "macro"]
OVERS: tuple[Over, ...] = ("queries", "classes")

COUNTS = 2**22  # of drawn units held at once: 32 MiB, and as much for the batch before


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, in the unit of the values; NaN where there is nothing to resample."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """Difference of two measures on the same queries, with its interval."""

    value: float  # NaN without a query that both have
    interval: Interval


def interval_json(interval: Interval) -> list[float] | None:
    """[low, high]; None where there is no interval, since JSON knows no NaN."""
    return [interval.low, interval.high] if math.isfinite(interval.low) else None


def intervals_json(intervals: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, list[float] | None]]:
    """Measure -> over -> [low, high], of what `LevelResult.intervals` returns."""
    return {
        measure: {over: interval_json(ends) for over, ends in by_over.items()} for measure, by_over in intervals.items()
    }


def bootstrap(
    values: npt.NDArray[Any],
    classes: Array,
    *,
    over: Over,
    average: Average,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Percentile bootstrap interval of the mean of each measure.

    Over "queries" the items that are asked vary and the classes stay: what another sample of the same classes would
    give. With "macro" they are drawn within each class, so a class of one query adds nothing to the width and a class
    of n queries its part times sqrt(1 - 1/n). Over "classes" whole classes are drawn, with all their queries: what
    other classes would give, which is what a zero-shot test asks. Queries of a class are seldom independent, so the
    second is usually the wider one.

    A query whose value is NaN (one that the measure drops) is left out of that measure. Measures that drop the same
    queries are resampled by the same draws, and the interval of a measure does not depend on the others beside it.

    Args:
        values: `(Q,)`, or `(Q, m)` for m measures of the same queries.
        classes: `(Q,)` integers, the class of each query.
        over: what is drawn with replacement; two of it are needed, else the interval is NaN.
        average: "micro", the mean of all queries; "macro", the mean over classes of the mean of their queries.
        resamples: at least 1; a thousand place the ends of a 95 % interval within about a tenth of its half width.
        level: the share of resampled means inside the interval, in (0, 1).

    Returns:
        One interval for each measure, so a list of one for `(Q,)`.

    Source:
        Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3 (percentiles); Davison, Hinkley,
        "Bootstrap Methods and their Application", 1997, section 3.8 (resampling of groups).

    Example:
        >>> bootstrap(np.array([0.5, 0.5, 0.5]), np.array([0, 0, 1]), over="queries", average="micro")
        [Interval(low=0.5, high=0.5)]
    """
    table = _table(values)
    numbers = as_classes(classes, count=len(table), name="classes").numpy()
    check_options(over, average, resamples, level)
    intervals = [Interval(math.nan, math.nan)] * table.shape[1]
    for columns, rows in _patterns(~np.isnan(table)):
        means = _resampled_means(table[np.ix_(rows, columns)], numbers[rows], over, average, resamples, seed)
        if means is not None:
            for column, resampled in zip(columns.tolist(), means.T, strict=True):
                intervals[column] = middle(resampled, level=level)
    return intervals


def paired_difference(
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    classes: Array,
    *,
    over: Over,
    average: Average,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Difference]:
    """Mean of `a` less mean of `b` on the same queries, with the interval of that difference under the same draws.

    Two embeddings find the same queries hard, so this interval is narrower than those of the two means suggest: their
    intervals may overlap although this one excludes 0. A query that either drops (NaN) is left out of both.

    Args:
        a, b: `(Q,)`, or `(Q, m)` for m measures; row i of both is the same query.
        classes, over, average, resamples, level, seed: as in `bootstrap`.

    Returns:
        One difference for each measure.

    Example:
        >>> a, b = np.array([1.0, 1.0, 0.0]), np.array([0.5, 0.5, -0.5])
        >>> paired_difference(a, b, np.array([0, 0, 1]), over="queries", average="micro")
        [Difference(value=0.5, interval=Interval(low=0.5, high=0.5))]
    """
    if np.shape(a) != np.shape(b):
        raise ValueError(
            f"a and b must hold the same queries and measures: got shapes {np.shape(a)} and {np.shape(b)}; "
            "give both one row for each query."
        )
    # Means of the same queries are linear: the difference of two means is the mean of the differences.
    table = _table(a) - _table(b)
    intervals = bootstrap(table, classes, over=over, average=average, resamples=resamples, level=level, seed=seed)
    numbers = as_classes(classes, count=len(table), name="classes").numpy()
    return [
        Difference(_mean(column, numbers, average), interval)
        for column, interval in zip(table.T, intervals, strict=True)
    ]


def middle(resampled: Floats, *, level: float) -> Interval:
    """The interval that holds the middle share `level` of resampled values `(B,)`; NaN ones are left out."""
    known = resampled[~np.isnan(resampled)]
    if not len(known):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low, high)


def clipped(interval: Interval, low: float, high: float) -> Interval:
    """Its ends brought into the range of the measure; NaN stays."""
    return Interval(*np.clip([interval.low, interval.high], low, high).tolist())


def across_folds(values: Sequence[float], *, level: float = 0.95) -> tuple[float, Interval]:
    """Mean of a measure over folds or repeated runs, and its Student-t interval: mean +- t s / sqrt(k).

    Exact when the k values are independent and normal. Folds share training classes, so for them it is somewhat too
    narrow (Bengio, Grandvalet, "No unbiased estimator of the variance of k-fold cross-validation", JMLR 2004).

    Args:
        values: one finite number per fold, at least two.
        level: the coverage, in (0, 1).

    Source:
        Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.3: cross-validation over
        classes, means with 95 % intervals.

    Example:
        >>> mean, interval = across_folds([0.5, 0.6, 0.7, 0.6])
        >>> print(f"{mean:.3f}, {interval.low:.3f} to {interval.high:.3f}")
        0.600, 0.470 to 0.730
    """
    folds = np.asarray(values, dtype=np.float64)
    if folds.ndim != 1 or len(folds) < 2:
        raise ValueError(f"values must hold one number for each of at least two folds: got shape {folds.shape}.")
    if not np.isfinite(folds).all():
        raise ValueError(f"values must be finite: got {folds.tolist()}; leave out the folds without a result.")
    _check_level(level)
    return float(folds.mean()), student(folds, level=level)


def student(values: Floats, *, level: float) -> Interval:
    """The Student-t interval of the mean of values `(n,)`, n >= 2."""
    from scipy import stats

    mean = float(values.mean())
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return Interval(mean - half, mean + half)


def _resampled_means(
    values: Floats, classes: Integers, over: Over, average: Average, resamples: int, seed: int
) -> Floats | None:
    """The means `(resamples, m)` of finite values `(Q, m)`; None with fewer than two units to draw from.

    Every case is a ratio of two sums over the drawn units, a query or a class each.
    """
    order = np.argsort(classes, kind="stable")
    _, starts, sizes = np.unique(classes[order], return_index=True, return_counts=True)
    if (len(values) if over == "queries" else len(sizes)) < 2:
        return None
    # Constant values become exactly 0, and so have an interval of no width.
    least = values.min(axis=0)
    above = values[order] - least
    if over == "classes":
        above = np.add.reduceat(above, starts, axis=0)
        weights = sizes.astype(np.float64)
        if average == "macro":
            above, weights = above / weights[:, None], np.ones(len(sizes))
    elif average == "macro":
        weights = 1 / np.repeat(sizes, sizes)
        above *= weights[:, None]
    else:
        weights = np.ones(len(above))
    both = np.concatenate([above, weights[:, None]], axis=1)
    sums = np.concatenate([counts @ both for counts in draws(sizes, over, average, resamples, seed)])
    return np.asarray(least + sums[:, :-1] / sums[:, -1:])


def draws(sizes: Integers, over: Over, average: Average, resamples: int, seed: int) -> Iterator[Floats]:
    """Draw how often each unit counts `(B, U)`, in batches of resamples: every measure here uses these draws.

    The units are the classes, of `sizes (C,)` queries each, or the queries, class by class; with "macro" as many
    queries of each class are drawn as it has.
    """
    units = int(sizes.sum()) if over == "queries" else len(sizes)
    # For unit u another is drawn among `spans[u]` consecutive ones, of which `first[u]` is the first.
    if over == "queries" and average == "macro":
        first, spans = np.repeat(np.cumsum(sizes) - sizes, sizes), np.repeat(sizes, sizes)
    else:
        first, spans = np.zeros(units, dtype=np.int64), np.full(units, units)
    generator = np.random.default_rng(seed)
    step = max(1, COUNTS // len(spans))
    for start in range(0, resamples, step):
        report(f"bootstrap of {units} {over}", start, resamples)
        counts = np.empty((min(step, resamples - start), len(spans)))
        for row in counts:
            # Rounded down before `first` is added: u < 1 times a span stays below it, and their sum might round up.
            drawn = (generator.random(len(spans)) * spans).astype(np.int64)
            drawn += first
            row[:] = np.bincount(drawn, minlength=len(spans))
        yield counts
    report(f"bootstrap of {units} {over}", resamples, resamples)


def _patterns(present: Booleans) -> Iterator[tuple[Integers, Integers]]:
    """The columns that have the same rows, and these rows, for each such set of rows that is not empty."""
    patterns, of_column = np.unique(present, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        if pattern.any():
            yield np.flatnonzero(of_column.ravel() == number), np.flatnonzero(pattern)


def _mean(values: Floats, classes: Integers, average: Average) -> float:
    """The mean of the values `(Q,)` that are not NaN; NaN without any."""
    present = ~np.isnan(values)
    if not present.any():
        return math.nan
    values, classes = values[present], classes[present]
    if average == "micro":
        return float(values.mean())
    sizes = np.bincount(classes)
    sums = np.bincount(classes, weights=values)
    return float((sums[sizes > 0] / sizes[sizes > 0]).mean())


def _table(values: npt.NDArray[Any]) -> Floats:
    """The values as float64 `(Q, m)`."""
    table = np.asarray(values)
    if table.ndim not in (1, 2) or table.dtype.kind not in "fiub":
        raise ValueError(
            f"values must be numbers of shape (Q,) or (Q, m): got {table.dtype} of shape {table.shape}; "
            "give one row for each query and one column for each measure."
        )
    table = (table[:, None] if table.ndim == 1 else table).astype(np.float64)
    if np.isinf(table).any():
        raise ValueError("values must be finite, or NaN for a query that is left out: got infinity.")
    return table


def check_options(over: str, average: str, resamples: int, level: float) -> None:
    """Check the options of `bootstrap`."""
    if over not in OVERS:
        raise ValueError(f"over must be 'queries' or 'classes': got {over!r}.")
    if average not in ("micro", "macro"):
        raise ValueError(f"average must be 'micro' or 'macro': got {average!r}.")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1: got {resamples}; 1000 is usual.")
    _check_level(level)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1: got {level}; for 95 % give 0.95.")
