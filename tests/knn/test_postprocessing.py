"""Query expansion and re-ranking, against their definitions in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from trivet.knn.index import build_index
from trivet.knn.kinds import Kind, Reranking
from trivet.knn.postprocessing import RerankedIndex
from trivet.metrics.points import Metric

Row = tuple[float, ...]


@cache
def squared(x: Row, y: Row) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def points_of(rows: np.ndarray, distance: Metric) -> list[Row]:
    rows = rows.astype(np.float64)
    if distance == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return [tuple(row) for row in rows.tolist()]


def mean_squared(gallery: Sequence[Row]) -> float:
    """The mean over all pairs, also of a row with itself."""
    return math.fsum(squared(x, y) for x in gallery for y in gallery) / len(gallery) ** 2


def nearest(x: Row, gallery: Sequence[Row], count: int, without: int) -> list[int]:
    others = [row for row in range(len(gallery)) if row != without]
    return sorted(others, key=lambda row: (squared(x, gallery[row]), row))[:count]


def expansion_scores(query: Row, gallery: Sequence[Row], without: int) -> dict[int, float]:
    """Squared distance of each row from the expanded query."""
    spread, total, weights = mean_squared(gallery), list(query), 1.0
    for row in nearest(query, gallery, 10, without):
        weight = max(0.0, 1 - squared(query, gallery[row]) / spread) ** 3
        total = [a + weight * b for a, b in zip(total, gallery[row], strict=True)]
        weights += weight
    mean = tuple(a / weights for a in total)
    return {row: squared(mean, gallery[row]) for row in range(len(gallery)) if row != without}


class Reciprocal:
    """Neighbours in sets, vectors in dictionaries."""

    def __init__(self, gallery: Sequence[Row]) -> None:
        self.gallery, self.spread = gallery, mean_squared(gallery)
        self.count = min(20, len(gallery) - 1)
        self.lists = [nearest(x, gallery, self.count, row) for row, x in enumerate(gallery)]

    def mutual(self, x: Row, own: int, listed: Sequence[int], count: int) -> set[int]:
        count = min(count, self.count)
        return {
            row
            for row in listed[:count]
            if squared(x, self.gallery[row]) <= squared(self.gallery[row], self.gallery[self.lists[row][count - 1]])
        } | ({own} if own >= 0 else set())

    def vector(self, x: Row, own: int, listed: Sequence[int]) -> dict[int, float]:
        first = self.mutual(x, own, listed, 20)
        members = set(first)
        for row in first - {own}:
            others = self.mutual(self.gallery[row], row, self.lists[row], 10)
            if len(others & first) >= 2 / 3 * len(others):
                members |= others
        weights = {row: math.exp(-squared(x, self.gallery[row]) / (2 * self.spread)) for row in members}
        return {row: weight / math.fsum(weights.values()) for row, weight in weights.items()}

    def average(self, x: Row, own: int, listed: Sequence[int]) -> dict[int, float]:
        vectors = [self.vector(x, own, listed)]
        vectors += [self.vector(self.gallery[row], row, self.lists[row]) for row in listed[:5]]
        return {
            row: math.fsum(vector.get(row, 0.0) for vector in vectors) / len(vectors) for row in set().union(*vectors)
        }

    def scores(self, query: Row, without: int) -> dict[int, float]:
        listed = nearest(query, self.gallery, self.count, without)
        mine = self.average(query, without, listed)
        scores = {}
        for row in range(len(self.gallery)):
            if row != without:
                theirs = self.average(self.gallery[row], row, self.lists[row])
                both = mine.keys() | theirs.keys()
                least = math.fsum(min(mine.get(key, 0.0), theirs.get(key, 0.0)) for key in both)
                most = math.fsum(max(mine.get(key, 0.0), theirs.get(key, 0.0)) for key in both)
                far = squared(query, self.gallery[row]) / (2 * self.spread)
                scores[row] = 0.7 * (1 - least / most) + 0.3 * far
        return scores


def clusters(count: int, dimension: int, seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed)
    centres = numbers.normal(size=(5, dimension))
    return (centres[np.arange(count) % 5] + 0.5 * numbers.normal(size=(count, dimension)) + 1).astype(np.float32)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize(
    ("items", "in_gallery", "copies"),
    [(36, True, 1), (36, False, 1), (9, True, 1), (9, False, 1), (2, True, 1), (36, True, 3), (36, False, 3)],
)
@pytest.mark.parametrize("kind", ["expansion", "reciprocal"])
def test_the_order_is_that_of_the_definition(
    kind: Reranking, items: int, in_gallery: bool, copies: int, distance: Metric
) -> None:
    rows = np.repeat(clusters(items // copies + 6, 4, seed=items), copies, axis=0)
    gallery, queries = (rows[:items], rows[:6]) if in_gallery else (rows[:items], rows[items::copies])
    index = RerankedIndex(build_index(gallery, distance=distance), kind)
    points, asked = points_of(gallery, distance), points_of(queries, distance)
    reciprocal = Reciprocal(points)
    own = np.arange(len(queries)) if in_gallery else np.full(len(queries), -1)
    found = index.search_rows(own[: len(gallery)], items) if in_gallery else index.search(queries, items)
    for query, row, order in zip(asked, own.tolist(), found.indices.tolist(), strict=False):
        scores = expansion_scores(query, points, row) if kind == "expansion" else reciprocal.scores(query, row)
        listed = [number for number in order if number >= 0]
        assert sorted(listed) == sorted(scores)
        assert [scores[number] for number in listed] == pytest.approx(sorted(scores.values()), abs=1e-6)


@pytest.mark.parametrize("kind", ["expansion", "reciprocal"])
def test_distances_are_those_of_the_index_and_rows_that_are_left_out_are_not_found(kind: Reranking) -> None:
    rows = clusters(80, 6, seed=1)
    plain = build_index(rows)
    index = RerankedIndex(plain, kind)
    found = index.search(rows[:5], 10, leave_out=[0, 1, 2, 3, 4])
    np.testing.assert_array_equal(found.indices, index.search_rows(range(5), 10).indices)
    assert not (found.indices == np.arange(5)[:, None]).any()
    np.testing.assert_allclose(found.distances, plain.distances(rows[:5], found.indices))
    assert (found.indices != plain.search_rows(range(5), 10).indices).any(), "the order is another one"


@pytest.mark.parametrize("kind", ["expansion", "reciprocal"])
def test_removed_rows_are_not_found_and_a_point_has_an_order(kind: Reranking) -> None:
    changed = build_index(clusters(50, 4, seed=3)).without([1, 7])
    found = RerankedIndex(changed, kind).search_rows([0, 2], 60).indices
    assert not np.isin([1, 7], found).any()
    assert sorted(found[0][found[0] >= 0].tolist()) == [n for n in range(50) if n not in (0, 1, 7)]
    constant = RerankedIndex(build_index(np.ones((30, 3)), distance="euclidean"), kind)
    assert sorted(constant.search(np.ones((1, 3)), 30).indices[0].tolist()) == list(range(30))


@pytest.mark.parametrize("kind", ["expansion", "reciprocal"])
@pytest.mark.parametrize("index_kind", ["hnsw", "int8", "binary"])
def test_any_kind_of_index_is_searched(kind: Reranking, index_kind: Kind) -> None:
    rows = clusters(300, 16, seed=4)
    exact, other = (
        RerankedIndex(build_index(rows, kind=each), kind).search_rows(range(40), 5).indices
        for each in ("exact", index_kind)
    )
    assert np.mean([len(set(a) & set(b)) for a, b in zip(exact.tolist(), other.tolist(), strict=True)]) > 4.5


def test_an_answer_does_not_depend_on_what_else_is_looked_for() -> None:
    rows = clusters(120, 5, seed=5)
    queries = clusters(30, 5, seed=6)
    index = build_index(rows)
    together = RerankedIndex(index, "reciprocal").search(queries, 10).indices
    alone = [RerankedIndex(index, "reciprocal").search(query[None], 10).indices[0] for query in queries]
    np.testing.assert_array_equal(together, np.array(alone))
