"""Fit of what is listed beside what is not: a logistic curve between the floor and the ceiling that mistakes make."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from trivet.label_noise.deepest import DOUBLE, deepest_share, wilson
from trivet.runtime.arrays import Booleans, Floats

HALF = 0.5  # mistakes at least, so that what is hardly possible stands out


class MistakeModel(NamedTuple):
    """P(listed | scores v) = floor + (1 - excess - floor) sigmoid(w . v + b), and its mean log-likelihood.

    Attributes:
        weights: `(V,)` of the scores.
        intercept: b.
        floor: share listed by mistake of what does not belong, relative to the shares of each.
        excess: share not listed by mistake of what belongs.
        likelihood: the mean logarithm; NaN before a fit.
    """

    weights: Floats
    intercept: float
    floor: float
    excess: float
    likelihood: float = float("nan")

    def belongs(self, scores: Floats) -> Floats:
        """The sigmoid `(...)` of scores `(..., V)`: the probability that something belongs, listed or not."""
        from scipy.special import expit

        return np.asarray(expit(scores @ self.weights + self.intercept))

    def wrong(self, belongs: Floats, shares: Floats | float = 1.0) -> Floats:
        """The probability that what is listed does not belong, by that of `belongs`."""
        return _share(self.floor * shares * (1 - belongs), (1 - self.excess) * belongs)

    def missing(self, belongs: Floats, shares: Floats | float = 1.0) -> Floats:
        """The probability that what is not listed belongs, by that of `belongs`."""
        return _share(self.excess * belongs, (1 - self.floor * shares) * (1 - belongs))


def _share(odds: Floats, against: Floats) -> Floats:
    return odds / np.maximum(odds + against, 1e-300)


def fit_mistakes(
    scores: Floats,
    listed: Booleans,
    *,
    start: MistakeModel,
    shares: Floats | float = 1.0,
    floor: float | None = None,
    excess: float | None = None,
) -> MistakeModel:
    """Fit the model by maximum likelihood to scores `(Q, V)` and what is listed `(Q,)`.

    Args:
        start: where the search sets out.
        shares: `(Q,)` in [0, 1], what the floor of each is relative to.
        floor, excess: their values where they are known.

    Source:
        The four-parameter logistic model: Barton, Lord, "An upper asymptote for the three-parameter logistic
        item-response model", ETS Research Report, 1981.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, logit

    views = scores.shape[1]

    def ends_of(numbers: Floats) -> tuple[float, float]:
        below, above = expit(numbers[-2:]).tolist()
        return below if floor is None else floor, above if excess is None else excess

    def loss(numbers: Floats) -> tuple[float, Floats]:
        lowest, above = ends_of(numbers)
        right, below = expit(scores @ numbers[:views] + numbers[views]), lowest * shares
        span = 1 - above - below
        likely = np.clip(below + span * right, 1e-12, 1 - 1e-12)
        slope = np.where(listed, -1 / likely, 1 / (1 - likely)) / len(listed)
        inner = slope * span * right * (1 - right)
        of_floor = 0.0 if floor is not None else (slope @ (shares * (1 - right))) * lowest * (1 - lowest)
        of_excess = 0.0 if excess is not None else -(slope @ right) * above * (1 - above)
        value = -float(np.where(listed, np.log(likely), np.log1p(-likely)).mean())
        return value, np.concatenate([inner @ scores, [inner.sum(), of_floor, of_excess]])

    ends = np.clip([start.floor, start.excess], 1e-5, 0.5)
    begun = np.concatenate([start.weights, [start.intercept], logit(ends)])
    solution = minimize(loss, begun, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return MistakeModel(solution.x[:views], float(solution.x[views]), *ends_of(solution.x), -float(solution.fun))


def fit_fewest(
    scores: Floats,
    listed: Booleans,
    name: Literal["floor", "excess"],
    *,
    likeliest: MistakeModel,
    shares: Floats | float = 1.0,
) -> MistakeModel:
    """Fit the model with a floor or an excess that is no higher than the surest show: overlap makes no mistakes.

    Where the scores err, the curve misses, and a floor stands for what it misses. But overlap makes listed ones rarer
    without end the less they belong, and mistakes do not. So the floor is at most, of those that belong least, the
    lower end of the share that is listed, less twice what the curve expects there; likewise the excess of those that
    belong most. How many of them are looked at is up to `deepest_share`. Half a mistake is allowed in any case.

    Args:
        name: which of both is to be low.
        likeliest: the fit with neither known.
        shares: as in `fit_mistakes`.
    """
    mistaken, expected = listed, likeliest.belongs(scores)
    relative, most = np.broadcast_to(shares, listed.shape), likeliest.floor
    if name == "excess":
        mistaken, expected, relative, most = ~listed, 1 - expected, np.ones(len(listed)), likeliest.excess
    order = np.argsort(expected, kind="stable")[: int((~mistaken).sum())]
    share, count = deepest_share(mistaken[order])
    deepest = order[:count]
    least = float(wilson(share, count)[0]) - DOUBLE * float(expected[deepest].mean())
    value = min(most, max(least / float(relative[deepest].mean()), HALF / float(relative[order].sum())))
    ends = {"floor": value} if name == "floor" else {"excess": value}
    return fit_mistakes(scores, listed, start=likeliest, shares=shares, **ends)
