"""The selectively contrastive triplet loss."""

from __future__ import annotations

import pytest
import torch
from tests import reference

import trivet

LABELS = torch.tensor(reference.V8_LABELS)


def test_a_hard_triplet_does_not_move_its_positive() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], dtype=torch.float64)
    positive, negative = (row[None].clone().requires_grad_() for row in rows[1:])
    trivet.SelectivelyContrastiveLoss()(
        rows[:1], torch.tensor([0]), references=torch.cat([positive, negative]), reference_labels=torch.tensor([0, 1])
    ).backward()
    assert positive.grad.tolist() == [[0.0, 0.0]]
    # The slope of S_an = x / |x|: (1, 0) less its part along the row.
    assert negative.grad.tolist() == [pytest.approx([1 - 0.8 * 0.8, -0.8 * 0.6])]


def test_equally_similar_is_not_hard() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    references = {"references": rows[1:], "reference_labels": torch.tensor([0, 1])}
    value = trivet.SelectivelyContrastiveLoss()(rows[:1], torch.tensor([0]), **references)
    assert value.item() == pytest.approx(reference.log_one_plus_exp(0.0))


def test_options_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="hard_weight must be a finite number of at least 0: got -1"):
        trivet.SelectivelyContrastiveLoss(hard_weight=-1.0)
    with pytest.raises(ValueError, match="temperature must be a finite number above 0: got 0"):
        trivet.SelectivelyContrastiveLoss(temperature=0.0)
