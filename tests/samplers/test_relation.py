"""Batches of anchors with some of their positives, by any relation, beside the rules in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from trivet import Classes, Grades, Guided, Pairs, Relation, RelationBatches, Tags

DRAW = np.random.default_rng(0)
LISTS = [[str(tag) for tag in DRAW.choice(12, DRAW.integers(0, 4), replace=False)] for _ in range(60)]
YEARS = DRAW.integers(0, 90, 50).tolist()
LEFT, RIGHT = DRAW.integers(0, 25, (2, 30)).tolist()
GRADES = (lambda matrix: matrix + matrix.T)(DRAW.integers(0, 3, (40, 40)))
LABELS = DRAW.integers(0, 14, 45).tolist()

Rule = Callable[[int, int], bool]


class Near(Relation):
    """Items of almost the same year."""

    def __init__(self, years: list[int]) -> None:
        self.years, self.items = torch.tensor(years), torch.arange(len(years))

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return (self.years[anchors][:, None] - self.years[others]).abs() <= 1


def jaccard(a: int, b: int) -> float:
    first, second = set(LISTS[a]), set(LISTS[b])
    return len(first & second) / max(1, len(first | second))


def paired(a: int, b: int) -> bool:
    """Rows 0 to 29 are left, the others right; rows of equal content are one item."""
    if (a < 30) == (b < 30):
        return False
    left, right = min(a, b), max(a, b) - 30
    return any(LEFT[row] == LEFT[left] and RIGHT[row] == RIGHT[right] for row in range(30))


CASES: dict[str, tuple[Relation, Rule]] = {
    "tags, any": (Tags(LISTS), lambda a, b: bool({*LISTS[a]} & {*LISTS[b]})),
    "tags, all": (Tags(LISTS, "all"), lambda a, b: jaccard(a, b) == 1),
    "tags, Jaccard": (Tags(LISTS, 0.4), lambda a, b: jaccard(a, b) >= 0.4),
    "pairs": (Pairs(LEFT, RIGHT), paired),
    "guided pairs": (Guided(Pairs(LEFT, RIGHT), torch.from_numpy(DRAW.normal(size=(60, 3)))), paired),
    "grades": (Grades(GRADES, positive=4, negative=2), lambda a, b: GRADES[a, b] >= 4),
    "one's own": (Near(YEARS), lambda a, b: abs(YEARS[a] - YEARS[b]) <= 1),
    "classes": (Classes(torch.tensor(LABELS)), lambda a, b: LABELS[a] == LABELS[b]),
}


def some(name: str) -> tuple[Relation, Rule]:
    """Some of the items of a case, in another order, so that items are no row numbers."""
    relation, rule = CASES[name]
    rows = np.random.default_rng(1).permutation(len(relation))[: len(relation) * 3 // 4].tolist()
    return relation[rows], lambda a, b: a != b and rule(rows[a], rows[b])


@pytest.mark.parametrize("name", CASES)
def test_items_with_positives_are_those_of_the_rule(name: str) -> None:
    relation, rule = some(name)
    items = range(len(relation))
    assert relation.with_positives().tolist() == [a for a in items if any(rule(a, b) for b in items)]
    found = relation.find_positives(torch.tensor([3, 0, 9]), torch.arange(len(relation)), len(relation))
    assert [sorted(positives.tolist()) for positives in found] == [[b for b in items if rule(a, b)] for a in (3, 0, 9)]


def test_a_search_in_blocks_finds_all_or_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.mining.relations.FIRST_BLOCK", 4)
    monkeypatch.setattr("trivet.mining.relations.COMPARED", 30)
    for name in CASES:
        test_items_with_positives_are_those_of_the_rule(name)
    relation, rule = some("tags, any")
    items = range(len(relation))
    found = relation.find_positives(torch.tensor([3, 0, 9]), torch.arange(len(relation)), 2)
    missing = 0
    for a, positives in zip((3, 0, 9), found, strict=True):
        everything = [b for b in items if rule(a, b)]
        assert min(2, len(everything)) <= len(positives)
        assert set(positives.tolist()) <= set(everything)
        missing += len(everything) - len(positives)
    assert missing > 0


@pytest.mark.parametrize(("p", "k"), [(1, 2), (4, 2), (3, 5), (50, 3)])
@pytest.mark.parametrize("name", CASES)
def test_every_item_with_a_positive_is_an_anchor_and_no_item_is_twice_in_a_batch(name: str, p: int, k: int) -> None:
    relation, rule = some(name)
    items = range(len(relation))
    anchors = [a for a in items if any(rule(a, b) for b in items)]
    batches = RelationBatches(relation, num_anchors=p, samples_per_anchor=k, seed=2)
    assert batches.steps_per_epoch == -(-len(anchors) // p)
    assert batches.anchors.tolist() == anchors
    assert batches.coverage(0) == (len(anchors) / len(relation), None)
    for epoch in (0, 3):
        firsts: list[int] = []
        for step in range(len(batches)):
            batch = batches.batch(epoch, step).tolist()
            assert len(batch) == len(set(batch))
            # Full but for one item, unless no item is left that has a positive.
            assert len(batch) in (p * k - 1, p * k) or set(batch) == set(anchors)
            for item in batch:  # a partner in the batch: an anchor's positives, or what took them
                assert any(rule(item, other) for other in batch)
            firsts += [batch[0]]
        assert set(firsts) <= set(anchors)


@pytest.mark.parametrize(("p", "k"), [(4, 2), (3, 5), (9, 3)])
@pytest.mark.parametrize("name", CASES)
def test_a_group_is_an_anchor_and_as_many_positives_as_are_left(
    name: str, p: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.mining.relations.FIRST_BLOCK", 4)
    monkeypatch.setattr("trivet.samplers.relation.SPARE", 1)
    relation, rule = some(name)
    batches = RelationBatches(relation, num_anchors=p, samples_per_anchor=k, seed=2, rank=0, world_size=1)
    counts: Counter[int] = Counter()
    for step in range(len(batches)):
        groups = [group.tolist() for group in batches.groups(0, step)]
        assert batches.batch(0, step).tolist() == list(chain(*groups))
        first = {group[0] for group in groups[:p]}
        counts.update(group[0] for group in groups[:p])
        taken = first.copy()
        left = p * k
        for number, (anchor, *positives) in enumerate(groups):
            assert all(rule(anchor, positive) for positive in positives)
            assert number < p or anchor not in taken
            assert not taken & {*positives}
            taken |= {anchor}
            free = [b for b in range(len(relation)) if rule(anchor, b) and b not in taken]
            assert len(positives) == min(k - 1, left - 1, len(free))
            taken |= {*positives}
            left -= 1 + len(positives)
    # Each is an anchor once; the last batch begins the order anew.
    assert sorted(counts) == batches.anchors.tolist()
    assert sum(counts.values()) - len(counts) == -len(counts) % p
    assert max(counts.values()) <= 2


EPOCHS = 300


def test_positives_are_drawn_alike() -> None:
    tags = Tags([["a"], ["a"], ["a"], ["a", "b"], ["b"]])
    batches = RelationBatches(tags, num_anchors=1, samples_per_anchor=2, seed=0)
    drawn: Counter[tuple[int, ...]] = Counter(
        tuple(batches.batch(epoch, step).tolist()) for epoch in range(EPOCHS) for step in range(len(batches))
    )
    assert len({anchor for anchor, _ in drawn}) == 5
    hub = RelationBatches(Classes(torch.zeros(90, dtype=torch.int64)), num_anchors=1, samples_per_anchor=2, seed=0)
    assert len({int(hub.batch(0, step)[1]) for step in range(90)}) > 45  # each step draws anew
    for (anchor, _), count in drawn.items():
        share = {0: 1 / 3, 1: 1 / 3, 2: 1 / 3, 3: 1 / 4, 4: 1}[anchor]
        assert count / EPOCHS == pytest.approx(share, abs=4 * (share * (1 - share) / EPOCHS) ** 0.5 + 1e-9)


def test_an_item_of_either_side_draws_its_partner_from_the_other() -> None:
    pairs = Pairs(20, 20)
    batches = RelationBatches(pairs, num_anchors=8, samples_per_anchor=2, seed=0)
    assert len(batches) == 5
    for step in range(5):
        batch = batches.batch(0, step)
        assert len(batch) == 16
        assert sorted(batch[batch < 20]) == sorted(batch[batch >= 20] - 20)


def test_a_batch_depends_on_seed_epoch_and_step_alone() -> None:
    relation = CASES["tags, Jaccard"][0]

    def batch(seed: int, epoch: int, step: int) -> list[int]:
        made = RelationBatches(relation, num_anchors=4, samples_per_anchor=3, seed=seed)
        return made.batch(epoch, step).tolist()

    used = RelationBatches(relation, num_anchors=4, samples_per_anchor=3, seed=3)
    for epoch, step in [(0, 0), (2, 5), (1, 3), (2, 5)]:
        assert used.batch(epoch, step).tolist() == batch(3, epoch, step)
    assert len({tuple(batch(*of)) for of in [(3, 0, 0), (4, 0, 0), (3, 1, 0), (3, 0, 1)]}) == 4


def test_a_loader_shows_the_epochs_one_after_the_other_and_resumes() -> None:
    relation = CASES["tags, any"][0]

    def made(**options: int) -> RelationBatches:
        return RelationBatches(relation, num_anchors=4, samples_per_anchor=3, seed=3, **options)

    batches = made()
    whole = [[batches.batch(epoch, step).tolist() for step in range(len(batches))] for epoch in range(2)]
    loader = DataLoader(torch.arange(len(relation)), batch_sampler=batches)
    assert [[batch.tolist() for batch in loader] for _ in range(2)] == whole
    stream = iter(resumed := made())
    next(stream)
    state = resumed.state_dict()
    again = made()
    again.load_state_dict(state)
    assert [*again] == whole[0][1:]
    parts = [[*made(rank=rank, world_size=2)] for rank in range(2)]
    assert [[*chain(*shares)] for shares in zip(*parts, strict=True)] == whole[0]
    assert min(len(batch) for part in parts for batch in part) >= 3
    assert (batches.batch_size, batches.drop_last) == (12, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_anchors": 0}, "num_anchors must be at least 1, .* got 0 and 2"),
        ({"samples_per_anchor": 1}, "samples_per_anchor 2, an anchor and a positive: got 4 and 1"),
        ({"seed": -1}, "seed must not be negative: got -1"),
        ({"world_size": 3}, "world_size divide num_anchors, .* got rank 0, world_size 3 and num_anchors 4"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, int], message: str) -> None:
    given = {"num_anchors": 4, "samples_per_anchor": 2, "seed": 0} | options
    with pytest.raises(ValueError, match=message):
        RelationBatches(CASES["pairs"][0], **given)


def test_items_without_positives_are_refused() -> None:
    with pytest.raises(ValueError, match="none of the 3 items of this Tags has one; loosen its rule"):
        RelationBatches(Tags([["a"], ["b"], []]), num_anchors=1, samples_per_anchor=2, seed=0)
