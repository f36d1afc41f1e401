"""Diagnosis by tags, pairs and grades."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean
from typing import Literal

import numpy as np
import pytest
import torch

from trivet import Classes, Grades, Pairs, Relation, Tags
from trivet.collapse import Diagnosis, SamplingStrategy, diagnose, relation_chance
from trivet.collapse.hubs import nearest_others
from trivet.collapse.measures import measure
from trivet.collapse.probe import ProbeTracker
from trivet.collapse.relation_chance import IGNORED, RIGHT, WRONG, are_positive, relation_recall_by_chance
from trivet.collapse.spread import related_spread
from trivet.losses import TripletLoss
from trivet.metrics.intervals import middle

pytestmark = pytest.mark.usefixtures("few_permutations")

ITEMS, DOMAINS, INTENTS = 240, 6, 24
INTENT = np.arange(ITEMS) % INTENTS
DOMAIN = INTENT % DOMAINS


def hierarchy(match: object = "any") -> Tags:
    """Each item has its intent and the domain of that."""
    return Tags([[f"domain {a}", f"intent {b}"] for a, b in zip(DOMAIN, INTENT, strict=True)], match=match)


def rows(seed: int = 0, *, intents: float = 1.0, within: float = 0.3) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(DOMAINS, 16))[DOMAIN] + intents * random.normal(size=(INTENTS, 16))[INTENT]
    return centres + within * random.normal(size=(ITEMS, 16))


def kinds(diagnosis: Diagnosis) -> list[str]:
    return [verdict.kind for verdict in diagnosis.verdicts]


@pytest.mark.parametrize("match", ["any", "all", 0.5])
def test_by_tags_good_embeddings_are_healthy_and_what_lost_is_named(match: object) -> None:
    tags, known = hierarchy(match), rows()
    random = np.random.default_rng(1)
    healthy = diagnose(3 * known + 0.1 * random.normal(size=known.shape), tags, known)
    assert (kinds(healthy), healthy.good) == (["healthy"], True)
    line = known[:, :1] * np.ones((1, 16))
    for lost, verdicts in (
        (1 + 1e-20 * known, ["worse-than-reference", "network-collapse"]),
        (random.normal(size=known.shape), ["no-better-than-chance", "worse-than-reference"]),
        (known[random.permutation(ITEMS)], ["no-better-than-chance", "worse-than-reference"]),
        (line, ["worse-than-reference", "network-collapse"]),
    ):
        found = kinds(diagnose(lost, tags, known))
        assert found[-len(verdicts) :] == verdicts


def test_intents_on_the_point_of_their_domain_are_a_collapse_that_the_grades_show() -> None:
    known = rows()
    point = rows(intents=0.0, within=0.01)
    result = diagnose(point, hierarchy(), known)
    assert kinds(result) == ["class-collapse"]
    (verdict,) = result.verdicts
    assert verdict.severity == "full"
    assert "items that belong together are" in verdict.rule
    assert "nDCG@10" in verdict.rule
    # The same is no loss where labels say no more, where the reference was as tight, and where it knew no grades.
    binary = Grades(DOMAIN[:, None] == DOMAIN, positive=1)
    assert kinds(diagnose(point, binary, known)) == ["healthy"]
    assert kinds(diagnose(point, hierarchy(), 2 * point)) == ["healthy"]
    assert kinds(diagnose(point, hierarchy(), rows(intents=0.0))) == ["healthy"]
    (note,) = diagnose(point, hierarchy()).notes
    assert note.endswith("cannot be told: a reference would show it.")


def test_pairs_on_one_point_are_the_aim() -> None:
    left = np.random.default_rng(0).normal(size=(60, 8))
    apart = left + 0.5 * np.random.default_rng(1).normal(size=(60, 8))
    pairs = Pairs(60, 60)
    result = diagnose(np.concatenate([left, left]), pairs, np.concatenate([left, apart]))
    assert kinds(result) == ["healthy"]
    assert result.notes == (
        "A collapse of classes cannot be told by pairs, which name none: labels of the same items would show it.",
    )
    # Sides that lie apart are no shape: even where no pair is found for it, no line is the reason.
    gap = np.concatenate([left, apart + 0.5])
    assert kinds(diagnose(gap, pairs, 0.9 * gap)) == ["healthy"]
    far = np.concatenate([left, apart + 30])
    assert kinds(diagnose(far, pairs, gap)) == ["no-better-than-chance", "worse-than-reference"]
    shuffled = np.concatenate([left, np.random.default_rng(2).permutation(apart)])
    assert kinds(diagnose(shuffled, pairs, gap))[0] == "no-better-than-chance"
    for collapsed in (np.zeros((120, 8)), np.repeat([[0.0] * 8, [1.0] * 8], 60, axis=0)):
        assert kinds(diagnose(collapsed, pairs, gap))[-1] == "network-collapse"


@pytest.mark.parametrize("count", [10, 20, 39, 60])
def test_equal_rows_of_any_count_are_no_better_than_chance(count: int) -> None:
    known = np.random.default_rng(0).normal(size=(2 * count, 8))
    result = diagnose(np.ones((2 * count, 8)), Pairs(count, count), np.tile(known[:count], (2, 1)))
    assert kinds(result) == ["no-better-than-chance", "worse-than-reference", "network-collapse"]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_a_gap_between_the_sides_is_no_collapse_and_can_be_subtracted(distance: Literal["cosine", "euclidean"]) -> None:
    random = np.random.default_rng(0)
    left = random.normal(size=(80, 8))
    known = np.concatenate([left, left + 0.3 * random.normal(size=(80, 8))])
    pairs, far = Pairs(80, 80), 30 * np.repeat([[1.0], [-1.0]], 80, axis=0) * random.normal(size=8)
    result = diagnose(known + far, pairs, known, distance=distance)
    assert kinds(result)[-1] == "worse-than-reference"
    note = result.verdicts[-1].cause
    rows = known + far
    if distance == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    parts = [side - side.mean(axis=0) for side in np.split(rows, 2)]
    hits = [
        min(range(80), key=lambda other: math.dist(query, gallery[other])) == row
        for queries, gallery in (parts, parts[::-1])
        for row, query in enumerate(queries)
    ]
    assert np.mean(hits) > 0.8
    assert f"recall@1 is {100 * np.mean(hits):.1f} %, against {100 * result.measures.recall:.1f} %" in note
    assert ("length 1" in result.verdicts[-1].changes[0]) == (distance == "cosine")
    # Rows that were centred, as the note says, are as good again; a side of a single spot is not.
    assert "healthy" in kinds(diagnose(np.concatenate(parts), pairs, known))
    for spots in (far, np.where(far == far[0], far, known + far)):
        assert kinds(diagnose(spots, pairs, known, distance=distance))[-1] == "network-collapse"


@pytest.mark.parametrize("gap", [0.0, 1.0, 30.0])
def test_the_probe_judges_two_sides_as_the_diagnosis_does(gap: float) -> None:
    random = np.random.default_rng(0)
    left = random.normal(size=(80, 8))
    start = np.concatenate([left, left + 0.3 * random.normal(size=(80, 8))])
    pairs, apart = Pairs(80, 80), gap * np.repeat([[1.0], [-1.0]], 80, axis=0) * random.normal(size=8)
    noise, first = random.normal(size=start.shape), np.arange(160)[:, None] < 80
    for rows in (
        start,
        start + 0.1 * noise,
        start[[*range(80), *random.permutation(np.arange(80, 160))]],
        1e-3 * noise,
        np.where(first, 1e-3 * noise, start),
        noise[:, :1] * noise[0] + 1e-3 * noise,
    ):
        tracker = ProbeTracker()
        for step, embeddings in enumerate((start, rows + apart, rows + apart)):
            tracker.measure(lambda embeddings=embeddings: (torch.from_numpy(embeddings), pairs), step)
        diagnosis = diagnose(rows + apart, pairs, start)
        assert tracker.last is not None
        assert tracker.last.recall == pytest.approx(diagnosis.measures.recall)
        assert tracker.last.centred_recall == pytest.approx(diagnosis.measures.centred_recall)
        assert tracker.last.relative_spread == pytest.approx(diagnosis.measures.relative_spread)
        assert tracker.last.mean_distance == pytest.approx(diagnosis.measures.mean_distance)
        assert (tracker.collapse() is not None) == ("network-collapse" in kinds(diagnosis)), (gap, kinds(diagnosis))


def table(relation: Relation) -> list[list[int]]:
    positive, neutral = (mask.tolist() for mask in relation.compared(relation.items, relation.items))
    return [
        [RIGHT if yes else IGNORED if no else WRONG for yes, no in zip(*rows_of, strict=True)]
        for rows_of in zip(positive, neutral, strict=True)
    ]


RELATIONS = {
    "tags": Tags([["a", "b"], ["a"], ["b", "c"], ["c"], [], ["a", "c"], ["d"], ["d", "a"]]),
    "jaccard": Tags([["a", "b"], ["a"], ["b", "c"], ["c"], [], ["a", "c"], ["d"], ["d", "a"]], match=0.5),
    "grades": Grades(
        np.array([[2, 1, 0], [1, 2, 0], [0, 0, 2]])[np.ix_([0, 0, 1, 1, 2, 2, 0, 1], [0, 0, 1, 1, 2, 2, 0, 1])],
        positive=2,
        negative=1,
    ),
    "pairs": Pairs([0, 1, 1, 2], 4),
    "uneven sides": Grades(
        np.array([[2, 0, 1, 0, 0], [0, 2, 0, 0, 2], [1, 1, 2, 0, 0]]), positive=2, negative=1, sides=True
    ),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_chance_is_that_of_all_permutations_of_the_items(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same permutations, each by its definition: the nearest other item that is not ignored, of all."""
    relation = RELATIONS[name]
    count, states = len(relation), table(relation)
    points = torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    queries = np.arange(count)
    first = getattr(relation, "first_of_right", 0)
    numbers = relation.items.tolist()
    sides = [[i for i in range(count) if numbers[i] < first], [i for i in range(count) if numbers[i] >= first]]
    nearest = [
        sorted((j for j in range(count) if j != i), key=lambda j: math.dist(points[i].tolist(), points[j].tolist()))
        for i in range(count)
    ]
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(relation_chance, "PERMUTATIONS", 200)
    monkeypatch.setattr(
        relation_chance, "middle", lambda values, level: drawn.append(values) or middle(values, level=level)
    )
    generator, recalls = np.random.default_rng(5), []
    for _ in range(200):
        items = list(range(count))
        for side in filter(None, sides):
            for row, item in zip(side, generator.permutation(side).tolist(), strict=True):
                items[row] = item
        right = 0
        for query in range(count):
            met = [states[items[query]][items[other]] for other in nearest[query]]
            right += next((state for state in met if state != IGNORED), WRONG) == RIGHT
        recalls.append(right / count)
    ends = middle(np.array(recalls), level=0.99)
    assert relation_recall_by_chance(points, relation, queries, seed=5) == pytest.approx((ends.low, ends.high))
    assert drawn[0].tolist() == recalls


def test_chance_of_many_items_is_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = hierarchy()
    points, queries = torch.from_numpy(rows()), np.arange(0, ITEMS, 4)
    whole = relation_recall_by_chance(points, tags, queries)
    monkeypatch.setattr(relation_chance, "MOST", 120)
    some = relation_recall_by_chance(points, tags, queries)
    assert some == pytest.approx(whole, abs=0.1)


def test_nearest_of_some_rows() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    assert nearest_others(points, np.array([0, 3]), 2, among=np.array([1, 2])).tolist() == [[1, 2], [2, 1]]
    assert nearest_others(points, np.array([0, 1]), 1, among=np.array([0, 1])).tolist() == [[1], [0]]


def test_spread_of_what_belongs_together_equals_its_definition() -> None:
    tags = Tags([["a", "b"], ["a"], ["b", "c"], ["c"], [], ["a", "c"]], match=0.5)
    points, states = np.random.default_rng(0).normal(size=(6, 3)), table(tags)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    ratios, near = [], []
    for i in range(6):
        squares = {
            state: [math.dist(points[i], points[j]) ** 2 for j in range(6) if j != i and states[i][j] == state]
            for state in (RIGHT, WRONG)
        }
        if squares[RIGHT] and squares[WRONG]:
            ratios.append(math.sqrt(np.mean(squares[RIGHT]) / np.mean(squares[WRONG])))
        near += [math.dist(unit[i], unit[j]) ** 2 for j in range(6) if j != i and states[i][j] == RIGHT]
    spread = related_spread(points, tags, np.arange(6))
    assert (spread.ratio, spread.alignment) == pytest.approx((np.median(ratios), np.mean(near)))


def test_finer_classes_are_inside_the_sets_of_items_with_equal_tags() -> None:
    """By the definition; those that merged are a collapse, others that stayed apart or that nothing shows are not."""
    names = [["red"], ["blue"], ["red", "blue"], ["green"], ["blue", "green"]]
    number, fine = np.arange(400) % 5, np.arange(400) // 5 % 2
    random = np.random.default_rng(0)
    tags = Tags([random.permutation(names[each]).tolist() for each in number])
    centres, inside = random.normal(size=(5, 16)), random.normal(size=(5, 2, 16))
    noise = 0.3 * random.normal(size=(400, 16))
    before = centres[number] + inside[number, fine] + noise
    merged = centres[number] + 0.05 * inside[number, fine] + noise
    found = measure(before, tags, fine={"half": fine}).fine["half"]
    sets = [{i for i in range(400) if names[number[i]] == of_set} for of_set in names]
    means = [np.mean([before[i] for i in of_set], axis=0) for of_set in sets]
    halves = [[np.mean([before[i] for i in of_set if fine[i] == half], axis=0) for half in (0, 1)] for of_set in sets]
    across = [math.dist(a, b) for a, b in combinations(means, 2)]
    assert found.index == pytest.approx(fmean(math.dist(*both) for both in halves) / fmean(across))
    assert found.chance == pytest.approx(39 / 79)
    assert found.split == 1
    rules = {verdict.kind: verdict.rule for verdict in diagnose(merged, tags, before, fine={"half": fine}).verdicts}
    assert rules["class-collapse"].startswith("fine classes within a set of tags are 0.")
    for points, level in ((3 * before + 0.1 * noise, fine), (merged, random.integers(0, 2, 400))):
        assert "class-collapse" not in kinds(diagnose(points, tags, before, fine={"half": level}))


def test_finer_classes_need_items_that_are_alike() -> None:
    pairs = Pairs([*range(40)], [*range(40)])
    points, halves = np.random.default_rng(0).normal(size=(80, 8)), np.arange(80) % 2
    with pytest.raises(ValueError, match="got labels by which no two items are alike; leave out fine"):
        measure(points, pairs, fine={"half": halves})
    measure(points, pairs)
    measure(points, halves)


def test_parts_that_a_relation_does_not_tell_apart() -> None:
    tags = [["b", "a"], ["a"], [], ["a", "b"], ["c"], [], ["a"]]
    for match in ("any", "all", 0.5):
        relation = Tags(tags, match)
        assert relation.partition.tolist() == [0, 1, 2, 0, 3, 2, 1]
        assert relation[[6, 4, 1]].partition.tolist() == [0, 1, 0]
        assert relation[:0].partition.tolist() == []
    assert Classes(torch.tensor([7, 3, 7])).partition.tolist() == [1, 0, 1]


def test_classes_measure_the_same_as_integers() -> None:
    plain, relation = (measure(rows(), each, reference=rows(1)) for each in (INTENT, Classes(torch.from_numpy(INTENT))))
    assert plain.per_class is not None
    assert relation.per_class is not None
    assert np.array_equal(plain.per_class.recall, relation.per_class.recall)
    assert {**vars(plain), "per_class": None} == {**vars(relation), "per_class": None}


def test_pairs_of_items_are_asked_for_one_by_one() -> None:
    tags = hierarchy()
    anchors, others = torch.randint(ITEMS, (2, 150), generator=torch.Generator().manual_seed(0))
    expected = tags.positive(anchors, others).diagonal()
    assert torch.equal(are_positive(tags, anchors, others), expected)
    classes = Classes(torch.from_numpy(INTENT))
    assert torch.equal(are_positive(classes, anchors, others), anchors == others)


def test_bad_input_is_a_stated_error() -> None:
    tags = hierarchy()
    with pytest.raises(
        ValueError, match="fine must split at least one coarse class in two: got one fine class in each"
    ):
        diagnose(rows(), tags, fine={"intent": INTENT})
    with pytest.raises(ValueError, match=r"take the rows of these with relation\[rows\]"):
        diagnose(rows(), tags[:3])
    with pytest.raises(ValueError, match="labels must keep some items apart: got Tags"):
        diagnose(rows(), Tags([["a"]] * ITEMS))
    strategy = SamplingStrategy(TripletLoss(), classes_per_batch=4, samples_per_class=2)
    assert any("a batch needs classes" in note for note in diagnose(rows(), tags, strategy=strategy).notes)
