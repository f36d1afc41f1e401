"""The order of suspicion: mistakes near another class before overlap, and one order for all that is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trivet.label_noise import boundary, find_suspects
from trivet.label_noise.estimate import judge
from trivet.label_noise.posterior import even_transition
from trivet.label_noise.ranking import in_order, sure_transition, suspicion
from trivet.label_noise.surroundings import Setting
from trivet.label_noise.views import Views

Array = np.ndarray[Any, np.dtype[Any]]


def auroc(values: Array, wrong: Array) -> float:
    above = values[wrong][:, None] - values[~wrong]
    return float(((above > 0) + (above == 0) / 2).mean())


def test_equals_the_definition() -> None:
    """Two candidates besides the own class, of which the last stands a second time and does not count."""
    scores = np.array([[[-1.0, -2.0], [-3.0, -1.0], [-3.0, -1.0]], [[-2.0, 0.0], [-1.0, -4.0], [-2.5, -1.5]]])
    repeated = np.array([[False, False, True], [False, False, False]])
    candidates, classes = np.array([[1, 0, 0], [2, 0, 1]]), np.array([1, 2])
    table = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
    found = suspicion(Views(candidates, scores, repeated), classes, np.array([0.5, 2.0]), table)
    first = -4 * 0.5 * 3 - 2 * 1 + math.log(0.15) - (-4 * 0.5 * 1 - 2 * 2 + math.log(0.7))
    others = math.exp(-4 * 0.5 * 1 - 2 * 4) * 0.05 + math.exp(-4 * 0.5 * 2.5 - 2 * 1.5) * 0.2
    second = math.log(others) - (-4 * 0.5 * 2 + math.log(0.6))
    assert found.tolist() == pytest.approx([first, second])


def test_mistakes_near_another_class_come_before_overlap() -> None:
    """Two pairs of classes overlap; a transition counted on all items is that of their overlap."""
    random = np.random.default_rng(1)
    truth, centres = np.repeat(np.arange(12), 60), 3 * np.eye(12)
    centres[[1, 3]] = centres[[0, 2]] + np.eye(12)[[1, 3]]
    points = centres[truth] + random.normal(size=(len(truth), 12))
    noisy = boundary(truth, points, 0.1, generator=1, exact=True)
    by_all = judge(Setting.of(points, noisy.labels, folds=None, distance="euclidean"), None, 0).model.doubt
    found = find_suspects(points, noisy.labels, distance="euclidean")
    place = np.empty(len(truth))
    place[found.order] = -np.arange(len(truth))
    assert auroc(place, noisy.wrong) > auroc(by_all, noisy.wrong) + 0.03
    assert (np.diff(found.probability_wrong[found.order]) <= 0).all()


def test_confusions_seen_once_are_chance() -> None:
    """Each item is left out of the counts that explain it: single ones speak for even noise."""
    best = np.repeat(np.arange(30), 10)
    labels = best.copy()
    labels[::5] = (best[::5] + np.random.default_rng(0).integers(1, 30, 60)) % 30
    assert sure_transition(best, labels, 30) == pytest.approx(even_transition(0.2, 30), abs=1e-6)


def test_one_order_and_the_same_sum() -> None:
    given, suspected = np.array([5.0, -1.0, 2.0, 4.0]), np.array([0.3, 0.9, 0.3, -2.0])
    found = in_order(given, suspected)
    assert found == pytest.approx([3.0, 5.0, 3.0, -1.0])
    assert found.sum() == pytest.approx(given.sum())
