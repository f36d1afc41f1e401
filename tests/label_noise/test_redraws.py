"""Labels redrawn from fitted models: the measures by their definitions, and what overlap alone accuses."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.label_noise.test_estimate import clusters, overlapping
from tests.nightly import sampled

from trivet.label_noise import estimate_noise, find_suspects, pair_flip, symmetric
from trivet.label_noise.estimate import BEYOND, EVENLY_BEYOND, _first_fit, _least, judge
from trivet.label_noise.neighbourhoods import LabelledPoints
from trivet.label_noise.posterior import drawn_columns, fit_overlap
from trivet.label_noise.redraws import _slope, deep_shares, overlap_excess, redrawn_mistakes
from trivet.label_noise.suspects import _probabilities

Array = np.ndarray[Any, np.dtype[Any]]


def test_deep_shares_by_their_definition() -> None:
    random = np.random.default_rng(0)
    depth, disagrees = np.round(random.normal(size=60), 1), random.random(60) < 0.4  # some equally deep
    for share, found in zip((0.3, 0.6), deep_shares(disagrees, depth), strict=True):
        total = weights = 0.0
        before = [sum(other > one for other in depth) + sum(other == one for other in depth) / 2 for one in depth]
        for deeper, wrong in zip(before, disagrees, strict=True):
            weight = max(0.0, 1 - (deeper - min(before)) / 60 / share)
            total, weights = total + weight * wrong, weights + weight
        assert found == pytest.approx(total / weights / disagrees.mean())
    assert deep_shares(np.ones(10, np.bool_), np.zeros(10)) == pytest.approx([1, 1])
    assert deep_shares(np.zeros(10, np.bool_), np.arange(10.0)).tolist() == [0, 0]


def test_columns_are_drawn_with_their_weights() -> None:
    columns = drawn_columns(np.tile([2.0, 0.0, 1.0, 1.0], (40000, 1)), np.random.default_rng(0))
    assert np.bincount(columns) / 40000 == pytest.approx([0.5, 0.0, 0.25, 0.25], abs=0.01)


def test_overlap_is_fitted_by_maximum_likelihood() -> None:
    points, labels = overlapping(60)
    setting = LabelledPoints.of(points, labels, folds=None, distance="euclidean")
    views = _first_fit(setting, 20, 0)[1]
    found = fit_overlap(views, labels, 2)

    def likelihood(powers: Array) -> float:
        total = 0.0
        for scores in views.scores.tolist():
            logs = [sum(power * score for power, score in zip(powers, one, strict=True)) for one in scores]
            total += logs[0] - math.log(sum(math.exp(one) for one in logs))  # the label is the first candidate
        return total

    best = likelihood(found.powers)
    for change in itertools.product((-0.02, 0.0, 0.02), repeat=2):
        assert likelihood(np.maximum(found.powers + change, 1e-4)) <= best + 1e-3
    assert found.best.tolist() == [
        int(one) for one in views.candidates[np.arange(120), (views.scores @ found.powers).argmax(axis=1)]
    ]


def table(columns: int, items: int, seed: int) -> tuple[Array, Array]:
    """Columns of two levels, so nearly all rows are equal to others, and two classes by a logistic model."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, 2, (items, columns)).astype(float)
    score = 1.5 * (rows - 0.5) @ random.normal(size=columns)
    return rows + 1, (random.random(items) < 1 / (1 + np.exp(-score))).astype(int)


def survey(seed: int) -> tuple[Array, Array]:
    """Nine columns of different spreads, and three classes that lie in each other."""
    random = np.random.default_rng(seed)
    rows = np.round(random.normal(size=(1200, 9)) * ([8] + [2] + 7 * [0.8]) + ([33] + [3] + 7 * [2]))
    logits = (rows - rows.mean(axis=0)) / rows.std(axis=0) @ random.normal(size=(9, 3)) * 0.5
    return rows, np.asarray((logits + random.gumbel(size=logits.shape)).argmax(axis=1))


@pytest.mark.parametrize("distance", sampled(["euclidean", "cosine"], 2))
@pytest.mark.parametrize("draw", [lambda seed: overlapping(700, seed), lambda seed: table(6, 1500, seed), survey])
def test_right_labels_of_tables_whose_classes_overlap_are_not_accused(draw: Any, distance: Any) -> None:
    for seed in range(2):
        rows, labels = draw(seed)
        found = find_suspects(rows, labels, distance=distance)
        assert found.noise.interval is None or found.noise.interval[0] == 0
        assert not (found.probability_wrong > 0.5).any()


def test_wrong_labels_disagree_where_overlap_does_not() -> None:
    def excess(points: Array, labels: Array) -> float:
        return overlap_excess(LabelledPoints.of(points, labels, folds=None, distance="euclidean"), 0)

    assert excess(*overlapping(700)) < BEYOND
    points, truth = clusters(6, 100, apart=4)
    assert excess(points, truth) < BEYOND
    assert excess(points, symmetric(truth, 0.2, generator=0).labels) > BEYOND
    assert excess(points, pair_flip(truth, 0.2, generator=0).labels) > EVENLY_BEYOND
    tripled = np.repeat(points, 100, axis=1)  # over 128 columns: principal axes
    assert excess(tripled, symmetric(truth, 0.2, generator=0).labels) > BEYOND


def test_the_share_of_the_lower_end_that_is_wrong_in_redraws() -> None:
    points, truth = clusters(10, 40, apart=2.5)
    labels = symmetric(truth, 0.2, generator=0).labels
    setting = LabelledPoints.of(points, labels, folds=None, distance="euclidean")
    around, views, first = _first_fit(setting, None, 0)
    for least, end, share in ((0.2, 0.8, 0.25), (0.1, 0.8, 0.125), (0.2, 0.1, 1.0)):
        found = redrawn_mistakes(setting, around, views, first, least, lambda *_, end=end: end, 0)
        assert found.share == pytest.approx(share, abs=0.06)
        assert 0 < found.slope <= 1
    read = []
    redrawn_mistakes(setting, around, views, first, 0.2, lambda *given: read.append(_least(*given)) or 0.2, 0)
    assert read == pytest.approx([0.2, 0.2], abs=0.15)


@pytest.mark.parametrize(("slope", "wanted"), [(0.5, 0.5), (1.0, 1.0), (3.0, 1.0)])
def test_the_slope_of_log_odds_is_that_of_a_logistic_regression(slope: float, wanted: float) -> None:
    random = np.random.default_rng(0)
    odds = random.normal(-3, 4, 20_000)
    wrong = random.random(len(odds)) < 1 / (1 + np.exp(-slope * odds - 0.7))
    assert _slope(odds, wrong) == pytest.approx(wanted, abs=0.05)
    assert _slope(np.append(odds, -np.inf), np.append(wrong, [False])) == pytest.approx(wanted, abs=0.05)
    assert _slope(odds, np.zeros(len(odds), bool)) == 1


def test_probabilities_of_few_items_are_no_surer_than_in_redraws() -> None:
    points, truth = clusters(20, 45, apart=3.0)
    labels = pair_flip(truth, 0.2, generator=1).labels
    analysis = judge(points, labels, None, None, 0, "euclidean")
    assert 0.5 < analysis.noise.slope < 0.95
    found = find_suspects(points, labels, distance="euclidean")
    surer = replace(analysis, noise=replace(analysis.noise, slope=1.0))
    before, *_, doubt = _probabilities(surer, 0.0)
    assert found.probability_wrong.mean() == pytest.approx(before.mean(), abs=1e-6)
    assert found.order.tolist() == np.argsort(-doubt, kind="stable").tolist()
    odds = [np.log(each / (1 - each)) for each in (found.probability_wrong, before)]
    spreads = [each[np.abs(each) < 20].std() for each in odds]
    assert spreads[0] == pytest.approx(analysis.noise.slope * spreads[1], rel=0.05)


def test_equal_rows_with_other_labels_alone_call_no_label_wrong() -> None:
    points, truth = clusters(4, 150)
    labels = symmetric(truth, 0.1, generator=0).labels
    rows, given = np.concatenate([points, points[:40]]), np.concatenate([labels, (labels[:40] + 1) % 4])
    found = find_suspects(rows, given, neighbours=1)  # their copies are all the neighbours that these rows have
    assert (found.probability_wrong[600:] <= 0.5).all()
    more = find_suspects(rows, given)  # other items speak against them as well
    assert (more.probability_wrong[600:][given[600:] != truth[:40]] > 0.5).mean() > 0.4


def test_equal_rows_with_other_labels_are_not_read() -> None:
    rows, labels = table(3, 400, 0)
    found = estimate_noise(rows, labels, distance="euclidean")
    assert found.least == 0
    assert found.surest == pytest.approx((0, 0.7935), abs=1e-4)  # of no item


def test_probabilities_keep_the_order_where_no_label_must_be_wrong() -> None:
    points, labels = overlapping(300)
    found = find_suspects(points, labels, distance="euclidean")
    assert found.noise.interval is not None
    assert found.noise.interval[0] == 0
    assert (np.diff(found.probability_wrong[found.order]) <= 0).all()
    assert found.probability_wrong.sum() >= 0.5 - 1e-6
    assert found.probability_wrong[found.order[:50]].min() > 0


def test_a_transition_that_exchanges_classes_is_not_taken() -> None:
    """Titanic: class, sex and age by cosine; a judge that knows no label tells four of five."""
    counts = {(1, 0): (118, 62), (2, 0): (154, 25), (3, 0): (422, 88), (4, 0): (670, 192)}
    counts |= {(1, 1): (4, 141), (2, 1): (13, 93), (3, 1): (106, 90), (4, 1): (3, 20)}
    rows = np.array([[*key, 1] for key, both in counts.items() for _ in range(sum(both))], float)
    labels = np.concatenate([np.repeat([0, 1], both) for both in counts.values()])
    found = estimate_noise(rows, labels)
    assert found.agreement > 0.7
    assert found.verdict == "cannot-tell"
