"""The measures of a batch, against loops over its pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from statistics import fmean

import pytest
import torch
from torch import Tensor

import trivet
from trivet.collapse.batch_measures import (
    NEIGHBOR_MEASURES,
    SUM_MEASURES,
    batch_sums,
    pair_distances,
    related_pairs,
    sum_measures,
)
from trivet.collapse.monitor_buffer import CheckValues, MonitorBuffer

Points = list[list[float]]


def batch(seed: int, *, size: int = 24, d: int = 5, classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(size, d, generator=generator) + 1
    labels = torch.randint(0, classes, (size,), generator=generator)
    return points + labels[:, None], labels, torch.randint(0, 3, (size,), generator=generator)


def seen(*given: Tensor) -> CheckValues:
    """What a look at this batch alone shows."""
    kept = MonitorBuffer()
    kept.add_batch(given)
    return kept.read(given)


def running(*given: Tensor) -> dict[str, float]:
    return dict(zip(SUM_MEASURES, seen(*given).running, strict=True))


def compared(*given: Tensor) -> dict[str, float]:
    return dict(zip(NEIGHBOR_MEASURES, seen(*given).compared, strict=True))


WAYS = pytest.mark.parametrize("rows", [0, 128], ids=["sums of the classes", "all pairs"])
"""The most rows of which all pairs are taken."""


def root_mean_square(lengths: list[float]) -> float:
    return math.sqrt(fmean(length**2 for length in lengths)) if lengths else math.nan


def definition(points: Points, labels: list[int], fine: list[int]) -> dict[str, float]:
    """The running measures by loops over all pairs."""
    pairs = [(math.dist(points[i], points[j]), i, j) for i, j in combinations(range(len(points)), 2)]
    same = [length for length, i, j in pairs if labels[i] == labels[j]]
    other = [length for length, i, j in pairs if labels[i] != labels[j]]
    deep = [length for length, i, j in pairs if labels[i] == labels[j] and fine[i] == fine[j]]
    beside = [length for length, i, j in pairs if labels[i] == labels[j] and fine[i] != fine[j]]
    centre = [fmean(column) for column in zip(*points, strict=True)]
    norms = [math.hypot(*point) for point in points]
    squares = [fmean(length**2 for length in lengths) for lengths in (same, other, deep, beside)]
    return {
        "mean_distance": root_mean_square([length for length, _, _ in pairs]),
        "relative_spread": root_mean_square([math.dist(point, centre) for point in points]) / root_mean_square(norms),
        "within": root_mean_square(same),
        "between": root_mean_square(other),
        "fine_index": math.sqrt(max(0.0, squares[3] - squares[2]) / (squares[1] - squares[0])),
        "norm": root_mean_square(norms),
        "norm_tail": max(norms) / sorted(norms)[(len(norms) - 1) // 2],
    }


@WAYS
@pytest.mark.parametrize("seed", range(6))
def test_running_measures_equal_the_loops(seed: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.collapse.monitor_buffer.PAIRED", rows)
    points, labels, fine = batch(seed)
    found = running(points, labels, fine)
    assert found == pytest.approx(definition(points.tolist(), labels.tolist(), fine.tolist()), rel=1e-4)


GRADES = torch.randint(0, 4, (24, 24), generator=torch.Generator().manual_seed(0))
LISTS = [
    [tag for tag in "abcdef" if torch.rand(1, generator=torch.Generator().manual_seed(97 * item + ord(tag))) < 0.3]
    for item in range(24)
]
Rule = Callable[[int, int], int]
RELATED: dict[str, tuple[trivet.Relation, Rule]] = {  # a rule gives 1 for positives, 0 for negatives and -1 for neither
    "tags, any": (trivet.Tags(LISTS), lambda a, b: int(bool({*LISTS[a]} & {*LISTS[b]}))),
    "tags, all": (
        trivet.Tags(LISTS, "all"),
        lambda a, b: 1 if LISTS[a] and LISTS[a] == LISTS[b] else -int(bool({*LISTS[a]} & {*LISTS[b]})),
    ),
    "pairs": (trivet.Pairs(12, 12), lambda a, b: -1 if (a < 12) == (b < 12) else int(abs(a - b) == 12)),
    "grades": (
        trivet.Grades(GRADES + GRADES.T, positive=5, negative=2),
        lambda a, b: 1 if GRADES[a, b] + GRADES[b, a] >= 5 else -1 if GRADES[a, b] + GRADES[b, a] >= 2 else 0,
    ),
}


@pytest.mark.parametrize("name", RELATED)
def test_measures_of_a_relation_equal_the_loops(name: str) -> None:
    relation, rule = RELATED[name]
    rows = batch(1)[0]
    points = rows.tolist()
    ends = [(i, j) for i in range(24) for j in range(24) if i != j]

    def lengths(of: int) -> list[float]:
        return [math.dist(points[i], points[j]) for i, j in ends if rule(i, j) == of]

    found = running(rows, related_pairs(relation)[1])
    expected = {"within": root_mean_square(lengths(1)), "between": root_mean_square(lengths(0)), "fine_index": math.nan}
    assert expected["within"] != expected["between"]
    alone = running(rows)
    assert found == pytest.approx(alone | expected, rel=1e-4, nan_ok=True)
    values: dict[str, list[float]] = {"recall": [], "hard": [], "s_ap": [], "s_an": []}
    for a, x in enumerate(points):
        positives = [i for i in range(24) if i != a and rule(a, i) == 1]
        negatives = [i for i in range(24) if i != a and rule(a, i) == 0]
        if not positives or not negatives:
            continue
        near, negative = (min(some, key=lambda i: math.dist(x, points[i])) for some in (positives, negatives))
        values["recall"].append(math.dist(x, points[near]) < math.dist(x, points[negative]))
        values["hard"].append(max(math.dist(x, points[i]) for i in positives) > math.dist(x, points[negative]))
        for key, other in (("s_ap", near), ("s_an", negative)):
            product = sum(u * v for u, v in zip(x, points[other], strict=True))
            values[key].append(product / (math.hypot(*x) * math.hypot(*points[other])))
    assert values["recall"]
    means = {key: fmean(of) for key, of in values.items()}
    measures = compared(rows, related_pairs(relation)[1])
    assert {key: measures[key] for key in means} == pytest.approx(means, abs=1e-5)
    assert math.isnan(measures["fine_recall"])


def test_classes_as_a_relation_measure_the_same() -> None:
    rows, labels, _ = batch(2)
    matrix = related_pairs(trivet.Classes(labels))[1]
    assert running(rows, matrix) == pytest.approx(running(rows, labels), rel=1e-6, nan_ok=True)
    assert compared(rows, matrix) == pytest.approx(compared(rows, labels), rel=1e-6, nan_ok=True)


def test_of_a_large_batch_anchors_and_their_positives_are_measured() -> None:
    relation = trivet.Pairs(600, 600)
    rows, matrix = related_pairs(relation)
    assert len(rows) <= 256
    assert int((matrix == 1).sum()) - len(rows) >= 128  # each anchor has its partner
    codes = [
        [1 if a == b or abs(a - b) == 600 else -1 if (a < 600) == (b < 600) else 0 for b in rows.tolist()]
        for a in rows.tolist()
    ]
    assert matrix.tolist() == codes


@WAYS
def test_a_narrow_cone_keeps_its_digits(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.collapse.monitor_buffer.PAIRED", rows)
    points, labels, fine = batch(0)
    narrow = 100 + 1e-3 * points.double()
    found = running(narrow, labels, fine)
    expected = definition(narrow.tolist(), labels.tolist(), fine.tolist())
    for name in ("mean_distance", "relative_spread", "within", "between"):
        assert found[name] == pytest.approx(expected[name], rel=1e-2)


def compared_definition(points: Points, labels: list[int], fine: list[int]) -> dict[str, float]:
    """The compared measures by loops, but for the effective rank."""
    found: dict[str, list[float]] = {name: [] for name in NEIGHBOR_MEASURES}
    for a, x in enumerate(points):
        positives = [i for i in range(len(points)) if i != a and labels[i] == labels[a]]
        negatives = [i for i in range(len(points)) if labels[i] != labels[a]]
        if not positives or not negatives:
            continue
        near = min(positives, key=lambda i: math.dist(x, points[i]))
        far = max(math.dist(x, points[i]) for i in positives)
        negative = min(negatives, key=lambda i: math.dist(x, points[i]))
        found["recall"].append(math.dist(x, points[near]) < math.dist(x, points[negative]))
        found["hard"].append(far > math.dist(x, points[negative]))
        for name, other in (("s_ap", near), ("s_an", negative)):
            product = sum(u * v for u, v in zip(x, points[other], strict=True))
            found[name].append(product / (math.hypot(*x) * math.hypot(*points[other])))
        kinds = {fine[i] == fine[a] for i in positives}
        if len(kinds) == 2:
            found["fine_recall"].append(fine[near] == fine[a])
    items = {"fine_items": len(found["fine_recall"])}
    return {name: fmean(values) for name, values in found.items() if values} | items


@pytest.mark.parametrize(("levels", "pairs"), [(0, False), (1, False), (2, False), (1, True), (2, True)])
def test_several_batches_are_measured_as_each_alone(levels: int, pairs: bool) -> None:
    generator = torch.Generator().manual_seed(levels)
    points = torch.randn(5, 24, 6, generator=generator)
    points[3] = 1  # one point
    labels = torch.randint(4, (5, 24), generator=generator)
    fine = torch.randint(3, (5, 24), generator=generator)
    given = [points, labels, fine][: levels + 1]
    sums = batch_sums(*given, pairs=pair_distances(*given) if pairs else None)
    together = [sum_measures(24, *row) for row in zip(*(one.tolist() for one in sums), strict=True)]
    assert len(together) == 5
    for place, found in enumerate(together):
        alone = running(*(one[place] for one in given))
        assert found == pytest.approx(list(alone.values()), nan_ok=True, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_compared_measures_equal_the_loops(seed: int) -> None:
    points, labels, fine = batch(seed)
    found = compared(points, labels, fine)
    centred = points.double() - points.double().mean(dim=0)
    values = torch.linalg.svdvals(centred)
    shares = values / values.sum()
    assert found.pop("effective_rank") == pytest.approx(math.exp(-float((shares * shares.log()).sum())), rel=1e-3)
    assert found == pytest.approx(compared_definition(points.tolist(), labels.tolist(), fine.tolist()), abs=1e-5)


def test_only_the_first_rows_are_compared() -> None:
    points, labels, _ = batch(0, size=300)
    first = compared(points[:256], labels[:256])
    assert compared(points, labels) == pytest.approx(first, nan_ok=True, abs=1e-6)


def test_without_labels_only_the_spread_and_the_norm_are_known() -> None:
    points, _, _ = batch(0)
    found = running(points)
    assert {name for name, value in found.items() if not math.isnan(value)} == {
        "mean_distance",
        "relative_spread",
        "norm",
        "norm_tail",
    }


@WAYS
def test_one_class_has_nothing_between_and_single_items_nothing_within(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.collapse.monitor_buffer.PAIRED", rows)
    points, _, _ = batch(0)
    one = running(points, torch.zeros(len(points), dtype=torch.int64))
    assert math.isnan(one["between"])
    assert one["within"] == pytest.approx(one["mean_distance"], rel=1e-5)
    each = running(points, torch.arange(len(points)))
    assert math.isnan(each["within"])
    assert each["between"] == pytest.approx(each["mean_distance"], rel=1e-5)


@WAYS
def test_labels_above_32_bits_stay_apart(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.collapse.monitor_buffer.PAIRED", rows)
    points, labels, fine = batch(0)
    large = labels.long() * 2**33 + 2**40
    assert running(points, large, fine) == pytest.approx(running(points, labels, fine), rel=1e-6)
    assert compared(points, large, fine) == pytest.approx(compared(points, labels, fine))


def test_a_cosine_with_a_row_of_0_is_0_and_of_two_is_not_known() -> None:
    points, labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [3.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 0, 1, 1])
    found = compared(points, labels)
    assert found["s_ap"] == pytest.approx((0 + 0 + 1 + 1) / 4)
    assert found["s_an"] == pytest.approx((1 + 0 + 1 + 1) / 4)
    points[0] = 0
    assert math.isnan(compared(points, labels)["s_ap"])


def test_rows_that_are_not_finite_have_no_rank_and_are_told() -> None:
    points, labels, fine = batch(0)
    points[3, 2] = math.inf
    found = seen(points, labels, fine)
    assert not found.finite
    assert math.isnan(found.compared[NEIGHBOR_MEASURES.index("effective_rank")])
    assert seen(*batch(0)).finite


@pytest.mark.parametrize("sizes", [(9, 14), (7, 1), (160, 170)])
def test_the_shape_of_two_sides_is_that_of_the_narrower_one(sizes: tuple[int, int]) -> None:
    """About its mean, wherever the sides lie; what belongs together is compared as it lies."""
    generator = torch.Generator().manual_seed(5)
    width = torch.tensor([0.1] * sizes[0] + [2.0] * sizes[1])[:, None]
    gap = torch.tensor([9.0] * sizes[0] + [-3.0] * sizes[1])[:, None]
    points = torch.randn(sum(sizes), 4, generator=generator) * width + gap
    pairs = trivet.Pairs(*sizes, [(i, i % sizes[1]) for i in range(sizes[0])], aligned=False)
    rows, related = related_pairs(pairs)
    right = (rows >= sizes[0]).int()
    measured = running(points[rows], related, right)
    left = [point for point, row in zip(points[rows].tolist(), rows.tolist(), strict=True) if row < sizes[0]]
    lengths = [math.dist(one, other) for one, other in combinations(left, 2)]
    mean = [fmean(column) for column in zip(*left, strict=True)]
    spread = math.sqrt(sum(math.dist(one, mean) ** 2 for one in left) / sum(math.hypot(*one) ** 2 for one in left))
    assert measured["relative_spread"] == pytest.approx(spread, rel=1e-5)
    assert measured["mean_distance"] == pytest.approx(root_mean_square(lengths), rel=1e-5)
    whole = running(points[rows], related)
    for name in ("within", "between", "norm", "norm_tail"):
        assert measured[name] == pytest.approx(whole[name], rel=1e-5, nan_ok=True)
    both = [points[rows][right == side] for side in (0, 1)]
    values = torch.linalg.svdvals(torch.cat([side - side.mean(dim=0) for side in both]).double())
    shares = [value for value in (values / values.sum()).tolist() if value > 0]
    rank = math.exp(-sum(share * math.log(share) for share in shares))
    assert compared(points[rows], related, right)["effective_rank"] == pytest.approx(rank, rel=1e-3)
