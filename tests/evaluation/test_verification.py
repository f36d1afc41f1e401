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
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score, roc_curve

from trivet.evaluation import verification
from trivet.evaluation.verification import Roc, verify, verify_pairs

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
        with pytest.raises(ValueError, match=r"two items must share a class|of two classes at least"):
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


def test_equals_sklearn_on_real_images() -> None:
    digits = load_digits()
    points, labels = digits.data[:300], digits.target[:300]
    left, right = np.triu_indices(300, 1)
    distances, same = np.linalg.norm(points[left] - points[right], axis=1), labels[left] == labels[right]
    found = verify(points, labels)
    assert found.roc_auc == pytest.approx(roc_auc_score(same, -distances), abs=1e-9)
    false, true, _ = roc_curve(same, -distances, drop_intermediate=False)
    for far, share in found.tar_at_far.items():
        assert share == pytest.approx(np.interp(far, false, true), abs=1e-9)
    assert found.accuracy is not None
    assert 0.8 < found.accuracy < 0.95
    given_pairs = verify_pairs(points[left], points[right], same)
    assert (given_pairs.roc_auc, given_pairs.tar_at_far) == (found.roc_auc, found.tar_at_far)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
@pytest.mark.parametrize("most_pairs", [2_000_000, 600])
def test_a_constant_embedding_scores_chance(value: float, most_pairs: int) -> None:
    labels = np.arange(80) // 4
    for distance in ("euclidean", "cosine"):
        found = verify(np.full((80, 3), value), labels, fars=(0.3, 0.01), most_pairs=most_pairs, distance=distance)
        assert found.roc_auc == found.accuracy == found.chance == 0.5
        assert found.tar_at_far == {0.3: 0.3, 0.01: 0.01}
        assert found.threshold == 0
    found = verify_pairs(np.full((40, 2), value), np.full((40, 2), value), np.arange(40) % 2, fars=(0.3,))
    assert (found.roc_auc, found.accuracy, found.tar_at_far) == (0.5, 0.5, {0.3: 0.3})


def test_two_points_that_know_nothing_score_chance() -> None:
    generator = np.random.default_rng(0)
    points, labels = np.eye(2)[generator.integers(0, 2, 2000)], np.arange(2000) // 10
    found = verify(points, labels, fars=(0.01, 0.2))
    assert found.roc_auc == pytest.approx(0.5, abs=0.02)
    assert found.accuracy == pytest.approx(0.5, abs=0.02)
    assert found.tar_at_far == {0.01: pytest.approx(0.01, abs=1e-3), 0.2: pytest.approx(0.2, abs=0.02)}


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


def test_a_sample_is_right_on_average() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 40)
    points = generator.normal(size=(40, 2)) + 0.7 * labels[:, None]
    whole = verify(points, labels).roc_auc
    drawn = [verify(points, labels, most_pairs=100, seed=seed).roc_auc for seed in range(300)]
    assert np.std(drawn) > 0.02
    assert np.mean(drawn) == pytest.approx(whole, abs=float(4 * np.std(drawn) / math.sqrt(300)))


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
    monkeypatch.setattr(verification, "ENTRIES", entries)
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
        (lambda: verify(POINTS, np.arange(4)), "two items must share a class: each of the 4 is alone"),
        (lambda: verify(POINTS, np.zeros(4, int)), "two classes at least: all 4 are of one"),
        (lambda: verify(POINTS[:0], LABELS[:0]), "two items must share a class"),
        (lambda: verify(POINTS, LABELS[:3]), "one class per embedding"),
        (lambda: verify(POINTS * np.nan, LABELS), "hold NaN"),
        (lambda: verify(POINTS, LABELS, fars=(0.1, 0)), r"between 0 and 1: got \(0.1, 0\)"),
        (lambda: verify(POINTS, LABELS, most_pairs=1), "at least 2: got 1"),
        (lambda: verify(POINTS, LABELS, distance="dot"), "'euclidean' or 'cosine'"),  # type: ignore[arg-type]  # wrong
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
