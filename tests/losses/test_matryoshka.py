"""A loss at several prefixes of the embedding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.every_loss import EVERY_LOSS, PROXIES
from torch import Tensor

import trivet
from trivet.samplers import CrossBatchMemory

GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randn(12, 6, dtype=torch.float64, generator=GENERATOR)
LABELS = torch.arange(12) % 4


def same_draws(loss: trivet.EmbeddingLoss) -> trivet.EmbeddingLoss:
    """That draw nothing new, so that several calls agree with one after another."""
    loss.key = torch.tensor([7, 0])
    return loss.double()


@pytest.mark.parametrize("name", [name for name in EVERY_LOSS if name not in PROXIES])
def test_it_is_the_weighted_sum_over_the_prefixes(name: str) -> None:
    one, other = (
        same_draws(EVERY_LOSS[name](margin=0.1) if name == "contrastive" else EVERY_LOSS[name]()) for _ in "12"
    )
    leaf = ROWS.clone().requires_grad_()
    value = trivet.MatryoshkaLoss(one, (2, 3, 6), weights=(0.5, 1, 2))(leaf, LABELS)
    expected = 0.5 * other(leaf[:, :2], LABELS) + other(leaf[:, :3], LABELS) + 2 * other(leaf, LABELS)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, leaf), torch.autograd.grad(expected, leaf))


@pytest.mark.parametrize("name", PROXIES)
def test_each_prefix_has_proxies_of_its_own(name: str) -> None:
    losses = [EVERY_LOSS[name](embedding_dim=size).double() for size in (3, 6)]
    loss = trivet.MatryoshkaLoss(losses, (3, 6))
    expected = losses[0](ROWS[:, :3], LABELS) + losses[1](ROWS, LABELS)
    torch.testing.assert_close(loss(ROWS, LABELS), expected)
    assert [group["params"][0].shape[1] for group in loss.optimizer_groups()] == [3, 6]
    assert loss.last is losses[1].last
    with pytest.raises(ValueError, match="embeddings must have the dimension of the proxies, 6: got 3"):
        trivet.MatryoshkaLoss(losses[1], (3, 6))(ROWS, LABELS)


def test_references_and_memory() -> None:
    loss = trivet.MatryoshkaLoss(trivet.TripletLoss(positives="easy", negatives="hard", normalize=True), (2, 6))
    plain = trivet.TripletLoss(positives="easy", negatives="hard", normalize=True)
    others = {"references": ROWS[6:], "reference_labels": LABELS[6:]}
    cut = others | {"references": ROWS[6:, :2]}
    expected = plain(ROWS[:6, :2], LABELS[:6], **cut) + plain(ROWS[:6], LABELS[:6], **others)
    torch.testing.assert_close(loss(ROWS[:6], LABELS[:6], **others), expected)
    memory, ids = CrossBatchMemory(size=6, embedding_dim=6).double(), torch.arange(12)
    memory.add(ROWS[6:], LABELS[6:], ids[6:])
    both = {"ids": ids[:6], "reference_ids": ids[6:], "with_batch": True}
    expected = plain(ROWS[:6, :2], LABELS[:6], **cut, **both) + plain(ROWS[:6], LABELS[:6], **others, **both)
    torch.testing.assert_close(memory(loss, ROWS[:6], LABELS[:6], ids[:6]), expected)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda loss: trivet.MatryoshkaLoss(loss, ()), r"prefixes must be lengths of at least 1, ascending: got \(\)"),
        (lambda loss: trivet.MatryoshkaLoss(loss, (4, 2)), "prefixes must be lengths of at least 1, ascending"),
        (lambda loss: trivet.MatryoshkaLoss(loss, (0, 2)), "prefixes must be lengths of at least 1, ascending"),
        (lambda loss: trivet.MatryoshkaLoss([loss] * 3, (2, 4)), "one for all prefixes or one for each: got 3 for 2"),
        (lambda loss: trivet.MatryoshkaLoss(loss, (2, 4), weights=(1,)), "weights must be a finite number of at least"),
        (lambda loss: trivet.MatryoshkaLoss(loss, (2, 7))(ROWS, LABELS), "as long as the longest prefix, 7: got 6"),
    ],
)
def test_what_cannot_be_used(make: Callable[[trivet.EmbeddingLoss], Tensor], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(trivet.TripletLoss())
