from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.metrics import nearest, nearest_pairs, neighbours, recall_at_k, retrieve

V8 = np.array(
    [
        (1, 0),
        (12 / 13, 5 / 13),
        (3 / 5, 4 / 5),
        (8 / 17, 15 / 17),
        (-9 / 41, 40 / 41),
        (-4 / 5, 3 / 5),
        (-15 / 17, -8 / 17),
        (20 / 29, -21 / 29),
    ]
)
V8_LABELS = np.array([0, 0, 1, 0, 1, 1, 0, 2])
FEW_POINTS = st.integers(2, 6).flatmap(
    lambda count: st.tuples(
        st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1)), min_size=count, max_size=count),
        st.lists(st.integers(0, 2), min_size=count, max_size=count),
    )
)


def hits_at_k(points: Any, labels: Any, ks: tuple[int, ...] = (1, 2, 4, 8), **options: Any) -> np.ndarray:
    """The recall of each query, one column for each K."""
    return retrieve(points, labels, measures=[f"recall@{k}" for k in ks], **options).values


def test_known_recalls_for_both_rules_for_singletons() -> None:
    ks = (1, 2, 4)
    assert recall_at_k(V8, V8_LABELS, ks) == {1: 0.5, 2: 0.625, 4: 0.875}
    dropped = recall_at_k(V8, V8_LABELS, ks, without_positive="drop")
    assert list(dropped.values()) == pytest.approx([4 / 7, 5 / 7, 1], abs=1e-12)
    hits = hits_at_k(V8, V8_LABELS, ks, without_positive="drop")
    assert np.isnan(hits[7]).all()
    assert not np.isnan(hits[:7]).any()


def test_equal_rows_in_many_dimensions_tie() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(100, 1, (30, 300)).astype(np.float32)
    labels = np.repeat(np.arange(10), 3)
    # Every row four times, twice in another class: the nearest positive ties with two negatives.
    points, classes = np.tile(rows, (4, 1)), np.concatenate([labels, labels, labels + 10, labels + 10])
    np.testing.assert_allclose(hits_at_k(points, classes, (1, 2, 3)), [[1 / 3, 2 / 3, 1]] * 120, atol=1e-12)


@pytest.mark.parametrize("rows", [8, 400])
def test_classes_far_finer_than_the_spread_are_told_apart(rows: int) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(rows) % 4
    points = np.zeros((rows, 8), dtype=np.float32)
    points[:, 0] = np.where(labels < 2, 1, -1)
    points[:, 1] = np.where(labels % 2, 3e-7, -3e-7) + generator.uniform(-3e-8, 3e-8, rows)
    assert recall_at_k(points, labels, (1,)) == {1: 1}
    pairs = nearest_pairs(points, labels)
    # On each side the angles are as the second coordinates.
    apart = np.abs(points[:, 1, None].astype(np.float64) - points[:, 1]) + 9 * (points[:, 0, None] != points[:, 0])
    np.fill_diagonal(apart, 9)
    same = labels[:, None] == labels
    np.testing.assert_array_equal(pairs.positive, np.where(same, apart, 99).argmin(axis=1))
    np.testing.assert_array_equal(pairs.negative, np.where(same, 99, apart).argmin(axis=1))


def test_rows_along_one_ray_coincide_in_cosine() -> None:
    generator = np.random.default_rng(0)
    rows = np.repeat(generator.normal(size=(5, 37)).astype(np.float32).astype(np.float64), 20, axis=0)
    stretched = rows * np.tile(np.arange(1, 21), 5)[:, None]
    labels = np.tile(np.repeat([0, 1], 10), 5)
    expected = np.full(100, 9 / 19)
    np.testing.assert_allclose(hits_at_k(stretched, labels, (1,), distance="cosine")[:, 0], expected, atol=1e-12)


@settings(deadline=None)
@given(FEW_POINTS, st.permutations(range(6)))
def test_order_names_place_and_scale_do_not_matter(
    data: tuple[list[tuple[int, int]], list[int]], permutation: list[int]
) -> None:
    points, labels = np.array(data[0], dtype=np.float64), np.array(data[1])
    order = [place for place in permutation if place < len(labels)]
    moved = hits_at_k(0.37 * points[order] + 11, 7 - labels[order], (1, 2))
    np.testing.assert_allclose(moved, hits_at_k(points, labels, (1, 2))[order], atol=1e-12)


def test_cosine_ignores_norms_and_takes_zero_rows() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(50, 4)), generator.integers(0, 6, 50)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    stretched = points * 10 ** generator.uniform(-200, 3, (50, 1))
    np.testing.assert_allclose(
        hits_at_k(stretched, labels, distance="cosine"), hits_at_k(unit, labels, distance="euclidean"), atol=1e-12
    )
    # Similarities of row 0: 0 to the zero row 1, 0.6 to row 2, -1 to row 3.
    angled = np.array([[1.0, 0.0], [0.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    assert neighbours(angled, [0], 3, distance="cosine").indices.tolist() == [[2, 1, 3]]
    np.testing.assert_allclose(neighbours(angled, [0], 3, distance="cosine").distances, [[0.4, 1, 2]], atol=1e-12)
    assert recall_at_k(np.zeros((4, 2)), np.array([0, 0, 1, 1]), (1,), distance="cosine")[1] == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64])
def test_labels_of_any_integer_dtype(dtype: type[np.integer[Any]]) -> None:
    assert recall_at_k(V8, V8_LABELS.astype(dtype), (1,)) == {1: 0.5}
    top = np.iinfo(dtype).max
    near = np.array([top, top - 1], dtype=dtype)
    assert recall_at_k(np.zeros((2, 1)), near, (1,)) == {1: 0.0}


def test_tensors_count_like_arrays() -> None:
    embeddings = torch.from_numpy(V8).requires_grad_()
    assert recall_at_k(embeddings, torch.from_numpy(V8_LABELS), (1, 2, 4)) == {1: 0.5, 2: 0.625, 4: 0.875}
    np.testing.assert_array_equal(nearest_pairs(embeddings, V8_LABELS).s_ap, nearest_pairs(V8, V8_LABELS).s_ap)
    assert neighbours(embeddings, [0], 2).indices.tolist() == [[1, 7]]
    half = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.bfloat16)
    assert recall_at_k(half, torch.tensor([0, 0, 1], dtype=torch.int32), (1,)) == {1: pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: recall_at_k(np.array([[0.0], [np.nan], [np.inf]]), np.zeros(3, int)), "rows 1, 2 hold NaN"),
        (lambda: recall_at_k(np.zeros((3, 1)), np.zeros(2, int)), r"one class per embedding: got shape \(2,\)"),
        (lambda: recall_at_k(np.zeros((2, 1)), np.zeros((2, 1), int)), "one class per embedding"),
        (lambda: recall_at_k(np.zeros(3), np.zeros(3, int)), r"shape \(N, d\)"),
        (lambda: recall_at_k(np.zeros((2, 1), int), np.zeros(2, int)), "floating point: got int64"),
        (lambda: recall_at_k(np.zeros((2, 1)), np.array([True, False])), "integers: got bool"),
        (lambda: recall_at_k(np.zeros((2, 1)), np.zeros(2)), "integers: got float64"),
        (lambda: recall_at_k(np.zeros((2, 1)), np.array(["a", "b"])), "np.unique"),
        (lambda: recall_at_k(np.zeros((2, 1)), torch.tensor([True, False])), "integers: got bool"),
        (lambda: recall_at_k(np.zeros((0, 1)), np.zeros(0, int)), "at least two items: got 0"),
        (lambda: recall_at_k(np.zeros((1, 1)), np.zeros(1, int)), "at least two items: got 1"),
        (lambda: recall_at_k(np.full((2, 1), 1e200) * [[1], [2]], np.zeros(2, int)), "too large"),
        (lambda: recall_at_k(V8, V8_LABELS, ()), "at least one K"),
        (lambda: recall_at_k(V8, V8_LABELS, (1, 0)), "at least one K"),
        (lambda: recall_at_k(V8, V8_LABELS, distance="dot"), "'euclidean' or 'cosine'"),
        (lambda: recall_at_k(V8, V8_LABELS, without_positive="keep"), "'miss' or 'drop'"),
        (lambda: recall_at_k(V8, np.arange(8), without_positive="drop"), "none has"),
        (lambda: nearest_pairs(np.zeros((1, 1)), np.zeros(1, int)), "at least two items"),
        (lambda: neighbours(V8, [0], 8), "7 other items: got 8"),
        (lambda: neighbours(V8, [0], 0), "7 other items: got 0"),
        (lambda: neighbours(V8, [8], 1), "from 0 to 7"),
        (lambda: neighbours(V8, [-1], 1), "from 0 to 7"),
        (lambda: nearest_pairs(V8, V8_LABELS, sample=np.array([3, 3])), "different row numbers from 0 to 7"),
        (lambda: nearest_pairs(V8, V8_LABELS, sample=np.array([8])), "different row numbers from 0 to 7"),
        (lambda: nearest_pairs(V8, V8_LABELS, sample=np.array([0.5])), "got float64"),
        (lambda: neighbours(V8, np.array([0.0]), 1), "row numbers"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("rows", [None, 3])
def test_nearest_pairs_equal_the_definition(rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if rows is not None:
        monkeypatch.setattr(nearest, "ROWS", rows)
    generator = np.random.default_rng(1)
    points = generator.integers(-2, 3, (40, 3)).astype(np.float64)
    points[np.abs(points).sum(axis=1) == 0] = 1
    labels = generator.integers(0, 4, 40)
    labels[:2] = 8, 9  # alone in their classes
    pairs = nearest_pairs(points.astype(np.float32), labels)
    for side, found, value in (("same", pairs.positive, pairs.s_ap), ("other", pairs.negative, pairs.s_an)):
        for i, point in enumerate(points):
            best, best_similarity = -1, -math.inf
            for j, other in enumerate(points):
                if j != i and (labels[i] == labels[j]) == (side == "same"):
                    similarity = float(point @ other) / math.hypot(*point) / math.hypot(*other)
                    if similarity > best_similarity + 1e-9:
                        best, best_similarity = j, similarity
            assert found[i] == best
            assert value[i] == pytest.approx(best_similarity if best >= 0 else math.nan, abs=1e-12, nan_ok=True)
    assert pairs.positive[:2].tolist() == [-1, -1]


def test_nearest_pairs_of_some_items_are_theirs_among_all() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.integers(-2, 3, (600, 3)) + 0.5, generator.integers(0, 5, 600)
    sample = np.flatnonzero(generator.random(600) < 0.5)
    some, every = nearest_pairs(points, labels, sample=sample), nearest_pairs(points, labels)
    for name in ("positive", "negative", "s_ap", "s_an"):
        np.testing.assert_array_equal(getattr(some, name), getattr(every, name)[sample])


def test_a_single_class_has_no_nearest_negative() -> None:
    pairs = nearest_pairs(V8, np.zeros(8, int))
    assert pairs.negative.tolist() == [-1] * 8
    assert np.isnan(pairs.s_an).all()


def test_neighbours_of_a_few_rows_with_the_lowest_index_first() -> None:
    points = np.array([[0.0], [2.0], [-2.0], [0.0], [1.0]])
    found = neighbours(points, [0, 4], 4)
    assert found.indices.tolist() == [[3, 4, 1, 2], [0, 1, 3, 2]]
    np.testing.assert_allclose(found.distances, [[0, 1, 2, 2], [1, 1, 1, 3]], atol=1e-12)
    assert neighbours(points, [], 2).indices.shape == (0, 2)
