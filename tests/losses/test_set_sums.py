"""Sums over sets of negatives equal the same sums term by term, whatever is computed at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

import pytest
import torch
from tests import reference
from torch import Tensor

from trivet.losses import selectively_contrastive, set_sums

Parts = tuple[float, list[list[float]], list[list[float]]]  # a sum, and its derivatives by thresholds and by distances


def added_up(
    thresholds: Tensor, distances: Tensor, term: Callable[[float, float], tuple[float, float, float]]
) -> Parts:
    """The sum of the values of `term`, which gives its two derivatives too, in plain Python."""
    total, of_thresholds = [], [[0.0] * thresholds.shape[1] for _ in thresholds]
    of_distances = [[0.0] * distances.shape[1] for _ in distances]
    for b, (limits, row) in enumerate(zip(thresholds.tolist(), distances.tolist(), strict=True)):
        for s, t in enumerate(limits):
            for m, x in enumerate(row):
                if t == -math.inf or x == math.inf:
                    continue
                value, by_t, by_x = term(t, x)
                total.append(value)
                of_thresholds[b][s] += by_t
                of_distances[b][m] += by_x
    return math.fsum(total), of_thresholds, of_distances


def hinge(t: float, x: float) -> tuple[float, float, float]:
    return max(0.0, t - x), float(t > x), -float(t > x)


def softplus(t: float, x: float) -> tuple[float, float, float]:
    slope = 1 / (1 + math.exp(min(700.0, x - t)))
    return reference.log_one_plus_exp(t - x), slope, -slope


def selective(t: float, x: float) -> tuple[float, float, float]:
    if x < t:
        return 0.5 * (1 - x), 0.0, -0.5
    value, slope, _ = softplus(t / 0.1, x / 0.1)
    return value, slope / 0.1, -slope / 0.1


SUMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[float, float], tuple[float, float, float]]]] = {
    "hinge": (lambda t, x: set_sums.hinge_sum(t, x)[0], hinge),
    "softplus": (set_sums.softplus_sum, softplus),
    "selective": (lambda t, x: selectively_contrastive._SelectiveSum.apply(t, x, 0.5, 0.1), selective),
}


def numbers(slots: int, spread: float) -> tuple[Tensor, Tensor]:
    """Seven rows: with ties, an empty slot, no slot at all, an entry that does not count, and none that does."""
    generator = torch.Generator().manual_seed(slots)
    thresholds = spread * torch.rand(7, slots, generator=generator, dtype=torch.float64)
    distances = spread * torch.rand(7, 9, generator=generator, dtype=torch.float64)
    distances[:, 0] = thresholds[:, 0]
    distances[:, 1] = distances[:, 2]
    thresholds[1, -1] = -torch.inf
    thresholds[2] = -torch.inf
    distances[3, 3:5] = torch.inf
    distances[4] = torch.inf
    distances[5] = 0.0
    return thresholds, distances


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("slots", [1, 3, 66])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 3000.0])
@pytest.mark.parametrize("at_once", [2**17, 20])
def test_equal_their_terms(name: str, slots: int, spread: float, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (set_sums, selectively_contrastive):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    monkeypatch.setattr(set_sums, "MOST_COUNTED", 64 if at_once > 20 else 100)
    function, term = SUMS[name]
    thresholds, distances = numbers(slots, spread)
    total, of_thresholds, of_distances = added_up(thresholds, distances, term)
    leaves = thresholds.requires_grad_(), distances.requires_grad_()
    value = function(*leaves)
    assert value.item() == pytest.approx(total, rel=1e-12, abs=1e-300)
    found = torch.autograd.grad(value, leaves)
    for gradient, expected in zip(found, (of_thresholds, of_distances), strict=True):
        assert gradient.flatten().tolist() == pytest.approx(list(chain(*expected)), rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("name", ["softplus", "selective"])
def test_second_derivatives(name: str) -> None:
    thresholds, distances = (x[[0, 1, 3]] for x in numbers(3, 1.0))
    distances = distances[:, 1:] + 0.01  # no ties with a threshold
    chosen = thresholds > -torch.inf
    leaves = thresholds.where(chosen, 0).requires_grad_(), distances.where(distances < torch.inf, 0).requires_grad_()
    hidden = distances.isinf()

    def value(t: Tensor, x: Tensor) -> Tensor:
        return SUMS[name][0](t.where(chosen, -torch.inf), x.masked_fill(hidden, torch.inf))

    assert torch.autograd.gradgradcheck(value, leaves)


def test_a_product_of_factors_keeps_small_ones() -> None:
    """In float32: terms of 1e-9 beside none that is larger."""
    thresholds, distances = torch.zeros(40, 3), torch.full((40, 2000), 20.0)
    assert thresholds.shape[1] * distances.numel() > set_sums.AT_ONCE
    expected = thresholds.shape[1] * distances.numel() * math.log1p(math.exp(-20))
    assert set_sums.softplus_sum(thresholds, distances).item() == pytest.approx(expected, rel=1e-5)


def test_a_product_of_many_factors_is_finite() -> None:
    """In float32: 300 factors of 2."""
    points = torch.ones(1, 300), torch.ones(1, 500)
    value = SUMS["selective"][0](*points)
    assert value.item() == pytest.approx(300 * 500 * math.log(2), rel=1e-5)
