from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from trivet.metrics import LevelResult, evaluate, retrieve
from trivet.metrics import sampling_variance as module
from trivet.metrics.intervals import Average, Difference, Interval, Over, variance_of_mean
from trivet.metrics.sampling_variance import losses_of, sampling_variances

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
NAMES = (
    "recall@1",
    "recall@4",
    "precision@3",
    "found@3",
    "map@3",
    "ndcg@3",
    "r-precision",
    "map@r",
    "map",
    "mrr",
    "rbp",
    "ndcg",
)
SIZES = np.array([1, 2, 3, 4, 6, 9])


def points(seed: int = 0, *, spread: float = 1.0) -> tuple[Floats, Integers]:
    """25 points of six classes of 1 to 9, in random order."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    return spread * generator.normal(size=(6, 3))[labels] + generator.normal(size=(len(labels), 3)), labels


def removed(rows: Floats, labels: Integers, measure: str) -> tuple[Floats, Floats]:
    """The measure of each query, and what it loses without each other item, measured anew."""
    count = len(labels)
    values = retrieve(rows, labels, measures=(measure,)).values[:, 0]
    losses = np.zeros((count, count))
    for item in range(count):
        rest = np.arange(count) != item
        losses[rest, item] = values[rest] - retrieve(rows[rest], labels[rest], measures=(measure,)).values[:, 0]
    return values, losses


@pytest.mark.parametrize("measure", NAMES)
def test_losses_are_those_of_removing_an_item(measure: str) -> None:
    rows, labels = points()
    distances = np.linalg.norm(rows[:, None] - rows, axis=2)
    np.fill_diagonal(distances, np.inf)
    same = (labels[:, None] == labels) & np.isfinite(distances)
    values, losses = losses_of(distances, same, (measure,))
    expected = removed(rows, labels, measure)
    assert values[0] == pytest.approx(expected[0], abs=1e-12)
    assert losses[0] == pytest.approx(expected[1], abs=1e-12)


def definition(
    values: Floats, losses: Floats, labels: Integers, over: Over, average: Average, *, mutual: float = 1
) -> float:
    """The variance as the module states it, item by item; `mutual` of the products of two items is taken off."""
    count, classes = len(labels), sorted(set(labels.tolist()))
    members = {c: [i for i in range(count) if labels[i] == c] for c in classes}
    weight = [1 / count if average == "micro" else 1 / (len(classes) * len(members[labels[i]])) for i in range(count)]
    lost = [[weight[i] * losses[i][j] for j in range(count)] for i in range(count)]
    measure = sum(weight[i] * values[i] for i in range(count))

    def by_class() -> tuple[dict[int, float], float]:
        number = len(classes)
        pairs = [(a, b) for a in classes for b in classes if a != b]
        table = {(a, b): sum(lost[i][j] for i in members[a] for j in members[b]) for a, b in pairs}
        direct = {c: sum(weight[i] * (values[i] - measure) for i in members[c]) for c in classes}
        influence = {c: direct[c] + sum(table[a, c] for a in classes if a != c) for c in classes}
        mean = sum(influence.values()) / number
        # Least squares: the effects of rows and columns of a table without a diagonal.
        design = np.array([[1.0, *((a == c) for c in classes), *((b == c) for c in classes)] for a, b in pairs])
        wanted = np.array([table[pair] for pair in pairs])
        rest = dict(zip(pairs, wanted - design @ np.linalg.lstsq(design, wanted, rcond=None)[0], strict=True))
        freedom = len(pairs) / (len(pairs) - 2 * number + 1)
        added = {
            c: number / (number - 1) * (influence[c] - mean) ** 2
            - freedom * sum(rest[c, b] * (rest[c, b] + mutual * rest[b, c]) for b in classes if b != c)
            for c in classes
        }
        return added, number / (number - 1) * sum(each**2 for each in direct.values())

    added, independent = by_class()
    if over == "classes":
        return max(sum(added.values()), independent)
    total = plain = 0.0
    for c in classes:
        n = len(members[c])
        own = [weight[i] * (values[i] - sum(values[k] for k in members[c]) / n) for i in members[c]]
        both = [a + sum(lost[k][i] for k in range(count)) for a, i in zip(own, members[c], strict=True)]
        scale = n / (n - 1) if n > 1 else 1
        within = scale * sum((each - sum(both) / n) ** 2 for each in both)
        plain += scale * sum(each**2 for each in own)
        for i in members[c]:
            for j in range(count):
                if i == j:
                    continue

                def together(a: int, b: int) -> float:
                    alike = [k for k in range(count) if k != a and (labels[k] == labels[a]) == (labels[b] == labels[a])]
                    return lost[a][b] - sum(lost[a][k] for k in alike) / len(alike)

                fewer = (n - 1) / (n - 2) if labels[j] == c and n > 2 else 1
                within -= fewer * together(i, j) * (together(i, j) + mutual * together(j, i))
        share = 0 if n < 2 else min(1, (3 / n) ** 2)
        total += (1 - share) * within + share * added[c]
    return max(total, plain)


@pytest.mark.parametrize(("over", "average"), [*product(("queries", "classes"), ("micro", "macro"))])
@pytest.mark.parametrize("measure", ["recall@1", "map@r", "map"])
def test_equals_the_definition(measure: str, over: Over, average: Average) -> None:
    rows, labels = points(spread=1.5)
    result = retrieve(rows, labels, measures=(measure,))
    expected = definition(*removed(rows, labels, measure), labels, over, average)
    assert sampling_variances([result])[over, average].values[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("over", "average"), [*product(("queries", "classes"), ("micro", "macro"))])
def test_of_a_difference_what_two_items_do_to_each_other_stays(over: Over, average: Average) -> None:
    rows, labels = points(spread=1.5)
    pair = [rows, rows + np.random.default_rng(1).normal(size=rows.shape)]
    first, second = (removed(each, labels, "map") for each in pair)
    expected = definition(first[0] - second[0], first[1] - second[1], labels, over, average, mutual=0)
    variances = sampling_variances([retrieve(each, labels, measures=("map",)) for each in pair], (1, -1))
    assert variances[over, average].values[0] == pytest.approx(expected, rel=1e-9)


def test_gallery_of_other_items_adds_its_variance() -> None:
    rows, labels = points(1)
    gallery, classes = points(2)
    result = retrieve(rows, labels, gallery=gallery, gallery_labels=classes, measures=("map@r",))
    joined = retrieve(
        rows, labels, gallery=np.concatenate([rows, gallery]), gallery_labels=np.concatenate([labels, classes]),
        self_rows=np.arange(len(rows)), junk=np.zeros(2 * len(rows), bool), measures=("map@r",),
    )  # fmt: skip
    for of in (result, joined):
        interval = of.intervals()["map@r"]["queries"]
        assert 0 < interval.low < of.mean()["map@r"] < interval.high < 1


def test_interval_of_other_items_holds_the_truth_about_as_often_as_it_says() -> None:
    """R-precision of 12 classes of eight: the variance of independent queries is not half of the variance there is."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 8)
    centres = generator.normal(size=(12, 6))
    results = [
        retrieve(centres[labels] + generator.normal(size=(96, 6)), labels, measures=("r-precision",))
        for _ in range(120)
    ]
    means = np.array([result.mean()["r-precision"] for result in results])
    ends = [result.intervals()["r-precision"]["queries"] for result in results]
    covered = np.mean([interval.low <= means.mean() <= interval.high for interval in ends])
    assert 0.9 < covered < 0.99


def test_many_items_are_judged_by_some(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 15)
    result = retrieve(
        generator.normal(size=(20, 6))[labels] + generator.normal(size=(300, 6)), labels, measures=("map@r",)
    )
    whole = sampling_variances([result])
    monkeypatch.setattr(module, "LIMIT", 150)
    some = sampling_variances([result])
    for key, variance in whole.items():
        far = 1.3 if key[0] == "queries" else 2.1  # of seven of the 20 classes
        assert 1 / far < some[key].values[0] / variance.values[0] < far
    chosen = module.chosen_units(np.repeat(np.arange(1000), 5), np.zeros(5000, bool))
    assert 150 <= len(chosen) == len(set(chosen.tolist())) < 160
    assert set(np.bincount(chosen // 5)) == {0, 5}  # whole classes


def test_samples_are_different_and_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    labels = np.repeat(np.arange(20), 15)
    result = retrieve(
        generator.normal(size=(20, 6))[labels] + generator.normal(size=(300, 6)), labels, measures=("map@r",)
    )
    monkeypatch.setattr(module, "LIMIT", 100)
    chosen, variances = module.chosen_units, []
    for seed in range(3):
        monkeypatch.setattr(module, "DRAWS", 1)
        monkeypatch.setattr(module, "chosen_units", lambda *of, seed=seed: chosen(of[0], of[1], seed))
        variances.append(module._removals(result, result.counted, 0).variances("queries", ("micro",))["micro"])
    monkeypatch.undo()
    monkeypatch.setattr(module, "LIMIT", 100)
    exact, independent = np.mean(variances, axis=0)
    assert len({float(each[0][0]) for each in variances}) == 3
    plain = variance_of_mean(result.values, result.classes, over="queries", average="micro").values
    scale = module._removals(result, result.counted, 0).scale
    expected = plain * (1 + (exact / independent - 1) * scale)
    assert sampling_variances([result])["queries", "micro"].values == pytest.approx(expected, rel=1e-9)


def test_a_part_of_a_gallery_stands_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the gallery for all queries: by so much less of the variance the gallery is judged to add."""
    ratios = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        centres, labels, asked = generator.normal(size=(6, 4)), np.arange(600) % 6, np.arange(120) % 6
        gallery, rows = (centres[each] + generator.normal(size=(len(each), 4)) for each in (labels, asked))
        result = retrieve(rows, asked, gallery=gallery, gallery_labels=labels, measures=("map@r",))
        variances = []
        for limit in (10_000, 270):
            monkeypatch.setattr(module, "LIMIT", limit)
            variances.append(sampling_variances([result])["queries", "micro"].values[0])
        ratios.append(variances[1] / variances[0])
    assert np.mean(ratios) == pytest.approx(1, abs=0.1)


def test_equal_rows_have_chance_without_doubt_and_one_class_has_1() -> None:
    labels = np.arange(60) % 6
    result = retrieve(np.full((60, 3), 0.1), labels, measures=("recall@1", "map@r"))
    for average, name in product(("micro", "macro"), result.measures):
        interval = result.intervals(average)[name]["queries"]
        assert interval.low < result.chance[name] < interval.high
        assert interval.high - interval.low < 0.02
    alike = retrieve(np.random.default_rng(0).normal(size=(9, 2)), np.zeros(9, int), measures=("recall@1",))
    assert alike.intervals()["recall@1"]["queries"] == Interval(1, 1)
    assert (
        math.isnan(evaluate(np.eye(2), {"": np.array([0, 1])}, measures=("mrr",))[""].intervals()["mrr"]["classes"].low)
        is False
    )


def test_all_right_leaves_room_and_dropped_queries_leave_nothing() -> None:
    labels = np.repeat(np.arange(10), 4)
    rows = 100 * np.eye(10)[labels] + np.random.default_rng(0).normal(size=(40, 10))
    interval = retrieve(rows, labels, measures=("recall@1",)).intervals()["recall@1"]["queries"]
    assert 0.8 < interval.low < interval.high == 1
    none = retrieve(rows[:5], np.arange(5), measures=("recall@1",), without_positive="drop")
    assert math.isnan(none.intervals()["recall@1"]["queries"].low)


def results(noise: float, *, seed: int = 0) -> list[LevelResult]:
    """Two embeddings of the same 80 items: each with noise of its own."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(10), 8)
    rows = generator.normal(size=(10, 4))[labels] + generator.normal(size=(80, 4))
    names = ("recall@1", "map@r", "nmi", "roc-auc", "tar@far")
    return [
        evaluate(rows + noise * generator.normal(size=rows.shape), {"": labels}, measures=names)[""] for _ in range(2)
    ]


def test_differences_are_of_the_means_and_narrower_than_both_intervals() -> None:
    first, second = results(0.1)
    differences, ends = first.differences(second), first.intervals()
    assert {"recall@1", "map@r", "nmi", "roc-auc", "tar@far=0.01"} <= differences.keys()
    for name in ("map@r", "roc-auc"):
        for over, difference in differences[name].items():
            assert difference.value == pytest.approx(first.mean()[name] - second.mean()[name], abs=1e-12)
            assert difference.interval.low < difference.value < difference.interval.high
            widths = [interval.high - interval.low for interval in (difference.interval, ends[name][over])]
            assert widths[0] < 0.7 * widths[1]
    for difference in first.differences(first)["map@r"].values():
        assert difference == Difference(0, Interval(0, 0))


def test_differences_with_another_gallery_add_the_variances_up() -> None:
    rows, labels = points(1)
    first, second = (
        retrieve(rows, labels, gallery=gallery, gallery_labels=classes, measures=("map@r",))
        for gallery, classes in (points(2), points(3))
    )
    interval = first.differences(second)["map@r"]["queries"].interval
    alone = [sampling_variances([each])["queries", "micro"].values[0] for each in (first, second)]
    assert interval.high - interval.low > 2 * 1.96 * math.sqrt(sum(alone))


def test_few_queries_among_many_items_are_taken_as_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 5)
    rows, labels = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) // 2
    retrieval = retrieve(rows[:3], labels[:3], gallery=rows, gallery_labels=labels, measures=("map@r",))
    found = sampling_variances([retrieval])
    plain = module.variance_of_mean(retrieval.values, labels[:3], over="queries", average="micro")
    assert found["queries", "micro"].values == pytest.approx(plain.values)
