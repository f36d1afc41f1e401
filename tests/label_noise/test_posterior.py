"""The fitted posterior: numbers that were drawn from are found again, and its parts by their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trivet.label_noise.posterior import Fits, _Counts, fit_posterior
from trivet.label_noise.views import Views

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(items: int, table: Array, *, sharp: float, seed: int) -> tuple[Views, Array, Array]:
    """Views of known posteriors, true classes drawn from these, and labels drawn from the rows of a transition."""
    random = np.random.default_rng(seed)
    count = len(table)
    logs = sharp * random.normal(size=(items, count))
    posterior = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    truth = (posterior.cumsum(axis=1) < random.random((items, 1))).sum(axis=1)
    labels = (table[truth].cumsum(axis=1) < random.random((items, 1))).sum(axis=1)
    candidates = np.stack([[c, *(o for o in range(count) if o != c)] for c in labels])
    noise = random.normal(size=(items, count))  # what the second view adds says nothing
    scores = np.stack([np.take_along_axis(one, candidates, axis=1) for one in (logs / 3, noise)], axis=2)
    return Views(candidates, scores, np.zeros(candidates.shape, np.bool_)), truth, labels


def even(rate: float, count: int) -> Array:
    return np.where(np.eye(count) == 1, 1 - rate, rate / (count - 1))


def shift(rate: float, count: int) -> Array:
    return np.eye(count) * (1 - rate) + np.roll(np.eye(count), 1, axis=1) * rate


def fit(views: Views, labels: Array, count: int) -> Fits:
    return fit_posterior(views, labels, count, seed=0)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4])
def test_even_noise_is_told_from_overlap(rate: float) -> None:
    views, truth, labels = drawn(4000, even(rate, 5), sharp=4.0, seed=1)
    found = fit(views, labels, 5)
    assert (views.candidates[np.arange(4000), views.scores[:, :, 0].argmax(axis=1)] != truth).mean() > 0.1  # overlap
    assert found.least.rate == pytest.approx((labels != truth).mean(), abs=0.02)
    assert found.least.powers == pytest.approx([3.0, 0.0], abs=0.4)


def test_noise_that_goes_one_way_is_counted() -> None:
    table = shift(0.3, 4)
    views, truth, labels = drawn(4000, table, sharp=6.0, seed=2)
    found = fit(views, labels, 4)
    for model in (found.by_class, found.least):
        assert model.rate == pytest.approx((labels != truth).mean(), abs=0.02)
        assert model.transition == pytest.approx(table, abs=0.03)
    assert found.by_class.likelihood > -1.2


def test_probabilities_are_those_of_bayes() -> None:
    views, _, labels = drawn(300, even(0.2, 3), sharp=3.0, seed=3)
    model = fit(views, labels, 3).by_class
    odds = model.given[:, 1:].sum(axis=1) / model.given[:, 0]
    assert np.allclose(np.exp(model.doubt), odds, rtol=1e-6)
    for i in range(300):
        logs = [float(model.powers @ one) for one in views.scores[i]]
        weights = {int(c): math.exp(one - max(logs)) for c, one in zip(views.candidates[i], logs, strict=True)}
        assert model.best[i] == max(weights, key=lambda c: weights[c])


def test_probabilities_are_calibrated() -> None:
    views, truth, labels = drawn(10_000, even(0.2, 4), sharp=2.0, seed=4)
    wrong = 1 - fit(views, labels, 4).least.given[:, 0]
    order = np.argsort(wrong)
    for part in np.array_split(order, 10):
        assert (labels != truth)[part].mean() == pytest.approx(wrong[part].mean(), abs=0.05)


def test_the_deviation_is_that_of_repeated_draws() -> None:
    runs = [fit(*drawn(600, even(0.2, 3), sharp=3.0, seed=seed)[::2], 3).least for seed in range(20)]
    spread = float(np.std([run.rate for run in runs], ddof=1))
    assert float(np.mean([run.deviation for run in runs])) == pytest.approx(spread, rel=0.4)


def test_a_label_is_explained_by_the_other_folds() -> None:
    candidates, given = np.array([[0, 1], [1, 0], [0, 1]]), np.array([[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]])
    counts = _Counts.of(candidates, given, np.array([0, 1, 0]), np.array([0, 1, 1]), 2)
    assert counts.others(None).tolist() == [[1.25, 0.0], [0.75, 1.0]]
    assert counts.others(0).tolist() == [[0.5, 0.0], [0.5, 1.0]]
    # Five further items of noise at a rate of 0.2.
    assert counts.transition(0, 0.2, 5.0) == pytest.approx(np.array([[4.5 / 5.5, 1.0 / 5.5], [1.5 / 6.5, 5.0 / 6.5]]))


def test_one_way() -> None:
    def of(table: list[list[float]]) -> float:
        return _Counts(np.array(table)[None] / 1.0).one_way()

    assert of([[50, 400], [0, 50]]) == pytest.approx(1)
    assert of([[50, 400], [400, 50]]) == 0
    assert of([[50, 400], [100, 50]]) == 0  # r = 0.36
    assert 0.3 < of([[50, 400], [40, 50]]) < 0.5  # r = 0.67
    assert of([[1, 0], [0, 1]]) == 0
