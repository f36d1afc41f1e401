"""Losses and batches of Trivet as the trainer of sentence-transformers calls them."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.every_loss import EVERY_LOSS
from tests.integrations.sentences import SOFTMAX, Encoder, texts
from torch import Tensor, nn

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.sentence_transformers import ClassBatches, SentenceLoss


def softmax(columns: list[Tensor]) -> Tensor:
    """Cross-entropy of each first text among all others, at cosine / 0.05."""
    first, *others = (nn.functional.normalize(column, dim=1) for column in columns)
    return nn.functional.cross_entropy(first @ torch.cat(others).T / 0.05, torch.arange(len(first)))


def embedded(model: Encoder, columns: list[dict[str, Tensor]]) -> list[Tensor]:
    return [model(column)["sentence_embedding"] for column in columns]


def gradient(value: Tensor, model: Encoder) -> Tensor:
    (found,) = torch.autograd.grad(value, [model.rows.weight])
    return found


def test_one_column_with_labels_is_the_loss_of_the_batch() -> None:
    model, labels = Encoder(), torch.arange(7) % 3
    loss = trivet.TripletLoss(positives="all", negatives="all", normalize=True)
    value = SentenceLoss(model, loss)(texts(1), labels)
    expected = loss(*embedded(model, texts(1)), labels)
    assert value.item() == expected.item() > 0
    torch.testing.assert_close(gradient(value, model), gradient(expected, model))


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_columns_are_the_in_batch_softmax(columns: int) -> None:
    model, given = Encoder(), texts(columns)
    value = SentenceLoss(model, trivet.NPairLoss(**SOFTMAX))(given)
    expected = softmax(embedded(model, given))
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient(value, model), gradient(expected, model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [2, 3])
def test_columns_are_watched_as_pairs_of_two_sides(columns: int) -> None:
    model, given, monitor = Encoder(), texts(columns), trivet.CollapseMonitor()
    loss = SentenceLoss(model, trivet.NPairLoss(**SOFTMAX))
    monitor.watch(loss.batch)
    for _ in range(5):
        loss(given)
    first, *others = embedded(model, given)
    within = (first - others[0]).norm(dim=1)
    apart = torch.cdist(first, torch.cat(others))
    apart[torch.arange(len(first)), torch.arange(len(first))] = math.nan  # rows of one side are not compared
    assert monitor.series["within"][-1] == pytest.approx(within.square().mean().sqrt().item(), rel=1e-4)
    assert monitor.series["between"][-1] == pytest.approx(apart.square().nanmean().sqrt().item(), rel=1e-4)


def test_both_directions_compare_the_second_column_with_the_first() -> None:
    model, given = Encoder(), texts(3)
    value = SentenceLoss(model, trivet.NPairLoss(**SOFTMAX), both_directions=True)(given)
    first, second, third = embedded(model, given)
    torch.testing.assert_close(value, (softmax([first, second, third]) + softmax([second, first])) / 2)


@pytest.mark.parametrize("columns", [2, 3])
def test_the_softmax_is_that_of_sentence_transformers(columns: int) -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    model, given = Encoder(), texts(columns)
    theirs = losses.MultipleNegativesRankingLoss(model)(given, None)
    torch.testing.assert_close(SentenceLoss(model, trivet.NPairLoss(**SOFTMAX))(given), theirs)


def test_its_trainer_can_call_every_loss() -> None:
    trainers = pytest.importorskip("sentence_transformers.base.trainer")
    labels = torch.arange(7) % 3
    for make in EVERY_LOSS.values():
        model = Encoder(3)
        loss = SentenceLoss(model, make())
        trainer = SimpleNamespace(
            loss=loss, model_wrapped=model, collect_features=lambda inputs: (texts(1), inputs["label"])
        )
        value = trainers.BaseTrainer.compute_loss(trainer, model, {"label": labels})
        value.backward()
        assert value.isfinite()
        assert model.rows.weight.grad.isfinite().all()


def test_columns_at_prefixes_are_the_sum_of_the_softmax_of_each() -> None:
    model, given = Encoder(), texts(3)
    value = SentenceLoss(model, trivet.MatryoshkaLoss(trivet.NPairLoss(**SOFTMAX), prefixes=(2, 6)))(given)
    rows = embedded(model, given)
    torch.testing.assert_close(value, softmax([row[:, :2] for row in rows]) + softmax(rows), rtol=1e-5, atol=1e-6)
    proxies = [trivet.ProxyAnchorLoss(num_classes=3, embedding_dim=d) for d in (2, 6)]
    with pytest.raises(ValueError, match="text columns without labels have no classes, and ProxyAnchorLoss"):
        SentenceLoss(model, trivet.MatryoshkaLoss(proxies, prefixes=(2, 6)))(given)


def test_wrong_columns_and_labels_are_said() -> None:
    model = Encoder()
    loss = SentenceLoss(model, trivet.NPairLoss())
    with pytest.raises(ValueError, match="one text column needs labels"):
        loss(texts(1))
    with pytest.raises(ValueError, match="labels go with one text column: got 2 columns"):
        loss(texts(2), torch.zeros(7))
    with pytest.raises(ValueError, match="ProxyNCALoss has parameters of them"):
        SentenceLoss(model, trivet.ProxyNCALoss(num_classes=7, embedding_dim=6))(texts(2))
    with pytest.raises(ValueError, match="give the model first"):
        SentenceLoss(trivet.NPairLoss(), model)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_monitor_sees_the_texts_of_all_columns(columns: int) -> None:
    model, monitor = Encoder(), CollapseMonitor(every=1)
    loss = SentenceLoss(model, trivet.NPairLoss(normalize=True))
    monitor.watch(loss.batch)
    for _ in range(8):
        loss(texts(columns), torch.arange(7) % 3 if columns == 1 else None).backward()
    assert np.isfinite(monitor.series["recall"]).all()
    assert monitor.series["active"] == [1.0] * 8


class Table(dict[str, Any]):
    """A data set as the trainer hands it to a sampler."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


def sampler(table: Table, batch_size: int = 8, **options: Any) -> trivet.samplers.PKBatches:
    made = pickle.loads(pickle.dumps(ClassBatches(**options)))  # the trainer saves its arguments
    return made(table, batch_size=batch_size, drop_last=False, valid_label_columns=["label", "class"], seed=3)


def test_every_text_of_a_batch_has_a_positive() -> None:
    labels = [c for c in range(5) for _ in range(4 + c)]
    batches = sampler(Table(text=[""] * len(labels), **{"class": labels}), samples_per_class=2)
    expected = trivet.samplers.PKBatches(labels, num_classes=4, samples_per_class=2, seed=3)
    assert list(batches) == list(expected)
    assert sampler(Table(label=[0, 0, 1, 1]), samples_per_class=2).batch(0, 0).shape == (4,)


def test_what_a_sampler_cannot_do_is_said() -> None:
    with pytest.raises(ValueError, match="named one of label, class: got text, kind"):
        sampler(Table(text=["a"], kind=[0]))
    with pytest.raises(ValueError, match="class 1 has one"):
        sampler(Table(label=[0, 0, 1]), samples_per_class=2)
    assert len(sampler(Table(label=[0, 0, 1]), samples_per_class=2, positives=False)) == 1
