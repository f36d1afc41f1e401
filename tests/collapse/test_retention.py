from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from trivet.collapse import mode_retention
from trivet.collapse.retention import Retention, inside_structure, lost_inside, mixture_of_lost

Point = tuple[int, ...]


def definition(points: list[Point], reference: list[Point]) -> float:
    """Of one class, in exact arithmetic: 1 - (mean r - mean r_0) / (n / 2 - mean r_0)."""
    n = len(points)

    def square(a: Point, b: Point) -> int:
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))

    rank, best = Fraction(0), Fraction(0)
    for i in range(n):
        mates = [j for j in range(n) if j != i]
        far = {j: square(reference[i], reference[j]) for j in mates}
        ranks = {
            j: sum(far[k] < far[j] for k in mates) + Fraction(1 + sum(far[k] == far[j] for k in mates), 2)
            for j in mates
        }
        near = {j: square(points[i], points[j]) for j in mates}
        nearest = [j for j in mates if near[j] == min(near.values())]
        rank += sum(ranks[j] for j in nearest) / Fraction(len(nearest) * n)
        best += min(ranks.values()) / Fraction(n)
    return float(1 - (rank - best) / (Fraction(n, 2) - best))


@pytest.mark.parametrize("grid", [2, 4, 1000], ids=["most distances tied", "some tied", "none tied"])
@pytest.mark.parametrize("n", [10, 17])
def test_equals_the_definition(n: int, grid: int) -> None:
    generator = np.random.default_rng(grid + n)
    before = generator.integers(0, grid, (3 * n, 3))
    after = before[:, :2] + generator.integers(0, max(2, grid // 4), (3 * n, 2))
    labels = np.tile([5, 1, 9], n)
    found = mode_retention(after.astype(float), torch.from_numpy(before.astype(np.float32)), labels)
    assert found.labels.tolist() == [1, 5, 9]
    for label, value in zip(found.labels, found.values, strict=True):
        rows = [[tuple(row) for row in points[labels == label].tolist()] for points in (after, before)]
        assert value == pytest.approx(definition(*rows), abs=1e-12)
    assert found.mean == pytest.approx(found.values.mean())


def test_what_keeps_the_distances_keeps_all_of_it() -> None:
    generator = np.random.default_rng(0)
    before = generator.standard_normal((60, 4))
    labels = np.repeat([0, 1, 2], 20)
    rotation = np.linalg.qr(generator.standard_normal((4, 4)))[0]
    # Between classes anything may happen.
    after = 1e-6 * before @ rotation + 3 + 100 * generator.standard_normal((3, 4))[labels]
    assert mode_retention(after, before, labels).values.tolist() == [1, 1, 1]
    assert mode_retention(np.full((60, 2), 0.1), before, labels).mean == pytest.approx(0, abs=1e-12)


def test_classes_that_tell_nothing_have_no_value() -> None:
    before = np.random.default_rng(3).standard_normal((40, 2))
    labels = np.repeat([0, 1, 2], [15, 5, 20])
    before[labels == 2] = 0.3
    found = mode_retention(before, before, labels)
    assert found.values[0] == 1
    assert np.isnan(found.values[1:]).all()
    assert found.mean == 1


def test_of_a_large_class_a_thousand_items_are_drawn() -> None:
    before = np.random.default_rng(4).standard_normal((1100, 2))
    after = before + np.random.default_rng(5).standard_normal((1100, 2))
    labels = np.zeros(1100, int)
    values = [mode_retention(after, before, labels, seed=seed).mean for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert values[0] == pytest.approx(values[2], abs=0.1)


@pytest.mark.parametrize(
    ("values", "error", "lost"),
    [
        ([0.05, 0.05, 0.05, 0.05], 0.01, [0, 1, 2, 3]),
        ([0.9, 0.0, 0.9, 0.8, 0.7], 0.01, [1]),
        ([0.9, 0.0, 0.9, 0.8, 0.7], 0.3, []),  # of so few items it may be chance
        ([0.9, 0.3, 0.9, 0.8, 0.7], 0.01, []),  # less, but more than by chance
        ([0.15, 0.08, 0.15, 0.15, 0.15], 0.01, []),  # hardly less than others
        ([np.nan, 0.0, 0.0, 0.0], 0.01, [1, 2, 3]),
    ],
)
def test_classes_that_lost_their_inside(values: list[float], error: float, lost: list[int]) -> None:
    count = len(values)
    found = Retention(np.arange(count), np.array(values), np.full(count, error), np.full(count, 30))
    assert lost_inside(found, below=0.1).tolist() == lost


@pytest.mark.parametrize(("items", "lost"), [(10, []), (100, [7])])
def test_a_few_items_that_agree_are_no_proof_against_their_class(items: int, lost: list[int]) -> None:
    values = np.linspace(0.1, 0.6, 300)
    values[7] = -0.7
    found = Retention(np.arange(300), values, np.full(300, 0.12), np.full(300, items))
    assert lost_inside(found, below=0.1).tolist() == lost


@pytest.mark.parametrize("lost", [0, 8, 20])
def test_many_small_classes_that_lost_their_inside_are_told_together(lost: int) -> None:
    """Of eight items none is beyond doubt by itself, nor are many below 0.1."""
    random = np.random.default_rng(lost)
    before = random.standard_normal((60 * 8, 5))
    labels = np.repeat(np.arange(60), 8)
    after = before + 0.3 * random.standard_normal(before.shape)
    after[labels < lost] = random.standard_normal((8 * lost, 5))
    found = lost_inside(mode_retention(after, before, labels), below=0.1)
    assert len(set(found) & set(range(lost))) >= 0.8 * lost
    assert len(set(found) - set(range(lost))) <= 0.02 * 60


def test_classes_with_single_items_that_were_moved_have_not_lost_their_inside() -> None:
    """All others keep everything, so that a mixture counts what is not intact as lost."""
    random = np.random.default_rng(2)
    before = random.standard_normal((60 * 8, 5))
    labels = np.repeat(np.arange(60), 8)
    after = before.copy()
    moved = np.flatnonzero((labels < 10) & (np.arange(len(labels)) % 8 < 2))
    after[moved] = 3 * random.standard_normal((len(moved), 5))
    found = mode_retention(after, before, labels)
    probabilities, gain = mixture_of_lost(found.values, found.items)
    assert gain > 10
    assert (probabilities > 0.5).sum() >= 3
    assert lost_inside(found, below=0.1).tolist() == []


def test_classes_that_keep_little_in_different_measure_have_not_lost_it() -> None:
    random = np.random.default_rng(0)
    before = random.standard_normal((60 * 8, 5))
    labels = np.repeat(np.arange(60), 8)
    for noise in (0.5, 1.0, 1.5):
        after = before + noise * random.exponential(size=(60, 1))[labels] * random.standard_normal(before.shape)
        assert len(lost_inside(mode_retention(after, before, labels), below=0.1)) <= 1


def test_the_mixture_of_lost_classes_has_the_largest_likelihood() -> None:
    random = np.random.default_rng(1)
    items = random.integers(8, 30, size=50)
    # By the rank of the neighbour of each item, one of n - 1.
    values = np.array([1 - (random.integers(1, n, size=n).mean() - 1) / (n / 2 - 1) for n in items])
    values[15:] = random.normal(0.6, 0.15, size=35)
    at_random = [np.std([1 - (r - 1) / (n / 2 - 1) for r in range(1, n)]) / math.sqrt(n) for n in items]

    def of_lost(share: float, mean: float, deviation: float) -> list[float]:
        return [
            share * norm.pdf(value, 0, by_chance) / mixed
            for value, by_chance in zip(values, at_random, strict=True)
            for mixed in [share * norm.pdf(value, 0, by_chance) + (1 - share) * norm.pdf(value, mean, deviation)]
        ]

    def log_likelihood(share: float, mean: float, deviation: float) -> float:
        return sum(
            math.log(share * norm.pdf(value, 0, by_chance) + (1 - share) * norm.pdf(value, mean, deviation))
            for value, by_chance in zip(values, at_random, strict=True)
        )

    best = minimize(lambda at: -log_likelihood(*at), [0.3, 0.6, 0.1], method="Nelder-Mead", options={"xatol": 1e-6})
    probabilities, gain = mixture_of_lost(values, items)
    alone = norm.logpdf(values, values.mean(), values.std()).sum()
    assert gain == pytest.approx(-best.fun - alone, abs=1e-3)
    assert probabilities == pytest.approx(of_lost(*best.x), abs=0.01)


def test_the_error_of_a_retention_is_that_of_a_mean_over_items() -> None:
    """As that of halves of the items, each with all class-mates: over many classes it is what retention scatters by."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(400), 20)
    found = mode_retention(*random.standard_normal((2, 8000, 3)), labels)
    assert found.items.tolist() == [20] * 400
    assert found.errors.mean() == pytest.approx(found.values.std(), rel=0.15)


def split(points: np.ndarray, labels: np.ndarray, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """The first principal axes inside the classes, by singular values, in two halves."""
    means = np.stack([points[labels == label].mean(axis=0) for label in labels])
    directions = np.linalg.svd(points - means)[2]
    first = [number for number in range(axes) if number % 4 in (0, 3)]
    return points @ directions[first].T, points @ directions[[n for n in range(axes) if n not in first]].T


def test_structure_inside_is_what_one_half_of_the_axes_knows_of_the_other() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 30)
    noise = random.standard_normal((180, 12)) @ random.standard_normal((12, 12))
    fine = random.standard_normal((6, 3, 12))[labels, np.arange(180) % 3]
    for points in (noise, 8 * fine + noise):
        found = inside_structure(points, labels)
        assert found.values == pytest.approx(mode_retention(*split(points, labels, 9), labels).values)
    assert abs(inside_structure(noise, labels).mean) < 0.1
    assert inside_structure(8 * fine + noise, labels).mean > 0.4
    assert inside_structure(1e-9 * fine, labels, seed=1).mean == pytest.approx(inside_structure(fine, labels).mean)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mode_retention(np.eye(12), np.eye(12)[:11], np.zeros(12, int)), "got 11 rows for 12"),
        (lambda: mode_retention(np.eye(5), np.eye(5), np.zeros(5, int)), "class of at least 6 items"),
        (lambda: mode_retention(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, int)), "class of at least 6 items"),
        (lambda: mode_retention(np.eye(12), np.zeros((12, 2)), np.zeros(12, int)), "another reference"),
        (lambda: mode_retention(np.eye(12), np.eye(12), np.zeros(12, int), seed=-1), "seed must not be negative"),
        (lambda: mode_retention(np.eye(12), np.eye(12), np.zeros(12)), "labels must be integers"),
        (lambda: mode_retention(np.eye(12), np.full((12, 2), np.inf), np.zeros(12, int)), "infinity"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
