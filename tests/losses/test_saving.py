"""A used loss, selector, memory and monitor can be copied, pickled and saved by torch, and go on the same."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.every_loss import EVERY_LOSS, make

from trivet import CollapseMonitor, EmbeddingLoss, MarginLoss
from trivet.integrations.watch import LossWatch
from trivet.losses import LOSSES
from trivet.mining import NEGATIVES, POSITIVES
from trivet.mining.positives import SemihardPositive
from trivet.samplers import CrossBatchMemory


def by_torch(thing: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "torch.save": by_torch,
    "deepcopy": copy.deepcopy,
}
GENERATOR = torch.Generator().manual_seed(0)
EMBEDDINGS = torch.nn.functional.normalize(torch.randn(12, 3, generator=GENERATOR), dim=1)
LABELS = torch.arange(12) % 4
CONFIGURATIONS = (
    [(name, {}) for name in EVERY_LOSS]
    + [(name, {"block_size": 5}) for name in EVERY_LOSS]
    + [("triplet", {"normalize": True, "negatives": name}) for name in NEGATIVES]
    + [
        ("triplet", {"normalize": True, "positives": name, "negatives": "hard"})
        for name in POSITIVES
        if POSITIVES[name] is not SemihardPositive
    ]
)


def called(loss: EmbeddingLoss) -> float:
    value = loss(EMBEDDINGS.clone().requires_grad_(), LABELS)
    value.backward()
    return value.item()


@pytest.mark.parametrize("way", WAYS)
def test_a_used_loss_goes_on_the_same(way: str) -> None:
    for name, options in CONFIGURATIONS:
        loss = make(name, **options)
        called(loss)
        again = WAYS[way](loss)
        assert repr(again.last) == repr(loss.last), (name, options)
        assert [called(again), called(again)] == [called(loss), called(loss)], (name, options)


@pytest.mark.parametrize("name", LOSSES)
def test_the_state_of_a_used_loss_brings_another_to_the_same_place(name: str) -> None:
    loss, other = make(name), make(name)
    called(loss)
    other.load_state_dict(by_torch(loss.state_dict()))
    assert called(other) == called(loss)


@pytest.mark.parametrize("way", WAYS)
def test_a_used_memory_goes_on_the_same(way: str) -> None:
    memory, loss = CrossBatchMemory(size=20, embedding_dim=3), make("contrastive")
    memory(loss, EMBEDDINGS, LABELS, torch.arange(12))
    again, same_loss = WAYS[way](memory), WAYS[way](loss)
    for start in (12, 24):
        ids = torch.arange(start, start + 12)
        assert again(same_loss, EMBEDDINGS + 0.1, LABELS, ids) == memory(loss, EMBEDDINGS + 0.1, LABELS, ids)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_watched_loss_is_not_watched(way: str) -> None:
    monitor, loss = CollapseMonitor(every=1), make("contrastive")
    monitor.watch(loss, step=lambda: 0)
    called(loss)
    again = WAYS[way](loss)
    called(again)
    assert len(monitor.series["step"]) == 1
    called(loss)
    assert len(monitor.series["step"]) == 2
    assert WAYS[way](monitor).as_json() == monitor.as_json()


@pytest.mark.parametrize("way", WAYS)
def test_what_a_callback_holds_during_training_can_be_copied(way: str) -> None:
    monitor, loss = CollapseMonitor(every=1), make("contrastive")
    watch: LossWatch[Any] = LossWatch(monitor)
    watch.begin(loss, lambda: 0)
    called(loss)
    assert WAYS[way](watch).checks() == watch.checks() != []
    watch.end(main=False, finished=False)


@pytest.mark.parametrize("options", [{}, {"num_classes": 3}, {"learn_beta": False}])
def test_a_beta_in_another_type_is_the_one_given_until_it_is_learned(options: dict[str, Any]) -> None:
    loss = MarginLoss(beta=1.2, **options)
    assert loss.beta.flatten()[0].item() == torch.tensor(1.2).item() != 1.2
    assert loss.double().beta.unique().item() == 1.2
    assert loss.float().beta.unique().item() == torch.tensor(1.2).item()
    with torch.no_grad():
        loss.beta.add_(0.25)
    learned = loss.beta.double().tolist()
    assert loss.double().beta.tolist() == learned
