"""Batches of mined triplets hold every triplet once in an epoch, as places in them that a loss takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from trivet import TripletLoss
from trivet.samplers import MinedBatches

DRAW = np.random.default_rng(0)
# Pairs of an anchor (30 to 49) and a positive (10 to 29), some anchors with two, and 1 to 4 negatives (1 to 9) of each.
PAIRS = sorted({(49 - int(a), 29 - int(p)) for a, p in DRAW.integers(20, size=(23, 2))})
TRIPLETS = DRAW.permutation(
    np.array([(a, p, 9 - int(n)) for a, p in PAIRS for n in DRAW.choice(9, DRAW.integers(1, 5), replace=False)])
)


def test_an_epoch_has_every_triplet_and_a_batch_each_item_once() -> None:
    batches = MinedBatches(torch.from_numpy(TRIPLETS), size=5, seed=3)
    assert batches.steps_per_epoch == len(batches) == -(-len(PAIRS) // 5)
    epochs = []
    for epoch in range(2):
        seen = []
        for step in range(len(batches)):
            batch, places = batches.batch(epoch, step), batches.triplets(epoch, step)
            assert len(set(batch.tolist())) == len(batch)
            assert set(places.reshape(-1).tolist()) == set(range(len(batch)))
            found = [tuple(one) for one in batch[places].tolist()]
            assert len({one[:2] for one in found}) == 5
            roles = [(49 - item) // 20 for item in batch.tolist()]
            assert roles == sorted(roles)  # anchors, positives, negatives
            seen.append(found)
        assert {one for found in seen for one in found} == {tuple(one) for one in TRIPLETS.tolist()}
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    again = MinedBatches(TRIPLETS.tolist(), size=5, seed=3)
    assert again.batch(1, 2).tolist() == batches.batch(1, 2).tolist()
    assert MinedBatches(TRIPLETS, size=5, seed=4).batch(1, 2).tolist() != batches.batch(1, 2).tolist()


def test_a_loader_takes_them_epoch_by_epoch_and_a_loss_their_triplets() -> None:
    batches, items = MinedBatches(TRIPLETS, size=4, seed=0), torch.randn(50, 3, dtype=torch.float64)
    loader: DataLoader[int] = DataLoader(list(range(50)), batch_sampler=batches)
    for epoch in range(2):
        for step, batch in enumerate(loader):
            assert batch.tolist() == batches.batch(epoch, step).tolist()
            places = torch.from_numpy(batches.triplets(epoch, step))
            rows = items[batch]
            loss = TripletLoss(margin=1.0, distance="euclidean")
            value = loss(rows, (batch < 10).long(), indices=places.unbind(1))
            a, p, n = rows[places].unbind(1)
            want = ((a - p).norm(dim=1) - (a - n).norm(dim=1) + 1.0).relu().mean()
            assert value.item() == pytest.approx(want.item())
    batches.set_epoch(0)
    assert next(iter(loader)).tolist() == batches.batch(0, 0).tolist()


@pytest.mark.parametrize(
    ("triplets", "size", "seed", "message"),
    [
        (TRIPLETS[:, :2], 2, 0, r"shape \(T, 3\)"),
        (TRIPLETS * 1.0, 2, 0, "integers"),
        (TRIPLETS, 24, 0, "from 1 to the"),
        (TRIPLETS, 0, 0, "from 1 to the"),
        (TRIPLETS, 2, -1, "negative"),
    ],
)
def test_batches_that_cannot_be_are_refused(triplets: np.ndarray, size: int, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinedBatches(triplets, size=size, seed=seed)
