"""Batches of items in random order, with whatever classes they have."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from trivet.runtime.arrays import Integers
from trivet.samplers.epochs import Coverage, EpochBatches, check_step


class PlannedBatches(Protocol):
    """The batches of every epoch, each a pure function of seed, epoch and step."""

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""

    def batch(self, epoch: int, step: int) -> Integers:
        """Positions `(B,)` of the items of a batch."""


class BatchPlan(PlannedBatches, Protocol):
    """Planned batches that know how much of the items they show."""

    def coverage(self, epoch: int) -> Coverage:
        """The shares of items and classes that the batches of an epoch hold."""


class ShuffledBatches(EpochBatches):
    """The items of an epoch in random order, cut into batches of `size`.

    The last batch is filled up with the first items of the order, so every batch is full, every item is seen in every
    epoch, and no item is twice in a batch.

    Args:
        items: N, at least `size`.
        size: B, at least 2.
        seed: not negative.

    Raises:
        ValueError: if one is out of range.

    Source:
        Xu, Hsieh, Vundurthy, Kemp, Cohen, Li, Choset, "Mathematical Justification of Hard Negative Mining via Isometric
        Approximation Theorem", ICLR 2024, where only the size of a batch is fixed.

    Example:
        >>> ShuffledBatches(10, size=4, seed=0).steps_per_epoch
        3
    """

    def __init__(self, items: int, *, size: int, seed: int) -> None:
        if size < 2 or seed < 0:
            raise ValueError(f"size must be at least 2 and seed not negative: got {size} and {seed}.")
        if items < size:
            raise ValueError(f"batch.size must be at most the number of training items, {items}: got {size}; lower it.")
        super().__init__(seed)
        self._items, self._size = items, size
        self._planned: tuple[int, Integers] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""
        return -(-self._items // self._size)

    def batch(self, epoch: int, step: int) -> Integers:
        """Positions `(B,)` int64 of the items of a batch.

        Args:
            epoch: from 0.
            step: in the epoch, from 0 to `steps_per_epoch` - 1.
        """
        check_step(epoch, step, self.steps_per_epoch)
        if self._planned is None or self._planned[0] != epoch:
            order = np.random.default_rng(np.random.SeedSequence((self._seed, epoch))).permutation(self._items)
            self._planned = (epoch, order)
        positions = np.arange(step * self._size, (step + 1) * self._size) % self._items
        taken: Integers = self._planned[1][positions]
        return taken

    def coverage(self, epoch: int) -> Coverage:
        """All items and all classes."""
        return Coverage(1.0, 1.0)
