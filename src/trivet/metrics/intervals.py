"""Confidence intervals of measures from their variance, which influence values of items or classes give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trivet.runtime.arrays import Floats, Integers

Over = Literal["queries", "classes"]
Average = Literal["micro", "macro"]
OVERS: tuple[Over, ...] = ("queries", "classes")
AVERAGES: tuple[Average, ...] = ("micro", "macro")

PSEUDO = 0.25  # of a query, which is added to the standard error: a few equal values do not show that all are
EFFECT = 1.5  # variance of a share over that of independent queries, where all of them are right, or all wrong


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, in the unit of the values; NaN where there is no variance to estimate."""

    low: float
    high: float


NONE = Interval(math.nan, math.nan)


@dataclass(frozen=True)
class Difference:
    """Difference of two measures on the same queries, with its interval."""

    value: float  # NaN without a query that both have
    interval: Interval


@dataclass(frozen=True)
class Variance:
    """Variance of m measures over other items of the same classes, or over other classes.

    Args:
        values: `(m,)` in the squared unit of the measures; NaN where it cannot be estimated.
        degrees: degrees of freedom of Student's t.
        units: queries of the measure, or as many as those of unlike weights count.
    """

    values: Floats
    degrees: float
    units: float

    def intervals(self, measures: Sequence[float], *, level: float, bounded: bool = True) -> list[Interval]:
        """The interval of each measure.

        Args:
            measures: their values.
            bounded: whether they are shares, and the interval is that of Wilson for as many independent queries as have
                this variance; else it is symmetrical.
        """
        ends = share_interval if bounded else symmetrical_interval
        return [
            ends(value, variance, degrees=self.degrees, units=self.units, level=level)
            for value, variance in zip(measures, self.values.tolist(), strict=True)
        ]


def interval_json(interval: Interval) -> list[float] | None:
    """[low, high]; None where there is no interval, since JSON knows no NaN."""
    return [interval.low, interval.high] if math.isfinite(interval.low) else None


def intervals_json(intervals: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, list[float] | None]]:
    """Measure -> over -> [low, high], of what `LevelResult.intervals` returns."""
    return {
        measure: {over: interval_json(ends) for over, ends in by_over.items()} for measure, by_over in intervals.items()
    }


def share_interval(value: float, variance: float, *, degrees: float, units: float, level: float) -> Interval:
    """Wilson's interval of a share, for as many independent queries as would have this variance.

    These are p (1 - p) / V for a share p of variance V, to whose root a quarter of a query is added. Where all queries
    are right, or all wrong, V says nothing, and they are two thirds of the queries. Near 0 and 1 the interval is
    lopsided and stays within [0, 1]. A measure outside [0, 1] has the symmetrical interval.

    Args:
        value: the share.
        variance: of its estimate.
        degrees: of Student's t, which takes the place of the normal quantile.
        units: queries.
        level: the coverage, in (0, 1).

    Source:
        Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927; Korn, Graubard,
        "Confidence intervals for proportions with small expected number of positive counts estimated from survey
        data", Survey Methodology 1998 (the effective number).
    """
    if not 0 <= value <= 1:
        return symmetrical_interval(value, variance, degrees=degrees, units=units, level=level)
    if not math.isfinite(variance):
        return NONE
    t, spread = _quantile(degrees, level), value * (1 - value)
    widened = variance + (PSEUDO / units) ** 2
    # One over the effective number times t^2.
    doubt = t * t * (widened / spread if spread > 1e-12 else EFFECT / units)
    middle_of, half = value + doubt / 2, math.sqrt(doubt * spread + doubt * doubt / 4)
    low, high = (max(0.0, (middle_of - half) / (1 + doubt)), min(1.0, (middle_of + half) / (1 + doubt)))
    # The value itself is inside, also after rounding.
    return Interval(min(low, value), max(high, value))


def symmetrical_interval(value: float, variance: float, *, degrees: float, units: float, level: float) -> Interval:
    """value +- t sqrt(variance), a quarter of a query added as in `share_interval`; no width at a variance of 0."""
    if not math.isfinite(variance):
        return NONE
    if variance == 0:
        return Interval(value, value)
    half = _quantile(degrees, level) * math.sqrt(variance + (PSEUDO / units) ** 2)
    return Interval(value - half, value + half)


def stratified_variance(influences: Floats, strata: Integers) -> Floats:
    """Variance `(m,)` of the sum of influence values `(U, m)` of independent units, those of a stratum alike.

    A stratum of n units adds n / (n - 1) times the squared deviations from its mean; one of a single unit adds nothing.

    Source:
        Davison, Hinkley, "Bootstrap Methods and their Application", 1997, section 2.7 (influence values).
    """
    counts = np.bincount(strata)
    means = totals(influences, strata, len(counts)) / np.maximum(counts, 1)[:, None]
    squares = np.square(influences - means[strata])
    return np.asarray((squares * (counts / np.maximum(counts - 1, 1))[strata, None]).sum(axis=0))


def totals(values: Floats, groups: Integers, count: int) -> Floats:
    """Sums `(count, m)` of the rows `(U, m)` of each group."""
    sums = np.empty((count, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(groups, values[:, column], count)
    return sums


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


def variance_of_mean(values: Floats, classes: Integers, *, over: Over, average: Average) -> Variance:
    """Variance of the mean of `(U, m)` values of items, which are taken as independent of each other.

    Args:
        values: finite.
        classes: `(U,)` the class of each.
        over: "queries", the items within their classes; "classes", with all their items.
        average: "micro", the mean of all; "macro", the mean of the means of the classes.
    """
    _, numbers, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    count, units = len(sizes), len(values)
    if (units - count if over == "queries" else count - 1) <= 0:  # of no class are there two items; there is one class
        return Variance(np.full(values.shape[1], math.nan), 1, max(1, units))
    weights = 1 / (count * sizes[numbers]) if average == "macro" else np.full(units, 1 / max(1, units))
    shares = values * weights[:, None]
    if over == "queries":
        return Variance(stratified_variance(shares, numbers), units - count, units)
    shares = totals(shares - weights[:, None] * shares.sum(axis=0), numbers, count)
    degrees = degrees_of_classes(sizes, average)
    return Variance(stratified_variance(shares, np.zeros(count, np.int64)), degrees, units)


def degrees_of_classes(sizes: Integers, average: Average) -> float:
    """Degrees of freedom of the variance over classes of these sizes: one less than they count as, at least a half.

    In "micro" a large class weighs more, and the classes count as fewer; see `effective_number`.
    """
    return max(0.5, effective_number(sizes if average == "micro" else np.ones(len(sizes))) - 1)


def effective_number(weights: Floats | Integers) -> float:
    """Number of equal units that those of these weights count as: (sum w)^2 / sum w^2.

    Source:
        Kish, "Survey Sampling", 1965, section 11.7.
    """
    return float(np.square(weights.sum()) / np.square(weights).sum())


def check_options(average: str, level: float) -> None:
    """Check the options of intervals."""
    if average not in ("micro", "macro"):
        raise ValueError(f"average must be 'micro' or 'macro': got {average!r}.")
    _check_level(level)


def _quantile(degrees: float, level: float) -> float:
    from scipy import special

    return float(special.stdtrit(degrees, (1 + level) / 2))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1: got {level}; for 95 % give 0.95.")
