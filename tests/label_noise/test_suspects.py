"""Suspects: known answers, rare modes that are no errors, and silence where nothing can be told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from trivet.label_noise import boundary, estimate_noise, find_suspects, pair_flip, symmetric
from trivet.label_noise.suspects import _shift
from trivet.metrics.nearest import nearest_pairs

Array = np.ndarray[Any, np.dtype[Any]]


def clusters(sizes: list[int], *, apart: float = 10.0, seed: int = 0) -> tuple[Array, Array]:
    """Gaussian clusters in 5 dimensions and which one each item is of."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(sizes)), sizes)
    centres = random.normal(size=(len(sizes), 5))
    centres *= apart / np.linalg.norm(centres, axis=1, keepdims=True)
    return centres[of] + random.normal(size=(len(of), 5)), of


def test_the_shift_gives_the_mean() -> None:
    doubt = np.array([0.0, -2.0, 3.0])
    found = _shift(doubt, 0.2)
    assert np.mean(1 / (1 + np.exp(-(doubt + found)))) == pytest.approx(0.2)


@pytest.mark.parametrize(("flip", "recall"), [(symmetric, 0.9), (pair_flip, 0.95)])
def test_finds_what_was_made_wrong(flip: Any, recall: float) -> None:
    points, truth = clusters([150] * 5)
    noisy = flip(truth, 0.3, generator=0, exact=True)
    found = find_suspects(points, noisy.labels + 100)
    count = int(noisy.wrong.sum())
    assert noisy.wrong[found.order[:count]].mean() > 0.97
    assert (found.proposed == truth + 100)[noisy.wrong].mean() > recall
    assert (found.proposed == truth + 100)[~noisy.wrong].mean() > 0.99
    # Odds are multiplied by at most e^40: where all labels are certain, the mean stays theirs beside another rate.
    assert found.noise.rate == pytest.approx(0.3, abs=0.03)
    mean, ends = found.probability_wrong.mean(), sorted([noisy.wrong.mean(), found.noise.rate])
    assert ends[0] - 1e-3 < mean < ends[1] + 1e-3
    assert (np.diff(found.probability_wrong[found.order]) <= 0).all()
    assert found.noise.rate == estimate_noise(points, noisy.labels).rate


def test_pair_flips_need_the_transition() -> None:
    """At 0.45, four of nine neighbours say the same wrong thing: only T tells which of two labels is the wrong one."""
    points, truth = clusters([300] * 4)
    noisy = pair_flip(truth, 0.45, generator=0, exact=True)
    found = find_suspects(points, noisy.labels)
    by_votes = 1 - found.neighbour_agreement
    count = int(noisy.wrong.sum())
    assert noisy.wrong[found.order[:count]].mean() > 0.95
    assert noisy.wrong[np.argsort(-by_votes, kind="stable")[:count]].mean() < 0.9


def test_mistakes_where_classes_meet_are_ranked_before_right_labels_there() -> None:
    """A transition that was counted where classes overlap would doubt the right labels of such classes: 0.94."""
    from sklearn.datasets import load_digits

    pixels, truth = load_digits(return_X_y=True)
    noisy = boundary(truth, pixels, 0.1, generator=0)
    place = np.argsort(find_suspects(pixels, noisy.labels).order)
    ahead = (place[~noisy.wrong][:, None] > place[noisy.wrong]).mean()
    assert ahead > 0.98


def test_a_rare_mode_is_no_error() -> None:
    """A class of two far clusters, one of them of 8 items beside a large other class."""
    points, of = clusters([200, 8, 200], apart=12)
    labels = np.array([0, 0, 1])[of]
    found = find_suspects(points, labels)
    rare = of == 1
    assert found.probability_wrong[rare].max() < 0.5
    assert (found.proposed[rare] == 0).all()
    assert found.mode_share[rare] == pytest.approx(np.full(8, 8 / 208))
    assert found.mode_share[of == 0] == pytest.approx(np.full(200, 200 / 208), abs=0.1)


def test_the_evidence() -> None:
    points, of = clusters([30, 30])
    labels = of.copy()
    labels[3] = 1
    found = find_suspects(points, labels, neighbours=7)
    assert found.order[0] == 3
    assert found.neighbours.shape == (60, 7)
    pairs = nearest_pairs(points, labels)
    assert found.positive_margin == pytest.approx(pairs.s_ap - pairs.s_an, abs=1e-6)
    assert found.neighbour_agreement == pytest.approx((labels[found.neighbours] == labels[:, None]).mean(axis=1))
    assert found.neighbour_agreement[3] == 0
    assert found.positive_margin[3] < 0
    assert found.mode_share[3] == pytest.approx(1 / 31)


def test_the_margin_of_euclidean_distances_and_a_class_of_one() -> None:
    points, labels = np.array([[0.0], [1.0], [5.0], [6.5], [9.0]]), np.array([4, 4, 2, 2, 7])
    found = find_suspects(points, labels, distance="euclidean")
    assert found.positive_margin[:4] == pytest.approx([4.0, 3.0, 2.5, 1.0])
    assert math.isnan(found.positive_margin[4])
    assert found.mode_share[4] == 1


def test_modes_end_at_folds() -> None:
    points, of = clusters([40, 40])
    folds = np.arange(80) % 2
    found = find_suspects(points, of, folds=folds)
    assert (folds[found.neighbours] == folds[:, None]).all()
    assert found.mode_share == pytest.approx(np.ones(80), abs=0.2)


def test_what_overlap_may_explain_is_held_against_no_label() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 500)
    points = random.normal(size=(1000, 2)) + np.where(labels == 1, 1.2, -1.2)[:, None]
    found = find_suspects(points, labels, distance="euclidean")
    assert found.noise.verdict == "cannot-tell"
    assert found.noise.least == 0
    assert found.probability_wrong.mean() == pytest.approx(0.5 / 1000, abs=1e-6)
    assert found.probability_wrong.max() < 0.5
    assert (found.proposed == labels).all()
    beyond = points.sum(axis=1) * np.where(labels == 1, -1, 1)  # how far an item lies on the other side
    assert set(found.order[:20].tolist()) <= set(np.argsort(-beyond)[:80].tolist())  # they are ranked all the same


def test_an_embedding_that_knows_nothing_suspects_nobody() -> None:
    found = find_suspects(np.ones((30, 2)), np.arange(30) % 3)
    assert np.isnan(found.probability_wrong).all()
    assert (found.proposed == np.arange(30) % 3).all()
    assert found.order.tolist() == list(range(30))
    assert found.neighbours[0].tolist() == list(range(1, 30))


def test_the_only_item_of_a_label_is_not_accused() -> None:
    points, of = clusters([60, 60, 1])
    labels = of.copy()
    labels[3] = 1
    found = find_suspects(points, labels)
    assert found.order[0] == 3
    assert found.probability_wrong[120] == pytest.approx(found.noise.rate)
    assert found.proposed[120] == 2


def test_the_only_item_of_a_label_stands_where_its_probability_does() -> None:
    points, of = clusters([180, 180, 180, 1])
    labels = of.copy()
    wrong = np.random.default_rng(0).permutation(540)[:189]
    labels[wrong] = (labels[wrong] + 1) % 3
    found = find_suspects(points, labels)
    assert 0.2 < found.probability_wrong[540] < 0.5
    in_order = found.probability_wrong[found.order]
    assert np.diff(in_order).max() <= 1e-9


@pytest.mark.parametrize(("width", "apart"), [(300, 2.5), (20, 1.5)])
def test_few_items_of_classes_that_overlap_accuse_no_label(width: int, apart: float) -> None:
    for seed in range(4):
        labels = np.repeat([0, 1], 60)
        points = np.random.default_rng(seed).normal(size=(120, width))
        points[:, 0] += np.where(labels == 1, apart, -apart) / 2
        found = find_suspects(points, labels, distance="euclidean")
        assert not (found.probability_wrong > 0.5).any()
        assert found.probability_wrong.sum() == pytest.approx(max(0.5, 120 * found.noise.least), abs=1e-6)
        assert found.noise.interval is not None
        assert found.noise.interval[0] == 0


def test_few_items_of_classes_apart_are_judged() -> None:
    points, truth = clusters([40, 40, 40])
    labels = symmetric(truth, 0.1, generator=0, exact=True).labels
    found = find_suspects(points, labels)
    assert np.array_equal(np.flatnonzero(found.probability_wrong > 0.5), np.flatnonzero(labels != truth))


def test_same_for_torch_and_after_relabelling() -> None:
    points, of = clusters([40, 40, 40])
    labels = symmetric(of, 0.2, generator=0).labels
    found = find_suspects(points, labels)
    other = find_suspects(torch.from_numpy(points).float(), torch.from_numpy(labels * 5 - 3))
    assert other.probability_wrong == pytest.approx(found.probability_wrong, abs=1e-4)
    assert np.array_equal(other.proposed, found.proposed * 5 - 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 4}, "neighbours must not exceed the 3 others"),
        ({"least": 1}, r"least must lie in \[0, 1\): got 1"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_suspects(np.random.default_rng(0).normal(size=(4, 2)), np.array([0, 1, 1, 1]), **options)
