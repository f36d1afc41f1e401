"""Label noise: the tables and vectors of the specification, and each function against loops over cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from tests import reference

import trivet
from trivet_papers.le2018 import theory

PLAIN = reference.batch(reference.V8, reference.V8_LABELS, "euclidean")

ROWS, LABELS = torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)

PAIRS = [(a, j) for a in range(8) for j in range(8) if a != j]

DISTANCES = np.array([PLAIN.d(a, j) for a, j in PAIRS])

POSITIVE = np.array([reference.V8_LABELS[a] == reference.V8_LABELS[j] for a, j in PAIRS])

T3 = [[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]

# K, p, q_{-1}, q_{+1}, (1 - kappa p)^2
PAIR_RATES = [
    (2, 0.3, 0.42, 0.42, 0.16),
    (2, 0.8, 0.32, 0.32, 0.36),
    (3, 0.1, 0.0925, 0.185, 0.7225),
    (3, 0.5, 0.3125, 0.625, 0.0625),
    (10, 0.1, 0.020987654, 0.188888889, 0.790123457),
    (10, 0.3, 0.055555556, 0.5, 0.444444444),
    (10, 0.5, 0.080246914, 0.722222222, 0.197530864),
    (10, 0.8, 0.098765432, 0.888888889, 0.012345679),
    (100, 0.3, 0.005142332, 0.509090909, 0.485766758),
    (100, 0.5, 0.00755025, 0.747474747, 0.244975003),
]


# K, s, p, c of the sum, c of the mean, (1 - kappa p)^2
COEFFICIENTS = [
    (2, 3, 0.0, 1.0, 0.08333333, 1.0),
    (2, 3, 0.4, 0.0424, 0.00327619, 0.04),
    (2, 4, 0.2, 0.3765888, 0.01489957, 0.36),
    (2, 4, 0.4, 0.0428672, 0.00165387, 0.04),
    (3, 2, 0.5, 0.07421875, 0.00894504, 0.0625),
    (3, 2, 0.8, 0.0528, 0.00557156, 0.04),
]

SKEWS = [1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10]

BOUNDS = {
    0.0: [1, 0.78178211, 0.69848866, 0.55278640, 0.42264973, 0.29289322, 0.18350342, 0.10557281, 0.05131670],
    0.5: [
        0.29289322, 0.27625314, 0.26145105, 0.22540333, 0.18350342, 0.13397460, 0.08712907, 0.05131670, 0.02532057,
    ],
}  # fmt: skip


def close(value: object, digits: int = 12) -> object:
    return pytest.approx(value, abs=0.6 * 10**-digits, rel=0)


def symmetric(p: Fraction, classes: int) -> list[list[Fraction]]:
    return [[1 - p if i == j else p / (classes - 1) for j in range(classes)] for i in range(classes)]


def rates_by_counting(table: Sequence[Sequence[float]], priors: Sequence[float]) -> tuple[float, float]:
    """P(the observed pair label is wrong | the true one), over true labels and observed labels of two items."""
    wrong, weight = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    classes = range(len(table))
    for y, z in product(classes, repeat=2):
        weight[y == z] += priors[y] * priors[z]
        for seen_y, seen_z in product(classes, repeat=2):
            if (seen_y == seen_z) != (y == z):
                wrong[y == z] += priors[y] * priors[z] * table[y][seen_y] * table[z][seen_z]
    return wrong[True] / weight[True], wrong[False] / weight[False]


def coefficients(truth: list[int], table: Sequence[Sequence[float]], mean: bool) -> list[list[float]]:
    """The expected coefficient of each distance, labeling by labeling and triplet by triplet."""
    number = range(len(truth))
    found = [[0.0] * len(truth) for _ in number]
    for labels in product(range(len(table)), repeat=len(truth)):
        chance = math.prod(table[y][seen] for y, seen in zip(truth, labels, strict=True))
        used = []
        for a, p in product(number, repeat=2):
            negatives = [n for n in number if labels[n] != labels[a]]
            if a != p and labels[a] == labels[p] and negatives:
                used.append((a, p, negatives))
        share = chance / len(used) if mean and used else chance
        for a, p, negatives in used:
            found[a][p] += share
            for n in negatives:
                found[a][n] -= share / len(negatives)
    return found


@pytest.mark.parametrize(("classes", "p", "negative", "positive", "square"), PAIR_RATES)
def test_pair_rates_of_the_table(classes: int, p: float, negative: float, positive: float, square: float) -> None:
    found = theory.pair_noise_rates(p, classes)
    assert [found.negative, found.positive] == close([negative, positive], 9)
    assert 1 - found.positive - found.negative == close(square, 9)
    if classes <= 10:
        counted = rates_by_counting(symmetric(Fraction(str(p)), classes), [Fraction(1, classes)] * classes)
        assert [found.positive, found.negative] == close([float(rate) for rate in counted])
    assert theory.noise_rate_of_pairs(found.positive, classes) == close(min(p, 2 * (1 - 1 / classes) - p))


def test_pair_rates_of_arrays() -> None:
    found = theory.pair_noise_rates([[0.0], [0.3], [1.0]], [2, 10, np.inf])
    assert found.positive.shape == found.negative.shape == (3, 3)
    assert found.positive[:, 2].tolist() == close([0, 0.51, 1])  # 2p - p^2
    assert found.negative[:, 2].tolist() == [0, 0, 0]
    assert found.positive[2].tolist() == close([0, 8 / 9, 1])  # every label of two classes is wrong: no pair is
    assert theory.pair_noise_rates(1e-9, 5).positive == pytest.approx(2e-9, rel=1e-8, abs=0)
    assert theory.noise_rate_of_pairs(2e-18, 5) == pytest.approx(1e-18, rel=1e-9, abs=0)


def test_pair_rates_by_class() -> None:
    even, uneven = theory.class_pair_noise_rates(T3), theory.class_pair_noise_rates(T3, [0.5, 0.3, 0.2])
    assert list(even) == close([0.405, 0.2083333333], 10)
    assert list(uneven) == close([0.3735526316, 0.1879032258], 10)
    assert list(even) == close(rates_by_counting(T3, [1 / 3] * 3))
    assert list(uneven) == close(rates_by_counting(T3, [0.5, 0.3, 0.2]))
    same = theory.class_pair_noise_rates(theory.symmetric_transition(0.3, 10))
    assert list(same) == close(theory.pair_noise_rates(0.3, 10))


def test_losses_of_the_vectors_and_of_the_library() -> None:
    auxiliary = theory.auxiliary_loss(DISTANCES, POSITIVE)
    sums = [auxiliary[POSITIVE].sum(), auxiliary[~POSITIVE].sum(), auxiliary.sum()]
    assert sums == close([21.778012493353, 25.493921121821, 47.271933615174])
    unhinged = theory.unhinged_margin_loss(DISTANCES, POSITIVE).mean()
    assert unhinged == close(2.186998814557)
    assert unhinged == close(trivet.UnhingedMarginLoss()(ROWS, LABELS).item())
    hinged = theory.hinged_margin_loss(DISTANCES, POSITIVE)
    assert hinged.mean() == close(0.326458656228)
    assert np.count_nonzero(hinged) == 34
    triplets = reference.triplets(PLAIN, "all", "all", 0.2)
    for margin in (0.0, 0.2, 1.0):
        to_positive, to_negative = ([PLAIN.d(t[0], t[role]) for t in triplets] for role in (1, 2))
        found = theory.unhinged_triplet_loss(to_positive, to_negative, margin=margin)
        assert len(found) == 78
        assert found.mean() == close(trivet.UnhingedTripletLoss(margin=margin)(ROWS, LABELS).item())
        if margin == 0.2:
            assert found.mean() == close(2.114691682141)


@pytest.mark.parametrize("d", [0.0, 0.3, 1.2, 1.4, 1.59, 1.7, 2.0])
@pytest.mark.parametrize("t", [1, -1])
def test_losses_equal_the_definitions(d: float, t: int) -> None:
    flag, margin, beta = np.array(t == 1), 0.3, 1.1
    assert theory.auxiliary_loss(d, flag) == close(d if t == 1 else 2 - d)
    options = {"margin": margin, "beta": beta}
    assert theory.unhinged_margin_loss(d, flag, **options) == close(2 + (d - beta) * t + margin)
    assert theory.hinged_margin_loss(d, flag, **options) == close(max(0.0, (d - beta) * t + margin))
    for other in (0.0, 0.7, 2.0):
        parts = theory.auxiliary_loss(d, True) + theory.auxiliary_loss(other, False) + 0.2
        assert theory.unhinged_triplet_loss(d, other) == close(parts)


def test_tolerated_noise_rates() -> None:
    sizes = np.array([5, 10, 12, 100, 1000])
    found = theory.tolerated_noise_rate(sizes, 1 / sizes)
    assert found.tolist() == close([0.47340137, 0.62863979, 0.66242908, 0.89149132, 0.96742463], 8)
    assert theory.tolerated_noise_rate(sizes, 1 / (sizes - 1)).tolist() == [1] * 5
    grid = np.linspace(0, 1, 20_001)
    for classes, weight in [(2, 0.5), (3, 0.1), (7, 3.0), (10, 0.12), (4, 0.33)]:
        q = theory.risk_factors(theory.pair_noise_rates(grid, classes), weight).smallest
        first = grid[np.argmax(q < 0)]
        assert theory.tolerated_noise_rate(classes, weight) == pytest.approx(first, abs=5.1e-5)


@pytest.mark.parametrize("least", BOUNDS)
def test_bounds_of_the_table(least: float) -> None:
    found = theory.noise_rate_bound(SKEWS, least=least)
    assert found.tolist() == close(BOUNDS[least], 8)
    assert theory.implied_skew(found, least=least).tolist() == pytest.approx(SKEWS, rel=1e-12)
    assert (1 - (2 * found - found**2) * SKEWS).tolist() == close([least] * len(SKEWS))
    assert theory.noise_rate_bound(1e18) == pytest.approx(0.5e-18, rel=1e-9, abs=0)
    assert theory.noise_rate_bound(np.inf) == 0


def test_skewed_risk_factor() -> None:
    grid = np.array([[0.0], [0.2], [0.5], [1.0]])
    found = theory.skewed_risk_factor(grid, [1, 1.5, 4])
    assert found.shape == (4, 3)
    expected = [1 - (2 * p - p * p) * eta for p in grid.ravel().tolist() for eta in (1, 1.5, 4)]
    assert found.ravel().tolist() == close(expected)
    for least in (0.0, 0.5):
        assert theory.skewed_risk_factor(theory.noise_rate_bound(SKEWS, least=least), SKEWS).tolist() == close(
            [least] * 9
        )
    # The limit of many classes of the easy pairs, whose weight as negatives is 1 / (skew K).
    many = theory.risk_factors(theory.pair_noise_rates(0.2, 10**8), 1e-8 / 1.5).smallest
    assert theory.skewed_risk_factor(0.2, 1.5) == close(many, 6)


def test_implied_skew() -> None:
    assert theory.implied_skew([0.3, 0.5, 0.6, 1.0]).tolist() == close([1.9607843, 1.3333333, 1.1904762, 1], 7)
    assert theory.implied_skew(0.0) == np.inf


@pytest.mark.parametrize(("classes", "samples", "p", "of_sum", "of_mean", "square"), COEFFICIENTS)
def test_coefficients_of_the_table(
    classes: int, samples: int, p: float, of_sum: float, of_mean: float, square: float
) -> None:
    truth = np.repeat(np.arange(classes), samples)
    same = (truth[:, None] == truth) & ~np.eye(len(truth), dtype=bool)
    table = theory.symmetric_transition(p, classes)
    for reduction, c in (("sum", of_sum), ("mean", of_mean)):
        found = theory.single_negative_coefficients(truth, table, reduction=reduction)
        assert found[same].tolist() == close([c] * same.sum(), 8)
        negative = -found[same][0] * (samples - 1) / ((classes - 1) * samples)
        assert found[truth[:, None] != truth].tolist() == pytest.approx(
            [negative] * (len(truth) * (len(truth) - samples)), abs=1e-15
        )
        assert found.sum(axis=1).tolist() == close([0.0] * len(truth))
    factor = theory.single_negative_factor(p, num_classes=classes, samples_per_class=samples)
    assert factor == close(of_sum, 8)
    assert (1 - p * classes / (classes - 1)) ** 2 == close(square)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("chunk", [theory.CHUNK, 7])
@pytest.mark.parametrize(
    ("truth", "table"),
    [([0, 1, 0, 2], T3), ([2, 2, 2], T3), ([0, 0, 1, 1, 1], [[0.9, 0.1], [0.4, 0.6]])],
    ids=["three classes", "one class", "two classes"],
)
def test_coefficients_equal_the_definition(
    truth: list[int], table: list[list[float]], chunk: int, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theory, "CHUNK", chunk)
    found = theory.single_negative_coefficients(truth, table, reduction=reduction)
    np.testing.assert_allclose(found, coefficients(truth, table, reduction == "mean"), rtol=0, atol=1e-14)


def test_factor_of_many_items() -> None:
    grid = np.array([[0.0, 0.3], [0.9, 0.99]])
    found = theory.single_negative_factor(grid, num_classes=100, samples_per_class=20)
    assert found.shape == grid.shape
    np.testing.assert_allclose(found, (1 - grid / 0.99) ** 2, atol=2e-4)
    assert found[0, 0] == close(1.0)
    assert abs(found[1, 1]) < 1e-12


def test_labelings() -> None:
    observed, probability = theory.labelings([1, 0, 2], T3)
    expected = list(product(range(3), repeat=3))
    assert [tuple(row) for row in observed.tolist()] == expected
    chances = [T3[1][a] * T3[0][b] * T3[2][c] for a, b, c in expected]
    assert probability.tolist() == close(chances)
    assert probability.sum() == close(1.0)


def test_partition_at_the_edges() -> None:
    found = theory.margin_partition([[0.5], [1.0], [1.5]], [True, False], margin=0.5, beta=1.0)
    assert found.both.tolist() == [[False, False], [True, True], [False, False]]
    assert found.clean_only.tolist() == [[False, True], [False, False], [True, False]]
    assert found.noisy_only.tolist() == [[True, False], [False, False], [False, True]]


def test_residual_multipliers() -> None:
    p, classes, as_positive, as_negative = 0.3, 20, [1.5, 3.0, 2.0], [1.2, 2.5, 2.0]
    found = theory.residual_multipliers(p, classes, positive_skew=as_positive, negative_skew=as_negative)
    q, ratio = 2 * p - p * p, 3.0 / 1.2
    assert found.clean_only_positive.tolist() == close([q * (ratio - 1) * eta for eta in as_positive])
    assert found.clean_only_negative.tolist() == close([q * ratio * eta / classes for eta in as_negative])
    assert found.noisy_only_positive.tolist() == close([q * eta / classes for eta in as_negative])
    assert found.noisy_only_negative.tolist() == close([q * eta / classes for eta in as_positive])
    assert theory.residual_ratio([0.4, 1.0]).tolist() == close([1 / (1 / 0.4 - 1), math.inf])
