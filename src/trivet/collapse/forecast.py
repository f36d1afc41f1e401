"""The forecast: will items have shrunk to a point by the planned end of a run? From the trend of its first steps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Literal

from trivet.collapse.batch_risk import settled
from trivet.collapse.thresholds import THRESHOLDS
from trivet.runtime.text import digits

Outlook = Literal["likely", "unlikely", "open"]
PERSISTENCE, UNCERTAINTY = 1.1, 0.4  # chosen on the selection runs of studies/forecast_fates.py
BY_STEP = 0.25  # weight of a shrinking that goes on with each step as it did, in place of each doubling of the steps
NOISE = 0.1  # of log2 of the shrinkage of a batch
UNLIKELY, LIKELY = 0.2, 0.8  # probabilities up to which a point is unlikely, and from which on it is likely
EXTREME = 40.0  # of log2 of a shrinkage, to either side: all points beyond are the same
SCOPE = "Whether items are still told apart there, and whether classes collapse, only held-out items can show."
_TITLES: dict[Outlook, str] = {
    "likely": "The embedding will probably shrink to a point",
    "unlikely": "Nothing points to a shrinking to a point",
}
_NORMAL = NormalDist()
NORMAL_95 = _NORMAL.inv_cdf(0.95)  # for an interval of 90 %


@dataclass(frozen=True)
class Forecast:
    """The shrinkage of a run at its planned end: the mean distance of two items of a batch over that at its start.

    It speaks of a collapse of the network to one point alone. Whether items are told apart there, and whether classes
    collapse, held-out items tell.

    Attributes:
        probability: of a point, which is a shrinkage below that of `THRESHOLDS["gone"]`, in [0, 1].
        shrinkage: the median of what is expected, > 0.
        interval: of 90 %, for the shrinkage.
        step: optimiser steps that were done.
        end: those of the planned end.
        until: up to which step a point is unlikely, at most `end`.
        evidence: measure -> value: the shrinkage now, and its change since half as many steps were done, a factor.
    """

    probability: float
    shrinkage: float
    interval: tuple[float, float]
    step: int
    end: int
    until: int
    evidence: dict[str, float]

    @property
    def outlook(self) -> Outlook:
        """The outlook of a point: "open" where nobody sees so far."""
        return "likely" if self.probability >= LIKELY else "unlikely" if self.probability <= UNLIKELY else "open"

    @property
    def sentence(self) -> str:
        """Forecast in words: what is foreseen, or up to where nothing points to a point; then what it leaves open."""
        done, chance = self.step + 1, f"{100 * self.probability:.0f} %"
        if self.outlook == "open":
            unit = 10 ** max(0, len(str(self.until)) - 2)
            until = self.until // unit * unit
            near = f"; nothing points to one until about step {until:,}" if until > done else ", and it may soon be one"
            text = (
                f"After {done:,} steps nobody can tell whether the embedding will be a point at step {self.end:,} "
                f"({chance}){near}"
            )
        else:
            values = (self.interval[0], self.shrinkage, self.interval[1])
            low, middle, high = (digits(float(f"{100 * value:.2g}")) for value in values)
            text = (
                f"{_TITLES[self.outlook]}: after {done:,} steps the trend leads, at step {self.end:,}, to a mean "
                f"distance of items of {middle} % of that at the start (90 % interval {low} to {high} %), and with a "
                f"probability of {chance} to a point, which is below {100 * THRESHOLDS['gone'].value:g} %"
            )
        return f"{text}. {SCOPE}"


def forecast(series: Mapping[str, Sequence[float]], steps: int | None = None) -> Forecast | None:
    """Follow the trend of the mean distance to the planned end, from the checks of a monitor so far.

    With s the shrinkage and d(s) its change while the steps done doubled last, both as log2, and k the doublings that
    are left, the shrinkage at the end is normal with mean s + 1.1 k d(s) and deviation 0.1 + 0.4 k: what it did for
    each doubling of the steps, it will do about as much for each further one. Both numbers were chosen on runs of small
    networks of up to 3,200 steps. A few shrink by the same factor with each step instead. As nobody can tell these
    apart early, where d(s) < 0 a fourth of the probability is of the mean s + 2 (2^k - 1) d(s) to which that leads.

    Args:
        series: name -> values, one for each check, as `CollapseMonitor.series`.
        steps: optimiser steps of the whole run. Default: twice those that were done.

    Returns:
        None without two checks, or where distances were 0 at the start or are not finite.
    """
    at, distances = series["step"], series["mean_distance"]
    if len(at) < 2 or not 0 < distances[0] < math.inf:
        return None
    done = at[-1] - at[0] + 1
    half = max(0, bisect_left(at, at[0] + done / 2) - 1)
    ratios = [settled(distances, check) / distances[0] for check in (half, len(at) - 1)]
    if not all(map(math.isfinite, ratios)):
        return None
    before, now = (math.log2(max(factor, 2**-EXTREME)) for factor in ratios)
    end = max(done, 2 * done if steps is None else steps - at[0])
    change, left = now - before, math.log2(end / done)
    point = math.log2(THRESHOLDS["gone"].value)
    until = _largest(lambda doublings: below(point, doublings, now, change) <= UNLIKELY, 0.0, left)

    def quantile(share: float) -> float:
        return 2 ** _largest(lambda value: below(value, left, now, change) <= share, -EXTREME, EXTREME)

    return Forecast(
        probability=below(point, left, now, change),
        shrinkage=quantile(0.5),
        interval=(quantile(0.05), quantile(0.95)),
        step=int(at[-1]),
        end=int(at[0] + end),
        until=int(at[0] + (end if until == left else done * 2**until)),
        evidence={"shrinkage": 2**now, "shrinkage_change": 2**change},
    )


def below(value: float, doublings: float, now: float, change: float) -> float:
    """The probability that log2 of the shrinkage will be below a value, after some more doublings of the steps.

    Args:
        doublings: >= 0.
        now, change: log2 of the shrinkage, and its change with the last doubling.
    """
    deviation = NOISE + UNCERTAINTY * doublings
    by_doubling = PERSISTENCE * change * doublings
    by_step = 2 * (2**doublings - 1) * change if change < 0 else by_doubling
    weights = (1 - BY_STEP, by_doubling), (BY_STEP, by_step)
    return sum(weight * _NORMAL.cdf((value - now - moved) / deviation) for weight, moved in weights)


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number up to `high` up to which something holds, by halving; `low` where it never does."""
    if holds(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def pooled(forecasts: Sequence[Forecast]) -> Forecast:
    """The forecasts of runs with several seeds as one.

    The probability is the mean p of theirs, the shrinkage their geometric mean, `until` their least. As log2, the
    interval reaches as far down as sqrt(h^2 + (1.645 s)^2), where h is the mean of what theirs reach down and s the
    standard deviation of the shrinkages; up likewise.
    """
    middles = [math.log2(each.shrinkage) for each in forecasts]
    middle = fmean(middles)
    spread = NORMAL_95 * (stdev(middles) if len(middles) > 1 else 0.0)
    low, high = (
        middle + way * math.hypot(fmean(math.log2(each.interval[end] / each.shrinkage) for each in forecasts), spread)
        for end, way in ((0, -1), (1, 1))
    )
    return Forecast(
        probability=fmean(each.probability for each in forecasts),
        shrinkage=2**middle,
        interval=(2**low, 2**high),
        step=max(each.step for each in forecasts),
        end=max(each.end for each in forecasts),
        until=min(each.until for each in forecasts),
        evidence={
            name: 2 ** fmean(math.log2(each.evidence[name]) for each in forecasts) for name in forecasts[0].evidence
        },
    )
