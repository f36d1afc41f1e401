from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.evaluation import cluster, nmi, nmi_plus
from trivet.evaluation.clustering import Average, ami

LABELS = [0, 0, 1, 0, 1, 1, 0, 2]


def entropy(values: list[object]) -> float:
    return -sum(n / len(values) * math.log(n / len(values)) for n in Counter(values).values())


def definition(labels: list[int], clusters: list[int], average: str) -> float:
    h_y, h_c = entropy([*labels]), entropy([*clusters])
    if h_y == h_c == 0:
        return 1.0
    information = h_y + h_c - entropy([*zip(labels, clusters, strict=True)])
    mean = (h_y + h_c) / 2 if average == "arithmetic" else math.sqrt(h_y * h_c)
    return information / mean if mean > 0 else 0.0


@pytest.mark.parametrize("average", ["arithmetic", "geometric"])
@settings(deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_nmi_equals_the_definition(average: str, pairs: list[tuple[int, int]]) -> None:
    labels, clusters = (list(side) for side in zip(*pairs, strict=True))
    value = nmi(np.array(labels) - 7, np.array(clusters) + 2**40, average=average)  # type: ignore[arg-type]  # both
    assert value == pytest.approx(definition(labels, clusters, average), abs=1e-9)


@pytest.mark.parametrize(
    ("clusters", "arithmetic", "geometric"),
    [
        ([0, 0, 0, 0, 1, 1, 2, 2], 0.516237553211, 0.516509989180),
        ([0, 0, 1, 1, 2, 2, 3, 4], 0.632250089551, 0.649821453672),
        ([0] * 8, 0, 0),
        ([5 - label for label in LABELS], 1, 1),
    ],
)
def test_known_nmi(clusters: list[int], arithmetic: float, geometric: float) -> None:
    assert nmi(np.array(LABELS), np.array(clusters)) == pytest.approx(arithmetic, abs=1e-11)
    assert nmi(np.array(LABELS), np.array(clusters), average="geometric") == pytest.approx(geometric, abs=1e-11)


def adjusted(labels: list[int], clusters: list[int], average: str) -> float:
    """AMI, with the expectation taken over every permutation of the clusters."""
    h_y, h_c = entropy([*labels]), entropy([*clusters])
    mean = (h_y + h_c) / 2 if average == "arithmetic" else math.sqrt(h_y * h_c)

    def information(order: tuple[int, ...]) -> float:
        return h_y + h_c - entropy([*zip(labels, order, strict=True)])

    expected = fmean(information(order) for order in permutations(clusters))
    if len({*zip(labels, clusters, strict=True)}) == len({*labels}) == len({*clusters}):
        return 1.0
    return (information((*clusters,)) - expected) / (mean - expected) if abs(mean - expected) > 1e-9 else 0.0


@pytest.mark.parametrize("average", ["arithmetic", "geometric"])
@settings(deadline=None, max_examples=60)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
def test_ami_equals_the_definition(average: Average, pairs: list[tuple[int, int]]) -> None:
    labels, clusters = (list(side) for side in zip(*pairs, strict=True))
    value = ami(np.array(labels) - 7, np.array(clusters) + 2**40, average=average)
    assert value == pytest.approx(adjusted(labels, clusters, average), abs=1e-9)


@pytest.mark.parametrize("average", ["arithmetic", "geometric"])
@pytest.mark.parametrize("count", [2, 3, 10, 1000])
def test_ami_of_one_cluster_or_one_for_each_item(average: Average, count: int) -> None:
    one, each, halves = np.zeros(count, int), np.arange(count), np.arange(count) % 2
    assert ami(one, one + 5, average=average) == ami(each, 3 * each[::-1], average=average) == 1
    assert ami(one, each, average=average) == ami(each, one, average=average) == 0
    assert ami(one, halves, average=average) == ami(halves, one, average=average) == 0
    assert ami(halves, 1 - halves, average=average) == 1
    if count > 2:
        assert ami(halves, each, average=average) == ami(each, halves, average=average) == 0


def test_ami_does_not_grow_with_the_clusters() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, 1000)
    values = {k: (nmi(labels, clusters), ami(labels, clusters)) for k in (3, 100) for clusters in [np.arange(1000) % k]}
    assert values[3][0] < 0.02 < 0.1 < values[100][0]
    assert max(abs(chance) for _, chance in values.values()) < 0.02


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_a_constant_embedding_has_one_cluster_and_no_agreement(value: float) -> None:
    labels = np.arange(200) % 20
    found = cluster(np.full((200, 3), value, dtype=np.float32), 20, seed=0)
    assert found.clusters_in_use == 1
    assert nmi(labels, found.assignment) == ami(labels, found.assignment) == 0


def test_two_points_that_know_nothing_have_two_clusters_and_no_agreement() -> None:
    generator = np.random.default_rng(0)
    points, labels = np.eye(2)[generator.integers(0, 2, 2000)], np.arange(2000) % 20
    found = cluster(points, 20, seed=0)
    assert found.clusters_in_use == 2
    assert nmi(labels, found.assignment) < 0.01
    assert ami(labels, found.assignment) == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (1, 1e-5), (0, 1e25)])
def test_separate_groups_are_found_at_any_place_and_scale(offset: float, scale: float) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 20)
    spread = 10 * np.eye(6)[labels] + generator.normal(0, 0.1, (120, 6))
    found = cluster(offset + scale * spread, 6, seed=0)
    assert nmi(labels, found.assignment) == 1
    within = sum(((spread[labels == c] - spread[labels == c].mean(axis=0)) ** 2).sum() for c in range(6))
    assert found.inertia == pytest.approx(within * scale**2, rel=1e-4)


def test_the_same_seed_gives_the_same_clusters_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    points = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    first, again, other = (cluster(points, 150, seed=seed, restarts=2) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.assignment, again.assignment)
    assert (first.assignment != other.assignment).any()
    assert capfd.readouterr() == ("", "")


def test_restarts_lower_the_inertia() -> None:
    points = np.random.default_rng(0).normal(size=(200, 4))
    assert cluster(points, 20, seed=0, restarts=10).inertia < cluster(points, 20, seed=0, restarts=1).inertia


@pytest.mark.parametrize("k", [1, 3, 10])
def test_equal_rows_share_a_cluster(k: int) -> None:
    found = cluster(np.full((10, 3), 0.1), k, seed=0)
    assert len(set(found.assignment.tolist())) == found.clusters_in_use == 1
    assert found.inertia == pytest.approx(0, abs=1e-12)


def test_as_many_clusters_as_items_is_the_most() -> None:
    points = np.random.default_rng(0).normal(size=(12, 3))
    found = cluster(points, 12, seed=0)
    assert sorted(found.assignment.tolist()) == list(range(12))
    assert found.clusters_in_use == 12
    with pytest.raises(ValueError, match="between 1 and the 12 items: got 13"):
        cluster(points, 13, seed=0)


def test_nmi_plus_rewards_classes_of_several_modes() -> None:
    generator = np.random.default_rng(0)
    modes = np.repeat(np.arange(4), 25)
    points = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])[modes] * 10 + generator.normal(0, 0.1, (100, 2))
    labels = modes // 2  # each class lies in two opposite corners
    assert nmi(labels, cluster(points, 2, seed=0).assignment) < 0.1
    assert nmi_plus(points, labels, 2, seed=0) == pytest.approx(2 / 3)  # I = log 2, entropies log 2 and log 4


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: nmi(np.zeros(3, int), np.zeros(2, int)), "clusters must hold one class"),
        (lambda: nmi(np.zeros(2), np.zeros(2, int)), "integers: got float64"),
        (lambda: nmi(np.zeros(0, int), np.zeros(0, int)), "at least one item"),
        (lambda: nmi(np.zeros(2, int), np.zeros(2, int), average="max"), "arithmetic"),  # type: ignore[arg-type]  # wrong
        (lambda: ami(np.zeros(3, int), np.zeros(2, int)), "clusters must hold one class"),
        (lambda: ami(np.zeros(0, int), np.zeros(0, int)), "ami needs at least one item"),
        (lambda: ami(np.zeros(2, int), np.zeros(2, int), average="max"), "arithmetic"),  # type: ignore[arg-type]  # wrong
        (lambda: cluster(np.zeros((0, 2)), 1, seed=0), "between 1 and the 0 items"),
        (lambda: cluster(np.zeros((3, 2)), 0, seed=0), "got 0"),
        (lambda: cluster(np.zeros((3, 2)), 1, seed=-1), "seed must be"),
        (lambda: cluster(np.zeros((3, 2)), 1, seed=0, restarts=0), "restarts must be"),
        (lambda: cluster(np.array([[np.nan], [0]]), 1, seed=0), "rows 0 hold NaN"),
        (lambda: nmi_plus(np.zeros((4, 2)), np.array([0, 0, 1, 1]), 3), "the 4 items: got 6"),
        (lambda: nmi_plus(np.zeros((4, 2)), np.array([0, 0, 1, 1]), 0), "multiple must be"),
        (lambda: nmi_plus(np.zeros((0, 2)), np.zeros(0, int)), "at least one item"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
