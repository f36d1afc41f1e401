"""Batches of mined triplets: anchors with their positives and hard negatives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from trivet.runtime.arrays import Integers
from trivet.samplers.epochs import EpochBatches, check_step


class MinedBatches(EpochBatches):
    """Batches of `size` anchors, each with its positive and all its mined negatives.

    In an epoch the pairs of an anchor and its positive are shuffled and cut into batches of `size`; the last one is
    filled up with the first pairs of the order. An item that several pairs of a batch share is in it once, so batches
    differ in length. A batch is a pure function of seed, epoch and step.

    As `batch_sampler` of a `torch.utils.data.DataLoader` it gives the batches of one epoch after the other. A loss
    either takes all comparisons of a batch by its labels, or with `indices=` the mined triplets alone, see `triplets`.

    Args:
        triplets: `(T, 3)` integer positions of anchor, positive and negative in one data set, such as the columns
            `anchor_row`, `positive_row` and `negative_row` of `trivet mine`.
        size: pairs of a batch, at least 1 and at most the number of pairs.
        seed: not negative.

    Raises:
        ValueError: if one is of another kind or out of range.

    Example:
        >>> import torch
        >>> batches = MinedBatches([[0, 1, 4], [0, 1, 5], [2, 3, 4]], size=2, seed=0)
        >>> loader = torch.utils.data.DataLoader(torch.randn(6, 8), batch_sampler=batches)
        >>> [batch.shape for batch in loader]
        [torch.Size([6, 8])]
    """

    def __init__(self, triplets: npt.ArrayLike | Tensor, *, size: int, seed: int) -> None:
        triplets = triplets.cpu().numpy() if isinstance(triplets, Tensor) else np.asarray(triplets)
        if triplets.ndim != 2 or triplets.shape[1] != 3 or triplets.dtype.kind not in "iu":
            raise ValueError(
                f"triplets must be integers of shape (T, 3): got {triplets.dtype} of shape {triplets.shape}; give the "
                "rows of anchor, positive and negative."
            )
        pair, of = np.unique(triplets[:, :2], axis=0, return_inverse=True)
        if not 1 <= size <= len(pair) or seed < 0:
            raise ValueError(
                f"size must be from 1 to the {len(pair)} pairs of an anchor and a positive, and seed not negative: got "
                f"{size} and {seed}."
            )
        self._triplets = triplets[np.argsort(of.reshape(-1), kind="stable")].astype(np.int64)
        self._ends = np.bincount(of.reshape(-1)).cumsum()  # of each pair
        super().__init__(seed)
        self._size = size
        self._planned: tuple[int, Integers] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""
        return -(-len(self._ends) // self._size)

    def batch(self, epoch: int, step: int) -> Integers:
        """Positions `(B,)` int64 of the items of a batch: anchors, then what is new of positives, then of negatives."""
        items, first = np.unique(self._chosen(epoch, step).T, return_index=True)
        ordered: Integers = items[np.argsort(first)]
        return ordered

    def triplets(self, epoch: int, step: int) -> Integers:
        """The mined triplets `(T, 3)` of a batch as places in it, from 0; a loss takes their columns as `indices`."""
        batch, chosen = self.batch(epoch, step), self._chosen(epoch, step)
        order = np.argsort(batch)
        positions: Integers = order[np.searchsorted(batch[order], chosen)]
        return positions

    def _chosen(self, epoch: int, step: int) -> Integers:
        """The triplets `(T, 3)` of a batch, pair by pair."""
        check_step(epoch, step, len(self))
        if self._planned is None or self._planned[0] != epoch:
            order = np.random.default_rng(np.random.SeedSequence((self._seed, epoch))).permutation(len(self._ends))
            self._planned = (epoch, order)
        pairs = self._planned[1][np.arange(step * self._size, (step + 1) * self._size) % len(self._ends)]
        starts = np.append(0, self._ends)
        return np.concatenate([self._triplets[starts[pair] : starts[pair + 1]] for pair in pairs.tolist()])
