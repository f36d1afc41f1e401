"""The forecast, against its formula, and what it must say of plain cases."""

from __future__ import annotations

import math
from statistics import median

import pytest

from trivet.collapse import forecast as module
from trivet.collapse.forecast import FEATURES, Coefficients, coefficients, features, forecast, settled

NAMES = ("step", "relative_spread", "within", "between", "hard", "s_an")
Series = dict[str, list[float]]


def series(spread: list[float], *, ratio: float = 0.9, hard: float = 0.5, s_an: list[float] | None = None) -> Series:
    return {
        "step": [float(10 * i) for i in range(len(spread))],
        "relative_spread": spread,
        "within": [ratio] * len(spread),
        "between": [1.0] * len(spread),
        "hard": [hard] * len(spread),
        "s_an": s_an or [0.5] * len(spread),
    }


def test_features_equal_their_definitions() -> None:
    spread = [0.4, 0.5, 0.3, 0.2, 0.25, 0.1, 0.12, 0.11, 0.1]
    near = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    found = features(series(spread, ratio=0.8, hard=0.7, s_an=near))
    now, half = median(spread[6:9]), median(spread[2:5])  # half of the steps were done at the fifth look
    assert found == pytest.approx(
        {
            "contraction": math.log2(now),
            "trend": math.log2(now / half),
            "within_between": 0.8,
            "hard": 0.7,
            "negatives_approach": median(near[6:9]) - median(near[2:5]),
        }
    )
    assert tuple(found) == FEATURES


@pytest.mark.parametrize(("spread", "trend"), [([1, 1, 1, 1e-3, 1e-3, 1e-3], -2.0), ([1e-3, 1e-3, 1e-3, 1, 1, 1], 1.0)])
def test_the_trend_is_held_in_bounds(spread: list[float], trend: float) -> None:
    found = features(series(spread))
    assert found is not None
    assert found["trend"] == trend


def test_a_missing_measure_gives_no_forecast() -> None:
    assert forecast(series([0.5])) is None
    assert forecast({name: [] for name in NAMES}) is None
    unlabelled = series([0.5, 0.4, 0.3])
    unlabelled["within"] = [math.nan] * 3
    assert forecast(unlabelled) is None


def test_probability_and_interval_equal_the_logistic_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    covariance = [[0.0] * 6 for _ in range(6)]
    covariance[0][0], covariance[1][1], covariance[0][1], covariance[1][0] = 0.5, 0.2, 0.1, 0.1
    weights = [1.0, -0.5, 0.25, 2.0, -1.0, 3.0]
    fitted = Coefficients("", [], weights, covariance)
    monkeypatch.setattr(module, "coefficients", lambda: fitted)
    given = series([0.5, 0.25, 0.25, 0.125, 0.125, 0.125])
    found, measured = forecast(given), features(given)
    assert found is not None
    assert measured is not None
    score = weights[0] + sum(weight * measured[name] for weight, name in zip(weights[1:], FEATURES, strict=True))
    reach = 1.6448536269514722 * math.sqrt(0.5 + 2 * 0.1 * measured["contraction"] + 0.2 * measured["contraction"] ** 2)
    assert found.probability == pytest.approx(1 / (1 + math.exp(-score)))
    assert found.interval == pytest.approx(tuple(1 / (1 + math.exp(-score + way * reach)) for way in (1, -1)))
    assert found.step == 50
    assert found.evidence["relative_spread"] == 0.125


def test_the_learned_weights_tell_a_contraction_from_learning() -> None:
    falls = forecast(series([0.4 * 0.5**i for i in range(8)], ratio=0.97, hard=0.95))
    learns = forecast(series([0.4 + 0.07 * i for i in range(8)], ratio=0.4, hard=0.1))
    assert coefficients().features == list(FEATURES)
    assert falls is not None
    assert learns is not None
    assert falls.probability > 0.95
    assert learns.probability < 0.05
    for found in (falls, learns):
        assert found.interval[0] < found.probability < found.interval[1]


def test_settled_is_the_median_of_the_last_three_known_values() -> None:
    values = [5.0, 1.0, math.nan, 3.0, 2.0]
    assert [settled(values, at) for at in range(5)] == [5.0, 3.0, 3.0, 2.0, 2.5]
    assert math.isnan(settled([math.nan], 0))


def test_on_one_point_nothing_is_apart() -> None:
    point = series([0.4, 0.1, 0.0, 0.0, 0.0])
    point["within"], point["between"], point["hard"] = [0.9, 0.5, 0, 0, 0], [1, 0.6, 0, 0, 0], [0.5, 0.5, 0, 0, 0]
    found = features(point)
    assert found is not None
    assert (found["within_between"], found["hard"]) == (1, 1)
    ahead = forecast(point)
    assert ahead is not None
    assert ahead.probability > 0.95
