"""The circle loss."""

from __future__ import annotations

import math

import torch

import trivet


def test_the_gradient_takes_the_weights_as_constants() -> None:
    """As in section 3.4 of the paper: of one pair each the slopes are Z scale (S_n + m) and -Z scale (1 + m - S_p)."""
    m, scale = 0.3, 4.0
    similar, other = 0.8, 0.6
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, -0.8]], dtype=torch.float64)
    references = rows[1:].clone().requires_grad_()
    loss = trivet.CircleLoss(margin=m, scale=scale)
    loss(rows[:1], torch.tensor([0]), references=references, reference_labels=torch.tensor([0, 1])).backward()
    exponent = scale * ((other**2 - m**2) + (1 - similar) ** 2 - m**2)
    z = 1 / (1 + math.exp(-exponent))
    # S changes with a row of length 1 by the part of the anchor that is orthogonal to it.
    expected = [
        slope * (rows[0] - s * row)
        for slope, s, row in zip(
            (-z * scale * (1 + m - similar), z * scale * (other + m)), (similar, other), rows[1:], strict=True
        )
    ]
    torch.testing.assert_close(references.grad, torch.stack(expected), rtol=1e-9, atol=1e-12)
