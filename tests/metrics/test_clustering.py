from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations
from statistics import fmean
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.metrics import cluster, kmeans, nmi, nmi_plus
from trivet.metrics.clustering import Average, Information, ami, restart_variance
from trivet.metrics.intervals import Over, variance_of_mean
from trivet.metrics.kmeans import lloyd, search, train

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
    value = nmi(np.array(labels) - 7, np.array(clusters) + 2**40, average=average)
    assert value == pytest.approx(definition(labels, clusters, average), abs=1e-9)


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


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_a_constant_embedding_has_one_cluster_and_no_agreement(value: float) -> None:
    labels = np.arange(200) % 20
    found = cluster(np.full((200, 3), value, dtype=np.float32), 20, seed=0)
    assert found.clusters_in_use == 1
    assert nmi(labels, found.assignment) == ami(labels, found.assignment) == 0


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


@pytest.mark.parametrize("copies", [1, 8], ids=["different rows", "many equal ones, so empty clusters"])
def test_what_did_not_move_need_not_be_compared(copies: int) -> None:
    rows = np.random.default_rng(0).normal(size=(3000 // copies, 32)).astype(np.float32)
    rows = np.tile(rows, (copies, 1))
    begun = rows[np.random.default_rng(1).permutation(len(rows))[:250]]
    means = begun
    for _ in range(4):  # step by step: faiss ends where the inertia stays
        step = train(rows, means, 1)
        means = step.centroids
    inertia, squared, nearest = lloyd(rows, begun, 4)
    assert inertia == pytest.approx(step.obj[-1], rel=1e-5)
    distances, which = search(rows, means)
    np.testing.assert_allclose(squared, distances, rtol=0, atol=1e-4)
    assert nearest.tolist() == which.tolist()


def test_k_means_ends_where_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(kmeans, "search", lambda rows, centres: searched.append(len(centres)) or search(rows, centres))
    rows = np.random.default_rng(0).normal(size=(600, 64)).astype(np.float32)
    lloyd(rows, rows[:300], 25)
    assert len(searched) < 20
    assert min(searched) < 100


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
        (lambda: nmi(np.zeros(2, int), np.zeros(2, int), average="max"), "arithmetic"),
        (lambda: ami(np.zeros(3, int), np.zeros(2, int)), "clusters must hold one class"),
        (lambda: ami(np.zeros(0, int), np.zeros(0, int)), "ami needs at least one item"),
        (lambda: ami(np.zeros(2, int), np.zeros(2, int), average="max"), "arithmetic"),
        (lambda: cluster(np.zeros((0, 2)), 1, seed=0), "between 1 and the 0 items"),
        (lambda: cluster(np.zeros((3, 2)), 0, seed=0), "got 0"),
        (lambda: cluster(np.zeros((3, 2)), 1, seed=-1), "seed must be"),
        (lambda: cluster(np.zeros((3, 2)), 1, seed=0, restarts=0), "restarts must be"),
        (lambda: cluster(np.array([[np.nan], [0]]), 1, seed=0), "row 0 holds NaN"),
        (lambda: nmi_plus(np.zeros((4, 2)), np.array([0, 0, 1, 1]), 3), "the 4 items: got 6"),
        (lambda: nmi_plus(np.zeros((4, 2)), np.array([0, 0, 1, 1]), 0), "multiple must be"),
        (lambda: nmi_plus(np.zeros((0, 2)), np.zeros(0, int)), "at least one item"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def pieces(labels: list[int], clusters: list[int]) -> list[float]:
    """Of each item log p(y, c) / (p(y) p(c))."""
    together, of_class, of_cluster = Counter(zip(labels, clusters, strict=True)), Counter(labels), Counter(clusters)
    return [
        math.log(len(labels) * together[y, c] / (of_class[y] * of_cluster[c]))
        for y, c in zip(labels, clusters, strict=True)
    ]


def weighted(labels: list[int], clusters: list[int], weights: list[float], measure: str, average: str) -> float:
    """NMI where an item weighs more or less than one; "macro" is the mean of classes."""
    shares: dict[str, Counter[object]] = {"y": Counter(), "c": Counter(), "yc": Counter()}
    for y, c, weight in zip(labels, clusters, weights, strict=True):
        for kind, key in (("y", y), ("c", c), ("yc", (y, c))):
            shares[kind][key] += weight / sum(weights)
    entropies = [-sum(p * math.log(p) for p in shares[kind].values()) for kind in "yc"]
    mean = math.sqrt(entropies[0] * entropies[1]) if measure == "nmi-geometric" else sum(entropies) / 2
    specific = {
        y: sum(
            shares["yc"][y, c] / shares["y"][y] * math.log(shares["yc"][y, c] / (shares["y"][y] * shares["c"][c]))
            for c in shares["c"]
            if shares["yc"][y, c] > 0
        )
        for y in shares["y"]
    }
    parts = shares["y"] if average == "micro" else dict.fromkeys(specific, 1 / len(specific))
    return sum(parts[y] * value for y, value in specific.items()) / mean


CLUSTERS = [0, 0, 1, 2, 1, 1, 1, 0]


@pytest.mark.parametrize("measure", ["nmi", "nmi-geometric"])
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_the_value_of_an_item_is_the_measure_and_its_derivative(
    measure: str, average: Literal["micro", "macro"]
) -> None:
    values, step = Information(np.array(LABELS), np.array(CLUSTERS)).values(measure, average), 1e-6
    ones = [1.0] * len(LABELS)
    whole = weighted(LABELS, CLUSTERS, ones, measure, average)
    sizes = Counter(LABELS)
    for item, y in enumerate(LABELS):
        # One item of its class weighs more and another less: so is it drawn, and the classes keep their sizes.
        for twin in (other for other, z in enumerate(LABELS) if z == y or average == "micro"):
            up = [one + step * ((k == item) - (k == twin)) for k, one in enumerate(ones)]
            slope = (weighted(LABELS, CLUSTERS, up, measure, average) - whole) / step
            count = len(LABELS) if average == "micro" else len(sizes) * sizes[y]
            assert (values[item] - values[twin]) / count == pytest.approx(slope, abs=1e-5)
    if average == "micro":
        assert values.mean() == pytest.approx(whole, abs=1e-12)
    else:
        # A class that weighs more in all, and in the mean of classes only as it changes the share of its clusters.
        means = [values[np.array(LABELS) == y].mean() for y in sorted(sizes)]
        assert fmean(means) == pytest.approx(whole, abs=1e-12)


def by_chance(labels: list[int], size: int) -> dict[int, float]:
    """Information that each class shares with a cluster of so many items, the mean over all such clusters."""
    clusters = [Counter(drawn) for drawn in combinations(labels, size)]
    return {
        y: sum(n[y] * math.log(len(labels) * n[y] / (count * size)) for n in clusters if n[y]) / len(clusters)
        for y, count in Counter(labels).items()
    }


def test_the_information_by_chance_follows_the_cluster_of_an_item() -> None:
    labels, clusters, count = LABELS, [0, 0, 1, 2, 1, 1, 1, 3], len(LABELS)
    sizes = Counter(clusters)
    chance = [sum(by_chance(labels, sizes[c])[y] for c in sizes) / labels.count(y) for y in labels]
    added = {
        c: (sum(by_chance(labels, n + 1).values()) - sum(by_chance(labels, n - 1).values()) if n > 1 else
            sum(by_chance(labels, 2).values())) / 2
        for c, n in sizes.items()
    }  # fmt: skip
    added_mean = fmean(added[c] for c in clusters)
    less = [e + added[c] - added_mean for e, c in zip(chance, clusters, strict=True)]
    information = pieces(labels, clusters)
    surprise = [
        (math.log(count / labels.count(y)) + math.log(count / sizes[c])) / 2
        for y, c in zip(labels, clusters, strict=True)
    ]
    scale = fmean(surprise) - fmean(less)
    whole = (fmean(information) - fmean(less)) / scale
    assert whole == pytest.approx(ami(np.array(labels), np.array(clusters)), abs=1e-12)
    expected = [
        whole + (one - chance - whole * (entropy_of - chance)) / scale
        for one, entropy_of, chance in zip(information, surprise, less, strict=True)
    ]
    values = Information(np.array(labels), np.array(clusters)).values("ami")
    assert values.tolist() == pytest.approx(expected, abs=1e-12)
    # Where classes are of one size, all items are the mean of the classes.
    alike = Information(np.array([0, 0, 0, 1, 1, 1, 2, 2, 2]), np.array([0, 0, 1, 1, 1, 1, 2, 3, 3]))
    assert alike.values("ami", "macro").tolist() == pytest.approx(alike.values("ami").tolist(), abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
def test_classes_make_up_the_measures(pairs: list[tuple[int, int]]) -> None:
    labels, clusters = (list(side) for side in zip(*pairs, strict=True))
    found = Information(np.array(labels), np.array(clusters))
    expected = {
        "nmi": definition(labels, clusters, "arithmetic"),
        "nmi-geometric": definition(labels, clusters, "geometric"),
        "ami": adjusted(labels, clusters, "arithmetic"),
    }
    sizes = np.bincount(found.classes)
    for measure, value in expected.items():
        shares = found.per_class(measure)
        assert shares @ sizes / len(labels) == pytest.approx(value, abs=1e-9)
        assert found.values(measure).mean() == pytest.approx(value, abs=1e-9)
        means = np.bincount(found.classes, found.values(measure, "macro")) / sizes
        assert means.mean() == pytest.approx(shares.mean(), abs=1e-9)


def test_a_class_has_its_own_information_over_the_common_entropy() -> None:
    found = Information(np.array(LABELS), np.array(CLUSTERS)).per_class("nmi")
    mean = (entropy([*LABELS]) + entropy([*CLUSTERS])) / 2
    for y in set(LABELS):
        of_class = [piece for piece, label in zip(pieces(LABELS, CLUSTERS), LABELS, strict=True) if label == y]
        assert found[y] == pytest.approx(fmean(of_class) / mean, abs=1e-12)


def test_ami_of_classes_of_unlike_sizes_is_0_by_chance() -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), [2] * 6 + [60] * 6)
    drawn = [Information(labels, generator.integers(0, 12, len(labels))) for _ in range(200)]
    ami_, nmi_ = (np.mean([one.per_class(measure) for one in drawn], axis=0) for measure in ("ami", "nmi"))
    assert np.abs(ami_).max() < 0.05
    assert nmi_[0] > 0.5 > 0.1 > nmi_[-1]  # a pair is always in few clusters


@pytest.mark.parametrize("over", ["queries", "classes"])
def test_intervals_are_as_wide_as_the_measures_of_drawn_items_scatter(over: Over) -> None:
    generator = np.random.default_rng(0)
    right = generator.random(40)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        """Forty classes of fifty items in forty clusters; over classes, other classes that hold together otherwise."""
        labels = np.repeat(np.arange(40), 50)
        together = right if over == "queries" else generator.random(40)
        return labels, np.where(generator.random(2000) < together[labels], labels, generator.integers(0, 40, 2000))

    several = [sample() for _ in range(200)]
    for measure in ("nmi", "ami"):
        scatter = np.std([(nmi if measure == "nmi" else ami)(*one) for one in several[:60]])
        widths = []
        for labels, clusters in several[:20]:
            values = Information(labels, clusters).values(measure)
            widths.append(variance_of_mean(values[:, None], labels, over=over, average="micro").values[0] ** 0.5)
        # A standard deviation of 60 is known to 1 / root(120).
        assert np.mean(widths) == pytest.approx(scatter, rel=3 / math.sqrt(120))


def test_measures_fixed_by_rule_leave_no_doubt() -> None:
    one, each, halves = np.zeros(8, int), np.arange(8), np.arange(8) % 2
    for labels, clusters, value in ((one, one, 1.0), (one, each, 0.0), (halves, one, 0.0)):
        found = Information(labels, clusters)
        for measure in ("nmi", "nmi-geometric", "ami"):
            assert set(found.values(measure).tolist()) == set(found.per_class(measure).tolist()) == {value}
    assert set(Information(halves, 1 - halves).values("ami").tolist()) == {1.0}
    assert set(Information(halves, each).values("ami").tolist()) == {0.0}
    assert Information(halves, 1 - halves).values("nmi") == pytest.approx(1.0)
    with pytest.raises(ValueError, match="measure must be 'nmi', 'nmi-geometric' or 'ami': got 'mi'"):
        Information(one, each).values("mi")


def test_variance_of_restarts_is_that_of_the_better_half() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 6
    rows = 9 * np.eye(6)[labels] + generator.normal(size=(60, 6))
    mixed = cluster(rows / 50 + generator.normal(size=(60, 6)), 6, seed=0, restarts=10)
    assert mixed.restarts.shape == (5, 60)
    for measure, of in (("nmi", nmi), ("ami", ami)):
        values = [of(labels, clusters) for clusters in mixed.restarts]
        assert restart_variance(labels, mixed, measure) == pytest.approx(np.var(values, ddof=1), rel=0.3)
        assert restart_variance(labels, mixed, measure) > 1e-5
    assert (mixed.restarts[0] == mixed.assignment).all()
    for restarts in (1, 10):
        assert restart_variance(labels, cluster(rows, 6, seed=0, restarts=restarts), "nmi") == 0
