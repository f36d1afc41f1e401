"""The fitted posterior: numbers that were drawn from are found again, and its parts by their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trivet.label_noise.classifiers import ClassScores
from trivet.label_noise.posterior import (
    EVEN,
    PSEUDO,
    _copied,
    _Counts,
    _Items,
    _of_deepest,
    _other,
    _posterior,
    _State,
    fit_posterior,
)

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(items: int, table: Array, *, sharp: float, seed: int) -> tuple[ClassScores, Array, Array]:
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
    return ClassScores(candidates, scores, np.zeros(candidates.shape, np.bool_)), truth, labels


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


def part_of(views: ClassScores, labels: Array, fold: Array, count: int) -> _Items:
    return _Items(views.candidates, views.scores, np.where(views.repeated, -np.inf, 0.0), labels, fold, count)


def by_bayes(logs: list[float], explained: list[float]) -> list[float]:
    weights = [math.exp(log - max(logs)) * one for log, one in zip(logs, explained, strict=True)]
    return [one / sum(weights) for one in weights]


def shrunk(counts: Array, rate: float, pseudo: float) -> Array:
    """The transition, row by row: shrunk towards even noise, at least the rate wrong, at most 0.9 of a class."""
    count, table = len(counts), []
    for c in range(count):
        told = [counts[c, y] + pseudo * (1 - rate if y == c else rate / (count - 1)) for y in range(count)]
        table.append([one / (sum(counts[c]) + pseudo) for one in told])
    wrong = [sum(row) - row[c] for c, row in enumerate(table)]
    mean = sum(wrong[c] * sum(counts[c]) for c in range(count)) / counts.sum()
    for c, row in enumerate(table):
        share = max(wrong[c], min(wrong[c] * rate / mean, 0.9))
        table[c] = [1 - share if y == c else one * share / wrong[c] for y, one in enumerate(row)]
    return np.array(table)


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
    tables = counts.transitions(0.2, 20.0)
    surest, best = sorted(range(300), key=lambda i: -depth[i])[:60], {}
    for i in range(300):
        candidates = views.candidates[i].tolist()
        best[i] = candidates[int(np.argmax(logs[i]))]
        assert model.best[i] == best[i]
        assert model.depth[i] == pytest.approx(depth[i])
        shares = [tables[fold[i]][c, labels[i]] for c in candidates]
        assert model.posterior[i] == pytest.approx(by_bayes(logs[i], shares))

    tally = np.zeros((5, 3, 3))
    for i in surest:
        tally[fold[i], best[i], labels[i]] += 1
    assert deepest.counts is not None
    assert deepest.counts.by_fold == pytest.approx(tally)

    rate = float(np.mean([best[i] != labels[i] for i in surest]))
    assert deepest.rate == pytest.approx(rate)

    def table(i: int, pseudo: float) -> Array:
        return shrunk(tally.sum(axis=0) - tally[fold[i]], rate, pseudo)

    assert deepest.pseudo == max(
        PSEUDO, key=lambda pseudo: sum(math.log(table(i, pseudo)[best[i], labels[i]]) for i in surest)
    )
    explained = [[table(i, deepest.pseudo)[c, labels[i]] for c in views.candidates[i]] for i in range(300)]
    nearby = [by_bayes(views.scores[i, :, 1].tolist(), [1.0] * 3)[0] for i in range(300)]

    def of_labels(i: int, copied: float) -> list[float]:
        own, *others = explained[i]
        return [own - copied * (1 - nearby[i]), *(one + copied * nearby[i] for one in others)]

    def likelihood(copied: float) -> float:
        alone = [by_bayes(logs[i], [1.0] * 3) for i in range(300)]
        return sum(
            math.log(sum(p * q for p, q in zip(alone[i], of_labels(i, copied), strict=True))) for i in range(300)
        )

    most = min(own[0] / (1 - near) for own, near in zip(explained, nearby, strict=True)) / 2
    tried = [0.01 + (most - 0.01) * step / 1000 for step in range(1001)]
    assert model.copied == pytest.approx(max(tried, key=likelihood), abs=1e-3)
    for i in range(300):
        own, *others = by_bayes(logs[i], of_labels(i, model.copied))
        assert model.doubt[i] == pytest.approx(math.log(sum(others) / own))


def test_the_share_of_copied_labels_is_found() -> None:
    """Labels that are right, but for some that are drawn from the classes nearby."""
    random, items = np.random.default_rng(6), 20_000
    views, truth, _ = drawn(items, even(0.0, 4), sharp=4.0, seed=6)
    scores = views.scores.copy()
    scores[:, :, 1] = np.log(random.dirichlet(np.ones(4), size=items))  # of the candidates, whose order is not known
    shares = np.empty((items, 4))
    np.put_along_axis(shares, views.candidates, np.exp(scores[:, :, 1]), axis=1)
    copied = random.random(items) < 0.1
    labels = np.where(copied, (shares.cumsum(axis=1) < random.random((items, 1))).sum(axis=1), truth)
    place = np.argsort(views.candidates != labels[:, None], axis=1, kind="stable")  # the label's class first
    again = ClassScores(
        np.take_along_axis(views.candidates, place, axis=1),
        np.take_along_axis(scores, place[:, :, None], axis=1),
        views.repeated,
    )
    part = part_of(again, labels, np.arange(items) % 5, 4)
    assert _copied(part, _State(np.array([3.0, 0.0]), 1e-6, None, 1e9)) == pytest.approx(0.1, abs=0.01)
    views, truth, _ = drawn(4000, even(0.0, 4), sharp=4.0, seed=7)
    part = part_of(views, truth, np.arange(4000) % 5, 4)
    assert _copied(part, _State(np.array([3.0, 0.0]), 0.2, None, 1e9)) == 0.01  # none
    assert _copied(part, _State(np.array([3.0, 0.0]), 1e-3, None, 1e9)) == 1e-3


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


def test_a_transition_is_brought_to_the_rate() -> None:
    """What flat probabilities have counted is too little where the deepest fifth tells of more."""
    table = np.array([[95.0, 5.0, 0.0], [4.0, 46.0, 0.0], [0.0, 0.0, 50.0]])
    counts = _Counts(np.stack([table / 5] * 5))
    for rate in (0.01, 0.3, 0.8):
        found = counts.transition(rate, 5.0)
        assert found == pytest.approx(shrunk(table, rate, 5.0))
        assert found.sum(axis=1) == pytest.approx(1)
    assert table.sum(axis=1) / table.sum() @ (1 - np.diag(counts.transition(0.3, 5.0))) == pytest.approx(0.3)


def test_a_label_is_explained_by_the_other_folds() -> None:
    candidates, given = np.array([[0, 1], [1, 0], [0, 1]]), np.array([[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]])
    counts = _Counts.of(candidates, given, np.array([0, 1, 0]), np.array([0, 1, 1]), 2)
    assert counts.by_fold.sum(axis=0).tolist() == [[1.25, 0.0], [0.75, 1.0]]
    assert counts.by_fold[1:].sum(axis=0).tolist() == [[0.5, 0.0], [0.5, 1.0]]
    # Five further items of noise at a rate of 0.2; of more than that share of the labels, wrong already.
    assert counts.transitions(0.2, 5.0)[0] == pytest.approx(np.array([[4.5 / 5.5, 1.0 / 5.5], [1.5 / 6.5, 5.0 / 6.5]]))


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
    views = ClassScores(np.array([[0, 0, 1]]), np.zeros((1, 3, 2)), np.array([[False, True, False]]))
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
    by_counts = views.candidates[np.arange(1500), 1 + found.posterior[:, 1:].argmax(axis=1)]
    many, one = ((labels != truth) & np.isin(labels, there) for there in ([11], [0, 1, 2]))
    assert (named == truth)[many].mean() > (by_counts == truth)[many].mean()
    assert (named == truth)[one].mean() >= (by_counts == truth)[one].mean() > 0.8
