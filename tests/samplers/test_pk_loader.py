"""PKBatches as the batch sampler of a DataLoader."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from trivet.samplers import PKBatches

LABELS = np.repeat(np.arange(6), [5, 8, 8, 7, 2, 9])


def made(**options: int) -> PKBatches:
    return PKBatches(LABELS, num_classes=4, samples_per_class=3, seed=2, **options)


def planned(epoch: int) -> list[list[int]]:
    batches = made()
    return [batches.batch(epoch, step).tolist() for step in range(batches.steps_per_epoch)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_shows_the_epochs_one_after_the_other(workers: int) -> None:
    batches = made()
    loader = DataLoader(torch.arange(len(LABELS)), batch_sampler=batches, num_workers=workers)
    assert len(loader) == len(batches) == batches.steps_per_epoch
    assert (batches.batch_size, batches.drop_last) == (12, False)
    for epoch in (0, 1, 2):
        assert [batch.tolist() for batch in loader] == planned(epoch)
    batches.set_epoch(1)
    assert [batch.tolist() for batch in loader] == planned(1)


def test_an_epoch_left_early_begins_again() -> None:
    batches = made()
    assert list(islice(batches, 2)) == planned(0)[:2]
    assert list(batches) == planned(0)
    assert list(batches) == planned(1)


@pytest.mark.parametrize("seen", [0, 1, 2, len(planned(1))])
def test_resumes_with_the_next_batch(seen: int) -> None:
    batches = made()
    batches.set_epoch(1)
    stream = iter(batches)
    trained = [next(stream) for _ in range(seen)]
    state = batches.state_dict()
    resumed = made()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    resumed.set_epoch(state["epoch"])  # as a loop does before each epoch
    if seen < len(batches):
        assert state == {"seed": 2, "epoch": 1, "step": seen}
        trained += list(resumed)
    assert trained == planned(1)
    assert len(resumed) == len(batches)
    assert list(resumed) == planned(2)


def test_another_epoch_begins_with_its_first_step() -> None:
    batches = made()
    batches.set_epoch(1, step=2)
    batches.set_epoch(2)
    assert list(batches) == planned(2)
    batches.set_epoch(5, step=1)
    batches.set_epoch(5, step=0)
    assert list(batches) == planned(5)


@pytest.mark.parametrize("world_size", [2, 4])
def test_the_parts_of_all_processes_are_the_batch_of_one(world_size: int) -> None:
    parts = [list(made(rank=rank, world_size=world_size)) for rank in range(world_size)]
    whole = planned(0)
    assert [list(chain(*shares)) for shares in zip(*parts, strict=True)] == whole
    for part in parts:
        assert all(len(set(LABELS[batch].tolist())) == 4 // world_size for batch in part)
    assert made(rank=1, world_size=2).batch(0, 0).tolist() == whole[0]


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 3), (0, 0)])
def test_processes_must_share_the_classes(rank: int, world_size: int) -> None:
    with pytest.raises(ValueError, match=f"got rank {rank}, world_size {world_size} and num_classes 4"):
        made(rank=rank, world_size=world_size)


def test_a_state_must_fit() -> None:
    batches = made()
    with pytest.raises(ValueError, match="same seed: got 3"):
        batches.load_state_dict({"seed": 3, "epoch": 0, "step": 0})
    for wrong in ({"epoch": 0, "step": 99}, {"epoch": -1, "step": 0}):
        with pytest.raises(ValueError, match="epoch must be 0 or more"):
            batches.load_state_dict({"seed": 2, **wrong})


def nested_shares(counts: dict[tuple[int, int], int], taken: Counter[tuple[int, int]]) -> None:
    """Inside each group, and among the groups, shares differ by one at most unless all classes are taken."""
    for coarse in {pair[0] for pair in counts}:
        inside = [pair for pair in counts if pair[0] == coarse]
        open_shares = [taken[pair] for pair in inside if taken[pair] < counts[pair]]
        assert not open_shares or max(taken[pair] for pair in inside) <= min(open_shares) + 1
    coarse_of = {pair[0] for pair in counts}
    totals = {group: sum(taken[pair] for pair in counts if pair[0] == group) for group in coarse_of}
    sizes = {group: sum(counts[pair] for pair in counts if pair[0] == group) for group in coarse_of}
    open_totals = [totals[group] for group in coarse_of if totals[group] < sizes[group]]
    assert not open_totals or max(totals.values()) <= min(open_totals) + 1


@pytest.mark.parametrize("num_classes", [2, 5, 9])
def test_several_levels_share_each_batch(num_classes: int) -> None:
    # 4 coarse groups with 1 to 4 fine ones; fine numbers are used again in other coarse groups.
    pairs = [
        (coarse, fine) for coarse in range(4) for fine in range(coarse + 1) for _ in range(1 + (coarse + fine) % 3)
    ]
    labels = np.repeat(np.arange(len(pairs)), [2 + c % 5 for c in range(len(pairs))])
    groups = np.array(pairs)[labels]
    batches = PKBatches(labels, num_classes=num_classes, samples_per_class=2, seed=4, groups=torch.from_numpy(groups))
    counts = Counter(pairs)
    for epoch in (0, 1):
        seen = set()
        for step in range(len(batches)):
            batch = batches.batch(epoch, step)
            classes = set(labels[batch].tolist())
            assert len(classes) == num_classes
            nested_shares(counts, Counter(pairs[c] for c in classes))
            seen |= set(batch.tolist())
        assert seen == set(range(len(labels)))


def test_one_level_in_a_column_is_that_level() -> None:
    labels = np.repeat(np.arange(10), 4)
    group = labels // 4
    one, column = (
        PKBatches(labels, num_classes=4, samples_per_class=2, seed=0, groups=groups)
        for groups in (group.tolist(), group[:, None])
    )
    assert list(one) == list(column)


def test_wrong_groups_are_said() -> None:
    labels = np.array([0, 0, 1, 1])
    for groups, message in [
        ([0, 0, 1], "or a column for each level"),
        (np.zeros((4, 0), int), "or a column for each level"),
        ([0.0, 0.0, 1.0, 1.0], "groups must be integers"),
        ([[0, 0], [0, 1], [1, 2], [1, 2]], "class 0 lies in two"),
    ]:
        with pytest.raises(ValueError, match=message):
            PKBatches(labels, num_classes=2, samples_per_class=2, seed=0, groups=groups)
