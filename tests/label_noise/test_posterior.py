"""The fitted posterior: numbers that were drawn from are found again, and its parts by their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trivet.label_noise.posterior import (
    EVEN,
    PSEUDO,
    _Counts,
    _of_deepest,
    _other,
    _Part,
    _posterior,
    _State,
    fit_posterior,
)
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


@pytest.mark.parametrize(("table", "sharp"), [(even(0.0, 5), 4.0), (even(0.3, 5), 9.0), (shift(0.3, 4), 6.0)])
def test_what_labels_were_drawn_from_is_found(table: Array, sharp: float) -> None:
    views, _, labels = drawn(4000, table, sharp=sharp, seed=1)
    model = fit_posterior(views, labels, len(table), seed=0)
    assert model.powers == pytest.approx([3.0, 0.0], abs=0.5)
    assert model.transition == pytest.approx(table, abs=0.05)


def part_of(views: Views, labels: Array, fold: Array, count: int) -> _Part:
    return _Part(views.candidates, views.scores, np.where(views.repeated, -np.inf, 0.0), labels, fold, count)


def by_bayes(logs: list[float], explained: list[float]) -> list[float]:
    weights = [math.exp(log - max(logs)) * one for log, one in zip(logs, explained, strict=True)]
    return [one / sum(weights) for one in weights]


def test_probabilities_are_those_of_bayes() -> None:
    """By loops: true classes by the transition of all items, doubts by that of the fifth that is surest of a class."""
    views, _, labels = drawn(300, even(0.2, 3), sharp=3.0, seed=3)
    fold, powers = np.arange(300) % 5, np.array([2.5, 0.1])
    part = part_of(views, labels, fold, 3)
    counts = _Counts.of(views.candidates, np.full((300, 3), [0.8, 0.1, 0.1]), labels, fold, 3)
    state = _State(powers, 0.2, counts, 20.0)
    deepest = _of_deepest(part, state)
    model = _posterior(part, state, deepest)

    logs = [[float(powers @ one) for one in views.scores[i]] for i in range(300)]
    depth = [sorted(one)[-1] - sorted(one)[-2] for one in logs]
    tables = [counts.transition(k, 0.2, 20.0) for k in range(5)]
    surest, given = sorted(range(300), key=lambda i: -depth[i])[:60], {}
    for i in range(300):
        candidates = views.candidates[i].tolist()
        given[i] = by_bayes(logs[i], [tables[fold[i]][c, labels[i]] for c in candidates])
        assert model.best[i] == candidates[int(np.argmax(logs[i]))]
        assert model.depth[i] == pytest.approx(depth[i])
        assert model.given[i] == pytest.approx(given[i])

    tally = np.zeros((5, 3, 3))
    for i in surest:
        for c, share in zip(views.candidates[i], given[i], strict=True):
            tally[fold[i], c, labels[i]] += share
    rate = 1 - float(np.mean([given[i][0] for i in surest]))
    assert deepest.counts is not None
    assert deepest.counts.by_fold == pytest.approx(tally)
    assert deepest.rate == pytest.approx(rate)

    def explained(i: int, pseudo: float) -> list[float]:
        others = tally.sum(axis=0) - tally[fold[i]]
        table = (others + pseudo * even(rate, 3)) / (others.sum(axis=1, keepdims=True) + pseudo)
        return [float(table[c, labels[i]]) for c in views.candidates[i]]

    def likelihood(pseudo: float) -> float:
        found = 0.0
        for i in surest:
            weights = [math.exp(log - max(logs[i])) for log in logs[i]]
            found += math.log(sum(w * e for w, e in zip(weights, explained(i, pseudo), strict=True)) / sum(weights))
        return found

    assert deepest.pseudo == max(PSEUDO, key=likelihood)
    for i in range(300):
        own, *others = by_bayes(logs[i], explained(i, deepest.pseudo))
        assert model.doubt[i] == pytest.approx(math.log(sum(others) / own))


@pytest.mark.parametrize("table", [even(0.2, 4), shift(0.2, 4)])
def test_labels_are_doubted_as_by_one_who_knows_the_model(table: Array) -> None:
    views, truth, labels = drawn(6000, table, sharp=3.0, seed=4)
    found = fit_posterior(views, labels, 4, seed=0).doubt
    joint = np.exp(3 * views.scores[:, :, 0]) * table[views.candidates, labels[:, None]]
    known = joint[:, 1:].sum(axis=1) / joint[:, 0]
    wrong = labels != truth

    def ahead(doubt: Array) -> float:
        ranks = np.argsort(np.argsort(doubt))
        return float((ranks[wrong].mean() - (wrong.sum() - 1) / 2) / (~wrong).sum())

    assert ahead(known) > 0.8
    assert ahead(found) > ahead(known) - 0.01


def test_a_label_is_explained_by_the_other_folds() -> None:
    candidates, given = np.array([[0, 1], [1, 0], [0, 1]]), np.array([[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]])
    counts = _Counts.of(candidates, given, np.array([0, 1, 0]), np.array([0, 1, 1]), 2)
    assert counts.others(None).tolist() == [[1.25, 0.0], [0.75, 1.0]]
    assert counts.others(0).tolist() == [[0.5, 0.0], [0.5, 1.0]]
    # Five further items of noise at a rate of 0.2.
    assert counts.transition(0, 0.2, 5.0) == pytest.approx(np.array([[4.5 / 5.5, 1.0 / 5.5], [1.5 / 6.5, 5.0 / 6.5]]))


def other(candidates: Array, labels: list[int], given: Array, features: Array, prior: float, count: int) -> list[int]:
    """The other class by its definition, in plain Python."""
    counted = [[0.0] * count for _ in range(count)]
    for row, chances, label in zip(candidates.tolist(), given.tolist(), labels, strict=True):
        for c, chance in zip(row, chances, strict=True):
            counted[c][label] += chance
    sizes, shapes, means = [sum(row) for row in counted], [], []
    for y in range(count):
        others = [c for c in range(count) if c != y]
        mean = sum(counted[c][y] for c in others) / sum(sizes[c] for c in others)
        beyond = sum((counted[c][y] - sizes[c] * mean) ** 2 - sizes[c] * mean for c in others)
        beyond /= sum(sizes[c] ** 2 for c in others)
        shapes.append(max(prior, min(EVEN, mean**2 / beyond) if beyond > 0 else EVEN))
        means.append(mean)
    found = []
    for row, chances, shares, y in zip(candidates.tolist(), given.tolist(), features.tolist(), labels, strict=True):
        weights = [
            share * (counted[c][y] - chance + shapes[y]) / (sizes[c] - chance + shapes[y] / means[y])
            for c, chance, share in zip(row, chances, shares, strict=True)
        ]
        found.append(1 + int(np.argmax(weights[1:])))
    return found


@pytest.mark.parametrize("table", [even(0.3, 6), shift(0.3, 6)])
def test_the_other_class_equals_its_definition(table: Array) -> None:
    views, _, labels = drawn(80, table, sharp=2.0, seed=5)
    part = part_of(views, labels, np.arange(80) % 5, 6)
    random = np.random.default_rng(6)
    given = np.stack([random.dirichlet(0.02 + table[row, y]) for row, y in zip(views.candidates, labels, strict=True)])
    features = random.dirichlet(np.full(6, 0.3), size=80)
    for prior in (0.01, 5.0):
        expected = other(views.candidates, labels.tolist(), given, features, prior, 6)
        assert _other(part, given, features, prior).tolist() == expected
    by_itself = 1 + features[:, 1:].argmax(axis=1)
    assert (_other(part, given, features, 1e9) == by_itself).all()  # the noise is even, and tells nothing
    even_noise = table[0, 1] == table[0, 2]
    assert (_other(part, given, features, 0.01) == by_itself).all() == even_noise


def test_a_class_that_stands_a_second_time_is_not_the_other_one() -> None:
    views = Views(np.array([[0, 0, 1]]), np.zeros((1, 3, 2)), np.array([[False, True, False]]))
    part, sure = part_of(views, np.array([0]), np.array([0]), 2), np.array([[1.0, 0.0, 0.0]])
    assert _other(part, sure, sure, 0.1).tolist() == [2]


def test_what_rests_on_single_items_does_not_outweigh_what_an_item_looks_like() -> None:
    """Wrong labels of the last class come from all others; those of the first three from the class before."""
    table = even(0.0, 12)
    table[:, 11] += 0.02
    table[[11, 0, 1], [0, 1, 2]] = 0.2
    table[np.arange(12), np.arange(12)] -= table.sum(axis=1) - 1
    views, truth, labels = drawn(1500, table, sharp=4.0, seed=7)
    found = fit_posterior(views, labels, 12, seed=0)
    named = views.candidates[np.arange(1500), found.other]
    by_counts = views.candidates[np.arange(1500), 1 + found.given[:, 1:].argmax(axis=1)]
    many, one = ((labels != truth) & np.isin(labels, there) for there in ([11], [0, 1, 2]))
    assert (named == truth)[many].mean() > (by_counts == truth)[many].mean()
    assert (named == truth)[one].mean() >= (by_counts == truth)[one].mean() > 0.8
