"""The numbers that must be right: one test for each promise, through what users call."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import chisquare
from tests import reference
from tests.every_loss import DEFINED, EVERY_LOSS, Setting
from torch import Tensor
from torch.nn.functional import normalize

import trivet
from trivet.metrics import evaluate, nearest_pairs, neighbours, recall_at_k, retrieve
from trivet.samplers import BatchConfig, CrossBatchMemory, PKBatches
from trivet.training.config import RunConfig

EVERYONE = {"positives": "all", "negatives": "all"}
LOSSES = {trivet.losses.LOSSES[name].__name__: made for name, made in EVERY_LOSS.items()}


class Seen(trivet.EmbeddingLoss):
    """A loss that keeps the distances its formula is given: `{(a, j): D(a, j)}`."""

    reductions = ("sum",)

    def __init__(self, **options: object) -> None:
        super().__init__(**EVERYONE, margin=0.0, reduction="sum", **options)
        self.positive: list[Tensor] = []
        self.negative: list[Tensor] = []

    def formula(self, rows: trivet.BlockView) -> trivet.LossTerms:
        self.positive += rows.to_positive.detach()[rows.positive_chosen].flatten().tolist()
        self.negative += rows.to_negative.detach()[rows.negative_chosen].flatten().tolist()
        return trivet.LossTerms(rows.to_positive, rows.positive_chosen)


@pytest.mark.parametrize("block_size", [None, 7])
def test_01_near_collapse_distances_are_right_to_a_thousandth(block_size: int | None) -> None:
    """Near collapse: pairwise distances have relative error <= 1e-3 in float32 at a spread of 1e-4 of the norm."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(32, generator=generator)
    spread = 1e-4 * centre.norm() * torch.randn(60, 32, generator=generator) / 32**0.5
    points, labels = centre + spread, torch.arange(60) % 3
    anchors, classes = points[:20], labels[:20]
    exact_rows = points.tolist()
    exact = [[math.dist(x, y) for y in exact_rows] for x in exact_rows]

    def pairs(items: int, others: range, same: bool, power: int) -> list[float]:
        return [
            exact[a][j] ** power
            for a in range(items)
            for j in others
            if a != j and (labels[a] == labels[j]).item() == same
        ]

    for kind, power in (("euclidean", 1), ("squared_euclidean", 2)):
        for options, items, others in (
            ({}, 60, range(60)),
            ({"references": points[20:], "reference_labels": labels[20:]}, 20, range(20, 60)),
        ):
            seen = Seen(distance=kind, normalize=False, block_size=block_size)
            seen(*((points, labels) if items == 60 else (anchors, classes)), **options)
            assert seen.positive == pytest.approx(pairs(items, others, True, power), rel=1e-3)
            assert seen.negative == pytest.approx(pairs(items, others, False, power), rel=1e-3)
    found = neighbours(points, np.arange(60), 59)
    for row, columns, distances in zip(exact, found.indices, found.distances, strict=True):
        assert distances.tolist() == pytest.approx([row[j] for j in columns], rel=1e-3)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_02_half_precision_selects_and_adds_up_in_float32(dtype: torch.dtype, name: str) -> None:
    """Half precision and autocast: selection and reduction in float32, loss finite, gradient within 1e-2 of float32."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 4
    loss = LOSSES[name]()
    needs_unit_rows = name in ("MarginLoss", "MultiSimilarityLoss")
    scale = 1.0 if needs_unit_rows or name == "NPairLoss" else 300.0  # where squares exceed the largest float16
    rows = scale * normalize(torch.randn(24, 3, generator=generator), dim=1).to(dtype)
    gradients: list[Tensor] = []
    plain = reference.batch(rows.tolist(), labels.tolist(), "squared_euclidean")
    for block_size in (None, 5):
        values = set()
        for inside in (False, True):
            found = []
            for embeddings in (rows.float(), rows):
                loss.key.zero_()
                loss.block_size = block_size
                leaf = embeddings.clone().requires_grad_()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
                    value = loss(leaf, labels)
                assert value.dtype == torch.float32
                found.append((value.item(), *torch.autograd.grad(value, [leaf])))
            (value, gradient), (low_value, low_gradient) = found
            values.add(value)
            gradients.append(gradient)
            assert math.isfinite(value)
            assert value > 0 or name == "ProxyNCALoss"
            assert low_value == value
            assert low_gradient.dtype == dtype
            assert gradient.any()
            assert (low_gradient.float() - gradient).norm() <= 1e-2 * gradient.norm()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
                mined = trivet.mine(rows, labels, positives="easy", negatives="hard")
            triplets = list(zip(*(c.tolist() for c in mined), strict=True))
            assert triplets == reference.triplets(plain, "easy", "hard", 0.2)
        assert len(values) == 1
    for gradient in gradients:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-3, atol=1e-4 * gradients[0].abs().max().item())


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_03_a_row_that_is_not_finite_is_named_and_never_used(dtype: torch.dtype, bad: float, name: str) -> None:
    """A NaN or infinite row raises an error that names the rows; it is never mined, never filtered silently."""
    rows, labels = torch.ones(6, 3, dtype=dtype), torch.tensor([0, 1, 0, 1, 0, 2])
    rows[1, 0] = rows[5, 2] = bad  # row 5 is alone in its class and would not be chosen
    good, classes = torch.ones(2, 3), torch.tensor([0, 1])
    said = r"must be finite: rows 1, 5 hold NaN or infinity \(2 of 6\)"
    loss, memory = LOSSES[name](), CrossBatchMemory(size=4, embedding_dim=3)
    calls: list[Callable[[], object]] = [
        lambda: loss(rows, labels),
        lambda: trivet.mine(rows, labels, positives="random", negatives="hard"),
        lambda: trivet.mine(good, classes, references=rows, reference_labels=labels),
        lambda: memory.add(rows, labels, torch.arange(6)),
        lambda: evaluate(rows, {"class": labels}),
        lambda: recall_at_k(rows, labels, distance="cosine"),
        lambda: nearest_pairs(rows, labels),
    ]
    if loss.term != "proxy":
        calls.append(lambda: loss(good, classes, references=rows, reference_labels=labels))
    for call in calls:
        with pytest.raises(ValueError, match=said):
            call()
    assert loss.last is None
    assert len(memory) == 0


BATCHES: dict[str, tuple[Tensor, list[int]]] = {
    "no item": (torch.zeros(0, 3), []),
    "one item": (torch.ones(1, 3), [0]),
    "two of a class": (torch.eye(3)[:2], [0, 0]),
    "two of two classes": (torch.eye(3)[:2], [0, 1]),
    "one class": (torch.eye(3), [2, 2, 2]),
    "single items": (torch.eye(3), [0, 1, 2]),
    "all equal": (normalize(torch.ones(4, 3), dim=1), [0, 0, 1, 1]),
}


class Labelled(NamedTuple):
    """What a definition reads of a batch beside its distances."""

    labels: list[int]
    ids: list[int]


def defined(name: str, rows: list[list[float]], labels: list[int]) -> tuple[trivet.EmbeddingLoss, float]:
    """A loss of all tuples of a batch, and what it should be."""
    definition = DEFINED[name]
    reduction = "mean" if "mean" in definition.reductions else definition.reductions[0]
    everyone, kind = reference.Rule("all"), definition.distances[0]
    setting = Setting(everyone, everyone, kind, 0.5, reduction, 0.0, False, "an", False)
    numbers = list(range(len(rows)))
    problem = reference.batch(rows, labels, kind)
    terms = definition.terms(setting, problem, Labelled(labels, numbers))
    return definition.make(setting).double(), reference.reduced(terms, reduction, len(rows), 1)


@pytest.mark.parametrize("case", BATCHES)
def test_04_degenerate_batches_have_a_stated_result_with_a_graph(case: str) -> None:
    """One class, singletons, all-equal rows, N = 0, 1, 2: a stated result with a graph, or an error; never NaN."""
    rows, classes = BATCHES[case]
    labels = torch.tensor(classes, dtype=torch.int64)
    for made, block_size in itertools.product(LOSSES.values(), (None, 1)):
        loss, leaf = made(), rows.clone().requires_grad_()
        loss.block_size = block_size
        value = loss(leaf, labels)
        value.backward()
        assert leaf.grad.isfinite().all()
        assert value.isfinite()
        assert value == 0 or loss.last.terms > 0
    for name in DEFINED:
        loss, expected = defined(name, rows.tolist(), classes)
        ids = torch.arange(len(rows)) if name == "margin, beta per sample" else None
        assert loss(rows.double(), labels, ids=ids).item() == pytest.approx(expected, rel=1e-6, abs=1e-12)
    mined = trivet.mine(rows, labels, positives="easy", negatives="hard")
    expected = [(0, 1, 2), (1, 0, 2), (2, 3, 0), (3, 2, 0)] if case == "all equal" else []
    assert list(zip(*(column.tolist() for column in mined), strict=True)) == expected
    if len(rows) < 2:
        for call in (lambda: recall_at_k(rows, labels), lambda: evaluate(rows, {"class": labels})):
            with pytest.raises(ValueError, match=f"at least two items: got {len(rows)}"):
                call()
        return
    recall = {"two of a class": 1, "one class": 1, "all equal": pytest.approx(1 / 3)}.get(case, 0)
    assert recall_at_k(rows, labels, ks=(1,)) == {1: recall}
    record = evaluate(rows, {"class": labels}, measures=("recall@1", "nmi"))["class"].as_json()
    assert record["recall@1"] == recall
    assert math.isfinite(record["nmi"])


@pytest.mark.parametrize("name", [name for name in DEFINED if "beta per" not in name])
def test_05_one_positive_and_one_negative_pair_count(name: str) -> None:
    """A single positive and a single negative pair give the right non-zero loss."""
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]], dtype=torch.float64)  # S_ap 0.8, S_an 0.6
    labels, one = torch.tensor([0, 0, 1]), torch.tensor([0])
    # Of the first row alone: the second of its class is left out of the batch, and the third has no positive.
    definition, everyone = DEFINED[name], reference.Rule("all")
    kind, reduction = definition.distances[0], "mean" if "mean" in definition.reductions else definition.reductions[0]
    setting = Setting(everyone, everyone, kind, 0.5, reduction, 0.0, False, "an", False)
    problem = reference.Problem(rows.tolist()[:1], [0], rows.tolist()[1:], [0, 1], lambda a, j: False, kind)
    terms = definition.terms(setting, problem, Labelled([0], [0]))
    expected, loss = reference.reduced(terms, reduction, 1, 1), definition.make(setting).double()
    assert abs(expected) > 0.05
    alone = loss(rows[:1], labels[:1], references=rows[1:], reference_labels=labels[1:])
    assert alone.item() == pytest.approx(expected, rel=1e-6)
    pairs = (one, torch.tensor([1]), one, torch.tensor([2]))
    loss.reduction = "sum"
    total = reference.reduced(terms, "sum", 1, 1)
    assert loss(rows, labels, indices=pairs).item() == pytest.approx(total, rel=1e-6)
    if name != "n-pair":
        assert loss(rows, labels, indices=(*pairs[:2], pairs[3])).item() == pytest.approx(total, rel=1e-6)


INTEGERS = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip


def test_06_labels_of_any_integer_type_are_exact_and_others_are_refused() -> None:
    """Labels: any integer dtype, exact above 2^24; bool, string and float labels get an error that says what to do."""
    rows = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.9, 0.5], [0.9, 0.5, 0.0]])
    chosen = ([0, 1, 2, 3], [2, 3, 0, 1])
    for dtype in INTEGERS:
        labels = torch.tensor([1, 2, 1, 2]).to(dtype)
        mined = trivet.mine(rows, labels, positives="easy", negatives="hard")
        assert (mined.anchor.tolist(), mined.positive.tolist()) == chosen
        for make in LOSSES.values():
            loss, other = make(), make()
            loss.load_state_dict(other.state_dict())
            assert loss(rows, labels).item() == other(rows, labels.long()).item()
        assert recall_at_k(rows, labels, ks=(1,)) == {1: 1.0}
        if dtype not in (torch.uint16, torch.uint32, torch.uint64):
            assert PKBatches(labels.numpy(), num_classes=2, samples_per_class=2, seed=0).steps_per_epoch == 1
    for base in (2**24, 2**53, 2**62):  # next to these a float32, or a float64, is the same number
        labels = torch.tensor([base, base + 1, base, base + 1])
        mined = trivet.mine(rows, labels, positives="easy", negatives="hard")
        assert (mined.anchor.tolist(), mined.positive.tolist()) == chosen
        assert mined.negative.tolist() == [3, 0, 3, 0]
        assert trivet.ContrastiveLoss(margin=1.0)(rows, labels).item() == pytest.approx(
            trivet.ContrastiveLoss(margin=1.0)(rows, labels - base).item()
        )
        assert recall_at_k(rows, labels, ks=(1,)) == {1: 1.0}
        memory = CrossBatchMemory(size=4, embedding_dim=3)
        memory.add(rows, labels, labels)
        assert memory.labels.tolist() == memory.ids.tolist() == labels.tolist()
        sampler = PKBatches(labels.numpy(), num_classes=2, samples_per_class=2, seed=0)
        assert sorted(sampler.batch(0, 0).tolist()) == [0, 1, 2, 3]
    memory = CrossBatchMemory(size=4, embedding_dim=3)
    wrong = {
        "torch.bool": torch.tensor([True, False, True, False]),
        "torch.float32": torch.tensor([0.0, 1.0, 0.0, 1.0]),
        "list": ["a", "b", "a", "b"],
    }
    for kind, labels in wrong.items():
        for make in LOSSES.values():
            with pytest.raises(ValueError, match=rf"labels must be a tensor of integers: got {kind}; number them with"):
                make()(rows, labels)
        with pytest.raises(ValueError, match=rf"tensor of integers: got {kind}; number them with"):
            trivet.mine(rows, labels)
        with pytest.raises(ValueError, match=rf"tensor of integers: got {kind}; number them with"):
            memory.add(rows, labels, torch.arange(4))
        arrays = np.array(labels if isinstance(labels, list) else labels.tolist())
        with pytest.raises(ValueError, match=r"labels must be integers: got .*; number them with np.unique"):
            recall_at_k(rows, arrays)
        with pytest.raises(ValueError, match=r"must be integers: got .*; number them with np.unique"):
            evaluate(rows, {"class": arrays})
        with pytest.raises(ValueError, match=r"labels must be integers .*; number the classes"):
            PKBatches(arrays, num_classes=2, samples_per_class=2, seed=0)


def expected_hits(points: list[list[int]], labels: list[int], k: int) -> Fraction:
    """Mean over all items, and over all orders of the others that keep the nearer before the farther."""
    total = Fraction(0)
    for a, point in enumerate(points):
        others = [j for j in range(len(points)) if j != a]
        squared = {j: sum((x - y) ** 2 for x, y in zip(point, points[j], strict=True)) for j in others}
        orders = [
            o for o in itertools.permutations(others) if all(squared[i] <= squared[j] for i, j in itertools.pairwise(o))
        ]
        hits = sum(any(labels[j] == labels[a] for j in order[:k]) for order in orders)
        total += Fraction(hits, len(orders))
    return total / len(points)


def test_07_ties_take_the_lowest_index_in_mining_and_count_by_chance_in_evaluation() -> None:
    """Ties: lowest index in mining; in evaluation the expected value under random tie-breaking, chance if collapsed."""
    source = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        for size in (12, 300):  # a wide row is searched in chunks
            points = torch.randint(3, (size, 2), generator=source).to(dtype)
            labels = torch.randint(4, (size,), generator=source)
            plain = reference.batch(points.tolist(), labels.tolist(), "squared_euclidean")
            some = range(0, size, max(1, size // 30))
            for positives, negatives in itertools.product(["easy", "hard"], ["hard", "semihard-hardest", "easy"]):
                mined = trivet.mine(points, labels, positives=positives, negatives=negatives)
                found = {a: (p, n) for a, p, n in zip(*(c.tolist() for c in mined), strict=True)}
                for a in some:
                    own = reference.chosen_positives(plain, a, positives)
                    if not own:
                        chosen = []
                    elif negatives == "easy":
                        chosen = [min(plain.negatives(a), key=lambda n, a=a: (-plain.d(a, n), n))]
                    else:
                        chosen = reference.negative_candidates(plain, a, own[0], negatives, 0.2)
                    assert found.get(a) == ((own[0], chosen[0]) if chosen else None)
    same = torch.ones(5, 3)
    several = trivet.mine(
        same,
        torch.tensor([0, 0, 0, 1, 1]),
        positives=trivet.EasyPositive(k=2),
        negatives=trivet.HardNegative(k=2),
    )
    assert several.positive.tolist()[:4] == [1, 1, 2, 2]
    assert several.negative.tolist()[:4] == [3, 4, 3, 4]

    points, labels = [[0, 0], [1, 0], [0, 1], [-1, 0], [0, 0], [2, 1]], [0, 1, 0, 1, 1, 0]
    rows, classes = torch.tensor(points, dtype=torch.float64), torch.tensor(labels)
    expected = {k: float(expected_hits(points, labels, k)) for k in (1, 2, 3)}
    assert len(set(expected.values())) == 3
    assert recall_at_k(rows, classes, ks=(1, 2, 3)) == pytest.approx(expected, rel=1e-12)
    sizes = [6, 3, 1]
    classes = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))  # sorted by class, which decides nothing
    collapsed = torch.full((10, 4), 0.3)
    chance = {
        k: sum(n * (1 - Fraction(math.comb(10 - n, k), math.comb(9, k))) for n in sizes) / 10 for k in (1, 2, 5, 9)
    }
    for distance in ("euclidean", "cosine"):
        found = retrieve(collapsed, classes, measures=[f"recall@{k}" for k in chance], distance=distance)
        expected_means = {f"recall@{k}": float(share) for k, share in chance.items()}
        assert found.mean() == pytest.approx(expected_means, rel=1e-12)
        assert found.chance == pytest.approx(expected_means, rel=1e-12)
        assert found.values[:, 0].tolist() == pytest.approx([5 / 9] * 6 + [2 / 9] * 3 + [0], rel=1e-12)


def test_08_an_item_is_never_its_own_positive() -> None:
    """Self-pairs are never positives, with memory banks too; gathered batches and their labels: tests/mining."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    labels, ids = torch.tensor([0, 1, 0, 1, 2, 0, 1, 2]), torch.tensor([0, 1, 2, 3, 4, 2, 5, 6])  # 2 and 5: one item
    rows[5] = rows[2]  # two equal views on two processes
    for positives in ("easy", "hard", "random", "all", "multi-similarity"):
        options = {"positives": positives, "negatives": "hard", "normalize": True}
        for _ in range(3):
            mined = trivet.mine(rows, labels, **options)
            assert (mined.anchor != mined.positive).all()
            assert (labels[mined.anchor] == labels[mined.positive]).all()
            mined = trivet.mine(rows, labels, ids=ids, **options)
            assert (ids[mined.anchor] != ids[mined.positive]).all()
            against = {"references": rows.flip(0), "reference_labels": labels.flip(0), "reference_ids": ids.flip(0)}
            mined = trivet.mine(rows, labels, ids=ids, **against, **options)
            assert (ids[mined.anchor] != ids.flip(0)[mined.positive]).all()
            assert (labels[mined.anchor] == labels.flip(0)[mined.positive]).all()

    # A memory that already holds the items of the batch, and older rows of them.
    memory = CrossBatchMemory(size=30, embedding_dim=3).double()
    for step in range(3):
        memory.add(rows + 0.01 * step, labels, torch.arange(8))
    seen = Seen(distance="euclidean", normalize=False)
    memory(seen, rows, labels, torch.arange(8))
    others = [*rows.tolist(), *(rows + 0.0).tolist(), *(rows + 0.01).tolist(), *(rows + 0.02).tolist()]
    expected = [
        math.dist(rows[a].tolist(), other)
        for a in range(8)
        for j, other in enumerate(others)
        if j % 8 != a and labels[j % 8] == labels[a]
    ]
    assert sorted(seen.positive) == pytest.approx(sorted(expected), rel=1e-9, abs=1e-12)


def test_09_distance_weighted_sampling_in_512_dimensions_follows_its_closed_form() -> None:
    """Distance-weighted sampling at d = 512 samples every eligible anchor and follows its closed form (chi-square)."""
    generator = torch.Generator().manual_seed(0)
    rows = normalize(torch.randn(128, 512, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.arange(128) % 32
    rows[64:] = 0.68 * rows[1:65] + (1 - 0.68**2) ** 0.5 * rows[64:]  # half of the anchors have a near negative
    rows = normalize(rows, dim=1)
    plain = reference.batch(rows.tolist(), labels.tolist(), "euclidean")
    for dtype in (torch.float32, torch.float64):
        for limit in (None, 1.4):
            strategy = trivet.DistanceWeighted(upper_cutoff=limit, otherwise="drop")
            mined = trivet.mine(rows.to(dtype), labels, positives="easy", negatives=strategy)
            squared = (rows[:, None] - rows).square().sum(dim=2)
            eligible = (labels[:, None] != labels) & (squared < (math.inf if limit is None else limit**2))
            assert mined.anchor.tolist() == eligible.any(dim=1).nonzero().flatten().tolist()
            assert eligible[mined.anchor, mined.negative].all()
    flat = normalize(torch.randn(20, 512, generator=generator, dtype=torch.float64), dim=1)  # near sqrt(2): all likely
    classes = torch.arange(20) % 5
    plain = reference.batch(flat.tolist(), classes.tolist(), "euclidean")
    for anchor in (0, 7):
        drawn = trivet.mine(
            flat[anchor].repeat(6000, 1),
            classes[anchor].repeat(6000),
            references=flat,
            reference_labels=classes,
            positives="hard",
            negatives=trivet.DistanceWeighted(upper_cutoff=None),
            generator=torch.Generator().manual_seed(anchor),
        ).negative
        negatives = plain.negatives(anchor)
        shares = reference.distance_weights([plain.d(anchor, n) for n in negatives], 512, None)
        found = torch.bincount(drawn, minlength=20)[negatives].tolist()
        assert sum(found) == 6000
        assert min(shares) * 6000 > 5
        assert max(shares) > 1.5 * min(shares)
        assert chisquare(found, [share * 6000 for share in shares]).pvalue > 1e-3


def test_10_what_cannot_work_is_said_with_its_reason() -> None:
    """A margin above the diameter, fewer than two samples per class with easy, an unknown name: an error says why."""
    for distance, diameter in (("euclidean", 2), ("cosine", 2), ("squared_euclidean", 4)):
        said = f"margin must not exceed {diameter}, the diameter of the unit sphere in {distance}: got {diameter + 0.5}"
        for make in (trivet.TripletLoss, trivet.ContrastiveLoss, trivet.MarginLoss):
            with pytest.raises(ValueError, match=f"{said}, which no embedding can satisfy; choose a smaller one"):
                make(margin=diameter + 0.5, distance=distance, normalize=True)
            make(margin=diameter, distance=distance, normalize=True)
    with pytest.raises(ValueError, match="beta must not exceed 2, the diameter"):
        trivet.MarginLoss(beta=2.5)
    trivet.TripletLoss(margin=50.0)  # rows of any length may be as far apart

    labels = np.arange(8) // 2
    settings = {"data": {"name": "digits"}, "batch": {"samples_per_class": 1}, "loss": {"name": "triplet"}}
    with pytest.raises(ValueError, match="samples_per_class must be at least 2 for the loss triplet, so that there is"):
        RunConfig.parse(settings, source="test")
    RunConfig.parse(settings | {"loss": {"name": "proxy-nca"}}, source="test")
    with pytest.raises(ValueError, match="it has a positive: class 3 has one"):
        PKBatches(labels[:-1], num_classes=2, samples_per_class=2, seed=0)
    with pytest.raises(ValidationError, match="samples_per_class"):
        BatchConfig(samples_per_class=0)
    loss = trivet.TripletLoss(positives="easy")
    with pytest.warns(UserWarning, match="must contain two items that belong together, .* got 4 of which no two do"):
        assert loss(torch.eye(4), torch.arange(4)).item() == 0
    assert loss.last.dropped == {"no positive": 4, "no negative": 0, "no match": 0}

    names = {"positives": ("eazy", "easy"), "negatives": ("seminard", "semihard"), "distance": ("euclid", "euclidean")}
    for option, (wrong, right) in names.items():
        said = f"{option} = '{wrong}' is not .*did you mean '{right}'. Allowed: .*{right}"
        with pytest.raises(ValueError, match=said):
            trivet.mine(torch.eye(4), torch.arange(4), **{option: wrong})
        for make in (trivet.TripletLoss, lambda **o: trivet.ContrastiveLoss(margin=1.0, **o), trivet.MarginLoss):
            with pytest.raises(ValueError, match=said):
                make(**{option: wrong})
    with pytest.raises(ValueError, match="reduction = 'meen' is not known; did you mean 'mean'"):
        trivet.TripletLoss(reduction="meen")


class Training:
    """Random strategy, sampler, memory bank and beta at work on a small model."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.data, self.labels = torch.randn(40, 6, generator=generator), torch.arange(40) % 5
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(6, 4)
        self.loss = trivet.MarginLoss(
            num_classes=5, beta=0.8 + seed / 10, generator=torch.Generator().manual_seed(seed)
        )
        self.memory = CrossBatchMemory(size=30, embedding_dim=4)
        self.sampler = PKBatches(self.labels.numpy(), num_classes=4, samples_per_class=3, seed=5)
        groups = [{"params": self.model.parameters()}, *self.loss.optimizer_groups()]
        self.optimizer = torch.optim.Adam(groups, lr=0.05)

    def step(self, number: int) -> float:
        epoch, step = divmod(number, self.sampler.steps_per_epoch)
        items = torch.from_numpy(self.sampler.batch(epoch, step))
        value = self.memory(self.loss, self.model(self.data[items]), self.labels[items], items)
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()
        return value.item()

    def parts(self) -> list[torch.nn.Module | torch.optim.Optimizer]:
        return [self.model, self.loss, self.memory, self.optimizer]


@pytest.mark.parametrize("steps", [1, 7])
def test_11_a_resumed_training_goes_on_bit_for_bit(steps: int) -> None:
    """Random strategies, the sampler, the memory bank and beta resume exactly: state_dict holds all of it."""
    first = Training(seed=1)
    for number in range(steps):
        first.step(number)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in first.parts()], file)
    expected = [first.step(number) for number in range(steps, steps + 6)]
    assert len(set(expected)) == 6
    other = Training(seed=2)  # other weights, another beta, another seed
    for number in range(3):
        other.step(number)
    file.seek(0)
    for part, state in zip(other.parts(), torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    assert [other.step(number) for number in range(steps, steps + 6)] == expected
    for one, two in zip(first.parts(), other.parts(), strict=True):
        if isinstance(one, torch.nn.Module):
            for name, value in one.state_dict().items():
                assert torch.equal(value, two.state_dict()[name]), name
    assert len(first.loss.beta.unique()) > 1
    # Every random strategy has its place in the state.
    for positives, negatives in (("random", "random"), ("easy", "semihard"), ("all", "violating")):
        one, two = (trivet.TripletLoss(positives=positives, negatives=negatives, margin=9.0) for _ in range(2))
        rows, labels = first.data, first.labels
        one(rows, labels)
        two.load_state_dict(one.state_dict())
        values = [one(rows, labels).item() for _ in range(4)]
        assert [two(rows, labels).item() for _ in range(4)] == values
        assert len(set(values)) > 1
