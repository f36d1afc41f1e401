"""Gradients of squared distances within a set, taken in whatever the order of memory of their gradient is."""

from __future__ import annotations

import pytest
import torch

from trivet.distances.pairwise import ProductGradients, Products


@pytest.mark.parametrize(
    "grad",
    [
        pytest.param(torch.arange(9.0).reshape(3, 3), id="by rows"),
        pytest.param(torch.arange(9.0).reshape(3, 3).T, id="by columns"),
        pytest.param(torch.ones(1, 1).expand(3, 3), id="one number"),
        pytest.param(torch.ones(1).as_strided((1, 1), (0, 0)), id="a single row"),
    ],
)
def test_any_order_of_memory(grad: torch.Tensor) -> None:
    count, before = len(grad), grad.clone()
    rows = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    gradients = ProductGradients(Products(rows, rows), learned=count)
    gradients.add(grad, 0, count)
    sums = torch.zeros(count, 2)
    gradients.add_to(sums, sums)
    for i in range(count):
        expected = sum((2 * (before[i, j] + before[j, i]) * (rows[i] - rows[j]) for j in range(count)), torch.zeros(2))
        torch.testing.assert_close(sums[i], expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(grad, before)
