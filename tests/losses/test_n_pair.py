"""The multi-class N-pair loss."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from tests import reference

import trivet
from trivet.samplers import CrossBatchMemory

LABELS = torch.tensor(reference.V8_LABELS)
SCALED = [[(1 + 0.3 * i) * x for x in row] for i, row in enumerate(reference.V8)]  # rows of different lengths


def test_index_pairs() -> None:
    plain = reference.batch(SCALED, reference.V8_LABELS, "squared_euclidean")
    rows = torch.tensor(SCALED, dtype=torch.float64)
    anchors, positives = torch.tensor([0, 0, 4]), torch.tensor([1, 6, 2])
    others, negatives = torch.tensor([0, 4, 0]), torch.tensor([5, 3, 7])
    terms = [reference.n_pair(plain, *case) for case in ((0, 1, [5, 7]), (0, 6, [5, 7]), (4, 2, [3]))]
    found = trivet.NPairLoss()(rows, LABELS, indices=(anchors, positives, others, negatives))
    assert found.item() == pytest.approx(fmean(terms), rel=1e-11)
    with pytest.raises(ValueError, match="indices must be pairs, 4 tensors"):
        trivet.NPairLoss()(rows, LABELS, indices=(anchors, positives, torch.tensor([5, 7, 3])))


def test_long_rows_do_not_overflow() -> None:
    rows = torch.tensor([[100.0, 0.0], [0.0, 100.0], [100.0, 1.0]], requires_grad=True)
    value = trivet.NPairLoss(reduction="sum")(rows, torch.tensor([0, 0, 1]))
    value.backward()
    assert value.item() == pytest.approx(10000.0 + 100.0)
    assert torch.isfinite(rows.grad).all()


def test_penalty_on_the_norms() -> None:
    embeddings = torch.tensor(SCALED, dtype=torch.float64)
    mean_square = sum(x * x for row in SCALED for x in row) / 8
    for normalize in (False, True):
        options = {"positives": "easy", "normalize": normalize}
        plain, penalised = (trivet.NPairLoss(l2_weight=weight, **options) for weight in (0.0, 0.02))
        difference = penalised(embeddings, LABELS) - plain(embeddings, LABELS)
        assert difference.item() == pytest.approx(0.02 * mean_square)
    leaf = embeddings.to(torch.float16).requires_grad_()
    value = trivet.NPairLoss(l2_weight=1.0)(leaf, torch.arange(8))
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(mean_square, rel=1e-3)
    assert torch.allclose(leaf.grad, leaf.detach() / 4, rtol=1e-2)


def test_the_penalty_is_of_the_references_too_and_of_each_item_once() -> None:
    """The batch of the paper is a pair of each class, anchors and positives; both are kept short."""
    rows = torch.tensor(SCALED, dtype=torch.float64).requires_grad_()
    labels = torch.arange(4)
    loss = trivet.NPairLoss(l2_weight=0.5, temperature=1e6)  # the terms have no slope
    loss(rows[:4], labels, references=rows[4:], reference_labels=labels).backward()
    assert torch.allclose(rows.grad, 0.5 * 2 * rows.detach() / 8, atol=1e-5)
    mean = 0.5 * rows.detach().square().sum(dim=1)
    plain = trivet.NPairLoss(temperature=1e6)
    for ids, expected in (([4, 5, 6, 7], mean.sum() / 8), ([0, 5, 6, 7], (mean.sum() - mean[4]) / 7)):
        given = {"references": rows[4:], "reference_labels": labels, "reference_ids": torch.tensor(ids)}
        given |= {"ids": torch.arange(4)}
        found = loss(rows[:4], labels, **given) - plain(rows[:4], labels, **given)
        assert found.item() == pytest.approx(expected.item())
    found = loss(rows, labels.repeat(2), references=rows, reference_labels=labels.repeat(2))
    assert (found - plain(rows, labels.repeat(2))).item() == pytest.approx(mean.sum().item() / 8)


def test_rows_of_a_memory_are_not_penalised() -> None:
    rows, labels = torch.tensor(SCALED, dtype=torch.float64), torch.arange(8) % 4
    memory = CrossBatchMemory(size=8, embedding_dim=2).double()
    memory.add(rows, labels, torch.arange(8, 16))
    values = [
        memory.eval()(trivet.NPairLoss(l2_weight=w, positives="easy"), rows, labels, torch.arange(8))
        for w in (0.0, 0.5)
    ]
    assert (values[1] - values[0]).item() == pytest.approx(0.5 * rows.square().sum().item() / 8)
