from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.samplers import Coverage, PKBatches


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int]:
    """Labels in mixed order with class numbers that are not 0, 1, 2, ..., then P, K and a seed."""
    sizes = draw(st.lists(st.integers(2, 13), min_size=2, max_size=7))
    labels = draw(st.permutations([7 * c - 5 for c, size in enumerate(sizes) for _ in range(size)]))
    return np.array(labels), draw(st.integers(2, len(sizes))), draw(st.integers(2, 6)), draw(st.integers(0, 9))


@settings(deadline=None, max_examples=150)
@given(problems(), st.integers(0, 3))
def test_every_epoch_shows_every_item_in_batches_of_p_classes(
    problem: tuple[np.ndarray, int, int, int], epoch: int
) -> None:
    labels, p, k, seed = problem
    sizes = Counter(labels.tolist())
    chunks = {c: math.ceil(size / k) for c, size in sizes.items()}
    batches = PKBatches(labels, num_classes=p, samples_per_class=k, seed=seed)
    assert batches.steps_per_epoch == max(math.ceil(sum(chunks.values()) / p), max(chunks.values()))
    seen: list[int] = []
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(epoch, step)
        assert batch.dtype == np.int64
        assert len(set(batch.tolist())) == len(batch)
        groups = Counter(labels[batch].tolist())
        assert len(groups) == p
        assert all(count == min(k, sizes[c]) for c, count in groups.items())
        seen += batch.tolist()
    assert set(seen) == set(range(len(labels)))
    assert batches.coverage(epoch) == Coverage(items=1.0, classes=1.0)


def test_equal_classes_that_fit_are_seen_exactly_once() -> None:
    labels = np.repeat(np.arange(6), 8)
    batches = PKBatches(labels, num_classes=3, samples_per_class=4, seed=1)
    seen = np.concatenate([batches.batch(0, step) for step in range(batches.steps_per_epoch)])
    assert batches.steps_per_epoch == 4
    assert sorted(seen.tolist()) == list(range(48))


def test_a_batch_depends_on_seed_epoch_and_step_alone() -> None:
    labels = np.repeat(np.arange(10), 9)

    def batch(seed: int, epoch: int, step: int) -> list[int]:
        return PKBatches(labels, num_classes=4, samples_per_class=4, seed=seed).batch(epoch, step).tolist()

    used = PKBatches(labels, num_classes=4, samples_per_class=4, seed=3)
    for epoch, step in [(0, 0), (2, 5), (1, 3), (2, 5)]:
        assert used.batch(epoch, step).tolist() == batch(3, epoch, step)
    assert batch(3, 0, 0) != batch(4, 0, 0)
    assert batch(3, 0, 0) != batch(3, 1, 0)
    assert batch(3, 0, 0) != batch(3, 0, 1)


def test_who_shares_a_batch_changes_from_epoch_to_epoch() -> None:
    batches = PKBatches(np.repeat(np.arange(4), 20), num_classes=2, samples_per_class=5, seed=0)
    beside = [
        {item for step in range(8) for item in batches.batch(epoch, step) if 0 in batches.batch(epoch, step)}
        for epoch in range(30)
    ]
    assert set.union(*beside) >= set(range(20))  # the items of its class


def test_classes_are_drawn_in_proportion_to_their_chunks() -> None:
    # 40 chunks against 10 x 4: in the first step, each class fills one of 5 places; the large one nearly always does.
    labels = np.concatenate((np.zeros(80, int), np.repeat(np.arange(1, 11), 8)))
    firsts = [
        labels[PKBatches(labels, num_classes=2, samples_per_class=2, seed=seed).batch(0, 0)] for seed in range(300)
    ]
    # Two places drawn without replacement, weights 40 and 10 x 4 (40 = steps, so the large class is forced).
    assert all(0 in first for first in firsts)
    labels = np.concatenate((np.zeros(24, int), np.repeat(np.arange(1, 11), 8)))
    draws = [
        0 in labels[PKBatches(labels, num_classes=2, samples_per_class=2, seed=seed).batch(0, 0)] for seed in range(600)
    ]
    first, second = 12 / 52, 40 / 52 * 12 / 48
    expected = first + second
    assert np.mean(draws) == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 600))


@pytest.mark.parametrize(
    ("labels", "p", "k", "message"),
    [
        ([0, 0, 1, 1], 3, 2, "needs as many training classes: got 2"),
        ([0, 0, 0], 2, 2, "at least two training classes: got 1"),
        ([], 2, 2, "at least two training classes: got 0"),
        ([4, 4, 9, 5, 5], 2, 2, "class 9 has one"),
        ([0, 0, 1, 1], 2, 0, "and a sample of each"),
        ([0, 0, 1, 1], 1, 2, "at least two classes"),
    ],
)
def test_what_cannot_work_is_said(labels: list[int], p: int, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PKBatches(np.array(labels, np.int64), num_classes=p, samples_per_class=k, seed=0)


def test_wrong_labels_seed_or_step_are_said() -> None:
    with pytest.raises(ValueError, match="integers of shape"):
        PKBatches(np.array([0.0, 0.0, 1.0, 1.0]), num_classes=2, samples_per_class=2, seed=0)
    with pytest.raises(ValueError, match="seed"):
        PKBatches(np.array([0, 0, 1, 1]), num_classes=2, samples_per_class=2, seed=-1)
    batches = PKBatches(np.array([0, 0, 1, 1]), num_classes=2, samples_per_class=2, seed=0)
    for epoch, step in [(0, 1), (0, -1), (-1, 0)]:
        with pytest.raises(ValueError, match="step 0 to 0"):
            batches.batch(epoch, step)


def test_labels_as_a_tensor_or_a_list_are_those_of_an_array() -> None:
    labels = np.repeat(np.arange(4), 5)
    kinds = (labels, torch.from_numpy(labels), torch.from_numpy(labels).to(torch.int32), labels.tolist())
    made = [PKBatches(kind, num_classes=2, samples_per_class=3, seed=1) for kind in kinds]
    assert len({tuple(batches.batch(2, 1).tolist()) for batches in made}) == 1
    for wrong in (torch.ones(4), ["a", "b"]):
        with pytest.raises(ValueError, match=r"labels must be integers of shape \(N,\): got"):
            PKBatches(wrong, num_classes=2, samples_per_class=2, seed=0)
