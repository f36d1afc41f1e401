"""The checks of this paper hold, and fail where what they check is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.nightly import sampled

import trivet
from trivet.losses import MarginLoss, TripletLoss
from trivet_papers.checks import Check
from trivet_papers.levi2021 import claims, easy_risk, risk
from trivet_papers.levi2021.claims import easy_positives, losses, theorems


def halves(num_classes: int, size: int, margin: float) -> tuple[torch.Tensor, torch.Tensor]:
    collapsed = risk.class_distances(num_classes, size, within=0, across=margin)
    split = collapsed.clone()
    split[: size // 2, size // 2 : size] = split[size // 2 : size, : size // 2] = margin
    return collapsed, split


PARTS = (losses, theorems, easy_positives)


@pytest.fixture(scope="module", params=sampled([3, 1], 2))  # every so many
def checks(request: pytest.FixtureRequest) -> list[Check]:
    """Searches from random maps take most of the time: all run nightly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorems, "TRIPLET_SEARCHES", theorems.TRIPLET_SEARCHES[:: request.param])
        return claims.checks()


def test_every_check_of_the_paper_holds(checks: list[Check]) -> None:
    assert [check for check in checks if not check.holds] == []
    assert len({check.id for check in checks}) == len(checks) >= 76  # nightly 82
    for check in checks:
        assert check.id.startswith("levi2021-")
        assert check.statement.endswith(".")
        assert check.expected
        assert check.observed


def no_positive_part(
    distances: torch.Tensor, beta: float, probabilities: torch.Tensor, *, margin: float
) -> torch.Tensor:
    return torch.zeros(len(distances))


@pytest.mark.parametrize(
    ("group", "function", "broken"),
    [
        ("label_model", "triplet_weights", lambda probabilities, **_: torch.zeros((len(probabilities),) * 3)),
        ("without_noise", "expected_margin_loss", lambda distances, *_, **__: torch.tensor(0.0)),
        ("pair_minima", "opposed_hinges_minimum", lambda *_, margin: risk.HingeMinimum(0.0, -margin, margin)),
        ("triplet_theorem", "triplet_lower_bound", lambda *_, **__: 0.0),
        ("margin_theorem", "margin_noise_limit", lambda _: 0.5),
        ("easy_expectation", "expected_easy_margin_losses", no_positive_part),
        ("claim_1", "triplet_split_threshold", lambda *_, **__: 6),
        ("claim_2", "margin_split_threshold", lambda *_, **__: None),
        ("claim_3", "push_threshold", lambda *_, **__: 1),
        ("claim_4", "pair_push_threshold", lambda *_, **__: 2),
    ],
)
def test_a_check_fails_where_a_function_is_wrong(
    group: str, function: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: Callable[[], list[Check]] = next(getattr(part, group) for part in PARTS if hasattr(part, group))
    monkeypatch.setattr(risk if hasattr(risk, function) else easy_risk, function, broken)
    assert not all(check.holds for check in rows())


@pytest.mark.parametrize(
    ("group", "name", "broken"),
    [
        ("losses", "TripletLoss", lambda **options: TripletLoss(**{**options, "variant": "an"})),
        ("losses", "MarginLoss", lambda **options: MarginLoss(**{**options, "margin": 0.1})),
        ("easy_positives", "nmi", lambda labels, clusters: 0.5),
        (
            "easy_positives",
            "mine",
            lambda rows, labels, **_: trivet.mine(rows, labels, positives="hard", negatives="hard"),
        ),
    ],
)
def test_a_check_of_losses_fails(group: str, name: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, name, broken)
    rows: list[Check] = getattr(losses, group)()
    assert not all(check.holds for check in rows)


def test_claim_2_displays_fail_where_the_maps_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = halves(2, 8, 1.0)
    monkeypatch.setattr(easy_positives, "_halves", lambda *_: (other, one))
    held = {check.id: check.holds for check in easy_positives._displays()}
    assert held == {"levi2021-claim-2-first-line": True, "levi2021-claim-2-displays": False}


@pytest.mark.parametrize("name", losses.HYPERPARAMETERS)
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_another_hyperparameter_fails(name: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(losses.HYPERPARAMETERS, name, factor * losses.HYPERPARAMETERS[name])
    assert [row.id for row in losses.losses() if not row.holds] == ["levi2021-hyperparameters"]


def test_the_printed_chance_of_no_match_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def printed(p: float, own: int, others: int) -> float:
        q, between = 1 - p, own + others
        return p ** (own + 1) * q**others + p**others * q ** (between + 3)

    assert printed(0.7, 1, 2) == pytest.approx(0.0445, abs=5e-5)
    assert easy_positives.no_match_probability(0.7, 1, 2) == pytest.approx(0.1218, abs=5e-5)
    monkeypatch.setattr(easy_positives, "no_match_probability", printed)
    assert not easy_positives._no_match().holds
