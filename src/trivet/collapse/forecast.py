"""The forecast: will a run collapse, predicted from its first steps."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median
from typing import NamedTuple

FEATURES = ("contraction", "trend", "within_between", "hard", "negatives_approach")
"""What the forecast weighs, in this order; see `features`."""
LEAST_SPREAD = 1e-4  # relative spreads below are all the same point
NARROWEST, WIDEST = -2.0, 1.0  # of the trend, so that the shaken first steps of a run do not weigh more than all else
WIDTH = 3  # checks whose median stands for a check: one odd batch is no news
NORMAL_95 = 1.6448536269514722  # quantile of the standard normal distribution, for an interval of 90 %


@dataclass(frozen=True)
class Forecast:
    """The end of a run as its steps so far foretell it.

    Attributes:
        probability: of a collapse of the network by the end, in [0, 1].
        interval: of 90 %, for the probability: what the coefficients leave open, as so many runs were learned from.
        step: optimiser steps that were done.
        evidence: measure -> value, those it rests on; see `features`.
    """

    probability: float
    interval: tuple[float, float]
    step: int
    evidence: dict[str, float]


def forecast(series: Mapping[str, Sequence[float]]) -> Forecast | None:
    """The probability that a run ends with a collapsed network, from the checks of a monitor so far.

    A logistic model of five measures, learned from short runs of small networks of which about a third collapsed
    (studies/gauntlet.py); it says how runs went that looked like this one, and knows nothing of its settings.

    Args:
        series: name -> values, one for each check, as `CollapseMonitor.series`.

    Returns:
        None without two checks of labelled batches.
    """
    values = features(series)
    if values is None:
        return None
    row, score = _scored(values)
    variance = sum(
        a * cell * b
        for a, line in zip(row, coefficients().covariance, strict=True)
        for cell, b in zip(line, row, strict=True)
    )
    reach = NORMAL_95 * math.sqrt(max(0.0, variance))
    return Forecast(
        _logistic(score),
        (_logistic(score - reach), _logistic(score + reach)),
        int(series["step"][-1]),
        {"relative_spread": settled(series["relative_spread"], len(series["step"]) - 1), **values},
    )


def risk(series: Mapping[str, Sequence[float]]) -> float:
    """The probability of `forecast` alone; NaN where there is none."""
    values = features(series)
    return math.nan if values is None else _logistic(_scored(values)[1])


def features(series: Mapping[str, Sequence[float]]) -> dict[str, float] | None:
    """Features of the forecast at the last check; each is a median of three checks.

    contraction: log2 of the relative spread. trend: log2 of the relative spread over that after half as many steps.
    within_between: distances inside classes over those between them. hard: the share of items whose farthest positive
    is farther than their nearest negative. negatives_approach: how much the similarity to the nearest negative has
    grown since half as many steps. A free triplet pushes its negative away; weights that move both of its pairs
    together draw it near.

    Returns:
        None without two checks, or where a measure was never known, as without labels.

    Source:
        The entangled motion is that of Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 11, 12.
    """
    steps = series["step"]
    if len(steps) < 2:
        return None
    end = len(steps) - 1
    half = bisect_right(steps, (steps[0] + steps[end]) / 2) - 1
    now, then = (
        {name: settled(series[name], at) for name in ("relative_spread", "within", "between", "hard", "s_an")}
        for at in (end, half)
    )
    if now["between"] == 0:  # on one point no class is apart from another
        now |= {"within": 1.0, "between": 1.0, "hard": 1.0}
    if any(math.isnan(value) for value in now.values()):
        return None
    spread, before = (max(medians["relative_spread"], LEAST_SPREAD) for medians in (now, then))
    return {
        "contraction": math.log2(spread),
        "trend": min(WIDEST, max(NARROWEST, math.log2(spread / before))),
        "within_between": now["within"] / now["between"],
        "hard": now["hard"],
        "negatives_approach": 0.0 if math.isnan(then["s_an"]) else now["s_an"] - then["s_an"],
    }


def settled(values: Sequence[float], at: int, width: int = WIDTH) -> float:
    """The median of `width` values up to the one at a place, without those that are NaN."""
    some = [value for value in values[max(0, at + 1 - width) : at + 1] if not math.isnan(value)]
    return median(some) if some else math.nan


class Coefficients(NamedTuple):
    """Weights of 1 and of each of `FEATURES`, their covariance, and where they come from."""

    origin: str
    features: list[str]
    weights: list[float]
    covariance: list[list[float]]


@cache
def coefficients() -> Coefficients:
    """The model that the package comes with."""
    return Coefficients(**json.loads((files("trivet.collapse") / "forecast.json").read_text(encoding="utf-8")))


def _scored(values: Mapping[str, float]) -> tuple[list[float], float]:
    """1 and the features, and the sum of them times their weights."""
    row = [1.0, *(values[name] for name in FEATURES)]
    return row, sum(weight * value for weight, value in zip(coefficients().weights, row, strict=True))


def _logistic(score: float) -> float:
    return 1 / (1 + math.exp(-score)) if score > -700 else 0.0
