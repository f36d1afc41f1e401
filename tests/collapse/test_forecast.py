"""The forecast, against its formula, and what it must tell of plain cases."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist, median

import pytest

from trivet.collapse.forecast import Forecast, forecast, pooled
from trivet.collapse.thresholds import THRESHOLDS

Series = dict[str, list[float]]


def series(distances: list[float], *, every: int = 1, first: int = 0) -> Series:
    return {"step": [float(first + every * i) for i in range(len(distances))], "mean_distance": distances}


@pytest.mark.parametrize("first", [0, 100], ids=["from the first step", "of a run that goes on"])
@pytest.mark.parametrize("grows", [False, True])
def test_equals_its_definition(first: int, grows: bool) -> None:
    distances = [2.0, 1.9, 1.7, 1.8, 1.5, 1.3, 1.4, 1.0, 0.8, 0.9]  # ten steps were done, five of them at the fifth
    if grows:
        distances = [1 / distance for distance in distances]
    found = forecast(series(distances, first=first), first + 160)
    now, half = (math.log2(median(distances[at - 2 : at + 1]) / distances[0]) for at in (9, 4))
    change = now - half
    by_doubling = NormalDist(now + 1.1 * change * 4, 0.1 + 0.4 * 4)  # ten steps double four times
    by_step = by_doubling if grows else NormalDist(now + change / 5 * 150, 0.1 + 0.4 * 4)  # which it did in five

    def below(factor: float) -> float:
        return 0.75 * by_doubling.cdf(math.log2(factor)) + 0.25 * by_step.cdf(math.log2(factor))

    assert found is not None
    assert found.probability == pytest.approx(below(THRESHOLDS["gone"].value))
    ends = (found.interval[0], found.shrinkage, found.interval[1])
    assert [below(factor) for factor in ends] == pytest.approx([0.05, 0.5, 0.95])
    assert (found.step, found.end) == (first + 9, first + 160)
    assert found.evidence == pytest.approx({"shrinkage": 2**now, "shrinkage_change": 2**change})


@pytest.mark.parametrize("every", [1, 4])
def test_a_point_is_unlikely_up_to_the_step_that_is_named(every: int) -> None:
    given = series([1 - 0.02 * i for i in range(20)], every=every)
    found = forecast(given, 100_000)
    assert found is not None
    assert found.outlook == "open"
    assert 20 * every < found.until < 100_000
    chances = [then.probability for steps in (found.until, found.until + 1) if (then := forecast(given, steps))]
    assert chances[0] <= 0.2 < chances[1]
    for steps in (395, 2000):  # as far as it is planned, whatever is rounded
        steady = forecast(series([1.0] * 20), steps)
        assert steady is not None
        assert steady.until == steady.end == steps
    gone = forecast(series([0.5**i for i in range(20)]), 400)
    assert gone is not None
    assert gone.until == 20


@pytest.mark.parametrize(
    ("distances", "steps", "outlook"),
    [
        ([1.0] * 20, 400, "unlikely"),
        ([1.0] * 20, 20_000_000, "open"),  # nobody sees so far
        ([1 + 0.1 * i for i in range(20)], 2000, "unlikely"),
        ([0.97**i for i in range(20)], 40, "unlikely"),
        ([0.97**i for i in range(20)], 200, "open"),  # by the same factor with each step it would be one
        ([0.97**i for i in range(20)], 2000, "open"),
        ([0.9**i for i in range(20)], 200, "likely"),
        ([0.5**i for i in range(20)], 400, "likely"),
        ([1.0] + [0.0] * 19, 400, "likely"),
    ],
)
def test_a_slow_shrinking_is_followed_to_the_planned_end(distances: list[float], steps: int, outlook: str) -> None:
    found = forecast(series(distances), steps)
    assert found is not None
    assert found.outlook == outlook


def test_without_a_planned_end_it_looks_as_far_as_it_came() -> None:
    given = series([0.9**i for i in range(20)])
    assert forecast(given) == forecast(given, 40)
    late = forecast(given, 5)  # a run that went on after its planned end
    assert late is not None
    assert late.end == 20


@pytest.mark.parametrize("distances", [[], [0.5], [0.0, 0.0], [math.nan, 1.0, 1.0], [1.0] + [math.inf] * 5])
def test_what_cannot_be_followed_has_no_forecast(distances: list[float]) -> None:
    assert forecast(series(distances), 100) is None


def test_seeds_are_pooled_and_their_spread_widens_the_interval() -> None:
    one = Forecast(0.9, 0.02, (0.005, 0.04), 19, 400, 30, {"shrinkage": 0.5})
    assert pooled([one]).interval == pytest.approx(one.interval)
    found = pooled([one, Forecast(0.5, 0.08, (0.01, 0.64), 19, 400, 200, {"shrinkage": 0.125})])
    down, up = (math.hypot(each, 1.6448536 * math.sqrt(2)) for each in (2.5, 2.0))  # means of 2 and 3, and of 1 and 3
    assert found.probability == pytest.approx(0.7)
    assert found.shrinkage == pytest.approx(0.04)
    assert found.interval == pytest.approx([0.04 * 2**-down, 0.04 * 2**up])
    assert (found.until, found.evidence) == (30, {"shrinkage": pytest.approx(0.25)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "The embedding will probably shrink to a point: after 20 steps the trend leads, at step 2,000, to a mean "
         "distance of items of 1 % of that at the start (90 % interval 0.25 to 4 %), and with a probability of 94 %"),
        ({"probability": 0.02, "shrinkage": 0.7}, "Nothing points to a shrinking to a point: after 20 steps"),
        ({"probability": 0.4}, "After 20 steps nobody can tell whether the embedding will be a point at step 2,000 "
         "(40 %); nothing points to one until about step 430."),
        ({"probability": 0.4, "until": 20}, "at step 2,000 (40 %), and it may soon be one."),
    ],
)  # fmt: skip
def test_the_sentence_names_what_is_foreseen_and_how_far(changes: dict[str, float], words: str) -> None:
    one = Forecast(0.94, 0.01, (0.0025, 0.04), 19, 2000, 437, {})
    sentence = replace(one, **changes).sentence
    assert words in sentence
    assert sentence.endswith("whether classes collapse, only held-out items can show.")
