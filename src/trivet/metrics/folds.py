"""Folds of a set: over classes, so that no class is in two folds, or stratified by class."""

from __future__ import annotations

import numpy as np

from trivet.distances import Array, as_classes
from trivet.runtime.arrays import Integers


def class_folds(labels: Array, k: int, *, seed: int = 0) -> list[Integers]:
    """Split the rows into `k` folds by class, at random: every class lies in exactly one fold.

    The numbers of classes of two folds differ by at most one; their numbers of rows may differ by more. To validate
    on fold i, train on the rows of all others: what is measured is then retrieval of classes never seen.

    Args:
        labels: `(N,)` of any integer dtype.
        k: 2 .. number of classes.
        seed: of the order in which the classes are dealt out.

    Returns:
        The row numbers of each fold, rising; together every row once.

    Source:
        Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.3; there k = 4 and the folds
        are consecutive classes.

    Example:
        >>> [fold.tolist() for fold in class_folds(np.array([7, 7, 3, 5, 3]), 3)]
        [[0, 1], [2, 4], [3]]
    """
    classes = as_classes(labels, count=len(labels)).numpy()
    count = int(classes.max(initial=-1)) + 1
    if k < 2:
        raise ValueError(f"k must be at least 2: got {k}; one fold is trained on while another is held out.")
    if k > count:
        raise ValueError(f"k must be at most the number of classes, {count}: got {k}; use fewer folds.")
    fold = np.empty(count, dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(count)] = np.arange(count) % k
    return [np.flatnonzero(fold[classes] == number) for number in range(k)]


def stratified_folds(classes: Integers, k: int, generator: np.random.Generator) -> Integers:
    """Draw the fold 0 .. k - 1 of each item `(N,)`: sizes differ by at most one, in all and in each class."""
    order = np.lexsort((generator.random(len(classes)), classes))
    fold = np.empty(len(classes), np.int64)
    fold[order] = np.arange(len(classes)) % k
    return fold
