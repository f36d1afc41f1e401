"""Recall@1 beside chance and beside references: intervals by their definition, verdicts before all others."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, variance
from typing import Literal

import numpy as np
import pytest
from scipy import stats
from tests.collapse.test_diagnosis import LABELS, clusters

from trivet.collapse import SamplingStrategy, diagnose, significance
from trivet.collapse.significance import (
    compare,
    compare_groups,
    compare_values,
    compare_with_reference,
    recall_by_chance,
    signed_points,
)
from trivet.collapse.verdict_type import measure_words
from trivet.losses import TripletLoss
from trivet.metrics import Retrieval, retrieve, retrieve_levels
from trivet.mining.pairs import Pairs


def half(variance: float, degrees: float, queries: int) -> float:
    return float(stats.t.ppf(0.995, degrees)) * math.sqrt(variance + (0.25 / queries) ** 2)


@pytest.mark.parametrize("classes", [2, 5, 9])
def test_the_interval_of_a_difference_is_the_wider_of_two(classes: int) -> None:
    random = np.random.default_rng(classes)
    labels = np.arange(90) % classes
    a = random.integers(0, 2, 90).astype(float)
    b = np.where(random.random(90) < 0.1, 1 - a, a)
    found = compare_values(a, b, labels, reference="before", level="kind")
    gains, mean = (a - b).tolist(), fmean(a - b)
    groups = [[gain for gain, label in zip(gains, labels, strict=True) if label == one] for one in range(classes)]
    over_items = 1.3 * sum(len(part) * variance(part) for part in groups) / 90**2 + 2 / 92**2
    halves = [half(over_items, 90 - classes, 90)]
    if classes >= 5:
        over_classes = sum((sum(part) - len(part) * mean) ** 2 for part in groups) * classes / (classes - 1) / 90**2
        halves.append(half(1.3 * over_classes, classes - 1, 90))
    assert (found.low, found.high) == pytest.approx((mean - max(halves), mean + max(halves)))
    assert (found.difference, found.reference, found.level) == (pytest.approx(mean), "before", "kind")
    assert found.queries == 90
    wider = compare_values(a, b, labels, reference="", level="", confidence=0.999)
    assert wider.low < found.low


@pytest.mark.parametrize("classes", [4, 5, 40])
def test_where_each_class_has_one_query_the_interval_is_over_other_classes(classes: int) -> None:
    random = np.random.default_rng(classes)
    a, b = (random.integers(0, 2, classes).astype(float) for _ in range(2))
    found = compare_values(a, b, np.arange(classes), reference="before", level="pair")
    if classes < 5:
        assert (found.low, found.high) == (-1, 1)
        return
    gains, mean = (a - b).tolist(), fmean(a - b)
    over_classes = sum((gain - mean) ** 2 for gain in gains) * classes / (classes - 1) / classes**2
    width = half(1.3 * over_classes + 2 / (classes + 2) ** 2, classes - 1, classes)
    assert (found.low, found.high) == pytest.approx((max(-1, mean - width), min(1, mean + width)))


def test_a_few_groups_of_pairs_with_a_second_query_do_not_leave_all_open() -> None:
    """30 queries of 29 documents, of which one network finds all and the other none."""
    pairs = Pairs(30, 29, [(i, min(i, 28)) for i in range(30)], aligned=False)
    documents = np.eye(30)[:29]
    queries = documents[np.minimum(np.arange(30), 28)]

    def found(embeddings: np.ndarray) -> Retrieval:
        return retrieve(embeddings, pairs.left, gallery=documents, gallery_labels=pairs.right, measures=("recall@1",))

    outcome = compare([found(queries)], [found(np.roll(queries, 3, axis=0))], reference="before", level="pair")
    assert outcome.difference == 1
    assert outcome.better
    assert outcome.low > 0.8


def embeddings(seed: int, count: int) -> list[Retrieval]:
    """Classes with noise of their own, which are as good as each other."""
    return [
        retrieve(clusters(seed, 1.0) + 0.5 * np.random.default_rng((seed, n)).standard_normal((400, 16)), LABELS)
        for n in range(count)
    ]


def test_embeddings_are_compared_by_the_variances_of_items_in_both_roles() -> None:
    first, second, third, fourth = embeddings(0, 4)
    found = compare([first], [second], reference="second", level="kind", measure="map@r")
    over = first.differences(second, level=0.99)["map@r"].values()
    high = max(each.interval.high for each in over)
    assert found.difference == pytest.approx(next(iter(over)).value)
    assert high < found.high < high + 0.002  # wider by two queries
    # The means of more vary less, and groups of other items less still.
    means = compare([first, third], [second, fourth], reference="", level="", measure="map@r")
    assert means.score == pytest.approx(fmean(each.mean()["map@r"] for each in (first, third)))
    assert means.high - means.low < found.high - found.low
    groups = [([first], [second]), tuple([one] for one in embeddings(1, 2))]
    both = compare_groups(groups, reference="", level="", measure="map@r")
    assert both.queries == 800
    assert both.high - both.low < 0.8 * (found.high - found.low)


def rank_biased_precision(rows: np.ndarray, labels: np.ndarray) -> list[float]:
    """Of each item: of the others, the nearest first, those of its class add 1/2, 1/4, 1/8 and so on."""
    values = []
    for i, row in enumerate(rows):
        others = sorted((math.dist(row, other), j) for j, other in enumerate(rows) if j != i)
        values.append(sum(0.5**rank for rank, (_, j) in enumerate(others, 1) if labels[j] == labels[i]))
    return values


def test_a_loss_that_recall_leaves_open_is_told_by_rank_biased_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = LABELS[::4]
    before = clusters(0, 0.8)[::4]
    after = before + 0.5 * np.random.default_rng(6).standard_normal(before.shape)
    now, then = (retrieve(rows, labels, measures=("recall@1",)) for rows in (after, before))
    open_ = compare([now], [then], reference="start", level="kind")
    assert open_.rank_biased is None
    assert (open_.doubtful, open_.worse) == (True, False)
    found = compare_with_reference(now, then, name="start", level="kind")
    assert (found.low, found.high, found.worse, found.doubtful) == (open_.low, open_.high, True, False)
    assert found.rank_biased is not None
    values = [rank_biased_precision(rows, labels) for rows in (after, before)]
    assert found.rank_biased.score == pytest.approx(fmean(values[0]))
    assert found.rank_biased.difference == pytest.approx(fmean(values[0]) - fmean(values[1]))
    assert found.rank_biased.high < 0
    verdict = diagnose(after, labels, before).verdicts[0]
    assert verdict.kind == "worse-than-reference"
    assert f"; of rank-biased precision {signed_points(found.rank_biased.low)} to " in verdict.rule
    assert verdict.evidence["rank_biased_precision"] == found.rank_biased.score
    assert verdict.evidence["reference_rank_biased_precision"] == found.rank_biased.reference_score
    # It shows no gain, and is of no interest where recall@1 decides, of another measure, or of many queries.
    assert not compare_with_reference(then, now, name="", level="").better
    of_mrr = [retrieve(rows, labels, measures=("mrr",)) for rows in (after, before)]
    other = compare_with_reference(of_mrr[0], of_mrr[1], name="", level="", measure="mrr")
    assert other.doubtful
    assert other.rank_biased is None
    values_of = [each.values[:, 0] for each in (now, then)]
    ranked = tuple(np.array(each) for each in values)
    rough = compare_values(*values_of, labels, reference="", level="", rank_biased=(ranked[0], ranked[1]))
    assert rough.rank_biased is not None
    assert (rough.worse, rough.rank_biased.difference) == (True, found.rank_biased.difference)
    monkeypatch.setattr(significance, "RANKED", len(labels) - 1)
    many = compare_with_reference(now, then, name="", level="")
    as_many = compare_values(*values_of, labels, reference="", level="", rank_biased=(ranked[0], ranked[1]))
    assert [each.rank_biased for each in (many, as_many)] == [None, None]
    assert many.doubtful


@pytest.mark.parametrize("without_positive", ["miss", "drop"])
def test_queries_are_ranked_anew_by_other_measures(without_positive: Literal["miss", "drop"]) -> None:
    rows, labels = clusters(0, 1.0)[:150], np.append(LABELS[:149], 99)
    options = {"sample": np.arange(20, 150), "without_positive": without_positive}
    first, other = (retrieve(rows, labels, measures=(name,), **options) for name in ("recall@1", "rbp"))
    found = first.by(["rbp"])
    assert found.values[:, 0].tolist() == pytest.approx(other.values[:, 0].tolist(), nan_ok=True)
    assert found.chance == other.chance
    assert [found.intervals()["rbp"]] == [other.intervals()["rbp"]]
    levels = retrieve_levels(rows, {"class": labels, "half": labels % 2}, measures=("recall@1",))
    halves = retrieve(rows, labels % 2, measures=("rbp",))
    assert levels["half"].by(["rbp"]).values.tolist() == halves.values.tolist()


def test_classes_that_were_trained_on_are_judged_over_their_items_alone() -> None:
    """Two of 20 classes lose: other classes might not, other items of these would."""
    before, (first, second) = clusters(0, 0.4), (LABELS == 0, LABELS == 1)
    after = np.where(first[:, None], before[second].mean(axis=0), before)
    verdicts = {}
    for trained in ((), ("labels",)):
        result = diagnose(after, LABELS, before, trained_levels=trained)
        verdicts[trained] = [verdict.kind for verdict in result.verdicts]
        for comparison in (*result.measures.comparisons, *result.measures.rankings):
            assert comparison.known_classes is bool(trained)
        (rule,) = [verdict.rule for verdict in result.verdicts[:1]]
        assert ("for other items of these classes" in rule) is bool(trained)
    assert verdicts[()][0] != "worse-than-reference"
    assert verdicts["labels",][0] == "worse-than-reference"
    retrieved = [retrieve(rows, LABELS) for rows in (after, before)]
    known, other = (
        compare(retrieved[:1], retrieved[1:], reference="", level="", known_classes=known) for known in (True, False)
    )
    over = retrieved[0].differences(retrieved[1], level=0.99)["recall@1"]["queries"]
    assert over.interval.high < known.high < over.interval.high + 0.002
    assert known.high < 0 < other.high


def test_ten_points_are_told_over_items_alone() -> None:
    """Lost in two of five classes: over classes the interval would reach far above 0."""
    labels = np.arange(500) % 5
    before = np.ones(500)
    for lost, told in ((25, True), (24, False)):
        after = before.copy()
        after[np.flatnonzero(labels < 2)[: 2 * lost]] = 0
        found = compare_values(after, before, labels, reference="before", level="kind")
        assert found.difference == pytest.approx(-lost / 250)
        assert found.worse == told
    assert compare_values(before, after * 0, labels, reference="before", level="kind").better


def test_a_difference_is_told_only_beyond_doubt_and_from_a_point() -> None:
    labels = np.zeros(4, dtype=np.int64)
    few = compare_values(np.zeros(4), np.ones(4), labels, reference="r", level="")
    assert (few.worse, few.doubtful, few.better) == (False, True, False)
    many = np.zeros(100, dtype=np.int64)
    lost = compare_values(np.zeros(100), np.ones(100), many, reference="r", level="")
    assert (lost.worse, lost.doubtful) == (True, False)
    assert compare_values(np.ones(100), np.zeros(100), many, reference="r", level="").better
    slightly = np.ones(100_000)
    slightly[:500] = 0  # half a point
    none = compare_values(slightly, np.ones(100_000), np.zeros(100_000, np.int64), reference="r", level="")
    assert none.high < 0
    assert not none.worse


def test_chance_is_what_all_permutations_of_the_labels_give() -> None:
    nearest, labels = np.array([1, 0, 1, 4, 3, 0]), np.array([0, 0, 0, 1, 1, 2])
    every = [np.mean(np.array(one)[nearest] == np.array(one)) for one in itertools.permutations(labels)]
    low, high = recall_by_chance(nearest, np.arange(6), labels)
    assert (low, high) == (pytest.approx(np.quantile(every, 0.005)), pytest.approx(np.quantile(every, 0.995)))
    assert high == pytest.approx(5 / 6)
    # Six pairs of nearest neighbours, which hit together: all of them in 20 of 924 permutations.
    pairs = np.arange(12) ^ 1
    halves = [np.isin(np.arange(12), one) for one in itertools.combinations(range(12), 6)]
    assert np.quantile([np.mean(one[pairs] == one) for one in halves], 0.995) == 1
    assert recall_by_chance(pairs, np.arange(12), np.arange(12) // 2 % 2)[1] == 1


@pytest.mark.parametrize("labels", [LABELS, np.sort(np.minimum(np.arange(400) % 23, 9))], ids=["even", "one large"])
def test_noise_is_no_better_than_chance(labels: np.ndarray) -> None:
    told = 0
    for seed in range(10):
        verdicts = diagnose(np.random.default_rng(seed).standard_normal((400, 64)), labels).verdicts
        told += verdicts[0].kind == "no-better-than-chance"
        assert len(verdicts) == 1  # and no label is called wrong
    assert told >= 9  # by chance 1 of 200 is not
    assert diagnose(clusters(0, 2.5, labels), labels).verdicts[0].kind == "spread-out"  # little is more than nothing


def test_the_result_stands_before_the_shape() -> None:
    kinds = [one.kind for one in diagnose(np.ones((400, 3)), LABELS, clusters(0, 0.5)).verdicts]
    assert kinds == ["no-better-than-chance", "worse-than-reference", "network-collapse"]


def test_each_reference_and_each_level_is_compared() -> None:
    good, fair = clusters(0, 0.3), clusters(0, 1.5)
    halves = 2 * LABELS + np.arange(400) % 2
    apart = good + 3 * (halves % 2)[:, None] * np.eye(16)[0]
    found = diagnose(fair, LABELS, {"the backbone": apart, "raw inputs": clusters(1, 3.0)}, fine={"half": halves})
    worse = found.verdicts[0]
    assert worse.kind == "worse-than-reference"
    assert worse.rule.startswith("recall@1 ")
    assert "of the backbone" in worse.rule
    assert "recall@1 by half" in worse.rule
    assert "raw inputs" not in worse.rule
    assert {"recall@1", "recall@1 of the backbone", "half_recall@1", "half_recall@1 of the backbone"} == set(
        worse.evidence
    )
    assert found.good is False
    both = {(one.reference, one.level) for one in found.measures.comparisons}
    assert both == {(name, level) for name in ("the backbone", "raw inputs") for level in ("labels", "half")}
    # The shape is compared with the first.
    assert found.measures.reference_modes == diagnose(fair, LABELS, apart).measures.reference_modes
    with pytest.raises(ValueError, match="got 'half' in both"):
        diagnose(fair, LABELS, level="half", fine={"half": halves})


def test_the_name_of_a_reference_stays_as_it_is() -> None:
    names = ["first_axis", "recall@1 of my_file.npz", "half_recall@1 of my_file.npz", "reference_map_at_r"]
    told = ["first axis", "recall@1 of my_file.npz", "half recall@1 of my_file.npz", "map@r of the reference"]
    assert list(map(measure_words, names)) == told


def test_an_end_of_the_interval_is_not_said_to_be_minus_zero() -> None:
    assert [signed_points(one) for one in (-0.075, -0.0004, 0.0004, 0.0)] == ["-7.5", "-0.04", "+0.04", "+0.0"]


def test_what_is_open_is_not_called_healthy() -> None:
    few = LABELS[::20]
    good, worse = clusters(0, 0.4)[::20], clusters(0, 1.2)[::20]
    (verdict,) = diagnose(worse, few, good).verdicts
    assert verdict.kind == "spread-out"
    assert "as good as its references is open: recall@1" in verdict.rule


def test_a_reference_that_knows_nothing_makes_nobody_healthy() -> None:
    little = clusters(0, 4.5, np.repeat(np.arange(10), 200))
    noise = np.random.default_rng(1).standard_normal((2000, 16))
    found = diagnose(little, np.repeat(np.arange(10), 200), reference=noise)
    (verdict,) = found.verdicts
    assert 0.1 < found.measures.recall < 0.18  # above chance, but hardly
    assert verdict.kind == "spread-out"
    assert "hardly more of the labels than chance" in verdict.rule


def test_noise_beside_noise_was_not_destroyed_by_training() -> None:
    labels, random = np.repeat(np.arange(10), 30), np.random.default_rng(0)
    noise, other, good = random.normal(size=(300, 8)), random.normal(size=(300, 8)), clusters(0, 0.3, labels)
    beside, alone, below = (diagnose(noise, labels, reference=one).verdicts[0] for one in (other, None, good))
    assert {one.kind for one in (beside, alone, below)} == {"no-better-than-chance"}
    assert "What it is compared with knows nothing of these labels either" in beside.cause
    assert len(beside.changes) == 1
    for one in (alone, below):
        assert "training destroyed it" in one.cause


def test_labels_of_one_item_each_say_nothing_of_an_embedding() -> None:
    (verdict,) = diagnose(np.random.default_rng(0).standard_normal((60, 8)), np.arange(60)).verdicts
    assert verdict.kind == "spread-out"
    assert verdict.rule == "no class has two items, so recall@1 cannot be measured"
    assert "little information" not in verdict.cause
    assert "reference" not in verdict.cause  # it could not be compared with one either


def test_advice_on_training_is_given_where_there_is_known_to_be_one() -> None:
    bad, good = clusters(0, 3.0), clusters(0, 0.3)
    strategy = SamplingStrategy(TripletLoss(), classes_per_batch=4, samples_per_class=4)
    file, run = (diagnose(bad, LABELS, good, known).verdicts[0] for known in (None, strategy))
    assert file.kind == run.kind == "worse-than-reference"
    assert file.cause == "It cannot be told from embeddings alone."
    assert [one.startswith(("Use", "If training")) for one in file.changes] == [True, True]
    assert run.cause.startswith("What was learned does not help")
    assert run.changes[1].startswith("Lower the learning rate")


def map_at_r(points: np.ndarray, labels: np.ndarray, query: int) -> float:
    """By its definition, of a query without ties."""
    others = sorted((i for i in range(len(points)) if i != query), key=lambda i: math.dist(points[i], points[query]))
    positives = sum(int(labels[i] == labels[query]) for i in others)
    hits = [int(labels[i] == labels[query]) for i in others[:positives]]
    return sum(hit * sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits)) / positives


def test_map_at_r_is_compared_at_each_level() -> None:
    labels = np.repeat(np.arange(6), 8)
    one, other = clusters(0, 2.0, labels), clusters(1, 0.5, labels)
    halves = 2 * labels + np.arange(48) % 2
    found = diagnose(one, labels, {"before": other}, fine={"half": halves}).measures.rankings
    assert [(each.reference, each.level, each.queries) for each in found] == [
        ("before", "labels", 48),
        ("before", "half", 48),
    ]
    for each, by in zip(found, (labels, halves), strict=True):
        own, others = (np.array([map_at_r(points, by, query) for query in range(48)]) for points in (one, other))
        assert (each.score, each.reference_score) == pytest.approx((own.mean(), others.mean()))
        pair = [retrieve(points, by, measures=("map@r",)) for points in (one, other)]
        known = compare(pair[:1], pair[1:], reference="before", level="", measure="map@r")
        assert (each.low, each.high) == pytest.approx((known.low, known.high))
    assert diagnose(one, labels).measures.rankings == ()


def test_copies_do_not_make_an_embedding_healthy() -> None:
    """Random vectors, each twice: the nearest item is the copy, and all others of the class are as by chance."""
    good = clusters(0, 1.0)
    random = np.random.default_rng(0).standard_normal((200, 16))[np.arange(400) // 2]
    found = diagnose(random, LABELS, good)
    (verdict,) = found.verdicts
    assert verdict.kind == "spread-out"
    assert found.good is None
    assert "by the nearest item, recall@1 100.0 %, against " in verdict.rule
    assert "but not by all items of a class: MAP@R is " in verdict.rule
    assert verdict.evidence["map_at_r"] < 0.1 < 0.4 < verdict.evidence["reference_map_at_r"]
    assert any(note.startswith("100.0 % of the items equal another one in every coordinate") for note in found.notes)
    assert found.measures.copies == 1
    assert not any("equal another one" in note for note in diagnose(good, LABELS).notes)
    few = good.copy()
    few[:10] = few[10:20]
    assert diagnose(few, LABELS).measures.copies == pytest.approx(20 / 400)
