"""Causes are named from measurements, and nothing is said where these do not show one."""

from __future__ import annotations

import pytest

from trivet.collapse import Comparison
from trivet.collapse.causes import (
    began_below,
    learned_by_heart,
    moved_statistics,
    rate_too_high,
    steps_too_large,
    wrong_labels,
)


def beside(recall: float, reference: float, error: float = 0.02, *, name: str = "zero-shot backbone") -> Comparison:
    difference = recall - reference
    return Comparison(name, "class", 500, recall, reference, difference - error, difference + error)


LOST = beside(0.22, 0.52)
SAME = beside(0.22, 0.22, name="the network as it is")


def test_statistics_are_named_if_they_alone_lose_half_or_the_first_ones_bring_it_back() -> None:
    cause = moved_statistics(LOST, beside(0.30, 0.52), SAME, batch=32)
    assert cause is not None
    assert "training batches of 32 items" in cause.text
    assert "recall@1 of the zero-shot backbone is 30.0 % instead of 52.0 %" in cause.text
    assert moved_statistics(LOST, beside(0.40, 0.52), SAME, batch=32) is None  # less than half
    assert moved_statistics(beside(0.50, 0.52), beside(0.49, 0.52, 0.05), SAME, batch=32) is None  # may be chance
    back = moved_statistics(LOST, beside(0.52, 0.52), beside(0.50, 0.22), batch=32)
    assert back is not None
    assert "recall@1 50.0 % instead of 22.0 %" in back.text


def test_what_was_learned_by_heart_rose_on_training_items_and_fell_on_other_classes() -> None:
    cause = learned_by_heart(beside(0.98, 0.60), LOST)
    assert cause is not None
    assert "rose from 60.0 % to 98.0 %" in cause.text
    assert "fell from 52.0 % to 22.0 %" in cause.text
    assert learned_by_heart(beside(0.61, 0.60), LOST) is None
    assert learned_by_heart(beside(0.98, 0.60), beside(0.51, 0.52)) is None


@pytest.mark.parametrize(
    ("recalls", "named"),
    [
        ([0.8, 0.7, 0.3, 0.2, 0.3, 0.35], True),
        ([0.8, 0.7, 0.3, 0.2, 0.6, 0.85], False),  # it came back
        ([0.8, 0.8, 0.79, 0.78, 0.5, 0.2], False),  # later: not at once
        ([0.2, 0.15, 0.14, 0.13, 0.12, 0.11], False),  # within the error of 256 items
        ([0.8, None, 0.3, None, 0.3, 0.3], True),
        ([None, 0.8, 0.3, 0.2, 0.3, 0.3], False),  # nothing is known of the network before
    ],
)
def test_a_rate_is_too_high_if_recall_fell_at_once_for_good(recalls: list[float | None], named: bool) -> None:
    cause = rate_too_high([0, 1, 5, 20, 100, 300], recalls, items=256, rate=0.1, train=None)
    assert (cause is not None) == named
    if cause is not None:
        assert "learning rate of 0.1 is too high" in cause.text
        assert f"ended at {100 * recalls[-1]:.1f} %" in cause.text


def test_a_rate_is_too_high_if_recall_fell_at_once_and_all_training_items_ended_worse() -> None:
    """Recall of the sample came half of the way back, and its fall is within three standard errors."""

    def named(least: float, train: Comparison | None) -> bool:
        recalls = [0.32, least, 0.23, 0.25, 0.27]
        return rate_too_high([0, 1, 10, 50, 60], recalls, items=256, rate=1.0, train=train) is not None

    worse = beside(0.25, 0.33)
    assert named(0.21, worse)
    assert not named(0.21, beside(0.25, 0.33, 0.1))  # may be chance
    assert not named(0.21, None)
    assert not named(0.25, worse)  # fell by less


def test_a_network_that_was_below_the_raw_inputs_before_is_said_to_have_begun_there() -> None:
    raw = beside(0.45, 0.63, name="raw inputs")
    cause = began_below(beside(0.45, 0.38, 0.1, name="untrained network"), raw)
    assert cause is not None
    assert cause.text.startswith("The network began lower still: recall@1 of the untrained network is 38.0 %")
    assert began_below(beside(0.45, 0.50, 0.1, name="untrained network"), raw) is None  # it fell since
    assert began_below(beside(0.45, 0.38, name="untrained network"), beside(0.45, 0.63, 0.2, name="raw inputs")) is None


def test_labels_are_named_if_more_are_wrong_of_those_trained_on_than_of_others() -> None:
    cause = wrong_labels(0.65, 0.31, judge="raw inputs", split="unseen")
    assert cause is not None
    assert (
        "in the raw inputs, at least 65 % disagree with the items around where these are surest, while of" in cause.text
    )
    assert "of unseen at most 31 % disagree at all" in cause.text
    assert wrong_labels(0.2, 0.65, judge="raw inputs", split="unseen") is None  # it knows classes badly
    assert wrong_labels(0.4, 0.31, judge="raw inputs", split="unseen") is None  # too little more


@pytest.mark.parametrize(
    ("moved", "steps", "named"),
    [
        (320.0, 200, True),
        (200.0, 200, True),
        (199.0, 200, False),
        (1.0, 1, True),
        (0.0, 0, False),  # the network before its first step
        (float("inf"), 200, False),
        (float("nan"), 200, False),
    ],
)
def test_a_rate_is_too_high_if_a_mean_step_is_as_large_as_the_weights_were(
    moved: float, steps: int, named: bool
) -> None:
    assert (steps_too_large(moved, steps=steps, rate=1.0) is not None) == named


def test_steps_that_are_too_large_are_said_with_what_is_sure_and_a_rate_that_makes_them_usual() -> None:
    cause = steps_too_large(399.0, steps=200, rate=2.0)
    assert cause is not None
    assert cause.text == (
        "The learning rate of 2 is too high: over 200 steps the weights moved, on average, by at least 1.9 times the "
        "size they began with per step; about a thousandth is usual."
    )
    assert cause.changes == ("Lower the learning rate: try 0.001 and 0.01.",)
    one = steps_too_large(3.0, steps=1, rate=2.0)
    assert one is not None
    assert "over 1 step the weights" in one.text
    assert one.changes == ("Lower the learning rate: try 0.0001 and 0.001.",)  # 0.00067 lies between
