"""The estimate of label noise, against its steps in plain Python and against noise that was put in."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from trivet.label_noise import by_transition, estimate_noise, pair_flip, symmetric
from trivet.label_noise.estimate import (
    Setting,
    _deepest,
    _explained,
    _largest,
    _one_way,
    _splits,
    _wilson,
    memberships,
    surroundings,
)

Array = np.ndarray[Any, np.dtype[Any]]


def clusters(classes: int, items: int, *, apart: float = 8.0, seed: int = 0) -> tuple[Array, Array]:
    """Gaussian classes in 6 dimensions, `apart` standard deviations from the origin in random directions."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), items)
    centres = random.normal(size=(classes, 6))
    centres *= apart / np.linalg.norm(centres, axis=1, keepdims=True)
    return centres[labels] + random.normal(size=(len(labels), 6)), labels


def overlapping(items: int, seed: int = 0) -> tuple[Array, Array]:
    """Two wide classes in the plane whose halves touch: a fifth of the nearest neighbours disagree."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1], items)
    points = np.stack([random.normal(size=2 * items), random.normal(size=2 * items)], axis=1)
    points[:, 0] += np.where(labels == 1, 1.0, -1.0)
    return points, labels


def mixture(
    labels: list[int], weights: list[float], table: Array, prior: list[float], strength: float
) -> dict[int, float]:
    """Ten steps of EM over a dict of classes, from the shares of the labels."""
    total = sum(weights)
    prior_of = {c: prior[c] for c in set(labels)}
    mass = dict.fromkeys(set(labels), 0.0)
    for label, weight in zip(labels, weights, strict=True):
        mass[label] += weight
    mass = {c: (mass[c] + strength * prior_of[c]) / (total + strength) for c in mass}
    for _ in range(10):
        following = dict.fromkeys(mass, 0.0)
        for label, weight in zip(labels, weights, strict=True):
            seen = sum(mass[c] * table[c, label] for c in mass)
            for c in mass:
                following[c] += weight * mass[c] * table[c, label] / seen
        mass = {c: (following[c] + strength * prior_of[c]) / (total + strength) for c in mass}
    return mass


@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_memberships_are_those_of_em(strength: float) -> None:
    random = np.random.default_rng(0)
    table = random.dirichlet(np.ones(4), size=4) * 0.4 + 0.6 * np.eye(4)
    nearby, weights = random.integers(0, 4, (30, 7)), random.random((30, 7))
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    masses = memberships(nearby, weights, table, prior=prior, strength=strength)
    for labels, weight, mass in zip(nearby.tolist(), weights.tolist(), masses, strict=True):
        expected = mixture(labels, weight, table, prior.tolist(), strength)
        for c, value in expected.items():
            assert mass[np.array(labels) == c].sum() == pytest.approx(value, rel=1e-9)


def test_largest_adds_up_equal_labels() -> None:
    inside, depth = _largest(np.array([[4, 2, 2], [1, 3, 5]]), np.array([[0.4, 0.3, 0.3], [0.2, 0.4, 0.4]]))
    assert inside.tolist() == [2, 3]  # of equal ones the nearer
    assert depth == pytest.approx([0.6, 0.4])


@pytest.mark.parametrize("each", [True, False])
def test_deepest_are_the_deepest_of_their_group(each: bool) -> None:
    random = np.random.default_rng(1)
    inside, split, depth = random.integers(0, 3, 200), random.integers(0, 5, 200), random.integers(0, 9, 200) / 8
    expected = []
    for i in range(200):
        group = [j for j in range(200) if split[j] == split[i] and (inside[j] == inside[i] or not each)]
        last = sorted((depth[j] for j in group), reverse=True)[math.ceil(0.3 * len(group)) - 1]
        expected.append(depth[i] >= last)
    assert _deepest(inside, depth, split, 0.3, each).tolist() == expected


def test_neighbours_are_the_nearest_of_the_fold() -> None:
    random = np.random.default_rng(2)
    points, labels, folds = random.normal(size=(40, 3)), random.integers(0, 3, 40), np.arange(40) % 2
    setting = Setting.of(points, labels, folds=folds, distance="euclidean")
    found = surroundings(setting, 6)
    for i in range(40):
        others = sorted((math.dist(points[i], points[j]), j) for j in range(40) if j != i and folds[j] == folds[i])
        assert found.indices[i].tolist() == [j for _, j in others[:6]]
        assert found.distances[i] == pytest.approx([d for d, _ in others[:6]], rel=1e-6)
        assert found.to_positive[i] == pytest.approx(min(d for d, j in others if labels[j] == labels[i]), rel=1e-6)
        assert found.to_negative[i] == pytest.approx(min(d for d, j in others if labels[j] != labels[i]), rel=1e-6)


def test_neighbours_of_near_duplicates_far_from_the_origin() -> None:
    points = 1e4 + 1e-3 * np.random.default_rng(3).normal(size=(30, 4))
    setting = Setting.of(points, np.arange(30) % 2, folds=None, distance="euclidean")
    found = surroundings(setting, 1).indices[:, 0]
    for i, j in enumerate(found.tolist()):
        assert j == min((math.dist(points[i], points[o]), o) for o in range(30) if o != i)[1]


def test_splits_are_even_in_each_fold() -> None:
    folds = np.repeat([0, 1], [23, 12])
    split = _splits(folds, 0)
    for fold in (0, 1):
        sizes = Counter(split[folds == fold].tolist())
        assert len(sizes) == 5
        assert max(sizes.values()) - min(sizes.values()) <= 1
    assert not np.array_equal(split, _splits(folds, 1))


def test_explained_takes_overlap_off() -> None:
    nearby = np.tile([0, 1], (1000, 1))
    masses = np.tile([0.9, 0.1], (1000, 1))
    observed = np.repeat([0, 1], [900, 100])
    start = np.array([[0.9, 0.1], [0.1, 0.9]])
    found = _explained(nearby, masses, observed, start)
    assert masses[0] @ found == pytest.approx([0.9, 0.1], abs=1e-3)
    assert found[0, 1] < 0.04
    certain = np.tile([1.0, 0.0], (1000, 1))
    assert _explained(nearby, certain, observed, start)[0] == pytest.approx([0.9, 0.1])


def test_wilson() -> None:
    low, high = _wilson(0.1, 50)  # roots of (s - p)^2 = 1.96^2 p (1 - p) / n
    for root in (low, high):
        assert (0.1 - root) ** 2 == pytest.approx(1.96**2 * root * (1 - root) / 50)
    assert _wilson(0.0, 10)[0] == 0


def test_one_way() -> None:
    assert _one_way(np.array([[50.0, 400], [0, 50]])) == pytest.approx(1)
    assert _one_way(np.array([[50.0, 400], [400, 50]])) == 0
    assert _one_way(np.eye(3)) == 0


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.2, 0.4])
@pytest.mark.parametrize("flip", [symmetric, pair_flip])
def test_finds_the_rate_that_was_put_in(flip: Any, rate: float) -> None:
    points, truth = clusters(5, 400)
    noisy = flip(truth, rate, generator=1, exact=True)
    found = estimate_noise(points, noisy.labels)
    assert found.rate == pytest.approx(rate, abs=0.03)
    assert found.interval[0] - 0.01 <= rate <= found.interval[1]
    assert found.transition.sum(axis=1) == pytest.approx(np.ones(5))
    assert found.priors == pytest.approx(np.full(5, 0.2), abs=0.03)
    assert (found.transition_low <= found.transition).all()
    assert (found.transition <= found.transition_high).all()


def test_finds_the_transition() -> None:
    points, truth = clusters(3, 400)
    table = np.array([[0.7, 0.3, 0.0], [0.0, 0.95, 0.05], [0.1, 0.1, 0.8]])
    noisy = by_transition(truth, table, generator=0, exact=True)
    found = estimate_noise(points, noisy.labels + 7)
    assert found.transition == pytest.approx(table, abs=0.06)
    assert (found.transition_low - 0.01 <= table).all()
    assert (table <= found.transition_high + 0.01).all()


def test_overlap_is_not_noise() -> None:
    points, truth = overlapping(1000)
    nearest = surroundings(Setting.of(points, truth, folds=None, distance="euclidean"), 1).indices[:, 0]
    assert (truth[nearest] != truth).mean() > 0.2
    clean = estimate_noise(points, truth, distance="euclidean")
    assert clean.rate < 0.05
    noisy = symmetric(truth, 0.2, generator=0, exact=True).labels
    assert estimate_noise(points, noisy, distance="euclidean").rate == pytest.approx(0.2, abs=0.05)


def test_noise_that_is_rare_deep_inside_the_classes_is_not_missed() -> None:
    points, truth = clusters(5, 300)
    random = np.random.default_rng(0)
    centres = np.stack([points[truth == c].mean(axis=0) for c in range(5)])
    from_centre = np.linalg.norm(points - centres[truth], axis=1)
    wrong = (from_centre > np.median(from_centre)) & (random.random(len(truth)) < 0.4)
    labels = np.where(wrong, (truth + random.integers(1, 5, len(truth))) % 5, truth)
    found = estimate_noise(points, labels, distance="euclidean")
    assert found.rate == pytest.approx(wrong.mean(), abs=0.08)
    assert "all items" in found.method


@pytest.mark.parametrize(("classes", "share"), [(99, "20%"), (100, "10%")])
def test_of_many_items_the_deepest_tenth_is_enough(classes: int, share: str) -> None:
    points, truth = clusters(classes, 30, apart=5)
    assert f"labels of the {share}" in estimate_noise(points, truth, distance="euclidean").method


def test_many_small_classes() -> None:
    points, truth = clusters(60, 15, apart=30)
    noisy = symmetric(truth, 0.2, generator=0, exact=True)
    found = estimate_noise(points, noisy.labels)
    assert found.rate == pytest.approx(0.2, abs=0.05)
    assert found.neighbours == 7
    assert "together" in found.method


def test_own_label_does_not_choose_the_anchors() -> None:
    # In clusters of 7 items with 6 neighbours, leaving an item out tells its label: anchors chosen by all the others
    # would be the wrong ones.
    points, truth = clusters(100, 7, apart=100)
    noisy = symmetric(truth, 0.3, generator=0, exact=True)
    rates = [estimate_noise(points, noisy.labels, neighbours=5, seed=seed).rate for seed in range(3)]
    assert np.mean(rates) == pytest.approx(0.3, abs=0.06)


def test_folds_are_never_compared() -> None:
    points, truth = clusters(4, 100)
    labels = symmetric(truth, 0.2, generator=0, exact=True).labels
    folds = np.random.default_rng(0).permutation(400) % 2
    turned = points.copy()
    turned[folds == 1] = np.roll(points[folds == 1], 1, axis=1)  # another network's axes
    apart = estimate_noise(turned, labels, folds=folds)
    assert apart.rate == pytest.approx(estimate_noise(points, labels, folds=folds).rate)
    assert apart.rate == pytest.approx(0.2, abs=0.06)


def test_invariances() -> None:
    points, truth = clusters(4, 60)
    labels = pair_flip(truth, 0.2, generator=0).labels
    found = estimate_noise(points, labels)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    for other in (
        estimate_noise(points @ rotation, labels),
        estimate_noise(points * 100, labels),
        estimate_noise(torch.from_numpy(points), torch.from_numpy(labels)),
        estimate_noise(points, (labels * 10 - 20).astype(np.int16)),
    ):
        assert other.rate == found.rate
        assert np.array_equal(other.transition, found.transition)


def test_equal_points_have_a_stated_result() -> None:
    found = estimate_noise(np.ones((40, 3)), np.arange(40) % 2)
    assert 0 <= found.rate <= 1
    assert np.isfinite(found.transition).all()


def test_two_items() -> None:
    assert 0 <= estimate_noise(np.eye(2), np.array([0, 1])).rate <= 1


def test_json() -> None:
    points, truth = clusters(3, 60)
    found = estimate_noise(points, pair_flip(truth, 0.3, generator=0).labels)
    read = json.loads(json.dumps(found.as_json(largest=2)))
    assert read["rate"] == found.rate
    assert np.array_equal(read["transition"], found.transition)
    assert [(one["true"] + 1) % 3 for one in read["largest"]] == [one["observed"] for one in read["largest"]]
    many = estimate_noise(*clusters(101, 4, apart=50)).as_json()
    assert many["transition"] is None
    assert len(many["largest"]) == 20


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 0, 0], {}, "labels must hold at least two classes: got 1"),
        ([0, 0, 1], {}, "labels must hold one class per embedding"),
        ([0.0, 0.0, 1.0, 1.0], {}, "labels must be integers"),
        ([0, 0, 1, 1], {"neighbours": 4}, "neighbours must not exceed the 3 others"),
        ([0, 0, 1, 1], {"neighbours": 0}, "neighbours must be a whole number of at least 1"),
        ([0, 0, 1, 1], {"neighbours": 2, "folds": np.array([0, 0, 1, 1])}, "must not exceed the 1 others"),
        ([0, 0, 1, 1], {"folds": np.array([0, 0, 1, 2])}, "must not exceed the 0 others"),
        ([0, 0, 1, 1], {"folds": np.zeros(3, np.int64)}, "folds must hold one class per embedding"),
        ([0, 0, 1, 1], {"seed": -1}, "seed must not be negative"),
        ([0, 0, 1, 1], {"distance": "manhattan"}, "distance must be"),
    ],
)
def test_errors(labels: list[float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_noise(np.random.default_rng(0).normal(size=(4, 2)), np.array(labels), **options)


def test_rows_must_be_finite() -> None:
    points = np.ones((4, 2))
    points[2, 0] = np.nan
    with pytest.raises(ValueError, match="must be finite: rows 2"):
        estimate_noise(points, np.array([0, 0, 1, 1]))
