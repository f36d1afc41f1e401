from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from trivet.metrics import nearest
from trivet.metrics.intervals import Over
from trivet.metrics.points import as_points
from trivet.metrics.rejection import rejection

PLACES = st.tuples(st.integers(0, 4), st.integers(0, 2))


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(PLACES, st.booleans()), min_size=2, max_size=12),
    st.lists(PLACES, min_size=1, max_size=4),
    st.sampled_from([(1.0, 0.0), (0.25, 100.0)]),
)
def test_equals_the_definition(
    asked: list[tuple[tuple[int, int], bool]], known: list[tuple[int, int]], place: tuple[float, float]
) -> None:
    queries, gallery = (np.array(rows) * place[0] + place[1] for rows in ([point for point, _ in asked], known))
    outside = np.array([out for _, out in asked])
    scores: dict[bool, list[int]] = {True: [], False: []}
    for (x, y), out in asked:
        scores[out].append(min((x - u) ** 2 + (y - v) ** 2 for u, v in known))
    if not scores[True] or not scores[False]:
        with pytest.raises(ValueError, match="queries must include both in-scope and out-of-scope ones"):
            rejection(queries, outside, gallery)
        return
    found = rejection(queries, outside, gallery)
    assert (found.auroc, found.fpr_at_95_tpr) == pytest.approx(measured(scores[False], scores[True]), abs=1e-9)
    assert (found.in_scope, found.out_of_scope) == (len(scores[False]), len(scores[True]))


def test_an_item_is_not_its_own_nearest() -> None:
    generator = np.random.default_rng(0)
    for decimals in (0, 6):  # with equal rows, and without
        gallery = np.round(generator.normal(size=(60, 2)), decimals)
        queries = np.concatenate([gallery[10:40], np.round(generator.normal(size=(30, 2)), decimals)])
        own = np.concatenate([np.arange(10, 40), np.full(30, -1)])
        outside = np.arange(60) % 3 == 0
        apart = np.linalg.norm(queries[:, None] - gallery, axis=2)
        apart[np.arange(30), own[:30]] = np.inf
        nearest = apart.min(axis=1)
        found = rejection(queries, outside, gallery, self_rows=own)
        assert found.auroc == pytest.approx(roc_auc_score(outside, nearest), abs=1e-12)
        assert rejection(queries, outside, gallery, self_rows=np.full(60, -1)) == rejection(queries, outside, gallery)


def test_what_is_wrong_with_own_rows_is_said() -> None:
    queries, outside = np.array([[0.0], [1.0]]), np.array([False, True])
    with pytest.raises(ValueError, match="beside itself for each query: query 1"):
        rejection(queries, outside, np.array([[1.0]]), self_rows=np.array([-1, 0]))
    for own in (np.array([0]), np.array([0, 5]), np.array([0.0, -1.0]), np.array([-2, 0])):
        with pytest.raises(ValueError, match="self_rows must be"):
            rejection(queries, outside, queries, self_rows=own)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_a_constant_embedding_scores_chance(value: float) -> None:
    for distance in ("euclidean", "cosine"):
        found = rejection(np.full((30, 3), value), np.arange(30) < 7, np.full((9, 3), value), distance=distance)
        assert (found.auroc, found.fpr_at_95_tpr) == (0.5, 0.95)


@pytest.mark.parametrize("rows", [1, 7, 256])
@pytest.mark.parametrize("kind", ["spread", "nearly collapsed", "two points", "grid", "far off"])
def test_the_nearest_distance_is_exact(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    points = {
        "spread": generator.normal(size=(60, 5)),
        "nearly collapsed": 1 + 1e-9 * generator.normal(size=(60, 5)),
        "two points": np.where(np.arange(60) % 2, 1.0, -1.0)[:, None] + 1e-10 * generator.normal(size=(60, 5)),
        "grid": generator.integers(0, 3, (60, 5)) + 0.1,
        "far off": 1e6 + generator.normal(size=(60, 5)) * np.array([1e6, 1, 1, 1, 1]),
    }[kind]
    points[40:44] = points[:4]
    monkeypatch.setattr(nearest, "ROWS", rows)
    monkeypatch.setattr("trivet.metrics.points.PAIR_NUMBERS", 10)

    def every(asked: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.ones(len(asked), 30, dtype=torch.bool),)

    found = nearest.nearest_allowed(as_points(points), torch.arange(30), torch.arange(30, 60), every)[0][0].tolist()
    expected = [min(math.dist(query, item) for item in points[30:].tolist()) for query in points[:30].tolist()]
    assert found == pytest.approx(expected, rel=1e-14, abs=0)


def test_cosine_compares_directions() -> None:
    gallery = np.array([[1.0, 0.0], [0.0, 5.0]])
    queries = np.array([[0.01, 0.0001], [3.0, 3.0], [0.1, 9.0]])
    outside = np.array([False, True, False])
    assert rejection(queries, outside, gallery, distance="cosine").auroc == 1
    assert rejection(queries, outside, gallery).auroc == 0.5
    tensors = rejection(torch.from_numpy(queries), torch.from_numpy(outside), torch.from_numpy(gallery).float())
    assert tensors == rejection(queries, outside, gallery)


QUERIES, OUTSIDE = np.arange(3.0)[:, None], np.array([True, False, False])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rejection(QUERIES, OUTSIDE, QUERIES[:0]), "at least one item"),
        (lambda: rejection(QUERIES, OUTSIDE, np.eye(2)), r"the same dimension: got shapes \(3, 1\) and \(2, 2\)"),
        (lambda: rejection(QUERIES, OUTSIDE[:2], QUERIES), r"each of the 3 queries: got bool of shape \(2,\)"),
        (lambda: rejection(QUERIES, np.array([1, 0, 0]), QUERIES), "True or False .* got int64"),
        (lambda: rejection(QUERIES, ~OUTSIDE | True, QUERIES), "got 0 and 3"),
        (lambda: rejection(QUERIES, OUTSIDE & False, QUERIES), "got 3 and 0"),
        (lambda: rejection(QUERIES[:0], OUTSIDE[:0], QUERIES), "got 0 and 0"),
        (lambda: rejection(QUERIES * np.nan, OUTSIDE, QUERIES), "hold NaN"),
        (lambda: rejection(QUERIES, OUTSIDE, QUERIES, distance="dot"), "'euclidean' or 'cosine'"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def sets(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Queries of 12 classes of 5 to 16, 70 out of scope, and a gallery; some classes lie nearer to it than others."""
    labels = np.repeat(np.arange(12), np.arange(5, 17))
    inside = generator.normal(size=(len(labels), 1)) * (0.2 + generator.random(12)[labels, None])
    outside = generator.normal(0, 2, (70, 1))
    order = generator.permutation(len(labels) + 70)
    queries = np.concatenate([inside, outside])[order]
    return queries, (np.arange(len(order)) >= len(labels))[order], np.pad(labels, (0, 70))[order], np.zeros((1, 1))


def measured(inside: Sequence[float], outside: Sequence[float]) -> tuple[float, float]:
    """AUROC, and FPR at 95 % TPR: of the queries at the last distance the same part of both kinds is let in."""
    area = sum((a < b) + (a == b) / 2 for a in inside for b in outside) / len(inside) / len(outside)
    wanted = 0.95 * len(inside)
    last = min(limit for limit in inside if sum(score <= limit for score in inside) >= wanted)
    part = (wanted - sum(score < last for score in inside)) / inside.count(last)
    return area, (sum(score < last for score in outside) + part * outside.count(last)) / len(outside)


@pytest.mark.parametrize("over", ["queries", "classes"])
def test_intervals_are_those_of_a_bootstrap_by_hand(over: Over) -> None:
    generator = np.random.default_rng(0)
    queries, outside, labels, gallery = sets(generator)
    found = rejection(queries, outside, gallery, labels=labels)
    micro, macro = found.intervals(), found.intervals("macro")
    scores = np.abs(queries[:, 0])
    groups = [scores[~outside & (labels == c)].tolist() for c in range(12)]
    drawn = []
    for _ in range(200):
        out = generator.choice(scores[outside], 70).tolist()
        if over == "queries":
            known = generator.choice(scores[~outside], int((~outside).sum())).tolist()
            parts = [generator.choice(group, len(group)).tolist() for group in groups]
        else:
            parts = [groups[c] for c in generator.integers(0, 12, 12)]
            known = [score for part in parts for score in part]
        drawn.append([*measured(known, out), np.mean([measured(part, out)[0] for part in parts])])
    area, rate, mean = np.std(drawn, axis=0)
    for interval, scatter in (
        (micro["auroc"][over], area),
        (micro["fpr_at_95_tpr"][over], rate),
        (macro["auroc"][over], mean),
    ):
        # A standard deviation of 200 is known to 1 / root(400); the rate is not quite normal.
        assert (interval.high - interval.low) / (2 * 1.96) == pytest.approx(scatter, rel=3 / math.sqrt(400) + 0.05)
    assert micro["auroc"][over].low < found.auroc < micro["auroc"][over].high
    assert found.macro is not None
    assert macro["auroc"][over].low < found.macro < macro["auroc"][over].high


def test_each_class_against_all_out_of_scope() -> None:
    queries, outside, labels, gallery = sets(np.random.default_rng(0))
    queries = np.round(queries, 1)  # ties
    found, scores = rejection(queries, outside, gallery, labels=labels * 7 - 3), np.abs(queries[:, 0])
    classes = found.per_class()
    assert list(classes) == [7 * c - 3 for c in range(12)]
    for c in range(12):
        inside = scores[~outside & (labels == c)].tolist()
        assert classes[7 * c - 3] == pytest.approx(measured(inside, scores[outside].tolist())[0], abs=1e-12)
    assert found.macro == pytest.approx(np.mean(list(classes.values())), abs=1e-12)
    assert found == rejection(queries, outside, gallery)


def test_intervals_hold_chance_where_nothing_is_known() -> None:
    flat, outside = np.full((30, 3), 0.1), np.arange(30) < 7
    found = rejection(flat, outside, flat, labels=np.arange(30) % 4).intervals()
    assert {(one.low, one.high) for one in found["auroc"].values()} == {(0.5, 0.5)}
    for one in found["fpr_at_95_tpr"].values():
        assert (one.low, one.high) == pytest.approx((0.95, 0.95), abs=1e-12)


def test_without_labels_nothing_is_known_of_classes() -> None:
    queries, outside, labels, gallery = sets(np.random.default_rng(0))
    found = rejection(queries, outside, gallery)
    assert (found.macro, found.per_class()) == (None, {})
    assert math.isnan(found.intervals()["auroc"]["classes"].low)
    assert math.isnan(found.intervals("macro")["auroc"]["queries"].low)
    named = rejection(queries, outside, gallery, labels=labels)
    for name, ends in found.intervals().items():
        other = named.intervals()[name]["queries"]
        # Queries of a class are alike there.
        assert ends["queries"].low == pytest.approx(other.low, abs=0.05)
    lone = rejection(QUERIES[:2], np.array([True, False]), QUERIES, labels=np.array([1, 1])).intervals()
    assert all(math.isnan(one.low) for ends in lone.values() for one in ends.values())
    with pytest.raises(ValueError, match="labels must hold one class"):
        rejection(queries, outside, gallery, labels=labels[1:])
