"""The second-order triplet loss."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch
from tests import reference

import trivet

NAMED = {
    "EPHN": ("easy", "hard"),
    "EPSHN": ("easy", "semihard-hardest"),
    "HPHN": ("hard", "hard"),
    "EPEN": ("easy", "easy"),
}


@pytest.mark.parametrize(
    ("miner", "mean", "hinged"),
    [
        ("EPHN", 0.6058685711, 0.1878289073),
        ("EPSHN", 0.5659432355, 0.0114356820),
        ("HPHN", 0.6091892854, 0.2177675777),
        ("EPEN", 0.4927647563, 0.0),
    ],
)
def test_miners(miner: str, mean: float, hinged: float) -> None:
    pairs = [reference.extreme_similarities(triplet) for triplet in reference.EXTREME_TRIPLETS[miner]]
    assert fmean(reference.second_order(*pair) for pair in pairs) == pytest.approx(mean, abs=1e-10)
    assert fmean(max(0.0, 2 * s_an - 2 * s_ap + 0.2) for s_ap, s_an in pairs) == pytest.approx(hinged, abs=1e-10)
    rows = torch.tensor(reference.EXTREME_ROWS, dtype=torch.float64)
    rows[2, 2] += 1e-11  # rows 2 and 6 are equally similar to row 7, and rounding must not decide which is nearer
    labels = torch.tensor(reference.EXTREME_LABELS)
    options = dict(zip(("positives", "negatives"), NAMED[miner], strict=True))
    for block_size in (None, 3):
        loss = trivet.SecondOrderTripletLoss(block_size=block_size, **options)
        assert loss(rows, labels).item() == pytest.approx(mean, abs=1e-10)
        vanilla = trivet.TripletLoss(normalize=True, block_size=block_size, **options)
        assert vanilla(rows, labels).item() == pytest.approx(hinged, abs=1e-10)


@pytest.mark.parametrize(("s_ap", "s_an", "gamma", "first", "second", "vanilla"), reference.EXTREME_VECTORS)
def test_vectors(s_ap: float, s_an: float, gamma: float, first: float, second: float, vanilla: float) -> None:
    rows = torch.tensor(reference.triplet_of(s_ap, s_an, gamma), dtype=torch.float64)
    assert reference.second_order(s_ap, s_an) == pytest.approx(second, abs=1e-10)
    value = trivet.SecondOrderTripletLoss()(
        rows[:1], torch.tensor([0]), references=rows[1:], reference_labels=torch.tensor([0, 1])
    )
    assert value.item() == pytest.approx(second, abs=1e-10)


@pytest.mark.parametrize(
    ("s_ap", "s_an", "expected"),
    [
        (0.9, 0.2, (-0.0383433495, 0.0766866991)),
        (0.3, 0.95, (-0.3842339464, 0.5214603559)),
        (0.7, -0.3, (-0.1196736363, -0.1196736363)),
    ],
)
def test_slopes(s_ap: float, s_an: float, expected: tuple[float, float]) -> None:
    # A positive at S e1 + sqrt(1 - S^2) e2 moves with S: the slope is that of the vector along the derivative.
    def value(s_ap: torch.Tensor, s_an: torch.Tensor) -> torch.Tensor:
        positive = torch.stack([s_ap, (1 - s_ap**2).sqrt(), 0 * s_ap])
        negative = torch.stack([s_an, 0 * s_an, (1 - s_an**2).sqrt()])
        anchor = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
        others = {"references": torch.stack([positive, negative]), "reference_labels": torch.tensor([0, 1])}
        return trivet.SecondOrderTripletLoss()(anchor, torch.tensor([0]), **others)

    at = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in (s_ap, s_an)]
    assert [slope.item() for slope in torch.autograd.grad(value(*at), at)] == pytest.approx(expected, abs=1e-10)


def test_the_least_value() -> None:
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    value = trivet.SecondOrderTripletLoss()(rows, torch.tensor([0, 0, 1]))
    value.backward()
    assert value.item() == pytest.approx(0.4740769842, abs=1e-10)
    assert value.item() == pytest.approx(math.log(1 + math.exp(-1 / 2)))
    assert rows.grad.tolist() == [[0.0, 0.0]] * 3
