"""The model of what is listed, with a floor and a ceiling of mistakes, is the most likely one."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from scipy.special import stdtr

from trivet.label_noise.mistakes import MistakeModel, fit_fewest, fit_mistakes

START = MistakeModel(np.array([0.5]), 0.0, 0.02, 0.02)


def test_the_fit_is_the_most_likely() -> None:
    random = np.random.default_rng(0)
    scores = 4 * random.normal(size=(6000, 1))
    belongs = random.random(6000) < 1 / (1 + np.exp(-scores[:, 0]))
    listed = random.random(6000) < np.where(belongs, 0.9, 0.05)
    model = fit_mistakes(scores, listed, start=START)

    def likelihood(weight: float, intercept: float, floor: float, excess: float) -> float:
        total = 0.0
        for score, there in zip(scores[:, 0].tolist(), listed.tolist(), strict=True):
            chance = floor + (1 - excess - floor) / (1 + math.exp(-(weight * score + intercept)))
            total += math.log(chance if there else 1 - chance)
        return total / len(listed)

    fitted = (float(model.weights[0]), model.intercept, model.floor, model.excess)
    assert model.likelihood == pytest.approx(likelihood(*fitted))
    for number in range(4):
        for change in (-0.02, 0.02):
            changed = [value + change * (number == position) for position, value in enumerate(fitted)]
            assert likelihood(*changed) < model.likelihood
    assert model.floor == pytest.approx(0.05, abs=0.015)
    assert model.excess == pytest.approx(0.1, abs=0.02)
    share = model.wrong(model.belongs(scores[listed]))
    assert share.sum() == pytest.approx((~belongs[listed]).sum(), rel=0.2)
    absent = model.missing(model.belongs(scores[~listed]))
    assert absent.sum() == pytest.approx(belongs[~listed].sum(), rel=0.2)
    for name in ("floor", "excess"):
        fixed = fit_mistakes(scores, listed, start=model, **{name: 0.02})
        assert getattr(fixed, name) == 0.02
        assert fixed.likelihood < model.likelihood


def test_the_floor_is_relative_to_the_shares() -> None:
    random = np.random.default_rng(0)
    scores = 4 * random.normal(size=(4000, 1))
    right = random.random(4000) < 1 / (1 + np.exp(-scores[:, 0]))
    given = np.where(right, random.random(4000) >= 0.1, random.random(4000) < 0.05)
    share = float(given.mean())
    model = fit_mistakes(scores, given, start=START, shares=np.full(4000, share))

    def likelihood(weights: list[float], missing: float, superfluous: float) -> float:
        total = 0.0
        for score, there in zip(scores.ravel().tolist(), given.ravel().tolist(), strict=True):
            right = 1 / (1 + math.exp(-(weights[0] * score + weights[1])))
            chance = superfluous * share + (1 - missing - superfluous * share) * right
            total += math.log(chance if there else 1 - chance)
        return total

    fitted = ([float(model.weights[0]), model.intercept], model.excess, model.floor)
    best = likelihood(*fitted)
    for change in (-0.02, 0.02):
        assert likelihood([fitted[0][0] + 5 * change, fitted[0][1]], *fitted[1:]) < best
        assert likelihood(fitted[0], fitted[1] + change, fitted[2]) < best
        assert likelihood(*fitted[:2], fitted[2] + change) < best
    assert model.excess == pytest.approx(0.1, abs=0.02)
    assert model.floor * share == pytest.approx(0.05, abs=0.015)


def test_half_a_mistake_is_allowed_in_any_case() -> None:
    random = np.random.default_rng(0)
    scores = 4 * random.normal(size=(6000, 1))
    listed = random.random(6000) < 1 / (1 + np.exp(-scores[:, 0]))
    likeliest = MistakeModel(np.ones(1), 0.0, 0.01, 0.01)
    half = {"floor": 0.5 / (~listed).sum(), "excess": 0.5 / listed.sum()}
    assert fit_fewest(scores, listed, "floor", likeliest=likeliest).floor == pytest.approx(half["floor"])
    assert fit_fewest(scores, listed, "excess", likeliest=likeliest).excess == pytest.approx(half["excess"])
    none = fit_fewest(scores, listed, "floor", likeliest=likeliest._replace(floor=0.0))
    assert none.floor == 0


@pytest.mark.parametrize("name", ["floor", "excess"])
@pytest.mark.parametrize("mistakes", [0.0, 0.1])
def test_the_fewest_mistakes_are_those_of_the_surest(name: Literal["floor", "excess"], mistakes: float) -> None:
    random = np.random.default_rng(0)
    scores = 8 * random.normal(size=(6000, 1))
    belongs = random.random(6000) < stdtr(3, scores[:, 0])  # falls off slowly, but falls off
    listed = belongs ^ (random.random(6000) < mistakes)
    shares = np.full(6000, 0.5)
    likeliest = fit_mistakes(scores, listed, start=START, shares=shares)
    fewest = fit_fewest(scores, listed, name, likeliest=likeliest, shares=shares)
    expected = likeliest.belongs(scores) if name == "floor" else 1 - likeliest.belongs(scores)
    mistaken = (listed == (name == "floor")).tolist()
    items = sorted(zip(expected.tolist(), mistaken, strict=True))[: mistaken.count(False)]
    lowest = []
    for deep in (0.2, 0.3, 0.45, 0.6, 0.8, 1.0):  # one of them is looked at
        some = items[: round(deep * len(items))]
        share = sum(wrong for _, wrong in some) / len(some)
        spread = 1.96**2 / len(some)
        low = (share + spread / 2 - math.sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread)
        lowest.append((low - 2 * sum(value for value, _ in some) / len(some)) * (2 if name == "floor" else 1))
    value = getattr(fewest, name)
    half = 0.5 / len(items) * (2 if name == "floor" else 1)
    assert min(abs(max(half, low) - value) for low in lowest) < 1e-9
    assert value < 0.8 * getattr(likeliest, name)
    assert 0.7 * mistakes <= value / (2 if name == "floor" else 1) <= mistakes + 0.001
