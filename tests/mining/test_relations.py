"""Relations as they are made: forms, sides, errors, warnings. Strategies on them are in `test_brute_force.py`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from tests import reference
from torch import Tensor

import trivet
from trivet import Classes, Grades, Pairs, Relation, Tags, collapse
from trivet.label_noise import find_suspects
from trivet.metrics import nearest_pairs
from trivet.mining import adjacency
from trivet.mining.adjacency import ClassAdjacency, MatrixAdjacency
from trivet.samplers import CrossBatchMemory, PKBatches

LISTS = [["red", "round"], ["red"], ["blue", "round"], [], ["blue", "red", "round"]]
MATRIX = [[0, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]]  # of blue, red, round
ROWS = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def compared(relation: Relation) -> list[list[bool | None]]:
    """What each item is to each: True, False or (None) neither."""
    positive, neutral = relation.compared(relation.items, relation.items)
    ignored = relation.ignored(relation.items, relation.items)
    assert torch.equal(neutral, positive if ignored is None else positive | ignored)
    rows = positive.tolist() if ignored is None else [
        [None if skip else match for match, skip in zip(*row, strict=True)]
        for row in zip(positive.tolist(), ignored.tolist(), strict=True)
    ]  # fmt: skip
    assert torch.equal(relation.positive(relation.items, relation.items), positive)
    return rows


@pytest.mark.parametrize(
    "tags",
    [
        LISTS,
        [set(each) for each in LISTS],
        np.array(MATRIX),
        np.array(MATRIX, bool),
        torch.tensor(MATRIX),
        torch.tensor(MATRIX).float(),
        torch.tensor(MATRIX).to_sparse(),
        sparse.csr_array(MATRIX),
        sparse.coo_matrix(MATRIX),
    ],
)
def test_tags_of_every_form_are_the_same(tags: Any) -> None:
    found = Tags(tags, match=0.5)
    expected = [
        [
            (len(set(a) & set(b)) / len(set(a) | set(b)) >= 0.5 or None) if set(a) & set(b) else False
            for b in LISTS
        ]
        for a in LISTS
    ]  # fmt: skip
    assert compared(found) == expected
    assert len(found) == 5
    assert found.names.tolist() in (["blue", "red", "round"], [0, 1, 2])
    assert found[[0, 2]].relevance(found.items[:1], found.items[2:3]).item() == pytest.approx(1 / 3)


def test_items_of_equal_tags_are_positives_of_all_tags_alone() -> None:
    assert compared(Tags([["a", "b"], ["b", "a"], ["a"], ["c"]], match="all")) == [
        [True, True, None, False],
        [True, True, None, False],
        [None, None, True, False],
        [False, False, False, True],
    ]


def test_rows_of_equal_content_share_what_belongs_to_them() -> None:
    pairs = Pairs(["where is it", "how much", "where is it"], ["here", "ten", "there"], listed=[(1, 0)])
    left, right = pairs.left, pairs.right
    assert left.positive(left.items, right.items).tolist() == [
        [True, False, True],
        [True, True, False],
        [True, False, True],
    ]
    assert torch.equal(right.positive(right.items, left.items), left.positive(left.items, right.items).T)
    assert left.ignored(left.items, left.items).all()
    assert isinstance(left.compare(left.items, right.items), MatrixAdjacency)  # a listed pair joins what is no group
    assert compared(Pairs(2, 3, listed=[(0, 2), (1, 0)], aligned=False)) == [
        [None, None, False, False, True],
        [None, None, True, False, False],
        [False, True, None, None, None],
        [False, False, None, None, None],
        [True, False, None, None, None],
    ]


def test_pairs_in_groups_are_compared_as_classes_are() -> None:
    """With the same triplets as by their matrix, in both directions, and for both sides in one batch."""
    pairs = Pairs(["a", "b", "a", "c"], ["x", "y", "x", "z"])
    rows, others = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(5))
    for first, second in ((pairs.left, pairs.right), (pairs.right, pairs.left)):
        assert isinstance(first.compare(first.items, second.items), ClassAdjacency)
        found = trivet.mine(rows, first, references=others, reference_labels=second, positives="all", negatives="all")
        positive = first.positive(first.items, second.items)
        expected = [
            (a, p, n) for a in range(4) for p in range(4) for n in range(4) if positive[a, p] and not positive[a, n]
        ]
        assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
    assert isinstance(pairs.compare(pairs.items, pairs.items), MatrixAdjacency)


def test_in_batch_softmax_of_pairs_in_both_directions() -> None:
    """The queries of a batch against its documents and back, where one document comes twice."""
    pairs = Pairs(["a", "b", "c", "d"], ["x", "y", "x", "z"])
    rows, others = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    batch = torch.tensor([0, 2, 3])
    loss = trivet.SupConLoss(temperature=0.5)
    there = loss(rows[batch], pairs.left[batch], references=others[batch], reference_labels=pairs.right[batch])
    back = loss(others[batch], pairs.right[batch], references=rows[batch], reference_labels=pairs.left[batch])
    unit, other = (torch.nn.functional.normalize(each[batch]) for each in (rows, others))
    positive = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    both = trivet.SymmetricLoss(loss)(
        rows[batch], pairs.left[batch], references=others[batch], reference_labels=pairs.right[batch]
    )
    assert both.item() == pytest.approx((there.item() + back.item()) / 2, rel=1e-12)
    for value, similarities in ((there, unit @ other.T / 0.5), (back, other @ unit.T / 0.5)):
        logs = similarities.log_softmax(dim=1)
        expected = [-logs[i][positive[i]].mean().item() for i in range(3)]
        assert value.item() == pytest.approx(math.fsum(expected) / 3, rel=1e-12)


@pytest.mark.parametrize("make", [np.array, sparse.csr_array, torch.tensor])
def test_grades_of_a_matrix_of_two_sides(make: Callable[[Any], Any]) -> None:
    matrix = [[1.0, 0.5, 0.0], [0.0, 0.0, 2.0]]
    grades = Grades(make(matrix), positive=1.0, negative=0.5, sides=True)
    assert grades.left.relevance(grades.left.items, grades.right.items).tolist() == matrix
    assert grades.relevance(grades.right.items, grades.left.items).T.tolist() == matrix
    assert compared(grades) == [
        [None, None, True, None, False],
        [None, None, False, False, True],
        [True, False, None, None, None],
        [None, False, None, None, None],
        [False, True, None, None, None],
    ]


def test_grades_of_a_function_are_those_of_its_matrix() -> None:
    classes = torch.tensor([0, 2, 1, 2])
    matrix = torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 1.0]])
    of_matrix = Grades(matrix, positive=0.5, items=classes)
    by_function = Grades(lambda a, b: matrix[a[:, None], b], positive=0.5, items=classes)
    assert compared(of_matrix) == compared(by_function)
    assert compared(of_matrix)[0] == [True, False, True, False]


@pytest.mark.parametrize("margin", [0.0, 0.25, -0.5])
@pytest.mark.parametrize("stored", [True, False])
def test_negatives_that_a_guide_finds_nearer_than_a_positive_are_ignored(
    margin: float, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines of whole vectors of norm 5 are twenty-fifths, with ties; the batch holds some of the items."""
    monkeypatch.setattr(adjacency, "MAX_STORED", 2**21 if stored else 0)
    vectors = [[3, 4], [4, 3], [5, 0], [0, 5], [-3, 4], [4, -3], [3, 4], [0, 5]]
    classes, batch = [0, 0, 1, 1, 0, 2, 1, 0], [6, 0, 3, 2, 5, 1, 7]
    guided = trivet.Guided(Classes(torch.tensor(classes)), torch.tensor(vectors, dtype=torch.float64), margin)

    def cosine(a: int, b: int) -> float:
        return sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True)) / 25

    expected = set()
    for i, a in enumerate(batch):
        least = min(cosine(a, p) for p in batch if classes[p] == classes[a])
        negatives = [j for j, n in enumerate(batch) if classes[n] != classes[a] and cosine(a, n) <= least - margin]
        positives = [j for j, p in enumerate(batch) if classes[p] == classes[a] and j != i]
        expected |= {(i, p, n) for p in positives for n in negatives}
    rows = torch.randn(len(batch), 3, generator=torch.Generator().manual_seed(4))
    found = trivet.mine(rows, guided[batch], positives="all", negatives="all")
    assert set(zip(*(column.tolist() for column in found), strict=True)) == expected
    assert len(expected) not in (0, 7 * 6 * 5)


def test_a_guided_relation_has_the_grades_of_its_own() -> None:
    grades = Grades([[1.0, 0.25], [0.25, 1.0]], positive=1.0, items=torch.tensor([1, 0, 1]))
    guided = trivet.Guided(grades, ROWS[:3])
    expected = grades.relevance(grades.items, grades.items)
    assert torch.equal(guided.relevance(guided.items, guided.items), expected)
    assert expected[0].tolist() == [1.0, 0.25, 1.0]


@pytest.mark.parametrize("stored", [True, False])
def test_an_item_without_tags_is_no_negative_of_itself(stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "MAX_STORED", 2**21 if stored else 0)
    found = trivet.mine_pairs(ROWS[:3], Tags([[], ["a"], ["a"]]))
    assert list(zip(found.negative_anchor.tolist(), found.negative.tolist(), strict=True)) == [
        (0, 1), (0, 2), (1, 0), (2, 0)
    ]  # fmt: skip
    assert list(zip(found.anchor.tolist(), found.positive.tolist(), strict=True)) == [(1, 2), (2, 1)]


def test_rows_of_a_relation_keep_its_rule() -> None:
    tags = Tags(LISTS)
    for rows in (slice(1, 4), [1, 2, 3], np.array([1, 2, 3]), torch.tensor([1, 2, 3])):
        assert torch.equal(tags[rows].items, torch.tensor([1, 2, 3]))
        assert tags[rows].incidence is tags.incidence


def test_batches_whose_matrices_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block, with the same triplets and losses; and an index that contradicts is found."""
    tags, loss = Tags(LISTS), trivet.ContrastiveLoss(margin=1.0, block_size=2)
    value, triplets = loss(ROWS, tags), trivet.mine(ROWS, tags, positives="all", negatives="all")
    monkeypatch.setattr(adjacency, "MAX_STORED", 7)
    assert loss(ROWS, tags).item() == pytest.approx(value.item(), rel=1e-6)
    assert all(map(torch.equal, trivet.mine(ROWS, tags, positives="all", negatives="all"), triplets))
    loss = trivet.TripletLoss()
    loss(ROWS, tags, indices=triplets)
    with pytest.raises(ValueError, match=r"^indices must agree with the labels: got negatives that are none"):
        loss(ROWS, tags, indices=(triplets[0], triplets[1], triplets[1]))
    with pytest.raises(ValueError, match=r"^indices must agree with the labels: got positives that are none"):
        loss(ROWS, tags, indices=(triplets[0], triplets[2], triplets[2]))


def test_indices_need_no_labels() -> None:
    labels = torch.tensor([0, 0, 1, 1, 0])
    others, of_others = torch.randn(3, 3, generator=torch.Generator().manual_seed(2)), torch.tensor([1, 0, 1])
    for loss in (trivet.TripletLoss(), trivet.ContrastiveLoss(margin=1.0), trivet.SupConLoss()):
        mined = trivet.mine if isinstance(loss, trivet.TripletLoss) else trivet.mine_pairs
        indices = mined(ROWS, labels, positives="all", negatives="all")
        assert torch.equal(loss(ROWS, None, indices=indices), loss(ROWS, labels, indices=indices))
        indices = mined(ROWS, labels, positives="all", negatives="all", references=others, reference_labels=of_others)
        found = loss(ROWS, None, indices=indices, references=others)
        assert torch.equal(found, loss(ROWS, labels, indices=indices, references=others, reference_labels=of_others))
    with pytest.raises(ValueError, match=r"^labels must be a tensor of integers: got NoneType"):
        trivet.TripletLoss()(ROWS, None)


@pytest.mark.parametrize("name", ["proxy-nca", "proxy-anchor"])
def test_proxies_of_tags(name: str) -> None:
    """Each tag has a proxy, and an item is pulled to those of all its tags."""
    tags = Tags(LISTS)
    generator = torch.Generator().manual_seed(3)
    proxies = [reference.unit(row) for row in torch.randn(3, 3, generator=generator, dtype=torch.float64).tolist()]
    rows, carried = [reference.unit(row) for row in ROWS.double().tolist()], np.array(MATRIX, bool)
    if name == "proxy-nca":
        loss = trivet.ProxyNCALoss(3, 3, scale=2.0, reduction="sum")
        weights = [[math.exp(-2 * reference.measure(x, p, "squared_euclidean")) for p in proxies] for x in rows]
        expected = sum(
            math.log(sum(w for w, has in zip(weights[i], carried[i], strict=True) if not has) / weights[i][t])
            for i in range(5)
            for t in range(3)
            if carried[i, t] and not carried[i].all()
        )
    else:
        loss = trivet.ProxyAnchorLoss(3, 3, scale=2.0, margin=0.25)
        expected = 0.0
        for t, proxy in enumerate(proxies):
            similarity = [1 - reference.measure(x, proxy, "cosine") for x in rows]
            pull = sum(math.exp(-2 * (s - 0.25)) for s, has in zip(similarity, carried[:, t], strict=True) if has)
            push = sum(math.exp(2 * (s + 0.25)) for s, has in zip(similarity, carried[:, t], strict=True) if not has)
            expected += (math.log1p(pull) + math.log1p(push)) / 3
    loss.double().proxies.data = torch.tensor(proxies, dtype=torch.float64)
    value = loss(ROWS.double(), tags)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    value.backward()
    assert torch.isfinite(loss.proxies.grad).all()


def test_a_memory_is_of_one_relation() -> None:
    tags, memory = Tags(LISTS), CrossBatchMemory(size=8, embedding_dim=3)
    loss, ids = trivet.ContrastiveLoss(margin=1.0, reduction="sum"), torch.arange(5)
    memory(loss, ROWS[:3], tags[:3], ids[:3])
    given = memory.references(ROWS[3:], tags[3:], ids[3:])._asdict()
    expected = loss(ROWS[3:], tags[3:], ids=ids[3:], **given)
    assert torch.equal(memory(loss, ROWS[3:], tags[3:], ids[3:]), expected)
    assert expected.item() > loss(ROWS[3:], tags[3:]).item()
    for labels in (Tags(LISTS[:2]), torch.tensor([0, 1])):
        with pytest.raises(ValueError, match=r"^labels must be of one relation in all batches that a memory compares"):
            memory.add(ROWS[:2], labels, ids[:2])


def test_batches_in_which_nothing_can_be_compared_warn() -> None:
    rows, loss = ROWS.clone().requires_grad_(), trivet.ContrastiveLoss(margin=1.0)
    with pytest.warns(
        UserWarning, match="so that there is a positive: got 2 of which no two do; draw items that share"
    ):
        loss(rows[:2], Tags([["a"], ["b"]]))
    with pytest.warns(
        UserWarning, match="so that there is a negative: got 2 that all do; draw items that are relevant"
    ):
        loss(rows[:2], Grades(np.ones((2, 2)), positive=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(rows, Tags(LISTS))


MISTAKES: dict[str, Callable[[], object]] = {
    r"vectors must hold one row for each item of the relation: got 4 for 5": lambda: trivet.Guided(
        Tags(LISTS), ROWS[:4]
    ),
    r"tags must be a list of tags for each item: got 'a;b'; split it, as 'a;b'\.split\(';'\)": lambda: Tags(["a;b"]),
    r"tags must be a matrix of 0 and 1: got 2; compare it with a limit": lambda: Tags(np.array([[2, 0]])),
    r"tags must be a matrix of 0 and 1, a row for each item: got shape \(2,\)": lambda: Tags(np.array([1, 0])),
    r"match must be 'any', 'all' or a Jaccard index in \(0, 1\]: got 1\.5": lambda: Tags(LISTS, match=1.5),
    r"left and right must have as many rows, .* got 2 and 3; pass aligned=False": lambda: Pairs(2, 3),
    r"a side of Pairs must be how many rows it has, .* got rows of numbers, \(3, 4\); pass how many": lambda: Pairs(
        np.zeros((3, 4)), 3
    ),
    r"a side of Pairs must be how many rows it has, .* got rows of numbers, \(2, 0\)": lambda: Pairs(2, [[1], [1, 2]]),
    r"listed must hold rows of left in \[0, 2\) and of right in \[0, 2\): got \[0, 2\] to \[0, 2\]": lambda: Pairs(
        2, 2, [(0, 2)]
    ),
    r"relevance must be symmetric: got a matrix that differs": lambda: Grades([[1, 0], [1, 1]], positive=1),
    r"relevance must be a square matrix \(K, K\), or a function: got shape \(1, 2\)": lambda: Grades(
        [[1, 0]], positive=1
    ),
    r"relevance must be finite": lambda: Grades([[math.nan]], positive=1),
    r"negative must not exceed positive, 1: got 2": lambda: Grades([[1]], positive=1, negative=2),
    r"items must be given for a function of relevance": lambda: Grades(lambda a, b: a[:, None] + b, positive=1),
    r"labels must be a relation of one item per embedding: got 4 for 5 embeddings; .* labels\[rows\]": lambda: (
        trivet.TripletLoss()(ROWS, Tags(LISTS[:4]))
    ),
    r"labels of both sides must follow one rule: got Pairs and Pairs made separately": lambda: trivet.TripletLoss()(
        ROWS, Pairs(5, 5).left, references=ROWS, reference_labels=Pairs(5, 5).right
    ),
    r"labels must be classes for one beta per class: got Tags; leave num_classes out": lambda: trivet.MarginLoss(
        num_classes=3
    )(ROWS, Tags(LISTS)),
    r"labels must be classes or tags, as something is learned for each: got Pairs": lambda: trivet.ProxyNCALoss(3, 3)(
        ROWS[:4], Pairs(2, 2)
    ),
    r"labels must hold one number per embedding: got shape \(5, 3\) .*, pass trivet\.Tags\(labels\);": lambda: (
        trivet.TripletLoss()(ROWS, torch.tensor(MATRIX))
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        MISTAKES[message]()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "taker",
    [
        collapse.alignment,
        collapse.class_modes,
        collapse.class_spread,
        collapse.strangers,
        lambda rows, labels: collapse.fine_coarse_index(rows, labels, torch.arange(40) % 10),
        lambda rows, labels: collapse.fine_coarse_index(rows, torch.arange(40) % 2, labels),
        lambda rows, labels: collapse.mode_index(rows, rows, labels),
        lambda rows, labels: collapse.mode_retention(rows, rows, labels),
        lambda rows, labels: collapse.mode_sharing(rows, labels, collapse.class_modes(rows, torch.arange(40) % 5)),
        lambda rows, labels: collapse.sampling(rows, labels, collapse.SamplingStrategy(trivet.TripletLoss(), 2, 2)),
        lambda rows, labels: collapse.diagnose(rows, torch.arange(40) % 2, fine={"finer": labels}),
        lambda rows, labels: PKBatches(labels, num_classes=2, samples_per_class=2, seed=0),
        find_suspects,
        nearest_pairs,
    ],
)
def test_what_takes_classes_alone_says_so(taker: Callable[[torch.Tensor, Relation], object]) -> None:
    rows = torch.randn(40, 4, generator=torch.Generator().manual_seed(6))
    with pytest.raises(
        ValueError, match=r"^labels must be one class for each item here: got Tags; pass integers \(N,\)"
    ):
        taker(rows, Tags(LISTS * 8))
    taker(rows, Classes(torch.arange(40) % 5))


def test_tags_made_of_each_side_are_joined() -> None:
    """A batch and its references may each have a matrix of the same tags."""
    matrix = torch.tensor(MATRIX)
    whole = Tags(matrix)
    loss = trivet.ContrastiveLoss(margin=1.0)
    found = loss(ROWS[:2], Tags(matrix[:2]), references=ROWS[2:], reference_labels=Tags(matrix[2:]))
    assert torch.equal(found, loss(ROWS[:2], whole[:2], references=ROWS[2:], reference_labels=whole[2:]))


def test_advice_for_a_matrix_of_tags_works() -> None:
    labels = torch.tensor(MATRIX)
    assert torch.isfinite(trivet.TripletLoss()(ROWS, Tags(labels)))
    assert compared(Tags([tags.split(";") for tags in ("a;b", "b")])) == [[True, True], [True, True]]
    assert len(Grades(lambda a, b: (a[:, None] == b).double(), positive=1.0, items=torch.arange(4))) == 4


def test_integers_mean_classes() -> None:
    labels = torch.tensor([0, 1, 0, 1, 1])
    loss = trivet.TripletLoss(positives="hard", negatives="hard")
    assert torch.equal(loss(ROWS, Classes(labels)), loss(ROWS, labels))
    assert compared(Classes(labels))[0] == [True, False, True, False, False]


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("by", [torch.inf, 0.0])
def test_what_is_no_negative_is_hidden_whatever_its_value(by: float, dtype: torch.dtype, wants_gradient: bool) -> None:
    tags = trivet.Tags([["red"], ["red", "round"], ["blue"]], match=0.6)  # 0 and 1 share a tag, and are no positives
    excluded = tags.compare(tags.items, tags.items).block(None, torch.arange(3)).exclusion([])
    values = torch.tensor([[1.0, torch.nan, -2.0], [torch.inf, -torch.inf, -0.0], [torch.nan, 3.0, 5.0]], dtype=dtype)
    hidden = excluded.hide(values.clone().requires_grad_(wants_gradient), by).detach()
    assert torch.equal(hidden[:2, :2], torch.full((2, 2), by, dtype=dtype))
    assert hidden[2, 2] == by
    assert hidden[:2, 2].tolist() == [-2.0, 0.0]
    assert hidden[1, 2].signbit()
    assert hidden[2, 0].isnan()
    assert hidden[2, 1] == 3


@pytest.mark.parametrize("made", [Classes, lambda labels: Tags(labels[:, None].tolist())], ids=["listed", "masked"])
@pytest.mark.parametrize("classes", [[0, 1, 0, 2, 1, 0], [0, 0, 0, 0, 0, 1], [0, 0, 1, 1], [3, 3, 3], [0, 1, 2]])
def test_the_negative_of_a_rank_has_so_many_before_it(made: Callable[[Tensor], Relation], classes: list[int]) -> None:
    relation, size = made(torch.tensor(classes)), len(classes)
    excluded = relation.compare(relation.items, relation.items).block(None, torch.arange(size)).exclusion([])
    columns = excluded.negative_at(torch.arange(size).expand(size, -1).contiguous()).tolist()
    for anchor, of_anchor in enumerate(columns):
        negatives = [other for other in range(size) if classes[other] != classes[anchor]]
        assert of_anchor[: len(negatives)] == negatives
