"""The circle loss."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch
from tests import reference

import trivet

ROWS, LABELS = 3 * torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)
PLAIN = reference.batch(reference.V8, reference.V8_LABELS, "cosine")


@pytest.mark.parametrize("positives", ["all", "easy"])
@pytest.mark.parametrize(("margin", "scale"), [(0.4, 80.0), (0.25, 64.0), (0.0, 1.0), (1.0, 3.0)])
@pytest.mark.parametrize("block_size", [None, 3])
def test_equals_the_definition(positives: str, margin: float, scale: float, block_size: int | None) -> None:
    chosen = [reference.chosen_positives(PLAIN, a, positives) for a in range(8)]
    terms = [reference.circle(PLAIN, a, chosen[a], PLAIN.negatives(a), margin, scale) for a in range(8) if chosen[a]]
    loss = trivet.CircleLoss(margin=margin, scale=scale, positives=positives, block_size=block_size)
    assert loss(ROWS, LABELS).item() == pytest.approx(fmean(terms), rel=1e-10)
    assert (loss.last.terms, loss.last.dropped["no positive"]) == (7, 1)


def test_the_gradient_takes_the_weights_as_constants() -> None:
    """As in section 3.4 of the paper: of one pair each the slopes are Z scale (S_n + m) and -Z scale (1 + m - S_p)."""
    m, scale = 0.3, 4.0
    similar, other = 0.8, 0.6
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, -0.8]], dtype=torch.float64)
    references = rows[1:].clone().requires_grad_()
    loss = trivet.CircleLoss(margin=m, scale=scale)
    loss(rows[:1], LABELS[:1], references=references, reference_labels=torch.tensor([0, 1])).backward()
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


def test_options_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="margin must be a finite number of at least 0"):
        trivet.CircleLoss(margin=-0.1)
    with pytest.raises(ValueError, match="scale must be a finite number above 0"):
        trivet.CircleLoss(scale=0.0)
