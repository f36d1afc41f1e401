"""The views of an item, against classifiers fitted again without it and shares counted one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trivet.label_noise.classifiers import ClassScores, class_scores, logistics
from trivet.label_noise.logistic import PENALTY
from trivet.label_noise.neighbourhoods import LabelledPoints, find_neighborhoods

Array = np.ndarray[Any, np.dtype[Any]]


def views_of(points: Array, labels: Array, k: int, weights: Array, folds: Array | None = None) -> ClassScores:
    setting = LabelledPoints.of(points, labels, folds=folds, distance="euclidean")
    return class_scores(setting, find_neighborhoods(setting, k), weights, logistics(setting, weights, seed=0))


def shrinkage(points: Array, labels: Array, weights: Array) -> tuple[float, float, float]:
    """Ledoit and Wolf for items about the means of their classes: the share of the identity, its level, the divisor."""
    count = labels.max() + 1
    means = np.stack([np.average(points[labels == c], axis=0, weights=weights[labels == c]) for c in range(count)])
    apart = points - means[labels]
    free = weights.sum() - count
    covariance = sum(w * np.outer(v, v) for w, v in zip(weights, apart, strict=True)) / free
    width = points.shape[1]
    level = np.trace(covariance) / width
    fourth = sum(w**2 * (v @ v) ** 2 for w, v in zip(weights, apart, strict=True))
    spread = (fourth / weights.sum() - (covariance**2).sum() * (free / weights.sum()) ** 2) / weights.sum()
    return min(1, max(0, spread / ((covariance**2).sum() - width * level**2))), level, free


@pytest.mark.parametrize("weighted", [False, True])
def test_the_linear_view_is_fitted_without_the_item(weighted: bool) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [12, 9, 7])
    points = random.normal(size=(28, 4)) @ random.normal(size=(4, 4)) + labels[:, None]
    weights = random.uniform(0.2, 1, 28) if weighted else np.ones(28)
    found = views_of(points, labels, 5, weights)
    share, level, free = shrinkage(points, labels, weights)
    for i in range(28):
        rest = np.arange(28) != i
        means = [
            np.average(points[rest & (labels == c)], axis=0, weights=weights[rest & (labels == c)]) for c in range(3)
        ]
        covariance = np.zeros((4, 4))
        for j in np.flatnonzero(rest):
            v = points[j] - means[labels[j]]
            covariance += weights[j] * np.outer(v, v)
        inverse = np.linalg.inv((1 - share) * covariance / free + share * level * np.eye(4))
        expected = {}
        for c in range(3):
            v = points[i] - means[c]
            expected[c] = math.log(weights[labels == c].sum() / weights.sum()) - v @ inverse @ v / 2
        scores = dict(zip(found.candidates[i].tolist(), found.scores[i, :, 0].tolist(), strict=True))
        for c in range(3):
            assert scores[c] - scores[0] == pytest.approx(expected[c] - expected[0], rel=1e-8, abs=1e-8)


def test_the_view_of_the_neighbours_counts_them_by_distance() -> None:
    random = np.random.default_rng(1)
    points, labels, weights = random.normal(size=(30, 2)), np.arange(30) % 3, random.uniform(0.1, 1, 30)
    found = views_of(points, labels, 12, weights)
    for i in range(30):
        near = sorted((math.dist(points[i], points[j]), j) for j in range(30) if j != i)[:12]
        mass = dict.fromkeys(range(3), 0.0)
        for d, j in near:
            mass[labels[j]] += weights[j] * math.exp(-((d / near[4][0]) ** 2))
        for c, score in zip(found.candidates[i].tolist(), found.scores[i, :, 1].tolist(), strict=True):
            prior = weights[labels == c].sum() / weights.sum()
            assert math.exp(score) == pytest.approx(mass[c] + 0.5 * prior, rel=1e-6)


def test_of_many_classes_the_likely_ones_are_weighed() -> None:
    random = np.random.default_rng(2)
    truth = np.repeat(np.arange(60), 8)
    points = 8 * random.normal(size=(60, 10))[truth] + random.normal(size=(480, 10))
    labels = truth.copy()
    labels[5] = 40
    found = views_of(points, labels, 20, np.ones(480))
    assert found.candidates.shape == (480, 32)
    assert (found.candidates[:, 0] == labels).all()
    assert 0 in found.candidates[5]
    for row, again in zip(found.candidates, found.repeated, strict=True):
        kept = row[~again]
        assert len(kept) == len(set(kept.tolist())) == len(set(row.tolist()))


def test_folds_do_not_see_each_other() -> None:
    random = np.random.default_rng(3)
    labels, folds = np.arange(60) % 3, np.repeat([0, 1], 30)
    points = random.normal(size=(60, 5)) + 2 * labels[:, None]
    moved = points.copy()
    moved[folds == 1] = points[folds == 1] @ np.linalg.qr(random.normal(size=(5, 5)))[0] + 50
    one, other = (views_of(rows, labels, 6, np.ones(60), folds) for rows in (points, moved))
    apart = one.scores - one.scores[:, :1] - (other.scores - other.scores[:, :1])
    assert np.abs(apart[:, :, :2]).max() < 1e-6
    assert np.abs(apart[:, :, 2]).max() < 2e-2  # the steps of logistic regression are few and in float32


def test_equal_points_and_classes_of_one_have_finite_scores() -> None:
    assert np.isfinite(views_of(np.ones((12, 3)), np.arange(12) % 2, 5, np.ones(12)).scores).all()
    assert np.isfinite(views_of(np.eye(4), np.array([0, 0, 1, 2]), 3, np.ones(4)).scores).all()


def test_logistic_regression_is_that_of_the_other_items() -> None:
    """Against scikit-learn, whose penalty is the inverse of ours, fitted to the other four fifths."""
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(4)
    labels = np.arange(90) % 3
    points = random.normal(size=(90, 4)) + labels[:, None] * [1.0, 0.0, 0.5, 0.0]
    weights = random.uniform(0.1, 1, 90)
    found = views_of(points, labels, 5, weights)
    rows = points - points.mean(axis=0)
    rows /= np.sqrt((rows**2).mean())
    (logistic,) = logistics(LabelledPoints.of(points, labels, folds=None, distance="euclidean"), weights, seed=0)
    fold = logistic.fold
    assert all(np.bincount(labels[fold == one]).tolist() == [6, 6, 6] for one in range(5))
    for one in range(5):
        others = fold != one
        fitted = LogisticRegression(C=1 / PENALTY, tol=1e-8, max_iter=1000)
        fitted.fit(rows[others], labels[others], sample_weight=weights[others])
        for i in np.flatnonzero(fold == one):
            expected = fitted.predict_log_proba(rows[[i]])[0][found.candidates[i]]
            assert found.scores[i, :, 2] == pytest.approx(expected, abs=2e-3)


def test_over_a_thousand_classes_have_no_logistic_regression() -> None:
    labels = np.arange(1001).repeat(2)
    points = np.random.default_rng(5).normal(size=(2002, 3))
    assert views_of(points, labels, 5, np.ones(2002)).scores.shape == (2002, 32, 2)
