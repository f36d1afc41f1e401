"""Hard negatives of a set are those of plain loops over all items, whatever the rules, the chunks and the classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from trivet import Grades, Guided, Pairs, Relation, Tags
from trivet.knn import hard_negatives as module
from trivet.knn.hard_negatives import HardNegatives, MiningCounts, MiningRules, hard_negatives
from trivet.knn.index import Index, build_index

Triplet = tuple[int, int, int]
Rule = Callable[[int, list[int]], tuple[set[int], set[int]]]  # an anchor, items -> its positives, and no negatives


def far(a: list[float], b: list[float], distance: str) -> float:
    if distance == "euclidean":
        return math.dist(a, b)
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def definition(
    items: list[list[float]],
    distance: str,
    *,
    labels: list[int] | None = None,
    rule: Rule | None = None,
    anchors: list[list[float]] | None = None,
    anchor_labels: list[int] | None = None,
    pairs: list[tuple[int, int]] | None = None,
    positives: str = "easy",
    k: int = 3,
    among: int = 100,
    skip: int = 0,
    margin: float | None = None,
    relative_margin: float | None = None,
    min_distance: float = 0,
    max_distance: float = math.inf,
) -> list[Triplet]:
    """The hardest negatives in plain Python, sharing nothing with the library."""
    own = anchors is None
    anchors, anchor_labels = (items, labels) if anchors is None else (anchors, anchor_labels)
    found = []
    for a, anchor in enumerate(anchors):
        apart = {i: far(anchor, item, distance) for i, item in enumerate(items) if not (own and i == a)}
        if rule is None:
            belongs = {i for i in apart if labels is not None and anchor_labels and labels[i] == anchor_labels[a]}
            same = {*belongs}
        else:
            belongs, same = rule(a, [*apart])
        if pairs is None:
            best = (min if positives == "easy" else max)(sorted(belongs), key=lambda i: apart[i], default=None)
            chosen = [] if best is None else [best]
        else:
            chosen = [p for b, p in pairs if b == a]
            same |= set(chosen) | ({b for b, p in pairs if p == a} if own else set())
        candidates = sorted((i for i in apart if i not in same), key=lambda i: (apart[i], i))[:among][skip:]
        for p in chosen:
            kept = [i for i in candidates if min_distance <= apart[i] <= max_distance]
            if margin is not None:
                kept = [i for i in kept if apart[i] >= apart[p] + margin]
            if relative_margin is not None:
                similarity = 1 - apart[p]
                kept = [i for i in kept if 1 - apart[i] <= similarity - relative_margin * abs(similarity)]
            found += [(a, p, i) for i in kept[:k]]
    return found


def triplets(mined: HardNegatives) -> list[Triplet]:
    rows = zip(mined.anchors.tolist(), mined.positives.tolist(), mined.negatives.tolist(), strict=True)
    return list(rows)


DRAW = np.random.default_rng(0)
ITEMS = DRAW.standard_normal((60, 3))
LABELS = np.repeat([3, 8, 1, 7], [40, 12, 7, 1])  # one class is most of the set, and one has no positive
ITEMS += LABELS[:, None] * 0.3
ANCHORS, ANCHOR_LABELS = DRAW.standard_normal((15, 3)) + 1, DRAW.choice([3, 8, 1, 7, 5], 15)
PAIRS = [(int(a), int(p)) for a, p in DRAW.integers(60, size=(40, 2)) if a != p]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"positives": "hard", "k": 2, "among": 9, "skip": 4},
        {"margin": 0.05, "k": 5},
        {"min_distance": 0.2, "max_distance": 0.6, "k": 50},
        {"margin": 0.0, "among": 8, "k": 4},
    ],
    ids=["hardest", "ranks", "margin", "distances", "few candidates"],
)
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("form", ["labels", "labels, other anchors", "pairs", "pairs and labels", "pairs, others"])
def test_equals_the_definition(form: str, distance: str, options: dict[str, float]) -> None:
    given: dict[str, np.ndarray] = {}
    if "pairs" in form:
        given["pairs"] = np.array([(a % 15, p) for a, p in PAIRS] if "others" in form else PAIRS)
        options = {name: value for name, value in options.items() if name != "positives"}
    if "others" in form or "other anchors" in form:
        given["anchors"] = ANCHORS
    if "labels" in form:
        given["labels"] = LABELS
        if "other anchors" in form:
            given["anchor_labels"] = ANCHOR_LABELS
    index = build_index(ITEMS, distance=distance)
    mined = hard_negatives(index, rules=MiningRules(**options), **given)
    plain = {
        name: [tuple(row) for row in value.tolist()] if name == "pairs" else value.tolist()
        for name, value in given.items()
    }
    want = definition(ITEMS.tolist(), distance, **plain, **options)
    assert sorted(triplets(mined)) == sorted(set(want)) != []
    order = list(zip(mined.anchors.tolist(), mined.to_negative.tolist(), strict=True))
    assert [one for one, _ in order] == sorted(one for one, _ in order)
    anchors = ANCHORS if "anchors" in given else ITEMS
    for (a, p, n), near, away in zip(triplets(mined), mined.to_positive, mined.to_negative, strict=True):
        assert near == pytest.approx(far(anchors[a].tolist(), ITEMS[p].tolist(), distance), abs=1e-6)
        assert away == pytest.approx(far(anchors[a].tolist(), ITEMS[n].tolist(), distance), abs=1e-6)


def test_a_relative_margin_is_a_share_of_the_similarity_whatever_its_sign() -> None:
    index = build_index(ITEMS)
    for positives in ("easy", "hard"):
        rules = MiningRules(positives=positives, relative_margin=0.1)
        mined = triplets(hard_negatives(index, LABELS, rules=rules))
        want = definition(ITEMS.tolist(), "cosine", labels=LABELS.tolist(), positives=positives, relative_margin=0.1)
        assert mined == want
    with pytest.raises(ValueError, match="use margin"):
        hard_negatives(build_index(ITEMS, distance="euclidean"), LABELS, rules=MiningRules(relative_margin=0.1))


@pytest.mark.parametrize("pairs", [None, np.array(PAIRS)], ids=["labels", "pairs"])
def test_triplets_of_an_anchor_are_the_same_whichever_others_are_mined_for(pairs: np.ndarray | None) -> None:
    rules = MiningRules(k=2, positives="random", negatives="random", among=10, seed=4)
    index = build_index(ITEMS)
    whole = hard_negatives(index, LABELS, pairs=pairs, rules=rules)
    rows = np.unique(whole.anchors)
    parts = [
        hard_negatives(index, LABELS, pairs=pairs, rows=some, rules=rules) for some in np.array_split(rows, [7, 8, 30])
    ]
    assert [one for part in parts for one in triplets(part)] == triplets(whole)
    assert MiningCounts.total(part.counts for part in parts)[2:] == whole.counts[2:]
    others = triplets(hard_negatives(index, LABELS, pairs=pairs, rules=MiningRules(k=2, positives="random", seed=4)))
    assert len(others) == len(whole)  # random ones of ten are not the two nearest
    assert others != triplets(whole)
    nearest = triplets(hard_negatives(index, LABELS, pairs=pairs, rules=MiningRules(k=10, positives="random", seed=4)))
    assert set(triplets(whole)) < set(nearest)


def test_random_choices_are_even() -> None:
    items, labels = np.arange(8.0)[:, None], np.array([0, 0, 0, 0, 1, 1, 1, 1])
    index, counts = build_index(items, distance="euclidean"), np.zeros((8, 8))
    for seed in range(300):
        rules = MiningRules(k=1, positives="random", negatives="random", seed=seed)
        for _, p, n in triplets(hard_negatives(index, labels, rows=np.array([0]), rules=rules)):
            counts[p, n] += 1
    expected = 300 / 12
    assert (((counts[1:4, 4:] - expected) ** 2) / expected).sum() < 31.3  # chi-squared, 11 degrees, p = 0.001
    assert counts.sum() == 300 == counts[1:4, 4:].sum()


def test_equal_rows_by_number_and_a_margin_of_nought_keeps_them() -> None:
    items = np.array([[0.0], [0.3], [0.3], [0.3], [0.9], [0.3]])
    index = build_index(items, distance="euclidean")
    mined = hard_negatives(index, np.array([0, 0, 1, 2, 0, 3]), rows=np.array([0]), rules=MiningRules(k=2, margin=0.0))
    assert triplets(mined) == [(0, 1, 2), (0, 1, 3)]
    assert (mined.to_positive == mined.to_negative).all()
    two_equal = hard_negatives(index, np.array([0, 0, 0, 0, 1, 0]), rows=np.array([0]))
    assert triplets(two_equal) == [(0, 1, 4)]


TAGS = [[tag for tag in "abcdefg" if DRAW.random() < 0.3] for _ in range(60)]
TWICE = np.concatenate([ITEMS[:30], ITEMS[DRAW.permutation(30)]])  # each row twice
GRADES = np.triu(DRAW.integers(5, size=(60, 60)))
GRADES += np.triu(GRADES, 1).T
SIDES = DRAW.integers(12, size=(2, 30)).tolist()
GUIDE = DRAW.standard_normal((60, 4)).tolist()
YEARS = DRAW.integers(30, size=60).tolist()


class Near(Relation):
    """A relation of a user's own."""

    def __init__(self) -> None:
        self.years, self.items = torch.tensor(YEARS), torch.arange(60)

    def positive(self, anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return (self.years[anchors][:, None] - self.years[others]).abs() <= 1

    def ignored(self, anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return (self.years[anchors][:, None] - self.years[others]).abs() == 2


def jaccard(a: int, b: int) -> float:
    either = {*TAGS[a], *TAGS[b]}
    return len({*TAGS[a]} & {*TAGS[b]}) / len(either) if either else 0


def paired(a: int, b: int) -> bool:
    """Whether items of two sides, 30 each, belong together."""
    (left, right) = sorted((a, b))
    rows = zip(*SIDES, strict=True)
    return left < 30 <= right and (SIDES[0][left], SIDES[1][right - 30]) in {*rows}


def two_rules(positive: Callable[[int, int], bool], neutral: Callable[[int, int], bool]) -> Rule:
    def rule(a: int, items: list[int]) -> tuple[set[int], set[int]]:
        belongs = {i for i in items if positive(a, i)}
        return belongs, belongs | {i for i in items if neutral(a, i)}

    return rule


def guided(a: int, items: list[int]) -> tuple[set[int], set[int]]:
    belongs = {i for i in items if jaccard(a, i) >= 0.5}
    alike = {i: 1 - far(GUIDE[a], GUIDE[i], "cosine") for i in items}
    least = min([alike[i] for i in belongs], default=math.inf)
    return belongs, {i for i in items if jaccard(a, i) > 0 or alike[i] > least - 0.1}


RELATIONS: dict[str, tuple[Relation, Rule]] = {
    "tags, any": (Tags(TAGS), two_rules(lambda a, b: jaccard(a, b) > 0, lambda a, b: False)),
    "tags, Jaccard": (Tags(TAGS, 0.5), two_rules(lambda a, b: jaccard(a, b) >= 0.5, lambda a, b: jaccard(a, b) > 0)),
    "tags, all": (Tags(TAGS, "all"), two_rules(lambda a, b: jaccard(a, b) == 1, lambda a, b: jaccard(a, b) > 0)),
    "pairs": (Pairs(*SIDES), two_rules(paired, lambda a, b: (a < 30) == (b < 30))),
    "grades": (
        Grades(GRADES, positive=4, negative=2),
        two_rules(lambda a, b: GRADES[a, b] >= 4, lambda a, b: GRADES[a, b] >= 2),
    ),
    "one's own": (
        Near(),
        two_rules(lambda a, b: abs(YEARS[a] - YEARS[b]) <= 1, lambda a, b: abs(YEARS[a] - YEARS[b]) == 2),
    ),
    "guided": (Guided(Tags(TAGS, 0.5), torch.tensor(GUIDE), margin=0.1), guided),
}


@pytest.mark.parametrize("form", ["one set", "other anchors", "pairs"])
@pytest.mark.parametrize("name", RELATIONS)
def test_equals_the_definition_by_any_relation(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is there twice, so that the order of equal distances counts; few candidates are listed at first."""
    monkeypatch.setattr("trivet.mining.relations.NEIGHBOURING", 3)
    monkeypatch.setattr("trivet.mining.relations.COMPARED", 50)

    (relation, rule), rows = RELATIONS[name], np.random.default_rng(5).permutation(60)
    anchors, first = (rows, 0) if form == "one set" else (rows[:25], 25)
    items = rows[first:]

    def by_position(a: int, positions: list[int]) -> tuple[set[int], set[int]]:
        numbers = {int(items[i]): i for i in positions}
        belongs, neutral = rule(int(anchors[a]), [*numbers])
        return {numbers[i] for i in belongs}, {numbers[i] for i in neutral}

    given: dict[str, np.ndarray | Relation] = {"labels": relation[items.tolist()]}
    plain: dict[str, object] = {"rule": by_position}
    if form != "one set":
        given |= {"anchors": TWICE[anchors], "anchor_labels": relation[anchors.tolist()]}
        plain["anchors"] = TWICE[anchors].tolist()
    if form == "pairs":
        given["pairs"] = np.array([[0, 3], [4, 3], [4, 34], [20, 1]])
        plain["pairs"] = given["pairs"].tolist()
    index = build_index(TWICE[items], distance="euclidean")
    for options in ({"k": 2, "among": 3}, {"k": 40, "positives": "hard"}):
        if form == "pairs":
            options.pop("positives", None)
        mined = hard_negatives(index, rules=MiningRules(**options), **given)
        assert sorted(triplets(mined)) == sorted(definition(TWICE[items].tolist(), "euclidean", **plain, **options))
        assert len(mined) > 4


def test_looks_past_all_that_belong_together_by_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but 30 of 400 items have a tag of the anchor, and these are the farthest."""
    draw, asked = np.random.default_rng(3), []
    items = np.concatenate([draw.standard_normal((370, 2)), draw.standard_normal((30, 2)) + 50])
    tags = Tags([["a", f"b{i % 7}"] if i < 370 else ["c"] for i in range(400)], 0.9)
    index, search = build_index(items, distance="euclidean"), Index.search_rows

    def counted(self: Index, rows: np.ndarray, k: int) -> object:
        asked.append((len(rows), k))
        return search(self, rows, k)

    monkeypatch.setattr(Index, "search_rows", counted)
    mined = hard_negatives(index, tags, rows=np.array([0, 380]), rules=MiningRules(k=2, among=10))
    assert mined.counts.taken == 4
    assert mined.counts.same_class == 369 + 29
    assert (mined.negatives[:2] >= 370).all()
    assert (mined.positives[:2] % 7 == 0).all()
    assert asked == [(2, 20), (2, 80), (1, 320), (1, 400)]


def test_looks_past_a_large_class_at_no_more_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearest to each anchor are 900 of its class; a few listed neighbours are not enough, and not all are listed."""
    draw = np.random.default_rng(2)
    items = np.concatenate([draw.standard_normal((900, 2)), draw.standard_normal((100, 2)) + 50])
    labels = np.repeat([0, 1], [900, 100])
    index, listed = build_index(items, distance="euclidean"), []
    search = Index.search_rows

    def counted(self: Index, rows: np.ndarray, k: int) -> object:
        listed.append((len(rows), k))
        return search(self, rows, k)

    monkeypatch.setattr(Index, "search_rows", counted)
    monkeypatch.setattr(module, "LISTED", 2000)
    mined = hard_negatives(index, labels, rows=np.array([0, 950, 5]), rules=MiningRules(k=2, among=10))
    assert mined.counts.taken == 6
    assert mined.counts.candidates == 30
    assert mined.counts.same_class == 2 * 899 + 99
    assert listed == [(3, 20), (3, 80), (3, 320), (2, 910)]
    for a, p, n in triplets(mined):
        assert labels[a] == labels[p] != labels[n]


def test_counts_say_what_became_of_every_candidate() -> None:
    rules = MiningRules(k=2, among=30, skip=3, margin=0.02, min_distance=0.1, max_distance=0.5)
    mined = hard_negatives(build_index(ITEMS), LABELS, rules=rules)
    counts = mined.counts
    assert counts.anchors == 60
    assert counts.without_positive == 1
    assert counts.pairs == 59
    assert min(counts.skipped, counts.near_positive, counts.too_near, counts.too_far, counts.not_needed) > 0
    assert sum(counts[5:11]) == counts.candidates
    same_class = 0
    for a, label in enumerate(LABELS[:-1]):  # the last has no positive
        order = sorted(
            (i for i in range(60) if i != a), key=lambda i: far(ITEMS[a].tolist(), ITEMS[i].tolist(), "cosine")
        )
        others = [place for place, i in enumerate(order) if LABELS[i] != label]
        last = others[29] if len(others) >= 30 else len(order)
        same_class += sum(LABELS[i] == label for i in order[:last])
    assert counts.same_class == same_class
    assert counts.taken == len(mined)
    each = np.bincount(mined.anchors, minlength=60)
    assert counts.without_negative == (each == 0).sum() - 1
    assert counts.fewer == (each == 1).sum()


def test_an_approximate_index_gives_triplets_that_are_as_the_rules_say(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    items, labels = draw.standard_normal((500, 6)), np.arange(500) % 20
    build_index(items, kind="ivf").save(tmp_path)
    mined = hard_negatives(Index.load(tmp_path), labels, rules=MiningRules(k=2, margin=0.05, among=20))
    exact = hard_negatives(build_index(items), labels, rules=MiningRules(k=2, margin=0.05, among=20))
    assert len({*triplets(mined)} & {*triplets(exact)}) > 0.8 * len(exact)
    assert (mined.to_negative >= mined.to_positive + 0.05).all()
    assert (labels[mined.anchors] != labels[mined.negatives]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "from labels or from pairs"),
        ({"labels": LABELS[:9]}, r"integers of shape \(60,\)"),
        ({"labels": LABELS * 1.0}, "integers"),
        ({"labels": LABELS, "anchors": ANCHORS}, "known on both sides"),
        ({"labels": LABELS, "anchors": ANCHORS[:, :2], "anchor_labels": ANCHOR_LABELS}, r"shape \(A, 3\)"),
        ({"pairs": np.array([[0, 60]])}, "positives of pairs must be row numbers from 0 to 59"),
        ({"pairs": np.array([[4, 4]])}, "holds row 4 twice"),
        ({"labels": LABELS, "rows": np.array([-1])}, "from 0 to 59"),
    ],
)
def test_what_does_not_fit_is_an_error(options: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hard_negatives(build_index(ITEMS), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"k": 0}, "k must"), ({"margin": -0.1}, "margin must"), ({"k": 5, "skip": 96}, "among must"),
     ({"positives": "all"}, "not known"), ({"seed": -1}, "seed must")],
)  # fmt: skip
def test_rules_out_of_range_are_errors(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MiningRules(**options)


def test_no_anchor_and_a_lone_item_give_no_triplet() -> None:
    index = build_index(ITEMS)
    assert len(hard_negatives(index, LABELS, rows=np.empty(0, np.int64))) == 0
    alone = hard_negatives(build_index(ITEMS[:1]), LABELS[:1])
    assert alone.counts == MiningCounts(anchors=1, without_positive=1)
    assert hard_negatives(index, np.zeros(60, np.int64)).counts.without_negative == 60
