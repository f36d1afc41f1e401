"""Counts and measures against their definitions: every order of tied items, in exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nightly import sampled

from trivet.metrics import positive_ranks, retrieve
from trivet.metrics.points import Points, twins
from trivet.metrics.positive_ranks import ExactSearch, PositiveRanks
from trivet.metrics.protocols import RetrievalTask
from trivet.metrics.relation_levels import LevelClasses
from trivet.metrics.tie_expectations import measures_of

NAMES = (
    "recall@1", "recall@3", "precision@1", "precision@3", "r-precision", "map@r", "map",
    "found@3", "map@3", "ndcg@3", "ndcg", "mrr", "rbp",
)  # fmt: skip
WAYS = ("singles", "codes", "doubles", "differences")


def force(patch: pytest.MonkeyPatch, way: str, tile: tuple[int, int] = (1024, 4096)) -> None:
    """Make one way of counting decide what it can."""
    patch.setattr(positive_ranks, "TILE", tile)
    if way not in ("singles", "codes"):
        patch.setattr(positive_ranks, "FEW", -1)
    if way == "codes":
        patch.setattr(positive_ranks, "many_within_reach", lambda *_: True)
    if way == "differences":
        patch.setattr(positive_ranks._Tile, "_count_by_doubles", lambda *_: False)
    else:
        patch.setattr(positive_ranks, "SHARE", 0)  # no tile has too much in doubt, or too few distinct rows
        patch.setattr(positive_ranks._Tile, "_few_distinct", False)


def orders(distances: dict[int, Fraction]) -> Iterator[list[int]]:
    """Every order of items by distance."""
    groups = [[j for j in distances if distances[j] == value] for value in sorted(set(distances.values()))]
    for parts in product(*(permutations(group) for group in groups)):
        yield [j for part in parts for j in part]


def of_order(relevance: Sequence[int]) -> list[Fraction | float]:
    """The measures of one query from the relevance of what it retrieves, nearest first; only ndcg knows grades."""
    found = [grade > 0 for grade in relevance]
    total = sum(found)
    discounts = [1 / math.log2(rank + 2) for rank in range(len(found))]
    gains = [discount * grade for discount, grade in zip(discounts, relevance, strict=True)]
    best = [discount * grade for discount, grade in zip(discounts, sorted(relevance, reverse=True), strict=True)]
    precisions = [Fraction(sum(found[: rank + 1]), rank + 1) if hit else Fraction(0) for rank, hit in enumerate(found)]
    return [
        Fraction(any(found[:1])),
        Fraction(any(found[:3])),
        Fraction(sum(found[:1])),
        Fraction(sum(found[:3]), 3),
        Fraction(sum(found[:total]), total),
        sum(precisions[:total], start=Fraction(0)) / total,
        sum(precisions, start=Fraction(0)) / total,
        Fraction(sum(found[:3]), total),
        sum(precisions[:3], start=Fraction(0)) / min(3, total),
        math.fsum(gains[:3]) / math.fsum(best[:3]),
        math.fsum(gains) / math.fsum(best),
        Fraction(1, found.index(True) + 1),
        sum((Fraction(1, 2 ** (rank + 1)) for rank, hit in enumerate(found) if hit), start=Fraction(0)),
    ]


def definition(
    queries: Sequence[tuple[int, int]],
    gallery: Sequence[tuple[int, int]],
    relevance: Callable[[int, int], int],
    allowed: Callable[[int, int], bool],
) -> list[list[float]]:
    """Each measure of each query: its mean over all orders of tied items.

    Args:
        relevance: of an item for a query, 0 of what is no positive.
        allowed: whether a query may retrieve an item.
    """
    rows = []
    for q, point in enumerate(queries):
        squares = {
            j: Fraction((point[0] - x) ** 2 + (point[1] - y) ** 2) for j, (x, y) in enumerate(gallery) if allowed(q, j)
        }
        if not any(relevance(q, j) for j in squares):
            rows.append([math.nan] * len(NAMES))
            continue
        each = [of_order([relevance(q, j) for j in order]) for order in orders(squares)]
        rows.append([float(sum(column, start=Fraction(0)) / len(each)) for column in zip(*each, strict=True)])
    return rows


GRID = st.tuples(st.integers(-1, 1), st.integers(0, 1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tile", sampled([(2, 3), (1024, 4096)], 2))
@settings(deadline=None, max_examples=30)
@given(points=st.lists(st.tuples(GRID, st.integers(0, 2)), min_size=2, max_size=6))
def test_measures_are_the_mean_over_all_orders_of_tied_items(
    way: str, tile: tuple[int, int], points: list[tuple[tuple[int, int], int]]
) -> None:
    rows, labels = [row for row, _ in points], [label for _, label in points]
    with pytest.MonkeyPatch.context() as patch:
        force(patch, way, tile)
        found = retrieve(np.array(rows, np.float32), np.array(labels), measures=NAMES, without_positive="drop")
    expected = definition(rows, rows, lambda q, j: labels[q] == labels[j], lambda q, j: q != j)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=30)
@given(
    queries=st.lists(st.tuples(GRID, st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=4),
    gallery=st.lists(st.tuples(GRID, st.integers(0, 2), st.integers(0, 1), st.booleans()), min_size=1, max_size=6),
    own=st.lists(st.integers(-1, 5), min_size=4, max_size=4),
)
def test_a_gallery_with_cameras_junk_and_the_query_itself(
    way: str,
    queries: list[tuple[tuple[int, int], int, int]],
    gallery: list[tuple[tuple[int, int], int, int, bool]],
    own: list[int],
) -> None:
    gallery = [*gallery, ((0, 0), 0, 0, False)]  # something that is not junk
    query_class, query_camera = [row[1] for row in queries], [row[2] for row in queries]
    own = [j if j < len(gallery) and gallery[j][1] == query_class[q] else -1 for q, j in enumerate(own[: len(queries)])]
    with pytest.MonkeyPatch.context() as patch:
        force(patch, way)
        found = retrieve(
            np.array([row[0] for row in queries], np.float64),
            np.array(query_class),
            gallery=np.array([row[0] for row in gallery], np.float64),
            gallery_labels=np.array([row[1] for row in gallery]),
            cameras=np.array(query_camera),
            gallery_cameras=np.array([row[2] for row in gallery]),
            self_rows=np.array(own),
            junk=np.array([row[3] for row in gallery]),
            measures=NAMES,
            without_positive="drop",
        )

    def relevant(q: int, j: int) -> bool:
        return query_class[q] == gallery[j][1]

    def allowed(q: int, j: int) -> bool:
        _, label, camera, junk = gallery[j]
        return not junk and own[q] != j and not (label == query_class[q] and camera == query_camera[q])

    expected = definition([row[0] for row in queries], [row[0] for row in gallery], relevant, allowed)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)
    assert found.gallery == sum(not row[3] for row in gallery)


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=30)
@given(
    data=st.lists(
        st.tuples(st.sampled_from([-1, 1]), st.integers(-2, 2), st.integers(-2, 2), st.integers(0, 2)),
        min_size=2,
        max_size=12,
    ),
    grid=st.sampled_from([1, 2**10, 2**22]),
    tile=st.sampled_from([(1, 1), (5, 7), (64, 64)]),
)
def test_counts_equal_their_definition_in_exact_arithmetic(
    way: str, data: list[tuple[int, int, int, int]], grid: int, tile: tuple[int, int]
) -> None:
    exact = [(side + Fraction(x, grid), Fraction(y, grid)) for side, x, y, _ in data]  # all are float32 numbers
    labels = [row[3] for row in data]
    with pytest.MonkeyPatch.context() as patch:
        force(patch, way, tile)
        found = counts(np.array(exact, dtype=np.float32), labels)
    for query, (x, y) in enumerate(exact):
        squares = {j: (x - u) ** 2 + (y - v) ** 2 for j, (u, v) in enumerate(exact) if j != query}
        positives = sorted((j for j in squares if labels[j] == labels[query]), key=lambda j: squares[j])
        rows = []
        for positive in positives:
            low, high = (squares[positive] * (1 + sign * Fraction(1, 10**13)) ** 2 for sign in (-1, 1))
            nearer = [j for j in squares if squares[j] < low]
            tied = [j for j in squares if low <= squares[j] <= high]
            rows.append((len(nearer), len(tied), len({*nearer} & {*positives}), len({*tied} & {*positives})))
        assert found[query] == rows


def counts(points: np.ndarray, labels: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """For each query, and each positive from near to far: nearer, tied, positives nearer, positives tied."""
    rows, classes = Points(points), torch.tensor(labels)
    search = ExactSearch(RetrievalTask(rows, rows, [LevelClasses(classes, classes)], torch.arange(len(points))))
    found: list[list[tuple[int, ...]]] = [[] for _ in labels]
    for block in search.blocks():
        (ranks,) = search.rank(block)
        columns = (ranks.nearer, ranks.tied, ranks.positives_nearer, ranks.positives_tied)
        for place, query in enumerate(block.tolist()):
            rows_of = (column[place, : ranks.sizes[place]].tolist() for column in columns)
            found[query] = [*zip(*rows_of, strict=True)]
    return found


def test_many_equal_distances_between_different_rows() -> None:
    # The corners of a cube in 8 dimensions, off the origin: each has C(8, 4) = 70 others at the distance of its class.
    corners = np.array(list(product([0.0, 1.0], repeat=8)))
    middle = corners.sum(axis=1) == 4
    labels = np.where(middle, 0, np.arange(1, 257))
    labels[-1] = 0  # all ones, at distance 2 from the middle
    found = counts((corners + 100).astype(np.float32), labels.tolist())
    assert set(found[-1]) == {(8 + 28 + 56, 70, 0, 70)}
    for query in np.flatnonzero(middle).tolist():
        assert (found[query][0][0], found[query][0][1], found[query][0][3]) == (8, 28, 16)


@pytest.mark.parametrize("grid", [3, 30])  # many equal rows, or few
@pytest.mark.parametrize("levels", [(2, 30), (30, 2), (40, 40)])
def test_neither_tiles_nor_other_levels_matter(
    levels: tuple[int, int], grid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    points = generator.integers(0, grid, (120, 3)).astype(np.float64)
    labels = [generator.integers(0, classes, 120) for classes in levels]
    alone = [retrieve(points, one, measures=NAMES, without_positive="drop").values for one in labels]
    rows = Points(points)
    both = [LevelClasses(*[torch.from_numpy(one.astype(np.int64))] * 2) for one in labels]
    for tile in ((13, 5), (7, 22), (64, 64), (1024, 4096)):
        monkeypatch.setattr(positive_ranks, "TILE", tile)
        search = ExactSearch(RetrievalTask(rows, rows, both, torch.arange(120)))
        for block in search.blocks():
            for level, found in enumerate(search.rank(block)):
                np.testing.assert_allclose(measures_of(found, NAMES), alone[level][block.numpy()], rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("grid", [2, 30])  # many ties, or few
def test_the_nearest_positive_alone_gives_the_measures_that_ask_for_no_more(
    way: str, grid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, way, (64, 64))
    generator = np.random.default_rng(grid)
    points = generator.integers(0, grid, (150, 3)).astype(np.float64)
    labels, cameras = generator.integers(0, 4, 150), generator.integers(0, 3, 150)
    labels[cameras == 2] = 9  # a class seen by one camera: nothing to be found
    options: dict[str, Any] = {"cameras": cameras, "without_positive": "drop"}
    first = ("recall@1", "recall@3", "mrr")
    alone = retrieve(points, labels, measures=first, **options)
    among = retrieve(points, labels, measures=("map", *first), **options)
    np.testing.assert_array_equal(alone.values, among.values[:, 1:])
    np.testing.assert_array_equal(alone.positives, among.positives)
    alone = retrieve(points, 0 * labels, measures=first, cameras=0 * cameras)
    nowhere = retrieve(points[:9], labels[:9], gallery=points, gallery_labels=labels + 10, measures=first)
    for without in (alone, nowhere):
        assert not without.positives.any()
        assert not without.values.any()


@pytest.mark.parametrize("way", WAYS)
def test_real_sizes_agree_with_a_stable_sort(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, way, (100, 128))
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 30, 700)
    points = generator.normal(size=(30, 20))[labels] + 1.5 * generator.normal(size=(700, 20))
    found = retrieve(points.astype(np.float32), labels, measures=NAMES, without_positive="drop")
    exact = points.astype(np.float32).astype(np.float64)
    distances = np.stack([((exact - row) ** 2).sum(axis=1) for row in exact])
    np.fill_diagonal(distances, -1)
    hits = labels[distances.argsort(axis=1, kind="stable")[:, 1:]] == labels[:, None]
    expected = [[float(value) for value in of_order(row.tolist())] for row in hits[:40]]
    np.testing.assert_allclose(found.values[:40], expected, rtol=0, atol=1e-12)


def test_rows_that_share_a_hash_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0], [2.0, 0.0], [3.0, 5.0]])
    assert twins(Points(rows)).tolist() == [0, 1, 0, 1, 4]
    monkeypatch.setattr(np, "unique", lambda *_, **__: (None, np.zeros(1, int), np.zeros(5, int)))  # all collide
    assert twins(Points(rows)).tolist() == [0, 1, 0, 3, 4]  # those of the first row are found, the others are their own


@pytest.mark.parametrize("nearer", [0, 3, 40, 10**6])
@pytest.mark.parametrize(("tied", "positives"), [(2, 1), (2, 2), (7, 3), (90, 4), (1000, 999)])
def test_means_over_tied_places_far_down_keep_their_digits(nearer: int, tied: int, positives: int) -> None:
    """Against sums place by place."""
    before = min(nearer, 2)  # positives already found
    size = before + positives
    columns = torch.tensor([[0] * before + [nearer] * positives])
    given = PositiveRanks(
        sizes=torch.tensor([size]),
        nearer=columns,
        tied=torch.tensor([[max(nearer, 1)] * before + [tied] * positives]),
        positives_nearer=torch.tensor([[0] * before + [before] * positives]),
        positives_tied=torch.tensor([[before] * before + [positives] * positives]),
        retrievable=torch.tensor([nearer + tied]),
    )

    def mean_precision(nearer: int, tied: int, before: int, positives: int) -> float:
        step = (positives - 1) / max(1, tied - 1)
        return math.fsum((before + 1 + (i - 1) * step) / (nearer + i) for i in range(1, tied + 1)) / tied

    expected = positives * mean_precision(nearer, tied, before, positives)
    if before:
        expected += before * mean_precision(0, max(nearer, 1), 0, before)
    assert measures_of(given, ["map"])[0, 0].item() == pytest.approx(expected / size, rel=1e-12)


def test_chance_is_what_equal_distances_give() -> None:
    for retrievable, positives in ((5, 1), (9, 4), (30, 29), (6, 6)):
        labels = np.concatenate([np.zeros(positives + 1, int), np.arange(1, retrievable - positives + 1)])
        alike = retrieve(np.zeros((len(labels), 2)), labels, measures=NAMES, without_positive="drop")
        spread = retrieve(np.arange(len(labels))[:, None] / 7, labels, measures=NAMES, without_positive="drop")
        assert spread.chance == pytest.approx(alike.mean(), rel=1e-12)
        assert spread.chance["map"] < 1 or positives == retrievable
        assert spread.chance["precision@1"] == pytest.approx(positives / retrievable)
        assert spread.chance["r-precision"] == pytest.approx(positives / retrievable)


def test_levels_of_very_different_sizes_and_a_class_that_is_not_in_the_gallery() -> None:
    generator = np.random.default_rng(0)
    gallery = generator.normal(size=(300, 4))
    coarse = np.repeat([2**40, -(2**40)], 150)
    found = retrieve(
        gallery[:5],
        np.array([2**40, 2**40 + 1, 7, -(2**40), 2**40]),
        gallery=gallery,
        gallery_labels=coarse,
        measures=["map"],
    )
    assert found.positives.tolist() == [150, 0, 0, 150, 150]
    assert found.without_positive == 2
    assert found.values[1:3, 0].tolist() == [0, 0]
    assert found.labels.tolist() == [-(2**40), 7, 2**40, 2**40 + 1]
    macro = found.mean("macro")["map"]
    assert macro == pytest.approx((found.values[3, 0] + 0 + found.values[[0, 4], 0].mean() + 0) / 4)


def test_signed_and_unsigned_labels_above_2_to_53_stay_apart() -> None:
    found = retrieve(
        np.zeros((1, 1)),
        np.array([2**53 + 1], dtype=np.int64),
        gallery=np.zeros((2, 1)),
        gallery_labels=np.array([2**53 + 1, 2**53], dtype=np.uint64),
        measures=["recall@1"],
    )
    assert found.positives.tolist() == [1]
    assert found.values[0, 0] == 0.5


def test_a_sample_of_queries_has_the_values_it_has_among_all() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(90, 3)), generator.integers(0, 9, 90)
    whole = retrieve(points, labels, measures=NAMES)
    some = retrieve(points, labels, sample=np.array([40, 3, 77]), measures=NAMES)
    np.testing.assert_allclose(some.values, whole.values[[40, 3, 77]], atol=1e-12)
    assert some.labels[some.classes].tolist() == labels[[40, 3, 77]].tolist()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"measures": ["recall"]}, "got 'recall'"),
        ({"measures": ["recall@0"]}, "got 'recall@0'"),
        ({"measures": []}, "got none"),
        ({"gallery": np.zeros((2, 2))}, "go together"),
        ({"self_rows": np.zeros(3, int)}, "belongs to a gallery"),
        ({"sample": np.array([3])}, "from 0 to 2: got 3"),
        ({"sample": np.array([], int)}, "row numbers"),
        ({"gallery": np.zeros((2, 3)), "gallery_labels": np.zeros(2, int)}, "the same dimension: got 2 and 3"),
        ({"gallery": np.zeros((0, 2)), "gallery_labels": np.zeros(0, int)}, "a query and a gallery item"),
        ({"gallery": np.full((1, 2), np.nan), "gallery_labels": np.zeros(1, int)}, "gallery must be finite: row 0"),
        ({"gallery": np.zeros((2, 2)), "gallery_labels": np.zeros(3, int)}, "gallery labels must hold one class"),
        ({"gallery": np.zeros((2, 2)), "gallery_labels": np.zeros(2, int), "junk": np.zeros(2)}, "a bool for each"),
        ({"gallery": np.zeros((2, 2)), "gallery_labels": np.zeros(2, int), "cameras": np.zeros(3, int)}, "go together"),
        ({"gallery": np.zeros((2, 2)), "gallery_labels": np.zeros(2, int), "sample": np.zeros(1, int)}, "single set"),
        ({"distributed": True}, "init_process_group"),
    ],
)
def test_bad_input_is_a_stated_error(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        retrieve(np.zeros((3, 2)), np.array([0, 0, 1]), **options)


def test_settings_of_the_process_are_restored_where_an_evaluation_is_interrupted() -> None:
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    embeddings, labels = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 4
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    with pytest.raises(KeyboardInterrupt) as held:  # its traceback keeps the frames of the evaluation alive
        retrieve(embeddings, labels, progress=interrupted)
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (threads, onednn)
    assert held.tb is not None
