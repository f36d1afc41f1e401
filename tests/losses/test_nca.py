"""The NCA triplet loss."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import TripletMarginLoss
from tests import reference

import trivet

NAMED = {
    "EPHN": ("easy", "hard"),
    "EPSHN": ("easy", "semihard-hardest"),
    "HPHN": ("hard", "hard"),
    "EPEN": ("easy", "easy"),
}
ROWS = torch.tensor(reference.EXTREME_ROWS, dtype=torch.float64)
ROWS[2, 2] += 1e-11  # rows 2 and 6 are equally similar to row 7, and rounding must not decide which is nearer
LABELS = torch.tensor(reference.EXTREME_LABELS)


@pytest.mark.parametrize(
    ("miner", "mean", "total"),
    [
        ("EPHN", 0.6494009437, 5.1952075493),
        ("EPSHN", 0.5917596354, 4.7340770836),
        ("HPHN", 0.6767914457, 5.4143315660),
        ("EPEN", 0.3934353761, 3.1474830088),
    ],
)
def test_miners(miner: str, mean: float, total: float) -> None:
    expected = reference.EXTREME_TRIPLETS[miner]
    terms = [reference.nca(*reference.extreme_similarities(triplet)) for triplet in expected]
    assert fmean(terms) == pytest.approx(mean, abs=1e-10)
    assert sum(terms) == pytest.approx(total, abs=1e-9)
    options = dict(zip(("positives", "negatives"), NAMED[miner], strict=True))
    mined = trivet.mine(ROWS, LABELS, distance="cosine", **options)
    assert list(zip(*(column.tolist() for column in mined), strict=True)) == expected
    for block_size in (None, 3):
        loss = trivet.NCATripletLoss(block_size=block_size, **options)
        assert loss(ROWS, LABELS).item() == pytest.approx(mean, abs=1e-10)
        summed = trivet.NCATripletLoss(block_size=block_size, reduction="sum", **options)
        assert summed(ROWS, LABELS).item() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize(("s_ap", "s_an", "gamma", "first", "second", "vanilla"), reference.EXTREME_VECTORS)
def test_vectors(s_ap: float, s_an: float, gamma: float, first: float, second: float, vanilla: float) -> None:
    rows = torch.tensor(reference.triplet_of(s_ap, s_an, gamma), dtype=torch.float64)
    others = {"references": rows[1:], "reference_labels": torch.tensor([0, 1])}
    assert reference.nca(s_ap, s_an) == pytest.approx(first, abs=1e-10)
    assert trivet.NCATripletLoss()(rows[:1], torch.tensor([0]), **others).item() == pytest.approx(first, abs=1e-10)
    hinged = trivet.TripletLoss(positives="easy", negatives="hard", normalize=True)(
        rows[:1], torch.tensor([0]), **others
    )
    assert hinged.item() == pytest.approx(max(0.0, vanilla), abs=1e-10)


def test_the_margin_is_that_of_the_band() -> None:
    # From row 0, 1 - S is 0.2 to the positive, 0.4 and 2 to the negatives.
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]], dtype=torch.float64)
    band = trivet.SemihardNegative(otherwise="drop")
    losses = {margin: trivet.NCATripletLoss(negatives=band, margin=margin) for margin in (0.1, 0.3)}
    references = {"references": rows[1:], "reference_labels": torch.tensor([0, 1, 2])}
    values = {margin: loss(rows[:1], torch.tensor([0]), **references).item() for margin, loss in losses.items()}
    assert values == {0.1: 0.0, 0.3: pytest.approx(reference.nca(0.8, 0.6))}


def test_equals_the_smooth_loss_of_pytorch_metric_learning() -> None:
    embeddings = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 5
    theirs = TripletMarginLoss(margin=0, smooth_loss=True, distance=CosineSimilarity())(embeddings, labels)
    ours = trivet.NCATripletLoss(positives="all", negatives="all")(embeddings, labels)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_that_cannot_be_used(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be a finite number above 0"):
        trivet.NCATripletLoss(temperature=temperature)


def test_there_are_no_inactive_terms_to_leave_out() -> None:
    with pytest.raises(ValueError, match="Allowed: mean, sum"):
        trivet.NCATripletLoss(reduction="mean-active")
