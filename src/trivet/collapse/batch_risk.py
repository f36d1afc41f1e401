"""The risk: do the batches of a run look like those of runs that ended with a collapsed network?"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import median
from typing import NamedTuple

FEATURES = ("contraction", "trend", "within_between", "hard", "negatives_approach")
"""What the risk weighs, in this order; see `features`."""
LEAST_SPREAD = 1e-4  # relative spreads below are all the same point
NARROWEST, WIDEST = -2.0, 1.0  # of the trend, so that the shaken first steps of a run do not weigh more than all else
WIDTH = 3  # checks whose median stands for a check: one odd batch is no news


def risk(values: Mapping[str, float] | None) -> float:
    """The share of collapsed networks among batches like these, in [0, 1], from the `features`; NaN without them.

    A logistic model of five measures, learned from short runs of small networks of which about a third collapsed
    (studies/gauntlet.py). It is about now: see `trivet.collapse.forecast` for the end of a run.
    """
    if values is None:
        return math.nan
    row = [1.0, *(values[name] for name in FEATURES)]
    score = sum(weight * value for weight, value in zip(coefficients().weights, row, strict=True))
    return 1 / (1 + math.exp(-score)) if score > -700 else 0.0


def features(series: Mapping[str, Sequence[float]]) -> dict[str, float] | None:
    """Features of the risk at the last check; each is a median of three checks.

    contraction: log2 of the relative spread. trend: log2 of the relative spread over that after half as many steps.
    within_between: distances inside classes over those between them. hard: the share of items whose farthest positive
    is farther than their nearest negative. negatives_approach: how much the similarity to the nearest negative has
    grown since half as many steps. A free triplet pushes its negative away; weights that move both of its pairs
    together draw it near.

    Args:
        series: name -> values, one for each check, as `CollapseMonitor.series`.

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


def settled(values: Sequence[float], at: int) -> float:
    """The median of `WIDTH` values up to the one at a place, without those that are NaN."""
    some = [value for value in values[max(0, at + 1 - WIDTH) : at + 1] if not math.isnan(value)]
    return median(some) if some else math.nan


class Coefficients(NamedTuple):
    """Weights of 1 and of each of `FEATURES`, and where they come from."""

    origin: str
    features: list[str]
    weights: list[float]


@cache
def coefficients() -> Coefficients:
    """The model that the package comes with."""
    return Coefficients(**json.loads((files("trivet.collapse") / "batch_risk.json").read_text(encoding="utf-8")))
