"""Batches in random order, and batches balanced by a coarser level."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.samplers import BatchConfig, PKBatches, ShuffledBatches


def test_an_epoch_of_shuffled_batches_has_every_item_and_full_batches() -> None:
    batches = ShuffledBatches(11, size=4, seed=5)
    epochs = [[batches.batch(epoch, step).tolist() for step in range(3)] for epoch in range(2)]
    for epoch in epochs:
        seen = [item for batch in epoch for item in batch]
        assert set(seen) == set(range(11))
        assert [len(set(batch)) for batch in epoch] == [4, 4, 4]
    assert epochs[0] != epochs[1]
    assert ShuffledBatches(11, size=4, seed=5).batch(1, 2).tolist() == epochs[1][2]
    assert ShuffledBatches(11, size=4, seed=6).batch(1, 2).tolist() != epochs[1][2]


@pytest.mark.parametrize(
    ("items", "size", "seed", "message"),
    [(3, 4, 0, "at most the number of training items, 3: got 4"), (3, 1, 0, "at least 2"), (3, 2, -1, "negative")],
)
def test_shuffled_batches_that_cannot_be_are_refused(items: int, size: int, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShuffledBatches(items, size=size, seed=seed)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
@pytest.mark.parametrize("k", [1, 3])
def test_balanced_batches_take_of_each_group_alike_and_miss_no_item(p: int, k: int) -> None:
    generator = np.random.default_rng(p)
    group_of = np.array([0] * 7 + [1] * 3 + [2])  # of classes: 7, 3 and 1 in a group
    labels = generator.permutation(np.repeat(np.arange(11), generator.integers(2, 30, 11)))
    batches = PKBatches(labels, num_classes=p, samples_per_class=k, seed=1, groups=group_of[labels])
    drawn = np.zeros(3, int)
    seen: set[int] = set()
    for step in range(batches.steps_per_epoch):
        items = batches.batch(0, step)
        classes = np.unique(labels[items])
        assert len(classes) == p
        assert len(set(items.tolist())) == len(items)
        counts = np.bincount(group_of[classes], minlength=3)
        # As even as can be: none has two more than another that still has classes to give.
        room = counts < [7, 3, 1]
        assert counts.max() - counts[room].min() <= 1
        drawn += counts
        seen.update(items.tolist())
    assert seen == set(range(len(labels)))
    if p == 2:  # fewer classes than groups: they take turns
        assert drawn.max() - drawn.min() <= 1


def test_settings_of_shuffled_batches_exclude_those_of_classes() -> None:
    assert BatchConfig(size=48).batch_size == 48
    with pytest.raises(ValueError, match="num_classes has no effect"):
        BatchConfig(size=48, num_classes=4)
