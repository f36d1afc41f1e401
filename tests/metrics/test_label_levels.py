from __future__ import annotations

import json
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from trivet import Classes, Pairs, Tags
from trivet.metrics import ALL, cluster, evaluate, nmi, nmi_plus, recall_at_k, retrieve, retrieve_both_ways
from trivet.metrics.clustering import ami, restart_variance
from trivet.metrics.label_levels import CLUSTERING, VERIFICATION, _restarts, void
from trivet.metrics.verification import verify


def test_each_level_equals_its_measures_taken_alone() -> None:
    digits = load_digits()
    points, labels = digits.data[:600].astype(np.float32), digits.target[:600]
    levels = {"parity": labels % 2, "digit": labels}
    names = ("recall@1", "recall@5", "map@r", "nmi", "nmi-geometric", "ami", "nmi+")
    results = evaluate(points, levels, measures=names, nmi_plus_multiple={"parity": 3}, seed=4)
    assert list(results) == ["parity", "digit"]
    for level, multiple in (("parity", 3), ("digit", 10)):
        result, classes = results[level], len(np.unique(levels[level]))
        record = result.as_json()
        recall = recall_at_k(points, levels[level], (1, 5))
        assert (record["recall@1"], record["recall@5"]) == (recall[1], recall[5])
        map_at_r = retrieve(points, levels[level], measures=["map@r"]).mean()["map@r"]
        assert record["map@r"] == pytest.approx(map_at_r, rel=1e-12)  # sums of other lengths are rounded otherwise
        clusters = cluster(points, classes, seed=4).assignment
        assert record["nmi"] == nmi(levels[level], clusters)
        assert record["nmi-geometric"] == nmi(levels[level], clusters, average="geometric")
        assert record["ami"] == ami(levels[level], clusters)
        assert record["nmi+"] == nmi_plus(points, levels[level], multiple, seed=4)
        assert (result.items, result.classes, record["nmi+_clusters"]) == (600, classes, multiple * classes)


def test_too_few_items_for_nmi_plus_is_said() -> None:
    labels = {"class": np.array([0, 0, 1, 1])}
    record = evaluate(np.eye(4), labels, nmi_plus_multiple=3)["class"].as_json()
    assert record["nmi+"] is None
    assert record["nmi+_missing"] == "6 clusters need as many items: there are 4."
    enough = evaluate(np.eye(4), labels, nmi_plus_multiple=2)["class"].as_json()
    assert enough["nmi+"] is not None
    assert "nmi+_missing" not in enough


def test_a_result_prints_its_measures_and_no_arrays() -> None:
    result = evaluate(np.eye(4), {"class": np.array([0, 0, 1, 1])}, measures=["recall@1", "map@r"])["class"]
    assert repr(result) == "LevelResult(4 items, 2 classes: recall@1 0.3333, map@r 0.3333)"


def test_only_what_is_asked_for_is_measured() -> None:
    labels = {"class": np.repeat([0, 1, 2, 3], 3)}
    points = np.random.default_rng(0).normal(size=(12, 3))
    retrieval = evaluate(points, labels, measures=["mrr"])["class"]
    assert retrieval.clustering is retrieval.clustering_plus is retrieval.verification is None
    record = evaluate(points, labels, measures=["roc-auc", "nmi"])["class"].as_json()
    assert record["roc-auc"] == verify(points, labels["class"]).roc_auc
    assert {"nmi", "tar@far=0.01", "verification-accuracy"} <= set(record)
    assert "mrr" not in record


def test_the_record_is_plain_json() -> None:
    result = evaluate(np.eye(4), {"class": np.array([0, 0, 1, 1])}, measures=ALL)["class"]
    record = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert record["recall@2"] == result.retrieval.mean()["recall@2"]
    assert record["nmi+"] is None
    assert {"recall@1", "chance_recall@1", "nmi", "items", "classes"} <= set(record)


def test_every_measure_has_intervals_values_of_classes_and_their_mean() -> None:
    digits = load_digits()
    labels = {"digit": digits.target[:300] * 3 + 1}
    result = evaluate(digits.data[:300], labels, measures=ALL, seed=4)["digit"]
    classes = result.per_class()
    assert list(classes) == [3 * digit + 1 for digit in range(10)]
    for average in ("micro", "macro"):
        means, record = result.mean(average), result.as_json(average)
        intervals = result.intervals(average)
        assert intervals.keys() == means.keys()
        assert result.verification.intervals(average).items() <= intervals.items()
        assert {
            "nmi",
            "nmi-geometric",
            "ami",
            "nmi+",
            "roc-auc",
            "tar@far=0.01",
            "verification-accuracy",
        } < means.keys()
        for name, mean in means.items():
            assert record[name] == mean
            for over in ("queries", "classes"):
                interval = intervals[name][over]
                if mean is None or name == "tar@far=0.0001":
                    continue
                assert interval.low < mean < interval.high or interval.low == mean == interval.high
            if average == "macro" and mean is not None:
                values = [row[name] for row in classes.values() if name in row]
                assert mean == pytest.approx(np.mean(values), rel=1e-12)
    assert result.mean()["nmi"] == result.clustering.measures["nmi"]
    sizes = np.bincount(digits.target[:300])
    for name in ("nmi", "nmi-geometric", "ami", "nmi+"):
        whole = sum(n * row[name] for n, row in zip(sizes, classes.values(), strict=True)) / 300
        assert whole == pytest.approx(result.mean()[name], abs=1e-9)


def test_a_collapsed_embedding_has_chance_in_every_interval() -> None:
    labels = {"class": np.arange(120) % 12}
    result = evaluate(np.full((120, 3), 0.3), labels, measures=("nmi", "ami", "nmi+", "roc-auc", "tar@far"))["class"]
    for average in ("micro", "macro"):
        found = result.intervals(average)
        assert result.mean(average)["tar@far=0.0001"] is None  # of 6600 pairs
        for name, chance in (("nmi", 0.0), ("ami", 0.0), ("nmi+", 0.0), ("roc-auc", 0.5), ("tar@far=0.01", 0.01)):
            if name == "nmi+":  # 120 clusters of 120 items, of which one is in use
                assert result.mean(average)[name] == 0
            for over in ("queries", "classes"):
                ends = found[name][over]
                assert (ends.low, ends.high) == pytest.approx((chance, chance), abs=0.06)


def test_few_restarts_where_ten_would_take_long() -> None:
    assert [_restarts(*shape) for shape in ((10_000, 128, 100), (60_000, 512, 2000), (10**7, 512, 10**5))] == [10, 6, 1]


def test_cosine_reaches_both_the_neighbours_and_the_clusters() -> None:
    angles = np.repeat([0.0, 2.0, 4.0], 10) + np.random.default_rng(0).normal(0, 0.05, 30)
    norms = np.tile([1, 100], 15)  # far apart in length, close in direction
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) * norms[:, None]
    labels = {"direction": np.repeat([0, 1, 2], 10)}
    assert evaluate(points, labels, distance="cosine")["direction"].as_json()["nmi"] == 1
    assert evaluate(points, labels)["direction"].as_json()["nmi"] < 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: evaluate(np.eye(3), {}), "at least one level"),
        (lambda: evaluate(np.eye(3), {"a": np.zeros(2, int)}), r"labels\['a'\] must hold one class per embedding"),
        (lambda: evaluate(np.eye(3)[:1], {"a": np.zeros(1, int)}), "at least two items: got 1"),
        (lambda: evaluate(np.eye(3), {"a": np.zeros(3, int)}, nmi_plus_multiple=0), "at least 1"),
        (lambda: evaluate(np.eye(3), {"a": np.zeros(3, int)}, nmi_plus_multiple={"b": 2}), r"\(a\): got \['b'\]"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_what_is_all_right_whatever_the_embedding_is_said() -> None:
    assert void({"class": 3}, 20, ALL) == []
    (one,) = void({"class": 1, "kind": 2}, 20, ("recall@1",))
    assert one.startswith("class has one class")
    (beyond,) = void({"class": 3}, 8, ALL)
    assert beyond.startswith("recall@8, precision@10: a query can retrieve 8 items in all")
    assert void({"class": 1}, 20, ("nmi",)) == []


def test_a_level_of_tags_has_its_measures_tag_by_tag() -> None:
    generator = np.random.default_rng(0)
    points, carried = generator.normal(size=(60, 3)), generator.random((60, 4)) < [0.5, 0.3, 0.2, 0]
    lists = [[name for name, has in zip("abcd", row, strict=True) if has] for row in carried]
    tags, cameras, sample = Tags(lists), generator.integers(0, 3, size=60), np.arange(5, 55)
    options = {"measures": ("recall@1", "map@r"), "cameras": cameras, "sample": sample, "without_positive": "drop"}
    levels = {"tags": tags, "first": carried[:, 0].astype(int)}
    result = evaluate(points, levels, **options | {"measures": ALL})["tags"]
    assert (result.items, result.classes, result.labels.tolist()) == (60, 3, ["a", "b", "c"])
    rows = result.per_class()
    assert list(rows) == ["a", "b", "c"]
    for number, row in enumerate(rows.values()):
        asked = sample[carried[sample, number]]
        alone = retrieve(points, carried[:, number].astype(int), **options | {"sample": asked}).mean()
        assert alone == pytest.approx({name: row[name] for name in alone}, rel=1e-12)
    assert result.mean("macro")["recall@1"] == pytest.approx(np.mean([row["recall@1"] for row in rows.values()]))
    assert np.isnan(result.intervals("macro")["recall@1"]["queries"].low)
    whole = retrieve(points, tags, **options)
    assert result.mean()["recall@1"] == pytest.approx(whole.mean()["recall@1"])
    interval, expected = (each.intervals()["recall@1"]["queries"] for each in (result, whole))
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    record = json.loads(json.dumps(result.as_json(), allow_nan=False))
    kind = "judged by one class for each item, which Tags do not give: measure retrieval, or give this level as"
    for name in (*CLUSTERING, *VERIFICATION):
        assert record[name] is None
        assert kind in record[f"{name}_missing"]


def test_pairs_are_measured_from_one_side_to_the_other() -> None:
    generator = np.random.default_rng(0)
    left, right = generator.normal(size=(2, 20, 2))
    contents = [number // 2 for number in range(20)]  # of which two rows each are one item
    pairs = Pairs(contents, 20)
    ways = {"left": (left, right, 10), "right": (right, left, 20)}
    for way, (queries, gallery, count) in ways.items():
        sides = {"left": pairs.left, "right": pairs.right}
        side = sides.pop(way)
        (other,) = sides.values()
        result = evaluate(queries, {"pair": side}, gallery=gallery, gallery_labels={"pair": other})["pair"]
        alone = retrieve_both_ways(left, right, pairs)
        (found,) = [each for name, each in alone.items() if name.startswith(way)]
        assert result.mean()["map@r"] == found.mean()["map@r"]
        assert (result.items, result.classes, len(result.labels)) == (20, 10, count)  # 10 groups
        values = found.values[:, found.measures.index("map@r")]
        expected = values.reshape(count, -1).mean(axis=1)
        assert [row["map@r"] for row in result.per_class().values()] == pytest.approx(expected.tolist())
        assert result.mean("macro")["map@r"] == pytest.approx(expected.mean())


def test_classes_are_a_relation_too() -> None:
    points, labels = np.random.default_rng(0).normal(size=(30, 3)), np.repeat(np.arange(10) * 7, 3)
    plain, relation = (evaluate(points, {"class": each})["class"] for each in (labels, Classes(torch.tensor(labels))))
    assert plain.as_json("macro") == relation.as_json("macro")
    assert plain.per_class() == relation.per_class()


def test_a_relation_without_retrieval_has_its_reasons_alone() -> None:
    tags = Tags([["a"], ["a", "b"], []])
    result = evaluate(np.eye(3), {"tags": tags}, measures=["ami"])["tags"]
    assert (result.classes, result.per_class(), result.intervals(), result.mean("macro")) == (2, {}, {}, {})
    assert list(result.missing) == ["ami"]
    with pytest.raises(ValueError, match="take the rows of these with relation\\[rows\\]"):
        evaluate(np.eye(3), {"tags": tags[:2]}, measures=["ami"])


@pytest.mark.parametrize("measure", ["nmi", "ami"])
def test_over_classes_agreement_varies_by_classes_or_by_items_and_restarts(measure: str) -> None:
    labels, generator = np.repeat(np.arange(12), 8), np.random.default_rng(0)
    larger = {"classes": 0, "items": 0}
    for spread in (0.0, 0.8, 1.5, 3.0):
        rows = spread * generator.normal(size=(12, 4))[labels] * (labels[:, None] % 2) + generator.normal(size=(96, 4))
        agreement = evaluate(rows, {"": labels}, measures=[measure])[""].clustering
        assert agreement is not None
        values = agreement.information().values(measure)
        of_classes, of_items = (
            sum(len(group) / (len(group) - 1) * sum((value - fmean(group)) ** 2 for value in group) for group in groups)
            / 96**2
            for groups in (
                [[8 * (fmean(values[labels == c]) - fmean(values)) for c in range(12)]],
                [values[labels == c].tolist() for c in range(12)],
            )
        )
        restarts = restart_variance(labels, agreement.clustering, measure)
        of_items += restarts
        for over, variance in (("queries", of_items), ("classes", max(of_classes, of_items))):
            found = agreement.variance(measure, over, "micro")
            assert found.values.item() == pytest.approx(variance, rel=1e-9)
        larger["classes" if of_classes > of_items else "items"] += 1
    assert min(larger.values()) > 0
    # Without two items of a class, classes alone vary.
    single = evaluate(np.eye(8), {"": np.arange(8)}, measures=["nmi"])[""].intervals()["nmi"]
    assert np.isnan(single["queries"].low)
    assert 0 < single["classes"].low < single["classes"].high == 1
