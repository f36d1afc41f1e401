"""The risk, against its formula, and what it must say of plain cases."""

from __future__ import annotations

import math
from statistics import median

import pytest

from trivet.collapse import batch_risk as module
from trivet.collapse.batch_risk import FEATURES, Coefficients, coefficients, features, risk, settled

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


def test_a_missing_measure_gives_no_risk() -> None:
    assert features(series([0.5])) is None
    assert features({name: [] for name in NAMES}) is None
    unlabelled = series([0.5, 0.4, 0.3])
    unlabelled["within"] = [math.nan] * 3
    assert features(unlabelled) is None
    assert math.isnan(risk(None))


def test_the_risk_equals_the_logistic_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [1.0, -0.5, 0.25, 2.0, -1.0, 3.0]
    fitted = Coefficients("", [], weights)
    monkeypatch.setattr(module, "coefficients", lambda: fitted)
    measured = features(series([0.5, 0.25, 0.25, 0.125, 0.125, 0.125]))
    assert measured is not None
    score = weights[0] + sum(weight * measured[name] for weight, name in zip(weights[1:], FEATURES, strict=True))
    assert risk(measured) == pytest.approx(1 / (1 + math.exp(-score)))


def test_the_learned_weights_tell_a_contraction_from_learning() -> None:
    assert coefficients().features == list(FEATURES)
    assert risk(features(series([0.4 * 0.5**i for i in range(8)], ratio=0.97, hard=0.95))) > 0.95
    assert risk(features(series([0.4 + 0.07 * i for i in range(8)], ratio=0.4, hard=0.1))) < 0.05


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
    assert risk(found) > 0.95
