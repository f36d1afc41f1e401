from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trivet.metrics import verification
from trivet.metrics.intervals import Average, Over
from trivet.metrics.roc import Roc
from trivet.metrics.verification import verify, verify_pairs
from trivet.metrics.verification_pairs import rate_name

FARS = (0.01, 0.25, 1 / 3, 0.5, 0.9)
Pair = tuple[int, bool]  # squared distance, same class
ITEMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=9)


def auc(pairs: Sequence[Pair]) -> Fraction:
    wins = [
        Fraction(1 if near < far else 0) + Fraction(1 if near == far else 0, 2)
        for near, same in pairs
        if same
        for far, other in pairs
        if not other
    ]
    return sum(wins, Fraction(0)) / len(wins)


def tar(pairs: Sequence[Pair], far: float) -> Fraction | None:
    """Positives accepted on average over random orders of tied pairs, as negatives are let in up to the rate."""
    kinds = {kind: [squared for squared, same in pairs if same == kind] for kind in (True, False)}
    if Fraction(far).limit_denominator(1000) * len(kinds[False]) < 1:
        return None
    at = Fraction(far).limit_denominator(1000) * len(kinds[False])
    accepted = Fraction(0)
    negatives = 0
    for distance in sorted({squared for squared, _ in pairs}):
        more = kinds[False].count(distance)
        if negatives + more > at:
            return (accepted + kinds[True].count(distance) * (at - negatives) / more) / len(kinds[True])
        negatives += more
        accepted += kinds[True].count(distance)
    return accepted / len(kinds[True])


def balanced(pairs: Sequence[Pair], limit: float) -> Fraction:
    """Balanced accuracy when pairs up to this squared distance are accepted."""
    kinds = {kind: [squared for squared, same in pairs if same == kind] for kind in (True, False)}
    accepted = {kind: Fraction(sum(squared <= limit for squared in kinds[kind]), len(kinds[kind])) for kind in kinds}
    return (accepted[True] + 1 - accepted[False]) / 2


def best_threshold(pairs: Sequence[Pair]) -> float:
    """The lowest best limit, midway to the next distance."""
    distances = sorted({squared for squared, _ in pairs})
    best = max(distances, key=lambda limit: (balanced(pairs, limit), -limit))
    following = min((squared for squared in distances if squared > best), default=best)
    return (math.sqrt(best) + math.sqrt(following)) / 2


def both_kinds(pairs: Sequence[Pair]) -> bool:
    return {same for _, same in pairs} == {True, False}


@settings(deadline=None, max_examples=150)
@given(ITEMS, st.sampled_from([(1.0, 0.0), (0.25, 100.0)]))
def test_equals_the_definition(items: list[tuple[int, int, int]], place: tuple[float, float]) -> None:
    pairs = [((x - u) ** 2 + (y - v) ** 2, c == e) for (x, y, c), (u, v, e) in combinations(items, 2)]
    points = np.array([item[:2] for item in items]) * place[0] + place[1]
    labels = np.array([item[2] for item in items])
    if not both_kinds(pairs):
        with pytest.raises(ValueError, match=r"two items must share a class|at least two classes"):
            verify(points, labels)
        return
    found = verify(points, labels, fars=FARS)
    assert found.roc_auc == pytest.approx(float(auc(pairs)), abs=1e-12)
    for far in FARS:
        expected = tar(pairs, far)
        assert found.tar_at_far[far] == (None if expected is None else pytest.approx(float(expected), abs=1e-9))
    assert found.positive_pairs == sum(same for _, same in pairs)
    assert found.negative_pairs == len(pairs) - found.positive_pairs
    assert not found.sampled
    left, right = np.triu_indices(len(items), 1)
    listed = verify_pairs(points[left], points[right], labels[left] == labels[right], fars=FARS)
    assert (listed.roc_auc, listed.tar_at_far) == (found.roc_auc, found.tar_at_far)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([3, 4, 5, 8])), min_size=6, max_size=12), st.integers(0, 99)
)
def test_the_threshold_comes_from_other_classes(items: list[tuple[int, int]], seed: int) -> None:
    items = [*items, (0, 3), (3, 4), (1, 5), (2, 8), (6, 3), (5, 4), (6, 5), (7, 8)]  # two of each class at least
    found = verify(np.array([[float(x)] for x, _ in items]), np.array([c for _, c in items]), seed=seed)
    possible = set()
    for chosen in combinations([3, 4, 5, 8], 2):
        halves = [[item for item in items if (item[1] in chosen) is inside] for inside in (True, False)]
        choosing, judging = ([((x - u) ** 2, c == e) for (x, c), (u, e) in combinations(half, 2)] for half in halves)
        threshold = best_threshold(choosing)
        possible.add((round(threshold, 9), round(float(balanced(judging, threshold**2)), 9)))
    assert found.threshold is not None
    assert found.accuracy is not None
    assert (round(found.threshold, 9), round(found.accuracy, 9)) in possible


def test_the_seed_decides_the_halves() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(40, 2)), np.arange(40) % 4
    found = {verify(points, labels, seed=seed).accuracy for seed in range(40)}
    assert len(found) == 6  # of four classes
    assert verify(points, labels, seed=7) == verify(points, labels, seed=7)


def test_halves_keep_classes_with_positive_pairs_on_both_sides() -> None:
    # Two classes of two among eight of one: a blind split would have both in one half in 4 of 9 cases.
    points, labels = np.arange(12.0)[:, None], np.array([0, 0, 1, 1, *range(2, 10)])
    for seed in range(20):
        assert verify(points, labels, seed=seed).accuracy is not None


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 2, 3]])
def test_too_few_classes_for_two_halves(labels: list[int]) -> None:
    found = verify(np.arange(len(labels), dtype=np.float64)[:, None], np.array(labels))
    assert found.threshold is None
    assert found.accuracy is None
    assert found.roc_auc > 0.5


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
@pytest.mark.parametrize("most_pairs", [2_000_000, 600])
def test_a_constant_embedding_scores_chance(value: float, most_pairs: int) -> None:
    labels = np.arange(80) // 4
    for distance in ("euclidean", "cosine"):
        found = verify(np.full((80, 3), value), labels, fars=(0.3, 0.01), most_pairs=most_pairs, distance=distance)
        assert found.roc_auc == found.accuracy == 0.5
        assert found.tar_at_far == {0.3: 0.3, 0.01: 0.01}
        assert found.threshold == 0
    found = verify_pairs(np.full((40, 2), value), np.full((40, 2), value), np.arange(40) % 2, fars=(0.3,))
    assert (found.roc_auc, found.accuracy, found.tar_at_far) == (0.5, 0.5, {0.3: 0.3})


def test_distances_that_differ_by_rounding_tie_and_others_do_not() -> None:
    zeros = np.zeros((2, 1))
    for right, area in (
        ([0.3, 0.1 + 0.2], 0.5),
        ([0.1 + 0.2, 0.3], 0.5),
        ([0.3 * (1 - 1e-12), 0.3], 1.0),
        ([0.3 * (1 + 1e-12), 0.3], 0.0),
        ([1e-300, 2e-300], 1.0),
    ):
        assert verify_pairs(zeros, np.array(right)[:, None], np.array([1, 0])).roc_auc == area


def test_many_distances_close_together_are_no_tie() -> None:
    # Each is within 1e-13 of the next, all of them are not.
    right = 1 + 5e-14 * np.arange(2000)[:, None]
    found = verify_pairs(np.zeros((2000, 1)), right, np.arange(2000) < 1000)
    assert found.roc_auc > 0.999


def test_a_threshold_lies_midway_and_takes_what_ties_with_it() -> None:
    curve = Roc.of(np.array([1.0, 2.0, 4.0, 5.0]), np.array([True, True, False, True]))
    assert curve.best_threshold() == 3
    assert (curve.true_at(0.5), curve.false_at(0.6), curve.false_at(2 / 3), curve.false_at(0.7)) == (2 / 3, 0, 0, 1)
    # One half has a positive pair that is farther by its rounding than any of the other half.
    left, right = np.zeros((4, 1)), np.array([[0.3], [0.1 + 0.2], [0.3], [0.3]])
    for seed in range(8):
        assert verify_pairs(left, right, np.array([1, 1, 0, 0]), seed=seed).accuracy == 0.5


def test_rates_below_one_negative_pair_are_not_resolved() -> None:
    labels = np.array([0] * 7 + [1] * 7)  # 49 negative pairs
    found = verify(np.arange(14.0)[:, None], labels, fars=(1 / 49, 0.0204, 0.5))
    assert found.negative_pairs == 49
    assert found.tar_at_far[1 / 49] is not None
    assert found.tar_at_far[0.0204] is None


def test_cosine_compares_directions() -> None:
    generator = np.random.default_rng(0)
    angles = np.repeat(np.arange(6), 5) + generator.normal(0, 0.1, 30)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    labels = np.repeat(np.arange(6), 5)
    found = verify(points * generator.uniform(0.1, 10, (30, 1)), labels, distance="cosine")
    flat = verify(points, labels)
    assert found.roc_auc == pytest.approx(flat.roc_auc, abs=1e-12)
    assert found.tar_at_far == pytest.approx(flat.tar_at_far, abs=1e-12)
    # Similarity 0.8 within a class and 0 between two: midway, in the unit 1 - S, are 0.2 and 1.
    left, right = np.tile([[3.0, 0.0]], (4, 1)), np.array([[4.0, 3.0], [0.8, 0.6], [0.0, 1.0], [0.0, -7.0]])
    angled = verify_pairs(left, right, np.array([1, 1, 0, 0]), distance="cosine")
    assert angled.threshold == pytest.approx(0.6, rel=1e-12)
    assert angled.accuracy == 1
    opposite = verify_pairs(np.eye(2), np.array([[2.0, 0], [0, -3.0]]), np.array([True, False]), distance="cosine")
    assert opposite.roc_auc == 1


def test_a_sample_is_stated_and_takes_a_rare_kind_whole() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(60, 2)), np.repeat(np.arange(30), 2)  # 30 positive, 1740 negative pairs
    counts = {
        most: (found.positive_pairs, found.negative_pairs, found.sampled)
        for most in (1770, 1769, 100, 40)
        for found in [verify(points, labels, most_pairs=most)]
    }
    assert counts == {
        1770: (30, 1740, False),
        1769: (30, 884, True),
        100: (30, 50, True),
        40: (20, 20, True),
    }


@pytest.mark.parametrize(("total", "count"), [(7, 3), (40, 8)])
def test_every_pair_is_drawn_equally_often(total: int, count: int) -> None:
    generator = np.random.default_rng(0)
    times = np.zeros(total)
    for _ in range(2000):
        drawn = verification._distinct(total, count, generator)
        assert len(set(drawn.tolist())) == count
        times[drawn] += 1
    expected = 2000 * count / total
    # Chi-square with total - 1 degrees of freedom, of a sample without replacement.
    statistic = ((times - expected) ** 2).sum() / (expected * (1 - count / total))
    assert statistic < total + 5 * math.sqrt(2 * total)


def test_numbers_name_each_pair_once() -> None:
    first, count = np.array([1, 2, 3, 4, 5]), np.array([3, 0, 2, 1, 0])
    rows, columns = verification._numbered(first, count, np.arange(6))
    assert [*zip(rows.tolist(), columns.tolist(), strict=True)] == [(0, 1), (0, 2), (0, 3), (2, 3), (2, 4), (3, 4)]


def test_a_large_set_is_sampled_without_counting_out_its_pairs() -> None:
    labels = np.arange(300_000) % 3  # 45 thousand million pairs
    found = verify(np.arange(300_000.0)[:, None] % 3, labels, most_pairs=2000)
    assert (found.positive_pairs, found.negative_pairs, found.roc_auc) == (1000, 1000, 1)


@pytest.mark.parametrize("entries", [1, 7])
def test_neither_blocks_nor_kinds_of_array_matter(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(30, 2)).astype(np.float32), generator.integers(0, 5, 30)
    whole = verify(points, labels)
    monkeypatch.setattr("trivet.metrics.points.PAIR_NUMBERS", entries)
    assert verify(torch.from_numpy(points).requires_grad_(), torch.from_numpy(labels).to(torch.int16)) == whole
    same = labels[:15] == labels[15:]
    assert verify_pairs(torch.from_numpy(points[:15]), points[15:], torch.from_numpy(same)) == verify_pairs(
        points[:15], points[15:], same.astype(np.uint8)
    )


POINTS, LABELS = np.arange(4.0)[:, None], np.array([0, 0, 1, 1])
SAME: Any = np.array([1, 1, 0, 0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: verify(POINTS, np.arange(4)),
            "two items must share a class: each of the 4 items has a class of its own",
        ),
        (lambda: verify(POINTS, np.zeros(4, int)), "at least two classes: all 4 have the same one"),
        (lambda: verify(POINTS[:0], LABELS[:0]), "two items must share a class"),
        (lambda: verify(POINTS, LABELS[:3]), "one class per embedding"),
        (lambda: verify(POINTS * np.nan, LABELS), "hold NaN"),
        (lambda: verify(POINTS, LABELS, fars=(0.1, 0)), r"between 0 and 1: got \(0.1, 0\)"),
        (lambda: verify(POINTS, LABELS, most_pairs=1), "at least 2: got 1"),
        (lambda: verify(POINTS, LABELS, distance="dot"), "'euclidean' or 'cosine'"),
        (lambda: verify_pairs(POINTS, POINTS[:3], SAME), r"got shapes \(4, 1\) and \(3, 1\)"),
        (lambda: verify_pairs(POINTS, POINTS, SAME[:3]), r"each of the 4 pairs: got shape \(3,\)"),
        (lambda: verify_pairs(POINTS, POINTS, SAME + 1), "True or False, or 1 or 0: got int64 from 1 to 2"),
        (lambda: verify_pairs(POINTS, POINTS, SAME * 1.0), "got float64"),
        (lambda: verify_pairs(POINTS, POINTS, SAME > 5), "got 0 and 4"),
        (lambda: verify_pairs(POINTS, POINTS, SAME >= 0), "got 4 and 0"),
        (lambda: verify_pairs(POINTS[:0], POINTS[:0], SAME[:0]), "got 0 and 0"),
        (lambda: verify_pairs(POINTS, POINTS, SAME, fars=(1.0,)), "between 0 and 1"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def drawn_pairs(
    points: np.ndarray, labels: np.ndarray, over: Over, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Distance and kind of the pairs of drawn items; of drawn classes, each draw a class of its own.

    What is drawn twice is not compared with itself.
    """
    if over == "queries":
        rows = np.concatenate(
            [generator.choice(np.flatnonzero(labels == c), sum(labels == c)) for c in np.unique(labels)]
        )
        own = labels[rows]
    else:
        members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        chosen = generator.integers(0, len(members), len(members))
        rows = np.concatenate([members[c] for c in chosen])
        own = np.repeat(np.arange(len(chosen)), [len(members[c]) for c in chosen])
    left, right = np.triu_indices(len(rows), 1)
    kept = rows[left] != rows[right]
    if over == "classes":
        kept &= (own[left] == own[right]) | (labels[rows[left]] != labels[rows[right]])
    left, right = left[kept], right[kept]
    return np.linalg.norm(points[rows[left]] - points[rows[right]], axis=1), own[left] == own[right]


def gaussian_classes(generator: np.random.Generator, classes: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat(np.arange(classes), items)
    spread = (0.3 + generator.random(classes))[labels, None]
    return generator.normal(size=(classes, 3))[labels] + spread * generator.normal(size=(len(labels), 3)), labels


@pytest.mark.parametrize("over", ["queries", "classes"])
def test_intervals_are_as_wide_as_those_of_a_true_bootstrap(over: Over) -> None:
    generator = np.random.default_rng(0)
    points, labels = gaussian_classes(generator, 20, 9)
    found = verify(points, labels, fars=(0.1, 0.02)).intervals()
    drawn = []
    for _ in range(200):
        curve = Roc.of(*drawn_pairs(points, labels, over, generator))
        drawn.append([curve.area, curve.true_at(0.1), curve.true_at(0.02)])
    for name, values in zip(("roc-auc", "tar@far=0.1", "tar@far=0.02"), np.transpose(drawn), strict=True):
        if name != "roc-auc" and over == "queries":
            continue  # where both of its items are drawn twice a pair is drawn four times
        t = stats.t.ppf(0.975, 160 if over == "queries" else 38 / 3)
        width = (found[name][over].high - found[name][over].low) / (2 * t)
        # A standard deviation of 200 is known to 1 / root(400), and to the first order only.
        assert width == pytest.approx(values.std(), rel=3 / math.sqrt(400) + 0.1)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_the_influence_of_an_item_is_the_derivative_of_the_measure(average: Average) -> None:
    """Weights of items put into the definition in plain Python, where a pair weighs w_i + w_j - 1."""
    generator = np.random.default_rng(3)
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4])
    points = generator.integers(0, 5, (12, 2)).astype(float)
    pairs = verify(points, labels, fars=(0.2,)).pairs
    assert pairs is not None

    def area(weights: list[float], weights_of_classes: list[float]) -> float:
        weighed = []
        for i, j in combinations(range(12), 2):
            weight = weights[i] + weights[j] - 1
            one, other = (weights_of_classes[labels[k]] for k in (i, j))
            weighed.append((math.dist(points[i], points[j]), labels[i], labels[j], weight, one, other))
        found, total = 0.0, 0.0
        for c in range(5) if average == "macro" else [-1]:
            wins = both = 0.0
            for d, a, b, weight, _, _ in weighed:
                for e, k, m, second, first_class, second_class in weighed:
                    if a != b or k == m or (c >= 0 and (a != c or c not in (k, m))):
                        continue
                    if c >= 0:
                        times = weight * second * (second_class if k == c else first_class)
                    else:
                        times = weight * weights_of_classes[a] * second * (first_class + second_class - 1)
                    wins += times * ((d < e) + (d == e) / 2)
                    both += times
            if both:
                found += wins / both * (weights_of_classes[c] if c >= 0 else 1)
                total += weights_of_classes[c] if c >= 0 else 1
        return found / total

    ones, step = [1.0] * 12, 1e-6
    whole = area(ones, ones[:5])
    items, classes = np.empty(12), pairs.influences("classes", average)["roc-auc"]
    items[pairs.order] = pairs.influences("queries", average)["roc-auc"]
    for item in range(12):
        slope = (area([1 + step * (k == item) for k in range(12)], ones[:5]) - whole) / step
        assert items[item] == pytest.approx(slope, abs=2e-5)
    for c in range(5):
        slope = (area(ones, [1 + step * (k == c) for k in range(5)]) - whole) / step
        assert classes[c] == pytest.approx(slope, abs=2e-5)


def test_each_class_has_its_pairs_against_those_it_is_in() -> None:
    generator = np.random.default_rng(1)
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 5])
    points = generator.integers(0, 5, (13, 2)).astype(float)
    found = verify(points, labels + 5, fars=(0.23,), seed=2)
    shares, pairs = found.per_class(), list(combinations(range(13), 2))
    squares = {(i, j): round(math.dist(points[i], points[j]) ** 2) for i, j in pairs}
    limit = sorted({squares[i, j] for i, j in pairs})
    negatives = [squares[i, j] for i, j in pairs if labels[i] != labels[j]]
    # TAR: those nearer than the last distance, and the part of those tied with it.
    last = next(d for d in limit if sum(e <= d for e in negatives) > 0.23 * len(negatives))
    part = (0.23 * len(negatives) - sum(e < last for e in negatives)) / negatives.count(last)
    for c in range(6):
        own = [(squares[i, j], True) for i, j in pairs if labels[i] == labels[j] == c]
        if not own:
            assert all(np.isnan(values[c]) for values in shares.values())
            continue
        others = [(squares[i, j], False) for i, j in pairs if (labels[i] == c) != (labels[j] == c)]
        assert shares["roc-auc"][c] == pytest.approx(float(auc([*own, *others])), abs=1e-12)
        accepted = [(d < last) + part * (d == last) for d, _ in own]
        assert shares["tar@far=0.23"][c] == pytest.approx(sum(accepted) / len(own), abs=1e-9)
    assert found.threshold is not None
    judged = [c for c in range(6) if not np.isnan(shares["verification-accuracy"][c])]
    assert 2 <= len(judged) <= 4
    assert found.pairs is not None
    half = np.empty(13, bool)
    half[found.pairs.order] = found.pairs.judging
    inside = [pair for pair in pairs if half[pair[0]] and half[pair[1]]]
    for c in judged:
        own = [(squares[i, j], True) for i, j in inside if labels[i] == labels[j] == c]
        others = [(squares[i, j], False) for i, j in inside if (labels[i] == c) != (labels[j] == c)]
        right = float(balanced([*own, *others], found.threshold**2))
        assert shares["verification-accuracy"][c] == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("over", ["queries", "classes"])
def test_influences_add_up_to_nothing(average: Average, over: Over) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(9), [1, 2, 2, 3, 3, 4, 4, 5, 6])
    found = verify(generator.normal(size=(30, 3)) + labels[:, None] / 5, labels, fars=(0.1,))
    assert found.pairs is not None
    influences = found.pairs.influences(over, average)
    assert set(influences) == {"roc-auc", "verification-accuracy", "tar@far=0.1"}
    for values in influences.values():
        assert values.sum() == pytest.approx(0, abs=1e-12)
        assert np.abs(values).max() > 1e-3


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_influences_on_a_rate_are_those_of_the_definition(average: Average) -> None:
    generator = np.random.default_rng(0)
    labels = [0] * 3 + [1] * 5 + [2] * 4 + [3]
    points = (generator.normal(size=(13, 2)) + np.array(labels)[:, None] / 2).tolist()
    found = verify(np.array(points), np.array(labels), fars=(0.3,))
    pairs = [(i, j, math.dist(points[i], points[j])) for i in range(13) for j in range(i)]
    positive = [pair for pair in pairs if labels[pair[0]] == labels[pair[1]]]
    negative = sorted((d, i, j) for i, j, d in pairs if labels[i] != labels[j])
    number = 0.3 * len(negative)
    assert number % 1 > 0.05  # so many negative pairs are accepted, and a share of one more

    def rate_at(count: float, weights: list[float]) -> float:
        """Weighted share of the positive pairs that are nearer than the first negative one not accepted whole."""
        return sum(weight for weight, pair in zip(weights, positive, strict=True) if pair[2] < negative[int(count)][0])

    sizes = [sum(labels[i] == c for i, *_ in positive) for c in range(4)]
    weights = [1 / len(positive) if average == "micro" else 1 / (3 * sizes[labels[i]]) for i, *_ in positive]
    reach = 2 * math.sqrt(number)
    slope = (rate_at(number + reach, weights) - rate_at(number - reach, weights)) / (2 * reach)
    shares = [float(d < negative[int(number)][0]) for *_, d in positive]
    by_class = [
        sum(s for s, (i, *_) in zip(shares, positive, strict=True) if labels[i] == c) / max(1, sizes[c])
        for c in range(4)
    ]
    rate = sum(w * s for w, s in zip(weights, shares, strict=True))
    assert rate == pytest.approx(found.mean(average)["tar@far=0.3"], abs=1e-12)
    items, classes = [0.0] * 13, [0.0] * 4
    for weight, share, (i, j, _) in zip(weights, shares, positive, strict=True):
        gain = weight * (share - (rate if average == "micro" else by_class[labels[i]]))
        items[i] += gain
        items[j] += gain
        classes[labels[i]] += gain
    if average == "macro":
        classes = [classes[c] + (by_class[c] - rate) / 3 if sizes[c] else 0.0 for c in range(4)]
    for rank, (_, i, j) in enumerate(negative):
        gain = -slope * ((rank < int(number)) + (number % 1) * (rank == int(number)) - 0.3)
        for item in (i, j):
            items[item] += gain
            classes[labels[item]] += gain
    assert found.pairs is not None
    assert found.pairs.influences("queries", average)["tar@far=0.3"] == pytest.approx(np.array(items), abs=1e-9)
    assert found.pairs.influences("classes", average)["tar@far=0.3"] == pytest.approx(np.array(classes), abs=1e-9)


@pytest.mark.parametrize("over", ["queries", "classes"])
def test_standard_errors_of_rates_are_the_scatter_over_draws(over: Over) -> None:
    generator, rates, variances = np.random.default_rng(0), [], []
    centres = 1.2 * generator.normal(size=(20, 6))
    labels = np.repeat(np.arange(20), 10)
    for _ in range(80):
        if over == "classes":
            centres = 1.2 * generator.normal(size=(20, 6))
        found = verify(centres[labels] + generator.normal(size=(200, 6)), labels, fars=(0.1, 0.01))
        assert found.pairs is not None
        names = ("tar@far=0.1", "tar@far=0.01")
        rates.append([found.measures()[name] for name in names])
        variances.append([found.pairs.variances(over, "micro")[name].values[0] for name in names])
    ratio = np.sqrt(np.mean(variances, axis=0)) / np.std(np.array(rates, float), axis=0, ddof=1)
    # Two items that are close vary once, and count one and a half times. A deviation of 80 is known to 1 / root(160).
    assert (ratio > 0.84).all()
    assert (ratio < 1.25).all()


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("name", ["roc-auc", "tar@far=0.1", "verification-accuracy"])
def test_half_of_what_pairs_do_alone_is_taken_off_but_for_the_accuracy(name: str, average: Average) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), [2, 4, 5, 3, 4, 6])
    embeddings = [generator.normal(size=(24, 2)) + labels[:, None] / 3 for _ in range(2)]
    for count in (1, 2):
        pairs = [verify(rows, labels, fars=(0.1,)).pairs for rows in embeddings[:count]]
        first = pairs[0]
        assert first is not None
        numbers = [(int(i), int(j)) for i, j in zip(first.left, first.right, strict=True)]
        # What each pair changes the measure by, of which the influences of items consist.
        changes = np.zeros(len(numbers))
        for each, sign in zip(pairs, (1, -1), strict=False):
            assert each is not None
            changes += sign * each.pair_changes(average)[name]
        values = [0.0] * 24
        for (i, j), change in zip(numbers, changes, strict=True):
            values[i] += change
            values[j] += change
        variance = twice = 0.0
        for c in range(6):
            rows = [i for i in range(24) if labels[i] == c]
            if len(rows) == 2:
                continue
            mean = sum(values[i] for i in rows) / len(rows)
            variance += len(rows) / (len(rows) - 1) * sum((values[i] - mean) ** 2 for i in rows)
            if len(rows) == 3:
                continue
            own = [change for (i, _), change in zip(numbers[: first.positives], changes, strict=False) if i in rows]
            twice += sum((change - sum(own) / len(own)) ** 2 for change in own)
        for (i, j), change in zip(numbers[first.positives :], changes[first.positives :], strict=True):
            twice += change**2 * sum(labels[item] not in (0, 3) for item in (i, j)) / 2
        # A class of two is a unit.
        of_classes = first.influences("classes", average)[name]
        if count == 2:
            assert pairs[1] is not None
            of_classes = of_classes - pairs[1].influences("classes", average)[name]
        variance += 6 / 5 * (of_classes[0] - of_classes.mean()) ** 2
        found = first.variances("queries", average, less=pairs[1] if count == 2 else None)[name]
        assert 0 < twice < variance
        off = 0 if name == "verification-accuracy" else twice / 2
        assert found.values.item() == pytest.approx(variance - off, rel=1e-9)


def test_degrees_over_classes_are_of_those_that_count_large_ones_more() -> None:
    labels = np.repeat(np.arange(6), [3, 9, 4, 6, 2, 12])
    found = verify(np.random.default_rng(0).normal(size=(36, 2)) + labels[:, None] / 3, labels, fars=(0.3,))
    assert found.pairs is not None
    half = {int(labels[i]) for i, judged in zip(found.pairs.order, found.pairs.judging, strict=True) if judged}
    assert 1 < len(half) < 6
    averages: tuple[Average, ...] = ("micro", "macro")
    for average in averages:
        variances = found.pairs.variances("classes", average)
        for name, classes in (
            ("roc-auc", set(range(6))),
            ("tar@far=0.3", set(range(6))),
            ("verification-accuracy", half),
        ):
            sizes = [(labels == c).sum() if average == "micro" else 1 for c in classes]
            assert variances[name].degrees == pytest.approx(sum(sizes) ** 2 / sum(n * n for n in sizes) - 1)


def test_no_more_than_half_of_a_variance_is_taken_off() -> None:
    """Each item of a class has a partner accepted more and another less: items change nothing, pairs do."""
    labels = np.array([0] * 4 + [1] * 4 + [2, 3, 4, 5, 6, 7])
    others = [100, 100.1, 110, 110.1, 300, 300.01, 300.02, 300.03, 300.04, 301]
    far = 10 / 79
    first, second = (
        verify(np.array([*row, *others])[:, None], labels, fars=(far,)).pairs
        for row in ([0, 0.1, 10, 10.1], [0, 10, 10.1, 0.1])
    )
    assert first is not None
    assert second is not None
    assert (first._accepted_at(far) != second._accepted_at(far)).sum() == 4
    variance = first.variances("queries", "micro", less=second)[rate_name(far)]
    assert variance.values.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("over", ["queries", "classes"])
def test_a_rate_of_few_accepted_negative_pairs_has_no_interval(over: Over) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 6
    points = generator.normal(size=(6, 3))[labels] + generator.normal(size=(60, 3))
    fars = (9.9 / 1500, 10 / 1500)
    found, other = (verify(points + shift, labels, fars=fars) for shift in (0, generator.normal(size=(60, 3))))
    assert found.negative_pairs == 1500
    for far, known in zip(fars, (False, True), strict=True):
        name = rate_name(far)
        ends = found.intervals()[name][over], found.differences(other)[name][over].interval
        assert [math.isfinite(each.low) for each in ends] == [known, known]
        assert found.measures()[name] is not None


def test_a_low_rate_is_one_of_pairs_and_a_high_rate_one_of_items() -> None:
    labels = np.repeat(np.arange(10), 10)
    apart = np.linspace(0, 0.1, 100) + labels
    high = verify(apart[:, None], labels, fars=(0.01,)).intervals()["tar@far=0.01"]["queries"]
    # An item of each class is where those of the others are, and all other items are far from each other.
    mixed = np.where(np.arange(100) % 10 == 0, 0.0, 100.0 * (1 + np.arange(100)))
    low = verify(mixed[:, None], labels, fars=(0.003,)).intervals()["tar@far=0.003"]["queries"]
    t = stats.t.ppf(0.975, 90)
    assert (high.low, high.high) == pytest.approx((1 / (1 + 1.5 * t * t / 100), 1), abs=1e-9)
    doubt = 1.5 * t * t / 450
    assert (low.low, low.high) == pytest.approx((0, doubt / (1 + doubt)), abs=1e-9)
    # In the mean of classes of 2 and 18 items each pair of the small ones counts 153 times as much.
    unlike = verify(mixed[:, None], np.repeat(np.arange(10), [2, 18] * 5), fars=(0.003,))
    assert unlike.mean("macro")["tar@far=0.003"] == 0
    weights = [1 / 10] * 5 + [1 / 10 / 153] * (5 * 153)
    doubt = 1.5 * t * t * sum(weight**2 for weight in weights)
    assert unlike.intervals("macro")["tar@far=0.003"]["queries"].high == pytest.approx(doubt / (1 + doubt), abs=1e-9)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_collapsed_embeddings_have_intervals_that_hold_chance(average: Average) -> None:
    labels = np.arange(80) // 4
    found = verify(np.full((80, 3), 0.1), labels, fars=(0.3, 1e-5)).intervals(average)
    for over in ("queries", "classes"):
        for name, chance in (("roc-auc", 0.5), ("tar@far=0.3", 0.3)):
            assert (found[name][over].low, found[name][over].high) == pytest.approx((chance, chance), abs=0.01)
        assert math.isnan(found["tar@far=1e-05"][over].low)


def test_intervals_of_little_or_of_given_pairs() -> None:
    two = verify(np.arange(5.0)[:, None], np.array([0, 0, 0, 1, 1])).intervals()
    assert 0 <= two["roc-auc"]["classes"].low <= two["roc-auc"]["classes"].high <= 1
    assert math.isnan(two["verification-accuracy"]["queries"].low)
    left, right = np.zeros((4, 1)), np.array([[0.1], [2.0], [0.3], [3.0]])
    found = verify_pairs(left, right, np.array([1, 0, 1, 0]))
    assert found.intervals() == found.per_class() == {}
