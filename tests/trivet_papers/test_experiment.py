"""Experiments as data, and the verdict on a claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from trivet_papers.experiment import (
    BEST,
    Arm,
    Claim,
    JudgedClaim,
    Lengths,
    Results,
    SeedValue,
    arms,
    judge,
    mark_shared,
    merged,
)

T_2 = 4.302652729911275  # Student's t for 95 % and three values, of a printed table: 4.303


def gain(values: Sequence[tuple[float, float]]) -> Results:
    """Of two arms, what each seed has measured."""
    both = arms({"training": {"steps": 7}}, positives={"usual": {}, "easy": {}})
    rows = {place: {seed: {7: {"recall": pair[place]}} for seed, pair in enumerate(values)} for place in (0, 1)}
    return Results(rows, both)


CLAIM = Claim("Easy ones help.", lambda of: of("recall", positives="easy") - of("recall", positives="usual"), "gain")


def test_a_claim_holds_where_the_interval_lies_above_0() -> None:
    judged = judge(CLAIM, gain([(0.1, 0.29), (0.2, 0.4), (0.3, 0.51)]))
    assert judged.verdict == "holds"
    (part,) = judged.outcomes
    assert part.values == pytest.approx((0.19, 0.2, 0.21))
    assert part.mean == pytest.approx(0.2)
    assert part.interval is not None
    half = T_2 * 0.01 / math.sqrt(3)
    assert part.interval == pytest.approx((0.2 - half, 0.2 + half), rel=1e-6)


def test_it_does_not_hold_where_the_interval_lies_below() -> None:
    assert judge(CLAIM, gain([(0.29, 0.1), (0.4, 0.2), (0.51, 0.3)])).verdict == "does not hold"


def test_an_interval_that_includes_0_cannot_tell() -> None:
    judged = judge(CLAIM, gain([(0.1, 0.2), (0.2, 0.4), (0.3, 0.6)]))  # 0.2, give or take 0.248
    assert judged.verdict == "cannot tell"
    assert judged.why == "it includes 0"


def test_two_seeds_cannot_tell() -> None:
    judged = judge(CLAIM, gain([(0.1, 0.29), (0.2, 0.4)]))
    assert judged.verdict == "cannot tell"
    assert judged.why == "2 of the 3 seeds that it needs at least"


def test_a_seed_of_which_a_run_is_missing_is_left_out() -> None:
    results = gain([(0.1, 0.29), (0.2, 0.4), (0.3, 0.51), (0.1, 0.3)])
    del results._rows[1][3]
    assert len(judge(CLAIM, results).outcomes[0].values) == 3


def test_the_least_of_some_runs_is_not_the_least_of_all() -> None:
    results = gain([(0.1, 0.29), (0.2, 0.4), (0.3, 0.51)])
    for which in (0, 1):
        results._rows[which].clear()
        for least in (min, max):

            def value(of: SeedValue, least: Callable[[Iterable[float]], float] = least) -> float:
                return least(of("recall", positives=one) for one in ("easy", "usual"))

            assert judge(Claim("x", value, "least"), results).outcomes == []
        results = gain([(0.1, 0.29), (0.2, 0.4), (0.3, 0.51)])


@pytest.mark.parametrize("failed", [True, False])
def test_a_run_that_failed_is_not_left_out_in_silence(failed: bool) -> None:
    rows = {place: {seed: {7: {"recall": 0.1 + 0.2 * place}} for seed in range(4)} for place in (0, 1)}
    rows[1][3] = {}
    results = Results(rows, gain([(0, 0)]).arms, [(1, 3)] if failed else [])
    judged = judge(CLAIM, results)
    assert len(judged.outcomes[0].values) == 3
    expected = ("cannot tell", "a run of 1 of 4 seeds ended without a result") if failed else ("holds", "")
    assert (judged.verdict, judged.why) == expected


def test_a_value_at_its_last_step_at_one_and_at_the_best() -> None:
    (arm,) = arms({"training": {"steps": 9}}, at=(3, 6, 9), one={"x": {}})
    steps = {3: {"recall": 0.1}, 6: {"recall": 0.4, "more": None}, 9: {"recall": 0.2}}
    results = Results({0: {0: steps, 1: {3: {}}}}, [arm])
    assert [results.get(0, "recall", at, one="x") for at in (None, 3, BEST)] == [0.2, 0.1, 0.4]
    assert results.get(0, "more", BEST, one="x") is None
    assert results.numbers("recall", BEST, one="x") == [0.4]


def of_several(not_comparable: str = "", **numbers: Sequence[float]) -> JudgedClaim:
    """A claim of several numbers, each with its values over the seeds."""
    (arm,) = arms({"training": {"steps": 1}}, one={"x": {}})
    each = [dict(zip(numbers, some, strict=True)) for some in zip(*numbers.values(), strict=True)]
    results = Results({0: {seed: {1: row} for seed, row in enumerate(each)}}, [arm])
    return judge(
        Claim("x", lambda of: {name: of(name, one="x") for name in numbers}, "each", "points", not_comparable), results
    )


def test_a_claim_of_several_numbers_holds_if_all_do() -> None:
    judged = of_several(high=(0.29, 0.3, 0.31), low=(0.19, 0.2, 0.21))
    assert judged.verdict == "holds"
    assert [part.name for part in judged.outcomes] == ["low", "high"]
    assert of_several(high=(0.29, 0.3, 0.31), unsure=(0.0, 0.2, 0.4)).verdict == "cannot tell"


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("why", ["", "no cars"])
def test_the_lowest_number_is_the_first_whatever_the_verdict(count: int, why: str) -> None:
    high, low = (0.5, 0.1, 0.3), (-0.19, -0.2, -0.21)  # with two seeds the end of the interval of the high one is lower
    judged = of_several(why, high=high[:count], low=low[:count])
    assert [part.name for part in judged.outcomes] == ["low", "high"]


def test_numbers_that_scatter_about_the_same_gain_are_not_judged_by_the_least_of_each_seed() -> None:
    one, other = (0.1, -0.05, 0.12, -0.04, 0.11), (-0.05, 0.1, -0.04, 0.12, -0.03)
    assert max(map(min, one, other)) < 0  # the least of each seed would not hold
    assert of_several(one=one, other=other).verdict == "cannot tell"


def test_it_does_not_hold_if_one_lies_below_beyond_what_one_of_so_many_may_by_chance() -> None:
    below, high = (-0.29, -0.21, -0.13), (0.29, 0.3, 0.31)  # -0.21, give or take 0.20; of 4: 0.41
    judged = of_several(high=high, below=(-0.31, -0.3, -0.29))
    assert judged.verdict == "does not hold"
    assert judged.outcomes[0].name == "below"
    judged = of_several(high=high, below=below, more=high, most=high)
    assert judged.outcomes[0].ends[1] < 0
    assert (judged.verdict, judged.why) == ("cannot tell", "it lies below 0, which one of 4 may by chance")


def test_what_is_not_comparable_is_not_judged() -> None:
    claim = Claim("x", CLAIM.value, "gain", not_comparable="there are no photographs of cars here")
    judged = judge(claim, gain([(0.1, 0.29), (0.2, 0.4), (0.3, 0.51)]))
    assert (judged.verdict, judged.why) == ("not comparable", "there are no photographs of cars here")


@pytest.mark.parametrize(
    ("effect", "verdict"), [(0.0021, "holds"), (0.0019, "cannot tell"), (-0.0019, "does not hold")]
)
def test_an_effect_of_less_than_a_fifth_of_a_point_makes_no_claim_hold(effect: float, verdict: str) -> None:
    results = gain([(0.1, 0.1 + effect), (0.2, 0.20001 + effect), (0.3, 0.3 + effect)])
    judged = judge(CLAIM, results)
    assert judged.verdict == verdict
    assert (judged.why == "it is less than 0.2 points") is (verdict == "cannot tell")
    assert judge(replace(CLAIM, unit="", value=lambda of: abs(CLAIM.value(of))), results).verdict == "holds"


@pytest.mark.parametrize(
    ("start", "verdict"),
    [((0.4, 0.41, 0.42), "holds"), ((0.5, 0.51, 0.52), "cannot tell"), ((0.45, 0.6, 0.5), "cannot tell")],
)
def test_runs_that_do_not_test_a_claim_decide_nothing(start: tuple[float, ...], verdict: str) -> None:
    claim = replace(
        CLAIM, requires=lambda of: 0.5 - of("recall", positives="usual"), untested="it is high from the start"
    )
    judged = judge(claim, gain([(value, value + 0.1 + 0.001 * seed) for seed, value in enumerate(start)]))
    assert (judged.verdict, judged.why) == (verdict, "" if verdict == "holds" else "it is high from the start")
    fallen = judge(claim, gain([(value, value - 0.1 - 0.001 * seed) for seed, value in enumerate(start)]))
    assert fallen.verdict == ("does not hold" if verdict == "holds" else "cannot tell")


@pytest.mark.parametrize(
    ("gains", "verdict", "why"),
    [
        ((0.2, 0.3), "holds", "alike after 10, 20 steps; the paper trains 4,000"),
        ((-0.2, -0.3), "does not hold", "alike after 10, 20 steps; the paper trains 4,000"),
        (
            (0.2, -0.3),
            "cannot tell",
            "it depends on how long one trains: holds after 10, does not hold after 20 steps; the paper trains 4,000",
        ),
        (
            (0.2, 0.0),
            "cannot tell",
            "it depends on how long one trains: holds after 10, cannot tell after 20 steps; the paper trains 4,000",
        ),
        ((0.0, 0.0), "cannot tell", "it includes 0; alike after 10, 20 steps; the paper trains 4,000"),
    ],
)
def test_a_claim_of_several_lengths_has_the_verdict_that_is_the_same_after_each(
    gains: tuple[float, float], verdict: str, why: str
) -> None:
    (arm,) = arms({"training": {"steps": 20}}, at=(0, 10, 20))
    recall = {0: 0.5, 10: 0.5 + gains[0], 20: 0.5 + gains[1]}
    rows = {
        seed: {step: {"recall": recall[step] + 0.01 * (seed - 1) * (step > 0)} for step in recall} for seed in range(3)
    }
    claim = Claim("It rises.", lambda of: of("recall") - of("recall", at=0), "rise", lengths=Lengths((10, 20), 4000))
    judged = judge(claim, Results({0: rows}, (arm,)))
    assert (judged.verdict, judged.why) == (verdict, why)
    assert judged.outcomes[0].mean == pytest.approx(gains[1])
    of_last = replace(claim, requires=lambda of: 0.75 - of("recall"), untested="it is high")
    assert (judge(of_last, Results({0: rows}, (arm,))).verdict == "holds") is False
    assert judge(claim, Results({}, (arm,))).verdict == "not run"


def test_a_number_that_stands_twice_is_that_of_the_claim_that_has_it_alone() -> None:
    low, high, other = (0.19, 0.2, 0.21), (0.29, 0.3, 0.31), (0.1, 0.2, 0.3)
    claims = [of_several(low=low, high=high), of_several(one=low), of_several(one=other), of_several(one=low[:2])]
    mark_shared([(f"table{number}", claim) for number, claim in enumerate(claims)])
    assert [claim.same_as for claim in claims] == ["table1", "", "", ""]


def test_arms_are_all_combinations() -> None:
    base = {"loss": {"name": "triplet", "margin": 0.2}, "training": {"steps": 5}}
    losses = {"triplet": {}, "margin": {"loss": {"name": "margin"}}}
    found = arms(base, loss=losses, positives={"easy": {"loss": {"positives": "easy"}}, "usual": {}}, at=(0,))
    assert [(arm.factors["loss"], arm.factors["positives"]) for arm in found] == [
        ("triplet", "easy"),
        ("triplet", "usual"),
        ("margin", "easy"),
        ("margin", "usual"),
    ]
    assert found[0].settings["loss"] == {"name": "triplet", "margin": 0.2, "positives": "easy"}
    assert found[2].settings["loss"] == {"name": "margin", "positives": "easy"}  # no margin of the triplet loss
    assert base == {"loss": {"name": "triplet", "margin": 0.2}, "training": {"steps": 5}}


def test_sections_are_joined_and_named_ones_replaced() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 4}}) == {"a": {"x": 1, "y": 4}, "b": 3}
    assert merged({"a": {"name": "one", "y": 2}}, {"a": {"name": "two"}}) == {"a": {"name": "two"}}


def test_an_arm_is_measured_at_its_last_step_unless_it_says_where() -> None:
    assert Arm({}, {"training": {"steps": 5}}).steps == (5,)
    assert Arm({}, {"training": {"epochs": 2}}).steps == (2,)
    assert Arm({}, {"training": {"steps": 5}}, at=(5, 0)).steps == (0, 5)


def test_results_need_the_factors_of_one_arm() -> None:
    with pytest.raises(KeyError):
        gain([(0.1, 0.2)]).get(0, "recall", positives="hard")
