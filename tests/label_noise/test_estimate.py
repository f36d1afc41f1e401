"""The estimate of label noise, against noise that was put in, overlap that was not, and labels of chance."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from tests.nightly import sampled

from trivet.label_noise import by_transition, estimate, estimate_noise, find_suspects, pair_flip, symmetric
from trivet.label_noise.deepest import deepest_share, wilson
from trivet.label_noise.estimate import _evenness, _first_fit, _reach, _verdict
from trivet.label_noise.neighbourhoods import LabelledPoints, find_neighborhoods

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


def testwilson() -> None:
    low, high = wilson(0.1, 50)  # roots of (s - p)^2 = 1.96^2 p (1 - p) / n
    for root in (low, high):
        assert (0.1 - root) ** 2 == pytest.approx(1.96**2 * root * (1 - root) / 50)
    assert wilson(0.0, 10)[0] == 0


def test_deep_items_are_read_as_far_as_no_more_disagree() -> None:
    assert deepest_share(np.zeros(100, np.bool_)) == (0.0, 100)
    overlap = np.arange(100) >= 50
    assert deepest_share(overlap) == (0.0, 45)
    everywhere = np.arange(100) % 5 == 0
    assert deepest_share(everywhere) == (0.2, 100)
    assert deepest_share(everywhere | (np.arange(100) >= 30)) == (0.2, 30)


@pytest.mark.parametrize("rate", sampled([0.0, 0.1, 0.2, 0.4], 2))
@pytest.mark.parametrize("flip", [symmetric, pair_flip])
def test_finds_the_rate_that_was_put_in(flip: Any, rate: float) -> None:
    points, truth = clusters(5, 400)
    noisy = flip(truth, rate, generator=1, exact=True)
    found = estimate_noise(points, noisy.labels)
    assert (found.least if found.rate is None else found.rate) == pytest.approx(rate, abs=0.03)
    assert found.interval is not None
    assert found.interval[0] <= rate <= found.interval[1]
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


@pytest.mark.parametrize("apart", sampled([1.2, 1.0, 0.8], 3))
def test_right_labels_of_an_embedding_that_is_nowhere_sure_are_not_accused(apart: float) -> None:
    """Classes that lie in each other: even of the deepest fifth many labels disagree, and all are right."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        of = np.repeat(np.arange(25), 20)
        points = apart * random.normal(size=(25, 4))[of] + random.normal(size=(500, 4))
        setting = LabelledPoints.of(points, of, folds=None, distance="euclidean")
        first = _first_fit(setting, 50, 0)[2]
        deepest = np.argsort(-first.depth, kind="stable")[:100]
        assert (first.best != of)[deepest].mean() > 0.1
        found = estimate_noise(points, of, distance="euclidean")
        assert found.interval is None or found.interval[0] == 0
        assert not found.accuses


def test_what_overlap_explains_of_the_deepest_items_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "overlap_excess", lambda *_: math.inf)
    points, of = overlapping(300)
    labels = symmetric(of, 0.2, generator=0, exact=True).labels
    setting = LabelledPoints.of(points, labels, folds=None, distance="euclidean")
    around, views, first = _first_fit(setting, 50, 0)
    order = sorted(range(len(labels)), key=lambda i: -first.depth[i])
    disagrees = first.best != setting.classes
    deep, items = deepest_share(disagrees[order])
    overlap = 1 - float(np.mean([first.surety[i] for i in order[:items]]))
    assert 0 < overlap < 0.1
    found = estimate_noise(points, labels, distance="euclidean")
    assert found.least == pytest.approx(deep - overlap)
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(wilson(deep, items)[0] - 2 * overlap)
    for surety, sure in ((0.905, True), (0.895, False)):  # above a tenth they tell of nothing else
        model = replace(first, surety=np.full(len(labels), surety))
        told = _verdict(setting, around, views, model, views, first, 0)
        low = wilson(deep, items)[0]
        must_be = sure and low - 2 * (1 - surety) > 0.02
        assert told.accuses == must_be
        # Where no label must be wrong, the sampling error is taken off, too.
        expected = (deep if must_be else low) - (1 - surety) if sure else 0.0
        assert told.least == pytest.approx(max(0.0, expected))


def evenness(points: Array, labels: Array) -> tuple[float, float]:
    """By its definition: the mean place of each that disagrees among the others of its most probable class."""
    setting = LabelledPoints.of(points, labels, folds=None, distance="euclidean")
    around, views, first = _first_fit(setting, 50, 0)
    order = sorted(range(len(labels)), key=lambda i: -first.depth[i])
    deepest = order[: deepest_share((first.best != setting.classes)[order])[1]]

    @cache
    def log(item: int, one: int) -> float:
        place = views.candidates[item].tolist().index(one)
        return float(views.scores[item, place] @ first.powers)

    def behind(item: int, one: int) -> float:
        return log(item, int(first.best[item])) - log(item, one)

    @cache
    def far(item: int) -> float:
        return float(np.mean(np.sort(np.linalg.norm(points - points[item], axis=1))[1:51]))

    places, spreads = [], []
    for item in deepest:
        label, best = int(setting.classes[item]), int(first.best[item])
        peers = [i for i in deepest if first.best[i] == best == setting.classes[i]]
        if label != best and len(peers) >= 3:
            places.append(float(np.mean([behind(i, label) < behind(item, label) for i in peers])))
            spreads.append(float(np.mean([far(i) < far(item) for i in peers])))
    expected = float(np.mean(places)), float(np.mean(spreads))
    assert _evenness(views, first, around, setting.classes, np.array(deepest), 0) == pytest.approx(expected)
    return expected


def test_wrong_labels_fall_on_any_item_of_a_class() -> None:
    points, of = clusters(4, 200, apart=3)
    for labels in (symmetric(of, 0.2, generator=0).labels, pair_flip(of, 0.2, generator=0).labels):
        nearer, farther = evenness(points, labels)
        assert nearer > 0.42
        assert 0.4 < farther < 0.6
        assert estimate_noise(points, labels, distance="euclidean").accuses


def test_a_class_that_lies_around_another_is_not_accused() -> None:
    """Two normal distributions, one wider: its items have the other one's for neighbours, and all labels are right."""
    random = np.random.default_rng(0)
    of = np.repeat([0, 1], 250)
    points = random.normal(size=(500, 16)) * np.where(of, 1, 2)[:, None] + 0.5 * of[:, None]
    nearer, farther = evenness(points, of)
    assert nearer > 0.4
    assert farther > 0.75
    found = find_suspects(points, of, distance="euclidean")
    assert not found.noise.accuses
    assert not (found.probability_wrong > 0.5).any()


def test_rows_of_random_length_are_deep_for_their_length() -> None:
    points, of = clusters(4, 200, apart=4)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    labels = symmetric(of, 0.2, generator=0).labels
    lengths = np.exp(0.7 * np.random.default_rng(1).normal(size=(len(points), 1)))
    assert estimate_noise(points, labels, distance="euclidean").accuses
    assert not estimate_noise(points * lengths, labels, distance="euclidean").accuses
    long = points * lengths
    setting = LabelledPoints.of(long, labels, folds=None, distance="euclidean")
    rows = np.arange(0, len(points), 3)
    means = {one: long[of == one].mean(axis=0) for one in range(4)}
    far = [math.dist(row, means[one]) for row, one in zip(long, of.tolist(), strict=True)]
    assert _reach(setting, of, rows) == pytest.approx(median([far[i] for i in rows]) / median(far))


def test_labels_by_a_rule_that_the_judges_cannot_follow_are_not_accused() -> None:
    """Ten bins of a coordinate, as the ages of people: all right, but for the linear judges they lie anywhere."""
    points = np.random.default_rng(0).normal(size=(3000, 100)) / np.sqrt(np.arange(1, 101))
    bins = np.searchsorted(np.quantile(points[:, 2], np.arange(0.1, 1, 0.1)), points[:, 2])
    assert evenness(points, bins)[0] < 0.4
    found = estimate_noise(points, bins, distance="euclidean")
    assert not found.accuses
    assert found.least == 0


def test_overlap_is_not_noise() -> None:
    points, truth = overlapping(1000)
    nearest = find_neighborhoods(LabelledPoints.of(points, truth, folds=None, distance="euclidean"), 1).indices[:, 0]
    assert (truth[nearest] != truth).mean() > 0.2
    least = []
    for seed in range(2):
        points, truth = overlapping(1000, seed)
        clean = estimate_noise(points, truth, distance="euclidean")
        assert (clean.verdict, clean.rate) == ("cannot-tell", None)
        assert clean.interval is not None
        assert clean.interval[0] < 0.03
        assert clean.accuses == (clean.interval[0] > 0)
        least.append(clean.least)
        noisy = estimate_noise(points, symmetric(truth, 0.2, generator=seed, exact=True).labels, distance="euclidean")
        assert noisy.interval is not None  # whether or not redraws show as many
        assert noisy.interval[0] - 0.01 < 0.2 < noisy.interval[1]
    assert np.mean(least) < 0.02


def test_where_most_labels_disagree_no_label_is_accused_but_the_share_is_told() -> None:
    """Wrong labels alone, or an embedding that is surely wrong: other labels, judged in the same one, would tell."""
    points, truth = clusters(10, 60)
    for rate in (0.6, 0.2):
        labels = symmetric(truth, rate, generator=0, exact=True).labels
        found = estimate_noise(points, labels)
        assert found.accuses == (rate < 0.5)
        assert found.surest[0] < rate < found.surest[1]
        assert found.surest[1] - found.surest[0] < 0.2


def test_mistakes_where_classes_meet_are_within_the_range() -> None:
    points, truth = overlapping(1000)
    wrong = (np.abs(points[:, 0]) < 0.8) & (np.random.default_rng(0).random(len(truth)) < 0.3)
    found = estimate_noise(points, np.where(wrong, 1 - truth, truth), distance="euclidean")
    assert found.verdict == "cannot-tell"
    assert found.rate is None
    assert found.interval is not None
    assert found.interval[0] < wrong.mean() < found.interval[1]
    assert not found.accuses
    assert "may not be separable" in found.reason


@pytest.mark.parametrize(
    ("classes", "items"), sampled([pytest.param(*each) for each in [(6, 100), (50, 20), (2, 30)]], 2)
)
def test_random_vectors_judge_no_label(classes: int, items: int) -> None:
    labels = np.repeat(np.arange(classes), items)
    for seed in range(3):
        found = estimate_noise(np.random.default_rng(seed).normal(size=(len(labels), 32)), labels)
        assert (found.verdict, found.rate, found.interval, found.accuses) == ("uninformative", None, None, False)
        assert "pretrained encoder" in found.reason


def test_over_a_thousand_classes_no_transition_is_counted() -> None:
    points, truth = clusters(1001, 4, apart=300)
    found = estimate_noise(points, symmetric(truth, 0.1, generator=0, exact=True).labels, distance="euclidean")
    assert found.transition is None
    assert found.interval is not None
    assert found.interval[0] < 0.1 < found.interval[1]


def test_folds_are_never_compared() -> None:
    points, truth = clusters(4, 100)
    labels = symmetric(truth, 0.2, generator=0, exact=True).labels
    folds = np.random.default_rng(0).permutation(400) % 2
    turned = points.copy()
    turned[folds == 1] = np.roll(points[folds == 1], 1, axis=1)  # another network's axes
    apart = estimate_noise(turned, labels, folds=folds)
    assert apart.least == pytest.approx(estimate_noise(points, labels, folds=folds).least, rel=1e-6)
    assert apart.least == pytest.approx(0.2, abs=0.06)


def test_invariances() -> None:
    points, truth = clusters(4, 60)
    labels = pair_flip(truth, 0.2, generator=0).labels
    found = estimate_noise(points, labels)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    for other in (
        estimate_noise(100 * points @ rotation, labels),
        estimate_noise(torch.from_numpy(points), torch.from_numpy((labels * 10 - 20).astype(np.int16))),
    ):
        assert other.rate == pytest.approx(found.rate, rel=1e-6)
        assert other.transition == pytest.approx(found.transition, abs=1e-6)


def test_equal_points_and_two_items_judge_nothing() -> None:
    assert estimate_noise(np.ones((40, 3)), np.arange(40) % 2).verdict == "uninformative"
    assert estimate_noise(np.eye(2), np.array([0, 1])).verdict == "uninformative"


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 0, 0], {}, "labels must hold at least two classes: got 1"),
        ([0, 0, 1], {}, "labels must hold one class per embedding"),
        ([0.0, 0.0, 1.0, 1.0], {}, "labels must be integers"),
        ([0, 0, 1, 1], {"neighbours": 4}, "neighbours must not exceed the 3 others"),
        ([0, 0, 1, 1], {"neighbours": 0}, "neighbours must be a whole number of at least 1"),
        ([0, 0, 1, 1], {"neighbours": 2, "folds": np.array([0, 0, 1, 1])}, "must not exceed the 1 others"),
        ([0, 0, 1, 1], {"folds": np.array([0, 0, 1, 2])}, "each fold must hold at least two items"),
        ([0, 0, 1, 1], {"folds": np.zeros(3, np.int64)}, "folds must hold one class per embedding"),
        ([0, 0, 1, 1], {"seed": -1}, "seed must not be negative"),
        ([0, 0, 1, 1], {"distance": "manhattan"}, "distance must be"),
    ],
)
def test_errors(labels: list[float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_noise(np.random.default_rng(0).normal(size=(4, 2)), np.array(labels), **options)
