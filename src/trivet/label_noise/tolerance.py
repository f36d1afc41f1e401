"""Tolerance of a strategy to wrong labels: by its skew, or by where its scores drop.

Source:
    Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018; equations by its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trivet.label_noise.skew import RESAMPLES, Estimate, SkewEstimate, bootstrapped
from trivet.runtime.arrays import Floats


def negative_weight(num_classes: npt.ArrayLike, samples_per_class: npt.ArrayLike) -> Floats:
    """w_{-1} / w_{+1}: how often a negative pair is used for each time a positive one is, with classes of equal size.

    (s - 1) / ((K - 1) s), whether each positive pair meets one negative of its anchor, drawn uniformly (the paper's
    1-1 sampling), or all of them. The paper takes 1 / K; for classes without end it is 1 / (K - 1).

    Source:
        Section 4.1 (N^ij) and eq. 15, corrected.
    """
    return (1 - 1 / np.asarray(samples_per_class, np.float64)) / (np.asarray(num_classes, np.float64) - 1)


def tolerated_noise_rate(num_classes: npt.ArrayLike, weight: npt.ArrayLike) -> Floats:
    """The largest p such that no symmetric noise up to p makes the risk factor of a pair negative; 1 if none does.

    The factors are at least 0 for a share of wrong positive pairs up to 1 / (1 + w) and up to (K - 1) w / (1 + w).

    Args:
        weight: w = w_{-1} / w_{+1} > 0; the paper's is 1 / K.

    Source:
        Eq. 24 and 25, which are solved here for every K; the paper's limit of many classes is 1.

    Example:
        >>> round(float(tolerated_noise_rate(10, 1 / 10)), 8)
        0.62863979
    """
    classes, w = np.asarray(num_classes, np.float64), np.asarray(weight, np.float64)
    limit = np.minimum(1, (classes - 1) * w) / (1 + w)
    highest = 1 - 1 / classes
    always = limit >= highest * (1 - 1e-14)  # at w = 1 / (K - 1) the two agree but for rounding
    return np.where(always, 1.0, smaller_root(np.minimum(limit, highest), highest))


def smaller_root(rate: Floats, highest: Floats) -> Floats:
    """The smaller p with 2 p - p^2 / highest = rate, for rate <= highest, without loss of digits near 0."""
    return np.asarray(rate / (1 + np.sqrt(1 - rate / highest)))


def noise_rate_bound(skew: npt.ArrayLike, *, least: float = 0.0) -> Floats:
    """The noise rate below which Q = 1 - (2 p - p^2) skew stays at or above `least`, for many classes.

        p < 1 - sqrt(1 - (1 - least) / skew).

    Args:
        skew: at least 1, infinite allowed: eta, how much more often the hard negatives are drawn than uniformly
            (triplets), or 1 / gamma = eta^+ / eta^- (margin loss).
        least: in [0, 1); the paper derives its bounds with 0, and asks for 0.5 in the text of section 5.3.

    Source:
        Eq. 26 (where 2p + q^2 must be 2p - p^2), 27, 37 and 46.
    """
    return smaller_root((1 - least) / np.asarray(skew, np.float64), np.ones(()))


def implied_skew(noise_rate: npt.ArrayLike, *, least: float = 0.0) -> Floats:
    """The skew whose `noise_rate_bound` is this noise rate: (1 - least) / (2 p - p^2); infinite at p = 0.

    Above `noise_rate_bound(1)` no skew has such a bound, and the result is below 1.
    """
    p = np.asarray(noise_rate, np.float64)
    wrong = p * (2 - p)
    return np.divide(1 - least, wrong, out=np.full_like(wrong, np.inf), where=wrong > 0)


@dataclass(frozen=True)
class Tolerance:
    """The share of wrong labels that a strategy tolerates, for symmetric noise.

    Attributes:
        by: "gamma", or "skew" where that is not defined: what it follows from.
        skew: eta, or 1 / gamma.
        rate: the smaller of `noise_rate_bound(skew)` and `uniform`.
        uniform: `tolerated_noise_rate` of uniform picking in as many classes of this size, for comparison.
    """

    by: str
    skew: Estimate
    rate: Estimate
    uniform: float


def strategy_tolerance(estimate: SkewEstimate, *, num_classes: int, samples_per_class: int) -> Tolerance | None:
    """The noise rate p up to which 1 - (2 p - p^2) eta stays at or above 0, but at most that of uniform picking.

    Of the margin loss, eta is 1 / gamma where it is defined. A worst case in the words of the authors, not a theorem.

    Args:
        estimate: of the strategy, on the labels as they are; wrong ones lower it, see docs/label_noise.md.
        num_classes: K >= 2, of the items that are trained on.
        samples_per_class: s >= 2, a typical size.

    Returns:
        None where the skew is not defined.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Eq. 26, 27 and 37; for uniform picking eq. 24, 25 with exact weights.

    Example:
        >>> import torch
        >>> from trivet import mine
        >>> from trivet.label_noise import count_picks, estimate_skew
        >>> points, labels = torch.arange(40.0)[:, None], torch.arange(40) // 2
        >>> picks = mine(points, labels, positives="all", negatives="hard")
        >>> skew = estimate_skew([count_picks(points, labels, picks)])
        >>> tolerance = strategy_tolerance(skew, num_classes=20, samples_per_class=2)
        >>> round(tolerance.skew.value, 2), round(tolerance.rate.value, 4)
        (9.5, 0.0541)
    """
    if num_classes < 2 or samples_per_class < 2:
        raise ValueError(
            f"num_classes and samples_per_class must be at least 2: got {num_classes} and {samples_per_class}."
        )
    uniform = float(tolerated_noise_rate(num_classes, negative_weight(num_classes, samples_per_class)))

    def rate(skew: float) -> float:
        return math.nan if math.isnan(skew) else min(uniform, float(noise_rate_bound(max(1.0, skew))))

    skewness = estimate.skew
    if estimate.gamma is not None:
        skewness = estimate.gamma.falling(lambda gamma: 1 / gamma if gamma > 0 else math.inf)
    if skewness is None:
        return None
    return Tolerance(
        by="skew" if estimate.gamma is None else "gamma",
        skew=skewness,
        rate=skewness.falling(rate),
        uniform=uniform,
    )


@dataclass(frozen=True)
class ImpliedTolerance:
    """Noise rate at which the scores of a method break, and the skew whose bound that is.

    Attributes:
        rate: p*, the largest noise rate at which the score still reaches the wanted share of its topline.
        skew: `1 / (1 - (1 - p*)^2)`, infinite at `p* = 0`.
        beyond: the score reaches it at the last noise rate measured, so that p* is at least that, and the skew at most
            this one.
    """

    rate: Estimate
    skew: Estimate
    beyond: bool


def implied_tolerance(
    noise_rates: npt.ArrayLike,
    scores: npt.ArrayLike,
    toplines: npt.ArrayLike,
    *,
    share: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ImpliedTolerance:
    """The noise rate at which a method breaks, from its scores, and the skew that this rate would be the bound of.

    p* is the last point at which the ratio of the mean score to the mean topline, linear between the noise rates,
    is `share`; 0 if it lies below at every one.

    Args:
        noise_rates: `(P,)` increasing, in [0, 1].
        scores: `(P,)`, or `(S, P)` of S runs: a measure after training on labels with noise.
        toplines: of the same shape: after training on as many right labels as the noise leaves.
        share: of the topline, above 0.
        resamples, seed: of the runs, for the intervals; with one run they are just the number.

    Raises:
        ValueError: if shapes disagree, rates do not increase, or a topline is not above 0.

    Source:
        Proposed here; the inverse of eq. 27.

    Example:
        >>> tolerance = implied_tolerance([0.0, 0.2, 0.4], [0.9, 0.9, 0.8], [0.9, 0.9, 0.9])
        >>> round(tolerance.rate.value, 3), round(tolerance.skew.value, 3), tolerance.beyond
        (0.29, 2.017, False)
    """
    rates = np.asarray(noise_rates, dtype=np.float64)
    tables = [np.atleast_2d(np.asarray(values, dtype=np.float64)) for values in (scores, toplines)]
    if rates.ndim != 1 or not len(rates) or any(table.shape != (len(tables[0]), len(rates)) for table in tables):
        raise ValueError(
            "scores and toplines must have a column per noise rate, and as many runs: got shapes "
            f"{[table.shape for table in tables]} for {rates.shape} rates; give one number per run and rate."
        )
    if not (np.diff(rates) > 0).all() or not (rates >= 0).all() or not (rates <= 1).all():
        raise ValueError(f"noise_rates must increase within 0 and 1: got {rates.tolist()}; sort them.")
    if not (tables[1] > 0).all() or not np.isfinite(np.stack(tables)).all() or not share > 0:
        raise ValueError("scores must be finite, and toplines and share above 0: leave out rates that were not scored.")
    times = np.random.default_rng(seed).integers(0, len(tables[0]), (resamples, len(tables[0])))
    rows = [np.arange(len(tables[0])), *times]
    broken = np.array(
        [_breaks(rates, tables[0][run].mean(axis=0) / tables[1][run].mean(axis=0), share) for run in rows]
    )
    rate, skew = bootstrapped(broken), bootstrapped(implied_skew(broken))
    assert rate is not None
    assert skew is not None
    return ImpliedTolerance(rate, skew, bool(broken[0] == rates[-1]))


def _breaks(rates: Floats, ratios: Floats, share: float) -> float:
    reached = np.flatnonzero(ratios >= share)
    if not len(reached):
        return 0.0
    last = int(reached[-1])
    if last == len(rates) - 1:
        return float(rates[-1])
    drop = ratios[last] - ratios[last + 1]
    return float(rates[last] + (ratios[last] - share) / drop * (rates[last + 1] - rates[last]))
