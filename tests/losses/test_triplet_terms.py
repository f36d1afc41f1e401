"""The losses on triplets that are a formula of two similarities: NCA, second order, selectively contrastive."""

from __future__ import annotations

import math
from collections.abc import Callable
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
ROWS = torch.tensor(reference.EXTREME_ROWS, dtype=torch.float64)
ROWS[2, 2] += 1e-11  # rows 2 and 6 are equally similar to row 7, and rounding must not decide which is nearer
LABELS = torch.tensor(reference.EXTREME_LABELS)
FORMULAS: list[tuple[Callable[..., trivet.EmbeddingLoss], Callable[[float, float], float]]] = [
    (trivet.NCATripletLoss, reference.nca),
    (trivet.SecondOrderTripletLoss, reference.second_order),
    (lambda **o: trivet.TripletLoss(normalize=True, **o), lambda s_ap, s_an: max(0.0, 2 * s_an - 2 * s_ap + 0.2)),
]


@pytest.mark.parametrize(
    ("miner", "means"),
    [
        ("EPHN", (0.6494009437, 0.6058685711, 0.1878289073)),
        ("EPSHN", (0.5917596354, 0.5659432355, 0.0114356820)),
        ("HPHN", (0.6767914457, 0.6091892854, 0.2177675777)),
        ("EPEN", (0.3934353761, 0.4927647563, 0.0)),
    ],
)
def test_miners(miner: str, means: tuple[float, float, float]) -> None:
    triplets = reference.EXTREME_TRIPLETS[miner]
    options = dict(zip(("positives", "negatives"), NAMED[miner], strict=True))
    mined = trivet.mine(ROWS, LABELS, distance="cosine", **options)
    assert list(zip(*(column.tolist() for column in mined), strict=True)) == triplets
    for (make, formula), mean in zip(FORMULAS, means, strict=True):
        assert fmean(formula(*reference.extreme_similarities(each)) for each in triplets) == pytest.approx(
            mean, abs=1e-10
        )
        for block_size in (None, 3):
            assert make(block_size=block_size, **options)(ROWS, LABELS).item() == pytest.approx(mean, abs=1e-10)


def of_three(loss: trivet.EmbeddingLoss, rows: torch.Tensor) -> torch.Tensor:
    """The loss of an anchor with one positive and one negative."""
    return loss(rows[:1], torch.tensor([0]), references=rows[1:], reference_labels=torch.tensor([0, 1]))


@pytest.mark.parametrize(("s_ap", "s_an", "gamma", "first", "second", "vanilla"), reference.EXTREME_VECTORS)
def test_vectors(s_ap: float, s_an: float, gamma: float, first: float, second: float, vanilla: float) -> None:
    rows = torch.tensor(reference.triplet_of(s_ap, s_an, gamma), dtype=torch.float64)
    for (make, formula), value in zip(FORMULAS, (first, second, max(0.0, vanilla)), strict=True):
        assert formula(s_ap, s_an) == pytest.approx(value, abs=1e-10)
        loss = make(positives="easy", negatives="hard")
        assert of_three(loss, rows).item() == pytest.approx(value, abs=1e-10)


def test_the_margin_is_that_of_the_band() -> None:
    # From row 0, 1 - S is 0.2 to the positive, 0.4 and 2 to the negatives.
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]], dtype=torch.float64)
    band = trivet.SemihardNegative(otherwise="drop")
    references = {"references": rows[1:], "reference_labels": torch.tensor([0, 1, 2])}
    for margin, expected in ((0.1, 0.0), (0.3, pytest.approx(reference.nca(0.8, 0.6)))):
        loss = trivet.NCATripletLoss(negatives=band, margin=margin)
        assert loss(rows[:1], torch.tensor([0]), **references).item() == expected


@pytest.mark.parametrize(
    ("s_ap", "s_an", "expected"),
    [
        (0.9, 0.2, (-0.0383433495, 0.0766866991)),
        (0.3, 0.95, (-0.3842339464, 0.5214603559)),
        (0.7, -0.3, (-0.1196736363, -0.1196736363)),
    ],
)
def test_slopes_of_the_second_order(s_ap: float, s_an: float, expected: tuple[float, float]) -> None:
    # A positive at S e1 + sqrt(1 - S^2) e2 moves with S: the slope is that of the vector along the derivative.
    at = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in (s_ap, s_an)]
    one, nought = torch.ones_like(at[0]), torch.zeros_like(at[0])
    positive = torch.stack([at[0], (1 - at[0] ** 2).sqrt(), nought])
    negative = torch.stack([at[1], nought, (1 - at[1] ** 2).sqrt()])
    value = of_three(
        trivet.SecondOrderTripletLoss(), torch.stack([torch.stack([one, nought, nought]), positive, negative])
    )
    assert [slope.item() for slope in torch.autograd.grad(value, at)] == pytest.approx(expected, abs=1e-10)


def test_the_least_value_of_the_second_order() -> None:
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    value = trivet.SecondOrderTripletLoss()(rows, torch.tensor([0, 0, 1]))
    value.backward()
    assert value.item() == pytest.approx(math.log(1 + math.exp(-1 / 2)))
    assert rows.grad.tolist() == [[0.0, 0.0]] * 3


def test_a_hard_triplet_does_not_move_its_positive() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], dtype=torch.float64, requires_grad=True)
    others = rows[1:].detach().requires_grad_()
    of_three(trivet.SelectivelyContrastiveLoss(), torch.cat([rows[:1].detach(), others])).backward()
    assert others.grad[0].tolist() == [0.0, 0.0]
    # The slope of S_an = x / |x|: (1, 0) less its part along the row.
    assert others.grad[1].tolist() == pytest.approx([1 - 0.8 * 0.8, -0.8 * 0.6])


def test_equally_similar_is_not_hard() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    value = of_three(trivet.SelectivelyContrastiveLoss(), rows)
    assert value.item() == pytest.approx(reference.log_one_plus_exp(0.0))
