"""Batches of some of the items."""

from __future__ import annotations

import numpy as np

from trivet.runtime.arrays import Integers
from trivet.samplers.epochs import Coverage
from trivet.samplers.shuffled import PlannedBatches


class SubsetBatches:
    """The batches of a plan over some of the items, as positions among all of them.

    Args:
        plan: its positions count those in `rows`.
        rows: `(M,)` the positions, among N, of the items that are in batches.
        labels: `(N,)` the class of each item.
    """

    def __init__(self, plan: PlannedBatches, rows: Integers, labels: Integers) -> None:
        self._plan, self._rows, self._labels = plan, rows, labels

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""
        return self._plan.steps_per_epoch

    def batch(self, epoch: int, step: int) -> Integers:
        """Positions `(B,)` of the items of a batch; see the plan."""
        taken: Integers = self._rows[self._plan.batch(epoch, step)]
        return taken

    def coverage(self, epoch: int) -> Coverage:
        """The shares of all N items, and of their classes, that the batches of an epoch hold."""
        covered = np.unique(np.concatenate([self.batch(epoch, step) for step in range(self.steps_per_epoch)]))
        classes = len(np.unique(self._labels[covered])) / len(np.unique(self._labels))
        return Coverage(len(covered) / len(self._labels), classes)
