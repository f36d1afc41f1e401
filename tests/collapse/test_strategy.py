"""What a strategy finds in finished embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trivet.collapse.strategy import SamplingStrategy, sampling
from trivet.losses import MarginLoss, MultiSimilarityLoss, TripletLoss

RANDOM = np.random.default_rng(0)
LABELS = np.repeat(np.arange(6), 20)
POINTS = RANDOM.standard_normal((6, 8))[LABELS] + 0.5 * RANDOM.standard_normal((120, 8))


def test_a_batch_of_everything_is_the_batch() -> None:
    loss = TripletLoss(positives="hard", negatives="hard", margin=0.5)
    found = sampling(POINTS, LABELS, SamplingStrategy(loss, 6, 20), batches=3)
    value = float(loss(torch.from_numpy(POINTS), torch.from_numpy(LABELS)))
    assert loss.last is not None
    assert found.loss == pytest.approx(value, rel=1e-9)
    assert found.active_fraction == pytest.approx(loss.last.active_fraction)
    assert found.hard_fraction == pytest.approx(loss.last.hard_fraction)
    assert found.mean_to_positive == pytest.approx(loss.last.mean_to_positive)
    assert (found.dropped, found.choices, found.batches) == (0, 19, 3)
    units = POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
    similar = units @ units.T
    same = LABELS[:, None] == LABELS
    np.fill_diagonal(similar, -2)
    assert found.s_ap == pytest.approx(np.where(same, similar, -2).max(axis=1).mean())
    assert found.s_an == pytest.approx(np.where(same, -2, similar).max(axis=1).mean())


def test_the_loss_is_left_as_it_was() -> None:
    loss = TripletLoss(positives="random", negatives="random", generator=torch.Generator().manual_seed(1))
    before = loss.key.clone()
    strategy = SamplingStrategy(loss, 3, 4)
    assert sampling(POINTS, LABELS, strategy) == sampling(POINTS, LABELS, strategy)
    assert sampling(POINTS, LABELS, strategy) != sampling(POINTS, LABELS, strategy, seed=1)
    assert torch.equal(loss.key, before)
    assert loss.last is None


def test_losses_with_parameters_and_small_classes() -> None:
    labels = LABELS.copy()
    labels[:3] = 9, 10, 10  # a class of one item and one of two
    for loss in (MarginLoss(num_classes=8, beta=1.0), MultiSimilarityLoss()):
        found = sampling(POINTS.astype(np.float32), labels, SamplingStrategy(loss, 5, 4))
        assert found.loss > 0
        assert 1 < found.choices <= 3


def test_dropped_anchors_are_counted() -> None:
    far = 100.0 * LABELS[:, None] + POINTS
    loss = TripletLoss(positives="easy", negatives="violating", margin=0.2)
    found = sampling(far, LABELS, SamplingStrategy(loss, 3, 4))
    assert found.dropped == 1
    assert np.isnan(found.mean_to_negative)


def test_too_few_classes() -> None:
    with pytest.raises(ValueError, match="two classes of at least two items: got 1"):
        sampling(POINTS[:21], LABELS[:21], SamplingStrategy(TripletLoss(), 2, 2))
    with pytest.raises(ValueError, match="samples_per_class = 1"):
        SamplingStrategy(TripletLoss(), 2, 1)
    with pytest.raises(ValueError, match="batches must be at least 1: got 0"):
        sampling(POINTS, LABELS, SamplingStrategy(TripletLoss(), 2, 2), batches=0)
