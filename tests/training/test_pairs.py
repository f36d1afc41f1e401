"""Training on pairs: what a batch holds, what its loss is, and what the monitor sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.training.components import first_task, load_splits
from trivet.training.config import RunConfig
from trivet.training.loop import fit
from trivet.training.pair_batches import MOST_NEGATIVES, pair_batches


def relation() -> JudgedPairs:
    """Five contents on the left, eight on the right; (0, 7) to (0, 2) are negatives, and so is (1, 3)."""
    judged = np.array([[0, 0], [1, 1], [2, 1], [3, 2], [4, 3], [1, 3], *([0, i] for i in range(2, 8))])
    grades = np.array([1.0] * 5 + [0.0] * 7)
    return JudgedPairs(5, 8, judged, grades, relevant=1, equal=np.empty((0, 2), np.int64))


def test_an_epoch_has_each_pair_once_with_some_negatives_of_its_left_side() -> None:
    pairs, numbers = relation(), np.array([12, 0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11])  # all but 2, in any order
    plan = pair_batches(pairs, numbers, size=12, seed=3)
    assert plan.steps_per_epoch == 2
    for epoch in (0, 1):
        drawn = [set(numbers[plan.batch(epoch, step)].tolist()) for step in range(2)]
        assert all(len(batch) == len(plan.batch(epoch, step)) for step, batch in enumerate(drawn))
        for left, right in ((0, 5), (1, 6), (3, 7), (4, 8)):
            assert sum({left, right} <= batch for batch in drawn) == 1
        with_first = next(batch for batch in drawn if 0 in batch)
        others = {7, 8} if {3, 4} & with_first else set()
        assert MOST_NEGATIVES <= len(with_first & set(range(7, 13))) <= MOST_NEGATIVES + len(others)
        assert 8 in next(batch for batch in drawn if 1 in batch)
    assert [plan.batch(0, 0).tolist() for _ in range(2)] == [plan.batch(0, 0).tolist()] * 2
    assert sorted(plan.batch(0, 0)) != sorted(plan.batch(1, 0)) or list(plan.batch(0, 0)) != list(plan.batch(1, 0))


def test_a_pair_alone_has_no_negative() -> None:
    with pytest.raises(ValueError, match=r"at least two pairs, .*: got 1"):
        pair_batches(relation(), np.array([0, 5, 6]), size=8, seed=0)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    path = tmp_path / "faq.csv"
    words = ["red", "blue", "green", "large", "small", "round"]
    rows = [f"which is {a} and {b} {i}?,the {a} {b} {i % 30}" for i, a in enumerate(words * 7) for b in words[:1]]
    path.write_text("\n".join(["question,answer", *rows]))
    values = {
        "data": {"name": "pairs", "path": str(path)},
        "model": {"name": "residual", "embedding_dim": 16},
        "loss": {"name": "supcon", "temperature": 0.1},
        "batch": {"size": 16},
        "training": {"steps": 3, "learning_rate": 1e-2},
    }
    return RunConfig.parse(values, source="x")


def test_the_loss_is_the_softmax_in_both_directions(config: RunConfig, tmp_path: Path) -> None:
    splits = load_splits(config, tmp_path)
    learner, batches = first_task(config, splits.train, splits.level, steps=1)
    inputs, numbers = next(iter(batches))
    value, embeddings = learner.evaluate(inputs, numbers)
    pairs = splits.train.relations["pair"]
    left = numbers < pairs.first_of_right
    both = trivet.SymmetricLoss(trivet.SupConLoss(temperature=0.1))
    assert left.sum() == (~left).sum() == 8
    expected = both(
        embeddings[left],
        pairs.with_items(numbers[left]),
        references=embeddings[~left],
        reference_labels=pairs.with_items(numbers[~left]),
    )
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_monitor_sees_the_pairs(config: RunConfig, tmp_path: Path) -> None:
    splits = load_splits(config, tmp_path)
    seen = list[object]()

    class Recorder(CollapseMonitor):
        def update(self, embeddings: torch.Tensor, labels: object, *args: object, **kwargs: object) -> list:
            seen.append(labels)
            return super().update(embeddings, labels, *args, **kwargs)

    learner, batches = first_task(config, splits.train, splits.level, steps=3, monitor=Recorder(every=1))
    assert fit(learner, batches)
    for relation, batch in zip(seen, batches, strict=True):
        assert isinstance(relation, JudgedPairs)
        assert torch.equal(relation.items, batch[1])
