"""Wrong labels come at the rate and with the chances the definitions give, and a seed gives them again."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from trivet.label_noise import (
    Noisy,
    boundary,
    by_transition,
    injection,
    pair_flip,
    symmetric,
    topline,
    within_superclass,
)

TABLE = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]])
SUPERCLASS = np.array([0, 1, 0, 1, 0, 2])  # of the classes 0 to 5; class 5 is alone
Maker = Callable[..., Noisy]


def labels_of(count: int, classes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, count)


def clouds(labels: np.ndarray, spread: float = 1.0) -> np.ndarray:
    """Points around one corner of a simplex for each class."""
    random = np.random.default_rng(1)
    return np.eye(int(labels.max()) + 1)[labels] * 3 + spread * random.standard_normal((len(labels), labels.max() + 1))


def makers(labels: np.ndarray) -> dict[str, Maker]:
    """Each kind of noise as a function of the rate."""
    return {
        "symmetric": partial(symmetric, labels),
        "pair-flip": partial(pair_flip, labels),
        "within-superclass": partial(within_superclass, labels, SUPERCLASS[labels]),
        "boundary": partial(boundary, labels, clouds(labels)),
    }


KINDS = list(makers(np.array([0, 1])))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_share_of_wrong_labels_is_the_rate(kind: str, rate: float) -> None:
    labels = labels_of(4000, 5)
    noisy = makers(labels)[kind](rate, generator=3)
    assert noisy.labels.dtype == np.int64
    assert noisy.labels.shape == labels.shape
    assert ((noisy.labels >= 0) & (noisy.labels < 5)).all()
    np.testing.assert_array_equal(noisy.wrong, noisy.labels != labels)
    assert abs(noisy.wrong.mean() - rate) <= 4 * math.sqrt(rate * (1 - rate) / len(labels))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "rate", "wrong"), [(200, 0.3, 60), (201, 0.25, 50), (7, 0.95, 7), (150, 0.001, 0)])
def test_exact_noise_has_the_rounded_number_of_wrong_labels(kind: str, count: int, rate: float, wrong: int) -> None:
    labels = np.arange(count) % 2
    given: dict[str, Any] = {"k": 3} if kind == "boundary" else {}
    if kind == "within-superclass":
        noisy = within_superclass(labels, np.zeros(count, np.int64), rate, generator=2, exact=True)
    else:
        noisy = makers(labels)[kind](rate, generator=2, exact=True, **given)
    assert (noisy.labels != labels).sum() == noisy.wrong.sum() == wrong


@pytest.mark.parametrize("exact", [False, True])
def test_symmetric_noise_goes_to_every_other_class_alike(exact: bool) -> None:
    truth = np.full(60_000, 2)
    counts = np.bincount(symmetric(truth, 0.4, num_classes=5, exact=exact, generator=0).labels, minlength=5)
    expected = len(truth) * np.array([0.1, 0.1, 0.6, 0.1, 0.1])
    assert (abs(counts - expected) < 4 * np.sqrt(expected)).all()


def test_a_transition_is_met_in_every_cell() -> None:
    truth = np.arange(60_000) % 3
    noisy = by_transition(truth, TABLE, generator=0)
    np.testing.assert_array_equal(noisy.wrong, noisy.labels != truth)
    for c in range(3):
        shares = np.bincount(noisy.labels[truth == c], minlength=3) / 20_000
        np.testing.assert_allclose(shares, TABLE[c], atol=4 * 0.5 / math.sqrt(20_000))
    assert not (noisy.labels[truth == 2] == 0).any()


def test_an_exact_transition_has_the_rounded_number_in_each_class() -> None:
    truth = np.repeat([0, 1, 2], [10, 11, 1000])
    noisy = by_transition(truth, TABLE, generator=0, exact=True)
    assert [noisy.wrong[truth == c].sum() for c in range(3)] == [2, round(11 * 0.3), 300]
    assert set(noisy.labels[truth == 2]) == {1, 2}
    np.testing.assert_array_equal(by_transition(truth, np.eye(3), generator=0, exact=True).labels, truth)


def test_a_flipped_pair_is_a_class_and_the_next() -> None:
    truth = labels_of(500, 4)
    noisy = pair_flip(truth, 0.5, generator=0)
    np.testing.assert_array_equal(noisy.labels[noisy.wrong], (truth[noisy.wrong] + 1) % 4)
    assert set(truth[noisy.wrong]) == {0, 1, 2, 3}
    assert set(pair_flip([3, 3, 3], 0.9, generator=0, num_classes=6, exact=True).labels) == {4}


def test_noise_within_a_superclass_stays_there() -> None:
    truth = labels_of(30_000, 6)
    noisy = within_superclass(truth, SUPERCLASS[truth], 0.3, generator=0)
    np.testing.assert_array_equal(SUPERCLASS[noisy.labels], SUPERCLASS[truth])
    assert not noisy.wrong[truth == 5].any(), "alone in its superclass"
    assert noisy.wrong[truth != 5].mean() == pytest.approx(0.3, abs=0.012)
    to = np.bincount(noisy.labels[noisy.wrong & (truth == 0)], minlength=6)
    assert to[2] == pytest.approx(to[4], rel=0.15)
    exact = within_superclass(truth, SUPERCLASS[truth], 0.3, generator=0, exact=True)
    assert exact.wrong.sum() == round(0.3 * (truth != 5).sum())


def others_around(points: list[list[float]], labels: list[int], k: int) -> tuple[list[list[int]], list[float]]:
    """The classes of the k others and their share of what is met, by the docstring, in plain Python."""
    found, shares = [], []
    for i, point in enumerate(points):
        order = sorted((math.dist(point, other), j) for j, other in enumerate(points) if j != i)
        met: list[int] = []
        while sum(c != labels[i] for c in met) < k:
            met.append(labels[order[len(met)][1]])
        found.append([c for c in met if c != labels[i]])
        shares.append(k / len(met))
    return found, shares


def chances(shares: list[float], rate: float) -> list[float]:
    """min(1, lambda s) with the mean `rate`, lambda by bisection."""
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        mean = sum(min(1.0, middle * share) for share in shares) / len(shares)
        low, high = (middle, high) if mean < rate else (low, middle)
    return [min(1.0, low * share) for share in shares]


@pytest.mark.parametrize(("rate", "exact"), [(0.2, False), (0.7, False), (1 / 12, True)])
def test_boundary_noise_equals_the_definition(rate: float, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a grid, where many distances are equal: a tie is decided by index.
    points = [[float(x), float(y)] for x in range(4) for y in range(3)]
    labels = [0, 0, 0, 0, 1, 0, 1, 1, 2, 2, 2, 2]
    others, shares = others_around(points, labels, k=3)
    assert len(set(shares)) > 3
    # Of a single wrong item, the chance is proportional to the share.
    expected = [share / sum(shares) for share in shares] if exact else chances(shares, rate)
    assert any(chance == 1 for chance in expected) == (rate == 0.7)
    around, known = injection._others_around, []  # of the same points for each draw
    monkeypatch.setattr(injection, "_others_around", lambda *given: (known or known.append(around(*given)) or known)[0])
    random, draws = np.random.default_rng(0), 4000 if exact else 1000  # the chances of one item differ by little
    counts = np.zeros((len(points), 3))
    for _ in range(draws):
        noisy = boundary(labels, np.array(points), rate, k=3, generator=random, exact=exact)
        counts[np.arange(len(points)), noisy.labels] += 1
    for i, own in enumerate(labels):
        for c in range(3):
            chance = 1 - expected[i] if c == own else expected[i] * others[i].count(c) / 3
            within = 4.5 * math.sqrt(max(chance * (1 - chance), 1e-9) / draws)
            assert counts[i, c] / draws == pytest.approx(chance, abs=within), (i, c)


@pytest.mark.parametrize("kind", [*KINDS, "transition", "topline"])
def test_a_seed_gives_the_same_again(kind: str) -> None:
    labels = labels_of(300, 3)

    def make(generator: np.random.Generator | int) -> np.ndarray:
        if kind == "topline":
            return topline(labels, 0.5, generator=generator)
        if kind == "transition":
            return by_transition(labels, TABLE, generator=generator).labels
        return makers(labels)[kind](0.5, generator=generator).labels

    before = labels.copy()
    np.testing.assert_array_equal(make(7), make(7))
    np.testing.assert_array_equal(make(7), make(np.random.default_rng(7)))
    assert not np.array_equal(make(7), make(8))
    random = np.random.default_rng(7)
    assert not np.array_equal(make(random), make(random))
    np.testing.assert_array_equal(labels, before)


def test_without_noise_one_class_will_do() -> None:
    one = np.zeros(5, np.int64)
    points = np.arange(5.0)[:, None]
    for noisy in (
        symmetric(one, 0, generator=0),
        pair_flip(one, 0, generator=0),
        within_superclass(one, one, 0, generator=0),
        boundary(one, points, 0, k=2, generator=0),
        by_transition(one, [[1.0]], generator=0),
    ):
        np.testing.assert_array_equal(noisy.labels, one)
        assert not noisy.wrong.any()


@pytest.mark.parametrize(("rate", "left"), [(0.0, 40), (0.25, 30), (0.49, 20), (0.99, 0)])
def test_a_topline_keeps_the_clean_share(rate: float, left: int) -> None:
    kept = topline(np.repeat([0, 1], [30, 10]), rate, generator=0)
    assert kept.dtype == np.int64
    assert len(kept) == left
    assert sorted(set(kept.tolist())) == kept.tolist()


def test_a_topline_draws_uniformly() -> None:
    labels = np.repeat([0, 1, 2], [20, 12, 8])
    counts = np.zeros(40)
    for seed in range(1000):
        counts[topline(labels, 0.4, generator=seed)] += 1
    np.testing.assert_allclose(counts / 1000, 0.6, atol=4.5 * math.sqrt(0.24 / 1000))
    assert len({tuple(np.bincount(labels[topline(labels, 0.4, generator=seed)])) for seed in range(20)}) > 1


LINE = np.arange(4.0)[:, None]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: symmetric([0, 1], 1.0, generator=0), r"noise_rate must lie in \[0, 1\): got 1.0; give a share"),
        (lambda: pair_flip([0, 1], -0.1, generator=0), r"noise_rate must lie in \[0, 1\): got -0.1"),
        (lambda: topline([0, 1], float("nan"), generator=0), r"noise_rate must lie in \[0, 1\): got nan"),
        (lambda: symmetric([0, 0], 0.1, generator=0), "needs another class: there is one in the labels"),
        (lambda: pair_flip([0, 0], 0.1, generator=0), "needs another class: there is one in the labels"),
        (lambda: boundary([4, 4], LINE[:2], 0.1, generator=0), "needs another class: there is one in the labels"),
        (lambda: within_superclass([0, 1], [0, 1], 0.1, generator=0), "there is one in a superclass"),
        (lambda: within_superclass([0, 1, 0], [0, 0, 1], 0.1, generator=0), "one superclass: class 0 lies in 2"),
        (lambda: within_superclass([0, 1, 1], [0, 0], 0.1, generator=0), r"one integer per item, 3: got .* \(2,\)"),
        (lambda: symmetric([0.0, 1.0], 0.1, generator=0), "labels must be integers of at least 0, .* got float64"),
        (lambda: symmetric([-1, 1], 0.1, generator=0), "labels must be integers of at least 0"),
        (lambda: topline([], 0.1, generator=0), "at least one: got float64 of shape \\(0,\\)"),
        (lambda: symmetric([0, 3], 0.1, num_classes=3, generator=0), "must exceed the largest label, 3: got 3"),
        (lambda: by_transition([0, 3], TABLE, generator=0), "row of the transition, 0 to 2: got 3"),
        (lambda: by_transition([0, 1], [[0.5, 0.4], [0, 1]], generator=0), "add up to 1 .* sums from 0.9 to 1"),
        (lambda: by_transition([0, 1], [[1.5, -0.5], [0, 1]], generator=0), r"probabilities in \[0, 1\]"),
        (lambda: by_transition([0, 1], [[0.5, 0.5]], generator=0), r"shape \(C, C\): got \(1, 2\)"),
        (lambda: boundary([0, 1, 0, 1], LINE, 0.1, k=3, generator=0), "outside of the largest class, 2: got 3"),
        (lambda: boundary([0, 1, 0, 1], LINE, 0.1, k=0, generator=0), "k must be a whole number of at least 1"),
        (lambda: boundary([0, 1, 0], LINE, 0.1, k=1, generator=0), "got 3 labels for 4 embeddings"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
