"""The checks of this paper hold, and fail where what they check is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from tests.trivet_papers.le2018.test_theory import PAIR_RATES, close

import trivet
from trivet.metrics.clustering import nmi
from trivet_papers.checks import Check
from trivet_papers.le2018 import claims, skews, theory
from trivet_papers.le2018.claims import pairs, risk, sampling

PRINTED = [0.33, -0.32, 0.18, 0.5, 0.187777778, 0.49, 0.694444444, 0.817777778, 0.508181818, 0.744949495]


# K, p, C_+ with the printed equation 8, C_+, C_-, (1 - kappa p)^2, (1 - p)^2; weight 1 / K
FACTORS = [
    (10, 0.3, 0.461, 0.45, 0.388889, 0.444444, 0.49),
    (10, 0.5, 0.236111, 0.205556, 0.117284, 0.197531, 0.25),
    (10, 0.7, 0.118778, 0.058889, -0.045679, 0.049383, 0.09),
    (12, 0.5, 0.236742, 0.212121, 0.140496, 0.206612, 0.25),
    (100, 0.5, 0.247601, 0.245051, 0.237425, 0.244975, 0.25),
    (100, 0.9, 0.016627, 0.008364, -0.001653, 0.008264, 0.01),
]


def failures(rows: Sequence[Check]) -> set[str]:
    return {row.id.removeprefix("le2018-") for row in rows if not row.holds}


def test_the_printed_pair_rates_are_those_of_the_table() -> None:
    found = [pairs.printed_pair_rates(p, classes).positive for classes, p, *_ in PAIR_RATES]
    assert found == close(PRINTED, 9)


@pytest.mark.parametrize(("classes", "p", "printed", "positive", "negative", "square", "limit"), FACTORS)
def test_factors_of_the_table(
    classes: int, p: float, printed: float, positive: float, negative: float, square: float, limit: float
) -> None:
    rates = theory.pair_noise_rates(p, classes)
    found = theory.risk_factors(rates, 1 / classes)
    assert list(found) == close([positive, negative], 6)
    assert found.smallest == found.negative
    assert theory.risk_factors(pairs.printed_pair_rates(p, classes), 1 / classes).positive == close(printed, 6)
    exact = theory.risk_factors(rates, theory.negative_weight(classes, np.inf))
    assert list(exact) == close([square, square], 6)
    assert theory.risk_factors(theory.pair_noise_rates(p, 10**8), 1e-8).smallest == close(limit, 6)


# spread, p, how negatives are chosen; eta_skew, eta_noise, picks of 100 batches, eta^+, eta^-
SYNTHETIC = [
    (0.1, 0.0, "violating", 9.05, None, 1709, None),
    (0.1, 0.0, "semihard-hardest", 9.17, None, 24000, None),
    (0.1, 0.3, "random", 1.02, 1.05, 24000, 2.0740),
    (0.1, 0.3, "violating", 2.57, 15.5, 14034, 2.0523),
    (0.1, 0.3, "semihard-hardest", 5.29, 7.67, 23733, None),
    (0.2, 0.3, "random", 1.04, 1.06, 24000, 1.3590),
    (0.2, 0.3, "violating", 2.35, 1.88, 23681, 1.3595),
    (0.2, 0.5, "semihard-hardest", 2.90, 2.39, 23689, None),
]


@pytest.mark.parametrize(("spread", "p", "negatives", "skew", "of_noise", "picks", "of_positives"), SYNTHETIC)
def test_skews_of_the_synthetic_table(
    spread: float,
    p: float,
    negatives: skews.Negatives,
    skew: float,
    of_noise: float | None,
    picks: int,
    of_positives: float | None,
) -> None:
    """The table is of one seed and qualitative, within 10 %; wider here, as a quarter of the batches is drawn."""
    found = skews.sampled_skews(spread, p, negatives, batches=25)
    assert found.skew == pytest.approx(skew, rel=0.25)
    assert 4 * found.picks == pytest.approx(picks, rel=0.35)
    assert np.isnan(found.noise_skew) == (p == 0)
    if of_noise is not None:
        assert found.noise_skew == pytest.approx(of_noise, rel=0.25)
    if of_positives is not None:
        assert found.positive_skew == pytest.approx(of_positives, rel=0.1)


def test_all_checks_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "DRAWS", 200_000)
    monkeypatch.setattr(pairs, "TOLERANCE", 0.004)
    monkeypatch.setattr(sampling, "BATCHES", 20)
    rows = claims.checks()
    assert failures(rows) == set()
    assert len({row.id for row in rows}) == len(rows) >= 50
    assert all(row.id.startswith("le2018-") for row in rows)
    assert all(row.statement.endswith(".") and row.expected and row.observed for row in rows)


def scaled(function: Callable[..., object], factor: float) -> Callable[..., object]:
    """A wrong version: every array it returns is multiplied."""

    def wrong(*args: object, **options: object) -> object:
        found = function(*args, **options)
        return type(found)(*(factor * part for part in found)) if isinstance(found, tuple) else factor * found

    return wrong


@pytest.mark.parametrize(
    ("name", "group", "failing"),
    [
        ("pair_noise_rates", "injection", {"eq5"}),
        ("simulated_pair_rates", "pair_rate", {"eq7", "eq8"}),
        ("pair_noise_rates", "pair_rate", {"eq7", "eq8", "eq8-below-zero", "rate-identities", "many-classes"}),
        ("class_pair_noise_rates", "pair_rate", {"class-dependent-rates"}),
        ("noise_rate_of_pairs", "pair_rate", {"discussion-sixty-percent"}),
        ("auxiliary_loss", "loss", {"eq10", "eq11", "eq12"}),
        ("risk_factors", "loss", {"eq11"}),
        ("unhinged_triplet_loss", "loss", {"eq12", "section5.2-translation"}),
        ("unhinged_triplet_loss", "weight", {"eq13"}),
        ("unhinged_margin_loss", "loss", {"eq32", "section5.2-translation"}),
        ("hinged_margin_loss", "loss", {"eq35-constant", "eq35-weight"}),
        ("negative_weight", "weight", {"eq15", "exact-weights"}),
        ("pair_noise_rates", "weight", {"exact-weights"}),
        ("pair_noise_rates", "bound", {"eq25", "skew-per-pair", "tolerated-noise-rate"}),
        ("tolerated_noise_rate", "bound", {"tolerated-noise-rate"}),
        ("noise_rate_bound", "bound", {"eq26", "eq27-inverse", "eq37"}),
        ("implied_skew", "bound", {"eq27-inverse"}),
        ("pair_noise_rates", "risk", {"eq17"}),
        ("risk_factors", "risk", {"eq17"}),
        ("single_negative_factor", "risk", {"one-risk-factor", "risk-factor-square"}),
        ("negative_weight", "risk", {"one-risk-factor", "one-risk-factor-mean"}),
        ("single_negative_factor", "risk", {"proposition-1-condition-2"}),
        ("single_negative_coefficients", "risk", {"one-risk-factor"}),
        ("pair_noise_rates", "margin", {"eq45-48"}),
        ("residual_multipliers", "margin", {"eq45-48"}),
    ],
)
def test_checks_fail_with_wrong_theory(
    name: str, group: str, failing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theory, name, scaled(getattr(theory, name), 0.95))
    monkeypatch.setattr(pairs, "DRAWS", 20_000)
    part = risk if group in ("bound", "risk", "margin") else pairs
    assert failures(getattr(part, f"{group}_checks")()) >= failing


def test_checks_fail_with_other_wrong_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    right, factors_of = theory.margin_partition, theory.risk_factors
    with monkeypatch.context() as patch:
        patch.setattr(theory, "margin_partition", lambda *args, **kwargs: right(*args, **kwargs)[::-1])
        assert failures(risk.margin_checks()) == {"margin-partition"}
    with monkeypatch.context() as patch:
        patch.setattr(theory, "residual_ratio", lambda gamma: np.asarray(1.0))
        assert failures(risk.margin_checks()) == {"residual-heuristic"}
    with monkeypatch.context() as patch:
        patch.setattr(
            theory, "risk_factors", lambda rates, weight: theory.RiskFactors(*factors_of(rates, weight)[::-1])
        )
        assert "corruption-asymmetry" in failures(risk.bound_checks())
    with monkeypatch.context() as patch:
        patch.setattr(theory, "single_negative_factor", lambda p, **sizes: np.asarray(-1.0 + 0 * np.asarray(p)))
        assert {"risk-factor-positive", "proposition-1-q"} <= failures(risk.risk_checks())
    with monkeypatch.context() as patch:
        coefficients_of = theory.single_negative_coefficients
        patch.setattr(
            theory, "single_negative_coefficients", lambda *args, **options: -coefficients_of(*args, **options)
        )
        assert "one-risk-factor" in failures(risk.risk_checks())
    with monkeypatch.context() as patch:  # the noisy risk alone is turned over: its minimiser is another
        noisy = risk.noisy_coefficients
        patch.setattr(risk, "noisy_coefficients", lambda labels, p: noisy(labels, p) * (1 if p == 0 else -1))
        assert "proposition-1" in failures(risk.risk_checks())
    with monkeypatch.context() as patch:
        patch.setattr(theory.RiskFactors, "smallest", property(lambda factors: np.maximum(*factors) + 1))
        assert {"eq21", "proposition-1-q", "proposition-1"} <= failures(risk.risk_checks())
    with monkeypatch.context() as patch:
        for part in (sampling, pairs):
            patch.setattr(
                part, "mine", lambda *args, **kwargs: trivet.mine(*args, **{**kwargs, "negatives": "semihard"})
            )
        assert failures(sampling.sampling_checks()) == {"eq28", "eq29", "one-to-one"}
        assert "all-triplets" in failures(pairs.weight_checks())
    with monkeypatch.context() as patch:
        table_of = theory.symmetric_transition
        patch.setattr(theory, "symmetric_transition", lambda p, classes: table_of(0.9 * p + 0.01, max(2, classes)))
        assert failures(pairs.injection_checks()) == {"eq5", "eq6", "no-noise"}
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "nmi", lambda *labels, average="arithmetic": nmi(*labels))
        assert failures(sampling.measure_checks()) == {"a3-nmi"}
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "mine", lambda *args, **kwargs: trivet.mine(*args, **{**kwargs, "negatives": "all"}))
        assert {"one-to-one", "section7-asymmetry"} <= failures(sampling.sampling_checks())
    with monkeypatch.context() as patch:  # of an anchor one positive alone: not all that are corrupted are used
        patch.setattr(sampling, "mine", lambda *args, **kwargs: trivet.mine(*args, **{**kwargs, "positives": "random"}))
        assert "section7-asymmetry" in failures(sampling.sampling_checks())
    with monkeypatch.context() as patch:
        weighted = risk._noisy_weighted_risk
        patch.setattr(risk, "_noisy_weighted_risk", lambda truth, d, p, weight: weighted(truth, d, 0.0, weight))
        assert "eq16" in failures(risk.risk_checks())


def test_checks_of_the_skews_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    right, names = skews.sampled_skews, ("random", "violating", "semihard-hardest")
    cached = {
        (spread, p, name): right(spread, p, name, batches=10)
        for spread, p in product((0.1, 0.2), (0.0, 0.3, 0.5))
        for name in names
    }

    def swapped(one: str, two: str) -> Callable[..., skews.SkewSampling]:
        other = {one: two, two: one}
        return lambda spread, p, name, *, batches: cached[spread, p, other.get(name, name)]

    monkeypatch.setattr(sampling, "sampled_skews", swapped("violating", "semihard-hardest"))
    assert {"skew-conjecture", "skew-conjecture-noise"} <= failures(sampling.skew_checks())
    monkeypatch.setattr(sampling, "sampled_skews", swapped("violating", "random"))
    assert {"skew-of-uniform", "margin-skews"} <= failures(sampling.skew_checks())


def factors_of_the_paper(truth: np.ndarray, noise_rate: float) -> np.ndarray:
    """What section 4.1 would multiply each pair by: positive and negative pairs by different factors."""
    same = (truth[:, None] == truth) & ~np.eye(len(truth), dtype=bool)
    factors = theory.risk_factors(theory.pair_noise_rates(noise_rate, 3), 1 / 3)
    push = -factors.negative * theory.negative_weight(3, 2) * (truth[:, None] != truth)
    return np.where(same, factors.positive, push)


def wrong_positives_push(truth: np.ndarray, noise_rate: float) -> np.ndarray:
    """A risk whose negative pairs keep their weight while positive ones turn, and push twice as they pulled."""
    clean = theory.single_negative_coefficients(truth, theory.symmetric_transition(0.0, 3))
    return np.where(clean > 0, (1 - 3 * noise_rate) * clean, clean)


@pytest.mark.parametrize("wrong", [factors_of_the_paper, wrong_positives_push])
def test_proposition_1_fails_where_noise_acts_otherwise(
    wrong: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(risk, "noisy_coefficients", wrong)
    assert "proposition-1" in failures(risk.risk_checks())
