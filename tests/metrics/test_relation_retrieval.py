"""Retrieval by relations against its definition: every order of tied items, in exact arithmetic."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.test_positive_ranks import GRID, NAMES, WAYS, definition, force

from trivet import Classes, Grades, Pairs, Relation, Tags
from trivet.knn.retrieval_by_index import retrieve_by_index
from trivet.metrics import Retrieval, relation_levels, retrieve, retrieve_both_ways, retrieve_by_tag, sampling_variance
from trivet.metrics.intervals import Over
from trivet.metrics.sampling_variance import losses_of

TABLE = [[4, 2, 0, 1], [2, 3, 1, 0], [0, 1, 0, 2], [1, 0, 2, 2]]  # grades of four kinds of items
POSITIVE, NEGATIVE = 2, 1  # grades of 1 are neither right nor wrong


def grades(kinds: list[int]) -> Grades:
    return Grades(np.array(TABLE), positive=POSITIVE, negative=NEGATIVE, items=torch.tensor(kinds))


def gain(left: int, right: int) -> int:
    grade = TABLE[left][right]
    return grade if grade >= POSITIVE else 0


def ignored(left: int, right: int) -> bool:
    return NEGATIVE <= TABLE[left][right] < POSITIVE


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("tile", "compared"), [((2, 3), 4), ((1024, 4096), 2**22)])
@settings(deadline=None, max_examples=30)
@given(points=st.lists(st.tuples(GRID, st.integers(0, 3)), min_size=2, max_size=6))
def test_graded_measures_are_the_mean_over_all_orders_of_tied_items(
    way: str, tile: tuple[int, int], compared: int, points: list[tuple[tuple[int, int], int]]
) -> None:
    rows, kinds = [row for row, _ in points], [kind for _, kind in points]
    with pytest.MonkeyPatch.context() as patch:
        force(patch, way, tile)
        patch.setattr(relation_levels, "COMPARED", compared)
        found = retrieve(np.array(rows, np.float32), grades(kinds), measures=NAMES, without_positive="drop")
    expected = definition(
        rows, rows, lambda q, j: gain(kinds[q], kinds[j]), lambda q, j: q != j and not ignored(kinds[q], kinds[j])
    )
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=30)
@given(
    queries=st.lists(st.tuples(GRID, st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=4),
    gallery=st.lists(st.tuples(GRID, st.integers(0, 3), st.integers(0, 1), st.booleans()), min_size=1, max_size=6),
    own=st.lists(st.integers(-1, 5), min_size=4, max_size=4),
)
def test_a_gallery_with_cameras_junk_and_the_query_itself(
    way: str,
    queries: list[tuple[tuple[int, int], int, int]],
    gallery: list[tuple[tuple[int, int], int, int, bool]],
    own: list[int],
) -> None:
    gallery = [*gallery, ((0, 0), 0, 0, False)]  # something that is not junk
    kinds = [row[1] for row in [*queries, *gallery]]
    own = [j if j < len(gallery) else -1 for j in own[: len(queries)]]
    relation = grades(kinds)
    with pytest.MonkeyPatch.context() as patch:
        force(patch, way)
        found = retrieve(
            np.array([row[0] for row in queries], np.float64),
            relation[: len(queries)],
            gallery=np.array([row[0] for row in gallery], np.float64),
            gallery_labels=relation[len(queries) :],
            cameras=np.array([row[2] for row in queries]),
            gallery_cameras=np.array([row[2] for row in gallery]),
            self_rows=np.array(own),
            junk=np.array([row[3] for row in gallery]),
            measures=NAMES,
            without_positive="drop",
        )

    def relevance(q: int, j: int) -> int:
        return gain(queries[q][1], gallery[j][1])

    def allowed(q: int, j: int) -> bool:
        _, kind, camera, junk = gallery[j]
        away = junk or own[q] == j or ignored(queries[q][1], kind)
        return not away and not (relevance(q, j) and camera == queries[q][2])

    expected = definition([row[0] for row in queries], [row[0] for row in gallery], relevance, allowed)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)


def test_grades_of_four_positives_of_many_items() -> None:
    """More positives and more items than tiles hold, in a loop over the ranks."""
    generator = np.random.default_rng(0)
    rows, kinds = generator.normal(size=(700, 3)), generator.integers(0, 4, size=700)
    found = retrieve(rows, grades(kinds.tolist()), measures=("ndcg@10", "ndcg", "map", "recall@1", "mrr"))
    nearest = retrieve(rows, grades(kinds.tolist()), measures=("recall@1", "mrr"))  # of the first positive alone
    assert np.array_equal(nearest.values, found.values[:, 3:])
    table = np.array(TABLE)
    for query in range(0, 700, 50):
        order = np.argsort(np.linalg.norm(rows - rows[query], axis=1))[1:]
        met = table[kinds[query], kinds[order]]
        met = np.where(met >= POSITIVE, met, 0)[met != NEGATIVE].tolist()
        discounts = [1 / np.log2(rank + 2) for rank in range(len(met))]

        def total(listed: list[int], most: int, discounts: list[float] = discounts) -> float:
            return sum(each * discount for each, discount in zip(listed[:most], discounts, strict=False))

        hits = [rank for rank, grade in enumerate(met) if grade]
        assert found.values[query, :3] == pytest.approx(
            [
                total(met, 10) / total(sorted(met)[::-1], 10),
                total(met, len(met)) / total(sorted(met)[::-1], len(met)),
                np.mean([(number + 1) / (rank + 1) for number, rank in enumerate(hits)]),
            ],
            abs=1e-12,
        )


def test_classes_are_one_relation_among_others() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 9, size=120)
    rows = generator.normal(size=(120, 3))
    by_labels = retrieve(rows, 10 * labels, measures=NAMES)
    single = np.eye(9, dtype=int)[labels]
    for relation in (
        Classes(torch.tensor(10 * labels)),
        Tags(single),
        Tags(single, match="all"),
        Tags(single, match=0.3),
    ):
        found = retrieve(rows, relation, measures=NAMES)
        np.testing.assert_allclose(found.values, by_labels.values, rtol=0, atol=1e-15)
        assert found.chance == pytest.approx(by_labels.chance, rel=1e-12)
        assert np.array_equal(found.positives, by_labels.positives)
        assert isinstance(relation, Tags) or np.array_equal(found.labels, by_labels.labels)
        for name, by_over in by_labels.intervals().items():
            for over, interval in by_over.items():
                ends = found.intervals()[name][over]
                assert [ends.low, ends.high] == pytest.approx([interval.low, interval.high], rel=1e-9)


@pytest.mark.parametrize("measures", [NAMES, ("recall@1", "mrr")])
def test_chance_is_the_mean_of_equal_embeddings(measures: tuple[str, ...]) -> None:
    generator = np.random.default_rng(1)
    table = generator.integers(0, 9, size=(30, 30))  # queries with as many positives have them of other grades
    relation = Grades(np.maximum(table, table.T), positive=6, negative=3)
    alike = retrieve(np.ones((30, 2)), relation, measures=measures)
    apart = retrieve(generator.normal(size=(30, 2)), relation, measures=measures)
    assert apart.chance == pytest.approx(alike.mean(), rel=1e-12)
    assert apart.mean() != pytest.approx(alike.mean(), rel=1e-3)


def test_pairs_of_two_sides_are_asked_in_both_directions() -> None:
    left, right = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([[0.1], [2.2], [1.1]])
    pairs = Pairs(["a", "b", "c", "d"], ["x", "y", "z"], [(0, 0), (1, 1), (2, 2), (3, 1)], aligned=False)
    found = retrieve_both_ways(left, right, pairs, measures=("recall@1", "mrr", "map"))
    assert found["left to right"].values.tolist() == [[1, 1, 1], [0, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2], [1, 1, 1]]
    second = [0, 1 / 2, (1 / 2 + 2 / 4) / 2]  # from 2.2 the order is 2, 1, 0, 9: 1 and 9 belong to it
    assert found["right to left"].values.tolist() == [[1, 1, 1], second, [0, 1 / 2, 1 / 2]]
    together = retrieve(np.concatenate([left, right]), pairs, measures=("recall@1", "mrr", "map"))
    sides = [found[name].values for name in ("left to right", "right to left")]
    assert np.array_equal(together.values, np.concatenate(sides))  # rows of one side are neither right nor wrong


TAGS = [["a", "b"], ["a"], ["b"], ["b"], ["c", "a"], [], ["d"]]


@pytest.mark.parametrize("as_gallery", [False, True])
def test_a_tag_has_the_queries_and_positives_that_carry_it(as_gallery: bool) -> None:
    generator = np.random.default_rng(0)
    rows, others = (generator.integers(0, 2, size=(7, 2)) for _ in range(2))
    carried = TAGS[::-1]
    gallery = {"gallery": others.astype(float), "gallery_tags": Tags(carried)} if as_gallery else {}
    found = retrieve_by_tag(rows.astype(float), Tags(TAGS), measures=NAMES, without_positive="drop", **gallery)
    assert list(found) == ["a", "b", "c", "d"]
    for tag, result in found.items():
        queries = [number for number, tags in enumerate(TAGS) if tag in tags]

        def allowed(q: int, j: int, queries: list[int] = queries) -> bool:
            return as_gallery or queries[q] != j

        expected = definition(
            [tuple(rows[number].tolist()) for number in queries],
            list(map(tuple, (others if as_gallery else rows).tolist())),
            lambda q, j, tag=tag: tag in (carried if as_gallery else TAGS)[j],
            allowed,
        )
        np.testing.assert_allclose(result.values, expected, rtol=0, atol=1e-12)
    assert list(retrieve_by_tag(rows[1:3].astype(float), Tags(TAGS)[1:3])) == ["a", "b"]


def test_a_query_without_a_positive_is_a_miss_or_dropped() -> None:
    tags = Tags([["a"], ["a", "b"], [], ["c"]])
    rows = np.array([[0.0], [1.0], [3.0], [4.0]])
    missed = retrieve(rows, tags, measures=("recall@1",))
    assert missed.values[:, 0].tolist() == [1, 1, 0, 0]
    assert missed.without_positive == 2
    dropped = retrieve(rows, tags, measures=("recall@1",), without_positive="drop")
    assert dropped.mean() == {"recall@1": 1}


def test_groups_are_what_a_relation_connects_unless_one_is_most_of_all() -> None:
    chains = [(i, j) for i, j in combinations(range(12), 2) if j == i + 1 and j % 4]  # three chains of four
    matrix = np.eye(12)
    for i, j in chains:
        matrix[i, j] = matrix[j, i] = 1
    rows = np.random.default_rng(0).normal(size=(12, 2))
    found = retrieve(rows, Grades(matrix, positive=1), measures=("map",))
    assert found.classes.tolist() == np.repeat(range(3), 4).tolist()
    matrix[3, 4] = matrix[4, 3] = 1
    assert not retrieve(rows, Grades(matrix, positive=1), measures=("map",)).classes.any()


class Odd(Relation):
    """Grades that ndcg cannot take."""

    items = torch.arange(3)

    def positive(self, anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(anchors), len(others), dtype=torch.bool)

    def relevance(self, anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return self.positive(anchors, others).double() - 1


def test_errors_say_what_must_hold() -> None:
    rows, tags = np.eye(3), Tags([["a"], ["b"], ["a"]])
    with pytest.raises(ValueError, match=r"tags must be those of one item per embedding: got 2 items for 3"):
        retrieve_by_tag(rows, tags[:2])
    with pytest.raises(ValueError, match=r"gallery and gallery_tags go together"):
        retrieve_by_tag(rows, tags, gallery=rows)
    with pytest.raises(ValueError, match=r"labels must be a relation of one item per embedding: got 2 items for 3"):
        retrieve(rows, tags[:2])
    with pytest.raises(ValueError, match=r"labels of one kind: got Tags and ndarray"):
        retrieve(rows, tags, gallery=rows, gallery_labels=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"must follow one rule"):
        retrieve(rows, tags, gallery=rows, gallery_labels=Tags([["c"]] * 3))
    with pytest.raises(ValueError, match=r"^ndcg@2 by a relation needs the relevance of every positive"):
        retrieve_by_index(rows, {"tags": tags}, kind="hnsw", measures=("recall@1", "ndcg@2"))
    with pytest.raises(ValueError, match=r"relevance of a positive must be finite and above 0.*got 0"):
        retrieve(rows, Odd(), measures=("ndcg",))
    assert retrieve(rows, Odd(), measures=("map",)).mean() == {"map": 1}


def test_losses_of_graded_ndcg_are_those_of_removing_an_item() -> None:
    generator = np.random.default_rng(0)
    kinds = generator.integers(0, 4, size=24)
    rows = generator.normal(size=(24, 3))
    table = np.array(TABLE)[kinds[:, None], kinds]
    names = ("ndcg", "ndcg@3", "ndcg@1")
    distances = np.linalg.norm(rows[:, None] - rows, axis=2)
    distances[(table == NEGATIVE) | np.eye(24, dtype=bool)] = np.inf
    same = (table >= POSITIVE) & np.isfinite(distances)
    values, losses = losses_of(distances, same, names, table.astype(float))
    whole = retrieve(rows, grades(kinds.tolist()), measures=names).values
    assert pytest.approx(whole, abs=1e-12) == values.T
    for item in range(24):
        rest = np.arange(24) != item
        without = retrieve(rows[rest], grades(kinds[rest].tolist()), measures=names).values
        assert pytest.approx(whole[rest] - without, abs=1e-12) == losses[:, rest, item].T


def test_intervals_are_of_the_values_themselves() -> None:
    generator = np.random.default_rng(0)
    result = retrieve(
        generator.normal(size=(40, 3)), grades(generator.integers(0, 4, size=40).tolist()), measures=("ndcg@5", "map")
    )
    removals = sampling_variance._removals(result, result.counted, 0)
    assert np.sort(removals.values, axis=1) == pytest.approx(np.sort(result.values.T, axis=1), abs=1e-12)


def coverage(results: list[Retrieval], over: Over) -> dict[str, float]:
    """How often the interval of a measure holds its mean over all draws."""
    truth = {name: np.mean([result.mean()[name] for result in results]) for name in results[0].measures}
    ends = [result.intervals() for result in results]
    return {
        name: float(np.mean([each[name][over].low <= mean <= each[name][over].high for each in ends]))
        for name, mean in truth.items()
    }


def test_intervals_of_tags_hold_the_truth_about_as_often_as_they_say() -> None:
    """Items with several tags: other items, each a query and retrieved by others."""
    generator = np.random.default_rng(1)
    centres, results = generator.normal(size=(8, 5)), []
    for _ in range(100):
        carried = generator.random((90, 8)) < 0.2
        carried[np.arange(90), generator.integers(8, size=90)] = True
        rows = carried @ centres + generator.normal(size=(90, 5))
        results.append(retrieve(rows, Tags(carried.astype(int)), measures=("recall@1", "map", "ndcg@10")))
    assert all(0.9 < covered <= 1 for covered in coverage(results, "queries").values())
    assert all(np.isnan(each["classes"].low) for each in results[0].intervals().values())


def test_intervals_of_pairs_hold_the_truth_about_as_often_as_they_say() -> None:
    """An item of the left side and three of the right: other such groups."""
    generator = np.random.default_rng(0)
    pairs = Pairs(50, 150, [(i, 3 * i + j) for i in range(50) for j in range(3)], aligned=False)
    ways: dict[str, list[Retrieval]] = {"left to right": [], "right to left": []}
    for _ in range(100):
        left = generator.normal(size=(50, 3))
        right = np.repeat(left, 3, axis=0) + 0.5 * generator.normal(size=(150, 3))
        for way, result in retrieve_both_ways(left, right, pairs, measures=("recall@1", "map")).items():
            ways[way].append(result)
    for results in ways.values():
        assert all(0.9 < covered <= 1 for covered in coverage(results, "classes").values())
    # Of one query in each group nothing says how others of it would do.
    assert np.isnan(ways["left to right"][0].intervals()["map"]["queries"].low)
    assert ways["right to left"][0].intervals()["map"]["queries"].low > 0
