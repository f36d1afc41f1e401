"""ArcFace and CosFace, with and without sub-centres."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

import pytest
import torch
from tests import reference

import trivet
from trivet.losses.proxies import ProxyLoss

ROWS, LABELS = 3 * torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)
CENTRES = [[2.0, 0.5], [-1.0, 1.0], [0.3, -0.4], [0.0, 5.0], [-2.0, -2.0], [1.0, -3.0]]
MARGINS: dict[str, tuple[type[ProxyLoss], Callable[[float, float], float]]] = {
    "ArcFace": (trivet.ArcFaceLoss, reference.arcface_margin),
    "CosFace": (trivet.CosFaceLoss, lambda similarity, margin: similarity - margin),
}


def with_centres(name: str, sub_centers: int, **options: object) -> ProxyLoss:
    loss = MARGINS[name][0](6 // sub_centers, 2, sub_centers=sub_centers, **options).double()
    loss.proxies.data = torch.tensor(CENTRES, dtype=torch.float64)
    return loss


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("sub_centers", [1, 2])
@pytest.mark.parametrize(("margin", "scale"), [(0.0, 1.0), (0.5, 64.0), (1.2, 3.0)])
@pytest.mark.parametrize("block_size", [None, 3])
def test_equals_the_definition(
    name: str, sub_centers: int, margin: float, scale: float, block_size: int | None
) -> None:
    terms = [
        reference.margin_softmax(row, label, CENTRES, sub_centers, scale, lambda s: MARGINS[name][1](s, margin))
        for row, label in zip(ROWS.tolist(), reference.V8_LABELS, strict=True)
    ]
    loss = with_centres(name, sub_centers, margin=margin, scale=scale, block_size=block_size)
    assert loss(ROWS, LABELS).item() == pytest.approx(fmean(terms), rel=1e-11)
    assert loss.last.terms == 8


def test_beyond_the_margin_of_an_angle_it_still_falls_towards_the_centre() -> None:
    angles = torch.linspace(0, math.pi, 50, dtype=torch.float64)
    rows = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=1)
    loss = trivet.ArcFaceLoss(2, 3, margin=0.9, scale=4.0).double()
    loss.proxies.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    values = [loss(row[None], torch.tensor([0])).item() for row in rows]
    assert values == sorted(values)
    assert len(set(values)) == 50


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_at_a_centre_and_opposite_of_it_the_gradient_is_finite(name: str, sign: float) -> None:
    loss = MARGINS[name][0](2, 3)
    loss.proxies.data = torch.eye(3)[:2]
    row = (sign * torch.eye(3)[:1]).requires_grad_()
    loss(row, torch.tensor([0])).backward()
    assert row.grad is not None
    assert row.grad.isfinite().all()
    assert loss.proxies.grad.isfinite().all()


def test_an_item_pulls_the_nearest_sub_centre_of_its_class_alone() -> None:
    loss = with_centres("ArcFace", 2, scale=1.0)
    loss(ROWS[:1], torch.tensor([0])).backward()
    assert loss.proxies.grad is not None
    assert loss.proxies.grad.any(dim=1).tolist() == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"margin": 28.6}, r"margin must lie in \[0, pi / 2\], an angle in radians: got 28\.6"),
        ({"scale": 0.0}, "scale must be a finite number above 0"),
        ({"sub_centers": 0}, "sub_centers must be a whole number of at least 1"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        trivet.ArcFaceLoss(3, 2, **options)
