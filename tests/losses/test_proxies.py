"""Losses against learned proxies: what each promises beside its definition, which is tested by brute force."""

from __future__ import annotations

import math

import pytest
import torch
from tests import reference
from tests.every_loss import EVERY_LOSS, PROXIES

import trivet
from trivet.losses.proxies import ProxyLoss
from trivet.samplers import CrossBatchMemory

ROWS, LABELS = 3 * torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)
CENTRES = [[2.0, 0.5], [-1.0, 1.0], [0.3, -0.4], [0.0, 5.0], [-2.0, -2.0], [1.0, -3.0]]


def made(name: str, **options: object) -> ProxyLoss:
    loss = EVERY_LOSS[name](embedding_dim=2, **options).double()
    assert isinstance(loss, ProxyLoss)
    loss.proxies.data = torch.tensor(CENTRES[: len(loss.proxies)], dtype=torch.float64)
    return loss


def test_beyond_the_margin_of_an_angle_it_still_falls_towards_the_centre() -> None:
    angles = torch.linspace(0, math.pi, 50, dtype=torch.float64)
    rows = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=1)
    loss = trivet.ArcFaceLoss(2, 3, margin=0.9, scale=4.0).double()
    loss.proxies.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    values = [loss(row[None], torch.tensor([0])).item() for row in rows]
    assert values == sorted(values)
    assert len(set(values)) == 50


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_at_a_centre_and_opposite_of_it_the_gradient_is_finite(name: str, sign: float) -> None:
    loss = EVERY_LOSS[name]()
    row = (sign * loss.proxies.detach()[:1]).requires_grad_()
    loss(row, torch.tensor([0])).backward()
    assert row.grad is not None
    assert row.grad.isfinite().all()
    assert loss.proxies.grad.isfinite().all()


def test_an_item_pulls_the_nearest_sub_centre_of_its_class_alone() -> None:
    loss = made("arcface", num_classes=3, sub_centers=2, scale=1.0)
    loss(ROWS[:1], torch.tensor([0])).backward()
    assert loss.proxies.grad is not None
    assert loss.proxies.grad.any(dim=1).tolist() == [True, False, True, False, False, True]


def test_an_item_moves_its_own_proxy_and_all_others() -> None:
    loss = made("proxy-anchor")
    loss(ROWS[:1], LABELS[:1]).backward()
    assert loss.proxies.grad is not None
    assert loss.proxies.grad.any(dim=1).all()


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_value_has_the_precision_of_the_embeddings(name: str, dtype: torch.dtype) -> None:
    assert EVERY_LOSS[name](embedding_dim=2)(ROWS.to(dtype), LABELS).dtype == dtype


def test_the_proxies_learn() -> None:
    loss = trivet.ProxyNCALoss(3, 2, generator=torch.Generator().manual_seed(0))
    (group,) = loss.optimizer_groups()
    assert group["params"][0] is loss.proxies
    assert (group["lr"], group["weight_decay"]) == (1e-2, 0.0)
    optimizer = torch.optim.Adam(loss.optimizer_groups())
    directions = torch.tensor([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    for _ in range(300):
        optimizer.zero_grad()
        loss(directions, torch.tensor([2, 0, 1])).backward()
        optimizer.step()
    nearest = torch.cdist(directions, torch.nn.functional.normalize(loss.proxies.detach(), dim=1)).argmin(dim=1)
    assert nearest.tolist() == [2, 0, 1]


def test_initial_proxies_repeat() -> None:
    first, again, other = (
        trivet.ProxyNCALoss(5, 7, generator=torch.Generator().manual_seed(seed)).proxies for seed in (3, 3, 4)
    )
    assert first.shape == (5, 7)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", PROXIES)
def test_what_cannot_be_compared(name: str) -> None:
    loss = made(name)
    assert loss(ROWS, LABELS, ids=torch.zeros(8, dtype=torch.int64)).item() == loss(ROWS, LABELS).item()
    for given in (
        {"references": ROWS, "reference_labels": LABELS},
        {"reference_labels": LABELS},
        {"ids": LABELS, "reference_ids": LABELS},
        {"indices": (LABELS, LABELS, LABELS)},
        {"with_batch": True},
    ):
        with pytest.raises(ValueError, match="references and indices must be left out"):
            loss(ROWS, LABELS, **given)
    with pytest.raises(ValueError, match=f"left out: {type(loss).__name__} compares each item"):
        CrossBatchMemory(size=4, embedding_dim=2)(loss, ROWS, LABELS, torch.arange(8))
    for labels in ([-1, 0], [0, 4]):
        said = rf"labels must lie in \[0, 4\) to have a proxy each: got {labels[0]} to {labels[1]}"
        with pytest.raises(ValueError, match=said):
            loss(ROWS[:2], torch.tensor(labels))
    with pytest.raises(ValueError, match="embeddings must have the dimension of the proxies, 2: got 3"):
        loss(torch.ones(8, 3), LABELS)
    with pytest.raises(ValueError, match=r"embeddings must have shape \(N, d\)"):
        loss(torch.ones(8), LABELS)
