from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.metrics.folds import class_folds


@settings(deadline=None)
@given(st.lists(st.integers(-3, 12), min_size=2), st.integers(2, 6), st.integers(0, 5))
def test_folds_share_neither_rows_nor_classes(labels: list[int], k: int, seed: int) -> None:
    names = set(labels)
    if k > len(names):
        with pytest.raises(ValueError, match=f"number of classes, {len(names)}: got {k}"):
            class_folds(np.array(labels), k, seed=seed)
        return
    folds = class_folds(np.array(labels), k, seed=seed)
    assert sorted(row for fold in folds for row in fold.tolist()) == list(range(len(labels)))
    held = [{labels[row] for row in fold.tolist()} for fold in folds]
    assert set.union(*held) == names
    assert sum(len(classes) for classes in held) == len(names)
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert all(fold.tolist() == sorted(fold.tolist()) for fold in folds)


def test_the_seed_deals_the_classes() -> None:
    labels = np.repeat(np.arange(12), 2)
    first, again = class_folds(labels, 3, seed=1), class_folds(torch.from_numpy(labels), 3, seed=1)
    assert [fold.tolist() for fold in first] == [fold.tolist() for fold in again]
    # Over many seeds each class comes into each fold equally often, and next to each other class.
    together = np.zeros((12, 12))
    for seed in range(600):
        for fold in class_folds(labels[::2], 3, seed=seed):
            together[np.ix_(fold, fold)] += 1
    apart = together[~np.eye(12, dtype=bool)]
    assert np.abs(apart - 600 * 3 / 11).max() < 60  # 164 of 600, standard deviation 11


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: class_folds(np.arange(5), 1), "k must be at least 2: got 1"),
        (lambda: class_folds(np.arange(5), 6), "number of classes, 5: got 6"),
        (lambda: class_folds(np.zeros(0, int), 2), "number of classes, 0: got 2"),
        (lambda: class_folds(np.zeros(5), 2), "integers: got float64"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
