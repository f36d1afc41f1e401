"""The proxy-anchor loss."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from tests import reference

import trivet
from trivet.samplers import CrossBatchMemory

ROWS, LABELS = 3 * torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)
PROXIES = [[2.0, 0.5], [-1.0, 1.0], [0.3, -0.4], [0.0, 5.0]]  # no item is of the last class


def with_proxies(**options: object) -> trivet.ProxyAnchorLoss:
    loss = trivet.ProxyAnchorLoss(4, 2, **options).double()
    loss.proxies.data = torch.tensor(PROXIES, dtype=torch.float64)
    return loss


@pytest.mark.parametrize(("scale", "margin"), [(1.0, 0.0), (32.0, 0.1), (4.0, 0.5)])
@pytest.mark.parametrize("block_size", [None, 1, 3])
def test_equals_the_definition(scale: float, margin: float, block_size: int | None) -> None:
    terms = reference.proxy_anchor(ROWS.tolist(), reference.V8_LABELS, PROXIES, scale, margin)
    options = {"scale": scale, "margin": margin, "block_size": block_size}
    loss = with_proxies(**options)
    assert loss(ROWS, LABELS).item() == pytest.approx(fmean(terms), rel=1e-12)
    assert (loss.last.anchors, loss.last.terms) == (4, 4)
    trimmed = with_proxies(trim=0.25, reduction="sum", **options)
    assert trimmed(ROWS, LABELS).item() == pytest.approx(sum(reference.trimmed(terms, 0.25)), rel=1e-12)


def test_an_item_moves_its_own_proxy_and_all_others() -> None:
    loss = with_proxies()
    loss(ROWS[:1], LABELS[:1]).backward()
    assert loss.proxies.grad is not None
    assert loss.proxies.grad.any(dim=1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_value_has_the_precision_of_the_embeddings(dtype: torch.dtype) -> None:
    assert trivet.ProxyAnchorLoss(4, 2)(ROWS.to(dtype), LABELS).dtype == dtype


def test_what_cannot_be_used() -> None:
    for options, said in [
        ({"scale": 0.0}, "scale must be a finite number above 0"),
        ({"margin": -0.1}, "margin must be a finite number of at least 0"),
    ]:
        with pytest.raises(ValueError, match=said):
            trivet.ProxyAnchorLoss(3, 2, **options)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 4\) to have a proxy each: got 3 to 4"):
        with_proxies()(ROWS[:2], torch.tensor([3, 4]))
    memory = CrossBatchMemory(size=4, embedding_dim=2)
    with pytest.raises(ValueError, match="references and indices must be left out: ProxyAnchorLoss compares each item"):
        memory(with_proxies(), ROWS, LABELS, torch.arange(8))
