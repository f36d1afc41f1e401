"""The soft margin of the triplet loss and its hardest triplet; the rest is tested with the engine."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import pytest
import torch
from tests import reference
from tests.nightly import sampled
from torch import Tensor

import trivet
from trivet_papers.xu2024.training import batch_hard_hinges

LABELS = torch.tensor(reference.V8_LABELS)
RECORDED = ("anchors", "dropped", "terms", "active_fraction", "hard_fraction", "mean_to_positive", "mean_to_negative")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [5.0, 22.0, 100.0, 1e4])
def test_large_distances_neither_overflow_nor_lose_digits(dtype: torch.dtype, length: float) -> None:
    rows = torch.tensor([[0.0], [length], [1.0]], dtype=dtype, requires_grad=True)
    loss = trivet.TripletLoss(soft=True, positives="easy", negatives="hard", distance="euclidean", reduction="sum")
    value = loss(rows, torch.tensor([0, 0, 1]))
    terms = [reference.log_one_plus_exp(length - 1), reference.log_one_plus_exp(length - (length - 1))]
    assert value.item() == pytest.approx(sum(terms), rel=1e-14 if dtype == torch.float64 else 1e-6)
    value.backward()
    assert rows.grad[1].item() == pytest.approx(1 / (1 + math.exp(1 - length)) if length < 700 else 1)


def test_the_margin_is_left_to_the_bands() -> None:
    rows, labels = torch.tensor([[0.0], [1.0], [1.3], [5.0]]), torch.tensor([0, 0, 1, 2])
    band = {"negatives": trivet.SemihardNegative(otherwise="drop"), "distance": "euclidean", "soft": True}
    narrow, wide = (trivet.TripletLoss(positives="easy", margin=margin, **band) for margin in (0.1, 0.5))
    assert narrow(rows, labels).item() == 0
    assert wide(rows, labels).item() == pytest.approx(reference.log_one_plus_exp(1 - 1.3))
    far = trivet.TripletLoss(soft=True, margin=9.0, normalize=True, positives="easy", negatives="hard")
    near = trivet.TripletLoss(soft=True, margin=0.0, normalize=True, positives="easy", negatives="hard")
    assert far(rows, labels).item() == near(rows, labels).item()


def copies_between_classes() -> tuple[Tensor, Tensor, reference.Problem]:
    """Rows with positives at several distances, of which some have copies among the negatives."""
    rows = torch.randn(24, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[12:18] = rows[:6]
    labels = torch.arange(24) % 4
    labels[12:18] = (labels[:6] + 1) % 4
    return rows, labels, reference.batch(rows.tolist(), labels.tolist(), "euclidean")


@pytest.mark.parametrize("band", ["semihard", "violating"])
@pytest.mark.parametrize("width", [None, 0.1, 0.6])
@pytest.mark.parametrize("block_size", sampled([None, 1, 5], 2))
def test_all_of_a_band_are_the_triplets_of_the_definition(
    band: str, width: float | None, block_size: int | None
) -> None:
    rows, labels, problem = copies_between_classes()
    rows.requires_grad_()
    chosen = [
        (a, p, n)
        for a in range(24)
        for p in problem.positives(a)
        for n in reference.negative_candidates(problem, a, p, band, 0.3 if width is None else width)
    ]
    a, p, n = (rows[list(column)] for column in zip(*chosen, strict=True))
    expected = ((a - p).norm(dim=1) - (a - n).norm(dim=1) + 0.3).relu().sum()
    negatives = {"semihard": trivet.AllSemihardNegatives, "violating": trivet.AllViolatingNegatives}[band](width)
    options = {"margin": 0.3, "distance": "euclidean", "positives": "all", "negatives": negatives}
    for dtype, digits in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
        loss = trivet.TripletLoss(**options, reduction="sum", block_size=block_size)
        value = loss(rows.to(dtype), labels)
        assert value.item() == pytest.approx(expected.item(), rel=digits)
        gradients = [torch.autograd.grad(total, rows, retain_graph=True)[0] for total in (value, expected)]
        torch.testing.assert_close(*gradients, rtol=digits, atol=digits)
        assert loss.last is not None
        assert loss.last.terms == len(chosen)
        if band == "semihard":
            assert loss.last.hard_fraction == 0
            assert loss.last.active_fraction == (pytest.approx(1) if width != 0.6 else pytest.approx(0.5, abs=0.4))


def test_a_loss_of_pairs_takes_each_item_of_the_bands_once() -> None:
    rows, labels, problem = copies_between_classes()
    narrow = trivet.AllSemihardNegatives(margin=0.1)
    loss = trivet.ContrastiveLoss(margin=2.0, distance="euclidean", negatives=narrow, reduction="sum")
    near, far = [], []
    for a in range(24):
        bands = {p: reference.negative_candidates(problem, a, p, "semihard", 0.1) for p in problem.positives(a)}
        near += [problem.d(a, p) for p, band in bands.items() if band]
        far += [max(0.0, 2.0 - problem.d(a, n)) for n in set().union(*bands.values())]
    assert 0 < len(near) < sum(len(problem.positives(a)) for a in range(24))
    assert loss(rows, labels).item() == pytest.approx(math.fsum(near) + math.fsum(far), rel=1e-12)


def hardest(rows: Tensor, triplets: Sequence[tuple[int, int, int]], margin: float) -> Tensor:
    """Of squared distances; amax shares its gradient among those that tie."""
    values = [(rows[a] - rows[p]).square().sum() - (rows[a] - rows[n]).square().sum() for a, p, n in triplets]
    return torch.stack(values).add(margin).relu().amax() if values else rows.sum() * 0


@pytest.mark.parametrize(
    ("positives", "negatives"), [("hard", "hard"), ("all", "all"), ("all", "hard"), ("easy", "hard")]
)
@pytest.mark.parametrize("trim", [0.0, 0.3])
@pytest.mark.parametrize("block_size", sampled([3, 1, None], 2))
def test_the_hardest_triplet_alone(positives: str, negatives: str, trim: float, block_size: int | None) -> None:
    tied = 0
    for seed in range(12):  # on a grid, so that several are the hardest
        rows = torch.randint(3, (9, 2), generator=torch.Generator().manual_seed(seed)).double().requires_grad_()
        labels = torch.arange(9) % 3 if seed else torch.arange(9)
        plain = reference.batch(rows.tolist(), labels.tolist(), "squared_euclidean")
        triplets = reference.triplets(plain, positives, negatives, 1.0)
        hinges = [reference.hinge(plain, triplet, 1.0) for triplet in triplets]
        ranked = sorted(range(len(hinges)), key=hinges.__getitem__)  # of equal ones the last go
        kept = ranked[: max(1, math.ceil(round((1 - trim) * len(ranked), 9)))]
        tied += sum(hinges[i] == max(hinges[j] for j in kept) > 0 for i in kept) > 1
        expected = hardest(rows, [triplets[i] for i in kept], 1.0)
        options = {"positives": positives, "negatives": negatives, "margin": 1.0, "trim": trim}
        loss = trivet.TripletLoss(reduction="max", block_size=block_size, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="a batch must contain two items")
            value = loss(rows, labels)
        assert value.item() == expected.item()
        gradients = (torch.autograd.grad(x, rows)[0] for x in (value, expected))
        torch.testing.assert_close(*gradients, rtol=1e-14, atol=1e-14)
    assert tied


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_hardest_triplet_is_that_of_the_protocol(margin: float) -> None:
    loss = trivet.TripletLoss(
        margin=margin, distance="euclidean", positives="hard", negatives="hard", reduction="max", block_size=5
    )
    for seed in range(8):
        rows = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        labels = torch.arange(20) % (4 + seed)
        ours, theirs = loss(rows, labels), batch_hard_hinges(rows, labels, margin).max()
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-10)  # the root there is smoothed by 1e-12
        gradients = (torch.autograd.grad(x, rows)[0] for x in (ours, theirs))
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)


@pytest.mark.parametrize("block_size", [None, 3])
def test_the_record_is_of_the_whole_batch(block_size: int | None) -> None:
    rows, labels = torch.tensor(reference.V8), torch.tensor([*reference.V8_LABELS[:7], 9])
    records = []
    for reduction in ("mean", "max"):
        loss = trivet.TripletLoss(positives="all", negatives="hard", reduction=reduction, block_size=block_size)
        loss(rows, labels)
        records.append({name: getattr(loss.last, name) for name in RECORDED})
    assert records[0] == records[1]
    assert records[0]["terms"] > 1
    assert records[0]["dropped"]["no positive"] == 1


@pytest.mark.parametrize("strategy", sampled(["hard", "all"], 2))
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's own compiler
def test_the_hardest_triplet_twice_differentiated_and_compiled(strategy: str) -> None:
    rows = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = trivet.TripletLoss(positives=strategy, negatives=strategy, distance="euclidean", reduction="max")
    labels = torch.arange(8) % 3
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (rows,), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x: loss(x, labels), (rows,), fast_mode=True)
    torch._dynamo.reset()
    values = [made(rows, labels) for made in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager"))]
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(value, rows)[0] for value in values), rtol=1e-10, atol=1e-12)


def test_the_hardest_soft_triplet() -> None:
    plain = reference.batch(reference.V8, reference.V8_LABELS, "euclidean")
    triplets = reference.triplets(plain, "all", "all", 0.2)
    terms = [reference.log_one_plus_exp(plain.d(a, p) - plain.d(a, n)) for a, p, n in triplets]
    loss = trivet.TripletLoss(soft=True, positives="all", negatives="all", distance="euclidean", reduction="max")
    assert loss(torch.tensor(reference.V8, dtype=torch.float64), LABELS).item() == pytest.approx(max(terms), rel=1e-12)
