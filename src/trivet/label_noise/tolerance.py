"""Tolerance of a strategy to wrong labels: by its skew, or by where its scores drop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.label_noise.skew import LEVELS, RESAMPLES, Estimate, SkewEstimate
from trivet.label_noise.theory import implied_skew, negative_weight, noise_rate_bound, tolerated_noise_rate
from trivet.runtime.arrays import Floats


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

    def as_json(self) -> dict[str, Any]:
        """The fields; None where a number is not finite."""
        return {
            "by": self.by,
            "skew": self.skew.as_json(),
            "rate": self.rate.as_json(),
            "uniform": self.uniform,
        }


def strategy_tolerance(estimate: SkewEstimate, *, num_classes: int, samples_per_class: int) -> Tolerance | None:
    """The noise rate p up to which 1 - (2 p - p^2) eta stays at or above 0, but at most that of uniform picking.

    Of the margin loss, eta is 1 / gamma where it is defined. A worst case in the words of the authors, not a theorem:
    a skew makes the weight of a pair depend on more than its label, and the loss is taken for the unhinged one.

    Args:
        estimate: of the strategy, on the labels as they are; wrong ones lower it, see docs/label_noise.md.
        num_classes: K >= 2, of the items that are trained on.
        samples_per_class: s >= 2, a typical size.

    Returns:
        None where the skew is not defined.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018, eq. 26 and 27, and 37;
        for uniform picking eq. 24, 25 with exact weights.

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
    uniform = float(tolerated_noise_rate(num_classes, negative_weight(num_classes, samples_per_class)))

    def rate(skew: float) -> float:
        return math.nan if math.isnan(skew) else min(uniform, float(noise_rate_bound(max(1.0, skew))))

    skewness = estimate.skew
    if estimate.gamma is not None:
        gamma = estimate.gamma
        skewness = Estimate(*(1 / value if value > 0 else math.inf for value in (gamma.value, gamma.high, gamma.low)))
    if skewness is None:
        return None
    return Tolerance(
        by="skew" if estimate.gamma is None else "gamma",
        skew=skewness,
        rate=Estimate(rate(skewness.value), rate(skewness.high), rate(skewness.low)),
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
        resamples: of the runs, for the intervals; with one run they are just the number.
        seed: of the resamples.

    Raises:
        ValueError: if shapes disagree, rates do not increase, or a topline is not above 0.

    Source:
        Proposed here; the inverse of Le, Odobez, 2018, eq. 27.

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
    skews = implied_skew(broken)
    return ImpliedTolerance(_interval(broken), _interval(skews), bool(broken[0] == rates[-1]))


def _breaks(rates: Floats, ratios: Floats, share: float) -> float:
    reached = np.flatnonzero(ratios >= share)
    if not len(reached):
        return 0.0
    last = int(reached[-1])
    if last == len(rates) - 1:
        return float(rates[-1])
    drop = ratios[last] - ratios[last + 1]
    return float(rates[last] + (ratios[last] - share) / drop * (rates[last + 1] - rates[last]))


def _interval(values: Floats) -> Estimate:
    drawn = np.sort(values[1:])
    low, high = (float(drawn[round(level * (len(drawn) - 1))]) for level in LEVELS)
    return Estimate(float(values[0]), low, high)
