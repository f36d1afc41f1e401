"""The forecast: will items have shrunk to a point by the planned end of a run? From the trend of its first steps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Literal

from trivet.collapse.batch_risk import settled
from trivet.collapse.thresholds import THRESHOLDS
from trivet.runtime.text import digits

Outlook = Literal["likely", "unlikely", "open"]
PERSISTENCE, UNCERTAINTY = 1.1, 0.4  # chosen on the selection runs of studies/forecast_fates.py
NOISE = 0.1  # of log2 of the shrinkage of a batch
UNLIKELY, LIKELY = 0.2, 0.8  # probabilities up to which a point is unlikely, and from which on it is likely
LEAST = 2.0**-40  # shrinkages below are all the same point
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
    each doubling of the steps, it will do about as much for each further one. Both numbers were chosen on runs of
    small networks of up to 3,200 steps.

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
    before, now = (math.log2(max(factor, LEAST)) for factor in ratios)
    end = max(done, 2 * done if steps is None else steps - at[0])

    point = math.log2(THRESHOLDS["gone"].value)
    left = math.log2(end / done)
    middle = now + PERSISTENCE * (now - before) * left
    deviation = NOISE + UNCERTAINTY * left
    # Unlikely up to where the middle lies as many deviations above a point: linear in the doublings.
    far = -_NORMAL.inv_cdf(UNLIKELY)
    nearer = far * UNCERTAINTY - PERSISTENCE * (now - before)  # with each doubling
    doublings = (now - point - far * NOISE) / nearer if nearer > 0 else left
    until = end if doublings >= left else done * 2 ** max(0.0, doublings)
    reach = NORMAL_95 * deviation
    return Forecast(
        probability=_NORMAL.cdf((point - middle) / deviation),
        shrinkage=2**middle,
        interval=(2 ** (middle - reach), 2 ** (middle + reach)),
        step=int(at[-1]),
        end=int(at[0] + end),
        until=int(at[0] + until),
        evidence={"shrinkage": 2**now, "shrinkage_change": 2 ** (now - before)},
    )


def pooled(forecasts: Sequence[Forecast]) -> Forecast:
    """The forecasts of runs with several seeds as one.

    The probability is the mean p of theirs, the shrinkage their geometric mean, `until` their least. As log2, the
    interval reaches as far to each side as sqrt(h^2 + (1.645 s)^2), where h is the mean of what theirs reach there and
    s the standard deviation of the shrinkages.
    """
    middles = [math.log2(each.shrinkage) for each in forecasts]
    middle = fmean(middles)
    spread = NORMAL_95 * (stdev(middles) if len(middles) > 1 else 0.0)
    reach = math.hypot(fmean(math.log2(each.interval[1] / each.shrinkage) for each in forecasts), spread)
    return Forecast(
        probability=fmean(each.probability for each in forecasts),
        shrinkage=2**middle,
        interval=(2 ** (middle - reach), 2 ** (middle + reach)),
        step=max(each.step for each in forecasts),
        end=max(each.end for each in forecasts),
        until=min(each.until for each in forecasts),
        evidence={
            name: 2 ** fmean(math.log2(each.evidence[name]) for each in forecasts) for name in forecasts[0].evidence
        },
    )
