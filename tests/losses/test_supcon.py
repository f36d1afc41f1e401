"""The supervised contrastive loss."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch
from tests import reference

import trivet

ROWS, LABELS = 3 * torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)


def test_both_directions_of_two_sets() -> None:
    """The symmetric cross-entropy of a matrix of similarities, row i belonging to column i, in plain Python."""
    first, second = ROWS[:4], ROWS[4:]
    scores = [[5 * sum(x * y for x, y in zip(a, b, strict=True)) for b in reference.V8[4:]] for a in reference.V8[:4]]
    columns = [list(column) for column in zip(*scores, strict=True)]
    terms = [math.log(sum(map(math.exp, row))) - row[i] for part in (scores, columns) for i, row in enumerate(part)]
    loss, labels = trivet.SupConLoss(temperature=0.2), torch.arange(4)
    there = loss(first, labels, references=second, reference_labels=labels)
    back = loss(second, labels, references=first, reference_labels=labels)
    assert ((there + back) / 2).item() == pytest.approx(fmean(terms), rel=1e-11)


def test_it_is_n_pair_of_unit_rows_with_one_positive_each_and_at_least_log_k_with_k() -> None:
    pairs = torch.arange(8) % 4
    n_pair = trivet.NPairLoss(temperature=0.3, normalize=True, positives="all")
    torch.testing.assert_close(trivet.SupConLoss(temperature=0.3)(ROWS, pairs), n_pair(ROWS, pairs))
    solved = torch.eye(2, dtype=torch.float64).repeat_interleave(4, dim=0)
    value = trivet.SupConLoss(temperature=0.01)(solved, torch.arange(8) // 4)
    assert value.item() == pytest.approx(math.log(3), rel=1e-12)
