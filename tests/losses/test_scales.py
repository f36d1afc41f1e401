"""Rows of any size give right values or are named, and what is no batch of numbers is refused in one sentence."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests import reference
from tests.every_loss import EVERY_LOSS, make
from torch import Tensor

from trivet import ContrastiveLoss, EmbeddingLoss, NPairLoss, ProxyNCALoss, TripletLoss, mine
from trivet.distances import unit_rows
from trivet.losses import LOSSES
from trivet.metrics import recall_at_k
from trivet.samplers import CrossBatchMemory

LABELS = torch.arange(8) % 4
ROWS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
SCALES = [2.0**-100, 2.0**-73, 2.0**-40, 2.0**40, 2.0**60]  # 8e-31 to 1e18


def normalising(name: str) -> EmbeddingLoss:
    options = {"normalize": True} if "normalize" in inspect.signature(LOSSES[name]).parameters else {}
    return make(name, **options, generator=torch.Generator().manual_seed(0))


def outcome(loss: EmbeddingLoss, embeddings: Tensor) -> tuple[float, Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, LABELS)
    value.backward()
    assert leaf.grad is not None
    return value.item(), leaf.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_unit_rows_are_those_of_plain_python(dtype: torch.dtype) -> None:
    for scale in (1e-30, 1e-22, 1e-8, 1e-3, 1.0, 1e3, 1e18, 3e37):
        rows = (ROWS.double() * scale).to(dtype)
        if not rows.isfinite().all() or (rows == 0).any():  # beyond the dtype
            continue
        expected = torch.tensor([reference.unit(row) for row in rows.double().tolist()], dtype=torch.float64)
        assert (unit_rows(rows).double() - expected).abs().max() <= 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_the_size_of_rows_changes_nothing_for_a_loss_that_normalises(name: str) -> None:
    value, gradient = outcome(normalising(name), ROWS)
    for scale in SCALES:
        again, other = outcome(normalising(name), ROWS * scale)
        assert again == value, scale
        assert torch.equal(other * scale, gradient), scale


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1.0, 1e10])
def test_a_triplet_of_rows_as_given(scale: float) -> None:
    rows = (ROWS * scale).double().tolist()
    problem = reference.batch(rows, LABELS.tolist(), "squared_euclidean")
    terms = [reference.hinge(problem, each, 0.2) for each in reference.triplets(problem, "all", "all", 0.2)]
    found = TripletLoss(positives="all", negatives="all")(ROWS * scale, LABELS).item()
    assert found == pytest.approx(math.fsum(terms) / len(terms), rel=1e-5)


@pytest.mark.parametrize("loss", [TripletLoss(), ContrastiveLoss(margin=1.0), NPairLoss()])
def test_rows_whose_squares_do_not_add_up_are_named(loss: EmbeddingLoss) -> None:
    rows = ROWS.clone()
    rows[[2, 5]] *= 1e18
    with pytest.raises(ValueError, match=r"rows 2, 5 hold numbers too large to square \(2 of 8\)"):
        loss(rows, LABELS)


def test_proxies_of_one_dimension_have_no_gradient() -> None:
    loss = ProxyNCALoss(4, 1, generator=torch.Generator().manual_seed(0))
    loss.proxies.data *= 1e-3
    loss(ROWS[:, :1] * 1e-3, LABELS).backward()
    assert loss.proxies.grad is not None
    assert torch.equal(loss.proxies.grad, torch.zeros(4, 1))


NO_EMBEDDINGS: dict[str, Any] = {
    "a list": ROWS.tolist(),
    "numpy": ROWS.numpy(),
    "nothing": None,
    "sparse": ROWS.to_sparse(),
    "complex": ROWS.to(torch.complex64),
    "integers": torch.ones(8, 3, dtype=torch.int64),
    "nested": torch.nested.nested_tensor([ROWS[0], ROWS[1]], layout=torch.jagged),
    "meta": ROWS.to("meta"),
}
NO_LABELS: dict[str, Any] = {
    "a list": LABELS.tolist(),
    "numpy": LABELS.numpy(),
    "nothing": None,
    "complex": LABELS.to(torch.complex64),
    "floats": LABELS.float(),
    "sparse": LABELS.to_sparse(),
    "two dimensions": LABELS[:, None],
    "meta": LABELS.to("meta"),
}
TAKERS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: make(name) for name in EVERY_LOSS},
    "references": lambda rows, labels: TripletLoss()(ROWS, LABELS, references=rows, reference_labels=labels),
    "mine": mine,
    "memory": lambda rows, labels: CrossBatchMemory(size=9, embedding_dim=3).add(rows, labels, torch.arange(8)),
    "memory and loss": lambda rows, labels: CrossBatchMemory(size=9, embedding_dim=3)(
        TripletLoss(), rows, labels, torch.arange(8)
    ),
}


def refusal(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^\w*{name} must [^\n]+$|^references and reference_labels must [^\n]+$"):
        call()


@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_no_batch_is_refused_in_one_sentence(taker: str) -> None:
    for rows in NO_EMBEDDINGS.values():
        refusal(lambda rows=rows: TAKERS[taker](rows, LABELS), "embeddings|references")
    for labels in NO_LABELS.values():
        refusal(lambda labels=labels: TAKERS[taker](ROWS, labels), "labels|reference_labels")


def test_what_is_no_id_is_refused_in_one_sentence() -> None:
    for ids in NO_LABELS.values():
        if ids is not None:
            refusal(lambda ids=ids: TripletLoss()(ROWS, LABELS, ids=ids), "ids")


def test_measures_take_arrays_of_numpy_and_dense_tensors() -> None:
    for name, rows in NO_EMBEDDINGS.items():
        if name == "numpy":
            continue
        refusal(lambda rows=rows: recall_at_k(rows, LABELS, (1,)), "embeddings")
    for name in ("complex", "floats", "sparse", "meta"):
        refusal(lambda name=name: recall_at_k(np.asarray(ROWS), NO_LABELS[name], (1,)), "labels")


def test_rows_of_one_item_are_never_compared_whatever_their_labels() -> None:
    ids = torch.tensor([0, 0, 1, 1, 2, 3, 3, 3])  # under up to three labels each
    found = mine(ROWS, LABELS, ids=ids, positives="all", negatives="all")
    expected = [
        (a, p, n)
        for a in range(8)
        for p in range(8)
        for n in range(8)
        if LABELS[a] == LABELS[p] != LABELS[n] and ids[a] != ids[p] and ids[a] != ids[n]
    ]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
