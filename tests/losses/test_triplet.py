"""The soft margin of the triplet loss; its hinge is tested with the engine."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch
from pytorch_metric_learning.losses import TripletMarginLoss

import reference
import trivet

LABELS = torch.tensor(reference.V8_LABELS)


@pytest.mark.parametrize("kind", ["squared_euclidean", "euclidean", "cosine"])
@pytest.mark.parametrize(
    ("positives", "negatives"), [("easy", "hard"), ("all", "all"), ("hard", "semihard-hardest"), ("easy", "all")]
)
@pytest.mark.parametrize("variant", ["an", "pn"])
@pytest.mark.parametrize("block_size", [None, 1, 3])
def test_soft_margin(kind: str, positives: str, negatives: str, variant: str, block_size: int | None) -> None:
    plain = reference.batch(reference.V8, reference.V8_LABELS, kind)
    terms = []
    for a, p, n in reference.triplets(plain, positives, negatives, 0.2):
        far = plain.d(a, n) if variant == "an" else plain.d(p, n)
        terms.append(reference.log_one_plus_exp(plain.d(a, p) - far))
    options = {"positives": positives, "negatives": negatives, "distance": kind, "variant": variant}
    loss = trivet.TripletLoss(soft=True, block_size=block_size, **options)
    rows = torch.tensor(reference.V8, dtype=torch.float64)
    assert loss(rows, LABELS).item() == pytest.approx(fmean(terms), rel=1e-12)
    assert loss.last.terms == len(terms)
    assert loss.last.active_fraction == 1
    trimmed = trivet.TripletLoss(soft=True, block_size=block_size, trim=0.25, **options)
    assert trimmed(rows, LABELS).item() == pytest.approx(fmean(reference.trimmed(terms, 0.25)), rel=1e-12)


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


def test_equals_the_smooth_loss_of_pytorch_metric_learning() -> None:
    embeddings = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 5
    theirs = TripletMarginLoss(margin=0, smooth_loss=True)(embeddings, labels)
    ours = trivet.TripletLoss(soft=True, positives="all", negatives="all", distance="euclidean", normalize=True)
    assert ours(embeddings, labels).item() == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("reduction", ["mean-active", "objective"])
def test_a_reduction_that_means_nothing(reduction: str) -> None:
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'sum' with soft = True"):
        trivet.TripletLoss(soft=True, positives="all", negatives="all", reduction=reduction)
