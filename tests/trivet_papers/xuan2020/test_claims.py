"""The checks of this paper hold, and fail where what they check is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from trivet.losses import SecondOrderTripletLoss
from trivet_papers.checks import Check
from trivet_papers.xuan2020 import claims, digits, dynamics
from trivet_papers.xuan2020.claims import diagram, equations, real_steps
from trivet_papers.xuan2020.dynamics import entangle, movement, simulated_step, triplet_scatter, vector_field

LOSSES = ["first-order", "vanilla", "second-order"]


@pytest.fixture(scope="module", autouse=True)
def trained_once() -> Iterator[None]:
    """The networks trained on digits take seconds, and are the same each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real_steps, "digit_movement", cache(real_steps.digit_movement))
        yield


def named(checks: list[Check]) -> dict[str, bool]:
    return {check.id: check.holds for check in checks}


@pytest.mark.parametrize("networks", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_checks_hold(networks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not networks:
        for trained in ("network_movement_checks", "digit_movement_checks"):
            monkeypatch.setattr(real_steps, trained, lambda: ())
    checks = claims.checks()
    assert [check for check in checks if not check.holds] == []
    assert len({check.id for check in checks}) == len(checks) > (40 if networks else 30)
    assert all(check.id.startswith("xuan2020-") and check.statement.endswith(".") for check in checks)
    assert all(type(check.holds) is bool and check.expected and check.observed for check in checks)


def test_a_wrong_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(s_ap: Any, s_an: Any, gamma: Any, **options: Any) -> dynamics.SimulatedStep:
        return simulated_step(s_ap, s_an, -np.asarray(gamma), **options)

    monkeypatch.setattr(dynamics, "simulated_step", wrong)
    broken = (
        equations.closed_form_checks, equations.geometry_checks, equations.norm_checks, equations.small_step_checks,
        real_steps.free_movement_checks,
    )  # fmt: skip
    holds = named([check for part in broken for check in part()])
    lost = {name for name, value in holds.items() if not value}
    assert {f"xuan2020-step-{loss}" for loss in LOSSES} < lost
    assert {"xuan2020-eq20-22", "xuan2020-small-step", "xuan2020-bands", "xuan2020-movement-free"} < lost
    assert holds["xuan2020-eq19"]


def test_a_wrong_entanglement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(s_ap: Any, s_an: Any, change_ap: Any, change_an: Any, **options: Any) -> Any:
        return change_ap - entangle(s_ap, s_an, 0, change_an, **options)[0], change_an

    monkeypatch.setattr("trivet.collapse.dynamics.entangle", wrong)
    holds = named(diagram.problem_checks())
    assert not holds["xuan2020-problem1-sqrt"]
    assert holds["xuan2020-ideal-point"]


def test_a_wrong_movement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamics, "movement", lambda before, after, triplets: movement(after, before, triplets))
    assert not named(real_steps.free_movement_checks())["xuan2020-movement-free"]


def test_movement_of_another_kind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = np.tile([[0.5, 0.5]], (4, 1))
    evenly = dynamics.Movement(before, before + 0.01, np.arange(4, dtype=np.int8))
    monkeypatch.setattr(
        real_steps,
        "digit_movement",
        lambda loss, **_: {(phase, name): evenly for phase in ("initial", "late") for name in ("HPHN", "EPEN")},
    )
    found = named(real_steps.digit_movement_checks())
    assert [name for name, holds in found.items() if holds] == ["xuan2020-movement-digits-late-second"]


def test_wrong_regions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dynamics,
        "vector_field",
        lambda **options: vector_field(**options | {"strength": 1 - options.get("strength", 0)}),
    )
    assert not named(diagram.movement_type_checks())["xuan2020-regions-similar"]


def test_wrong_triplets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dynamics, "triplet_scatter", lambda rows, labels: triplet_scatter(rows, labels, positives="hard")
    )
    assert not named(diagram.group_size_checks())["xuan2020-group-size"]


def test_a_loss_without_its_constant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutHalf(SecondOrderTripletLoss):
        def forward(self, *given: Any, **options: Any) -> torch.Tensor:
            return torch.log1p(torch.expm1(super().forward(*given, **options)) * math.exp(0.5))  # of a mean: near it

    monkeypatch.setattr(equations, "SecondOrderTripletLoss", WithoutHalf)
    holds = named(equations.loss_checks())
    assert [name for name, value in holds.items() if not value] == ["xuan2020-eq16-class"]


def test_a_top_left_that_is_counted_as_bottom_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dynamics.directions
    monkeypatch.setattr(dynamics, "directions", lambda *given, **options: np.minimum(right(*given, **options), 2))
    holds = named(diagram.top_left_checks())
    assert (holds["xuan2020-no-top-left"], holds["xuan2020-top-left-beyond"]) == (True, False)


def test_shifted_rows_and_a_positive_that_is_the_anchor_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rows: Any, labels: Any, **options: Any) -> dynamics.TripletScatter:
        found = triplet_scatter(rows + 1.0, labels, **options)
        if options.get("positives", "easy") == "easy":
            found.triplets[:, 1] = found.triplets[:, 0]
        return found

    monkeypatch.setattr(dynamics, "triplet_scatter", wrong)
    holds = named(diagram.mining_checks())
    assert not holds["xuan2020-whole-set"]
    assert not holds["xuan2020-two-per-class"]
    assert holds["xuan2020-omega-s"]


def test_a_step_of_the_stand_in() -> None:
    images, labels = digits.centred_digits()
    assert images.shape == (1797, 64)
    assert (float(images.mean()), float(images.std(correction=0))) == pytest.approx((0, 1))
    weights = digits.random_weights((64, 128, 32), 0)
    start = [weight.clone() for weight in weights]
    options: dict[str, Any] = {"mined": ("hard", "hard"), "steps": 1, "learning_rate": 1e-3, "seed": 1}
    (step,) = digits.train(weights, images, labels, loss="vanilla", measured=True, **options)
    assert 30 <= len(step.before) <= 128 // 3
    assert all(not torch.equal(now, then) for now, then in zip(weights, start, strict=True))
    (again,) = digits.train(start, images, labels, loss="vanilla", measured=True, **options)
    assert np.array_equal(again.after, step.after)


def test_movements_of_both_phases_and_both_ways_to_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    right = digits.train
    monkeypatch.setattr(digits, "train", lambda *given, **options: right(*given, **{**options, "steps": 2}))
    found = digits.digit_movement("second-order")
    assert list(found) == [(phase, name) for phase in ("initial", "late") for name in ("HPHN", "EPEN")]
    for moved in found.values():
        assert 60 <= len(moved.before) == len(moved.after) == len(moved.direction)


def random_field(**options: Any) -> dynamics.VectorField:
    """A field in which nothing is as the model has it."""
    generator = np.random.default_rng(0)
    right = vector_field(**options)
    return dynamics.VectorField(right.s_ap, right.s_an, *generator.uniform(-0.1, 0.1, (2, *right.change_ap.shape)))


def without_crossing(**options: Any) -> dynamics.VectorField:
    """A field of a model without the term in gamma, which alone makes a step go the wrong way."""
    return vector_field(**options | {"gamma": 0.0})


@pytest.mark.parametrize("wrong", [random_field, without_crossing])
def test_another_field_fails_the_kinds_of_movement(
    wrong: Callable[..., dynamics.VectorField], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamics, "vector_field", wrong)
    holds = named(diagram.movement_type_checks())
    for name in ("three-types", "erratum-bottom-right", "erratum-signs"):
        assert not holds[f"xuan2020-{name}"]


def test_the_printed_signs_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(diagram.KINDS, "bottom-right", (1, 1))
    monkeypatch.setattr(
        diagram,
        "wrong_cells",
        lambda field: np.broadcast_arrays(field.s_ap[None] < 0, field.s_an[:, None] > 0),
    )
    holds = named(diagram.movement_type_checks())
    assert not holds["xuan2020-erratum-bottom-right"]
    assert not holds["xuan2020-erratum-signs"]
    assert holds["xuan2020-three-types"]


@pytest.mark.nightly
def test_the_losses_in_exchange_fail_the_fresh_network(monkeypatch: pytest.MonkeyPatch) -> None:
    right = real_steps.digit_movement
    other = {"first-order": "second-order", "second-order": "first-order"}
    monkeypatch.setattr(real_steps, "digit_movement", lambda loss, **options: right(other[loss], **options))
    holds = named(real_steps.digit_movement_checks())
    assert not holds["xuan2020-movement-digits-initial"]
    assert not holds["xuan2020-movement-digits-initial-second"]


def test_an_erratum_fails_where_half_its_correction_is_right_already() -> None:
    assert equations._erratum("eq", "So", 1e-15, 0.3, 0.2).holds
    assert not equations._erratum("eq", "So", 1e-15, 0.3, 1e-15).holds
    assert not equations._erratum("eq", "So", 1e-3, 0.3, 0.2).holds
