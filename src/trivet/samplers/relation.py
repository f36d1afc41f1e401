"""Batches of anchors with some of their positives, by any relation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trivet.mining.relations import Relation
from trivet.runtime.arrays import Integers
from trivet.samplers.epochs import Coverage, EpochBatches, check_step

SPARE = 4  # times the positives that a group takes: so many are found at least, as others may have taken some


class RelationBatches(EpochBatches):
    """Batches of `num_anchors` groups: an anchor, and some of its positives drawn at random.

    In an epoch each item that has a positive is an anchor, in random order; the last batch is filled up with the first
    ones of the order. An anchor gets `samples_per_anchor` - 1 positives that are not in the batch already. Where it has
    fewer, the next items of the order are further anchors, until the batch is full; it lacks one item if that would
    be an anchor without room for a positive. No item is twice in a batch. A batch is a pure function of seed, epoch and
    step.

    As `batch_sampler` of a `torch.utils.data.DataLoader` it gives the batches of one epoch after the other; an epoch
    that was left early begins again. `set_epoch`, `state_dict` and `load_state_dict` move it to another place.

    For classes, `PKBatches` draws classes in place of anchors, and its epochs show each item about once; here that is
    `samples_per_anchor` times.

    Args:
        relation: of N items. For `Pairs` of two sides an item of either draws its partner from the other.
        num_anchors: P, at least 1.
        samples_per_anchor: K, the anchor and its positives, at least 2.
        seed: not negative.
        rank, world_size: this process and the number of those that share each batch: iteration then gives its share of
            the groups. The parts of all processes are the batch of one.

    Attributes:
        anchors: `(A,)` positions of the items that have a positive, ascending.
        batch_size: P x K, the most items of a batch.

    Raises:
        ValueError: if no item has a positive, or an argument is out of range.

    Example:
        >>> from trivet import Tags
        >>> tags = Tags([["red"], ["red", "round"], ["blue"], ["round"], ["blue", "round"]])
        >>> batches = RelationBatches(tags, num_anchors=2, samples_per_anchor=2, seed=0)
        >>> list(batches)
        [[2, 4, 3], [3, 4, 0, 1], [1, 4, 2]]
    """

    def __init__(
        self,
        relation: Relation,
        *,
        num_anchors: int,
        samples_per_anchor: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(seed)
        if num_anchors < 1 or samples_per_anchor < 2:
            raise ValueError(
                "num_anchors must be at least 1, and samples_per_anchor 2, an anchor and a positive: got "
                f"{num_anchors} and {samples_per_anchor}."
            )
        if not 0 <= rank < world_size or num_anchors % world_size:
            raise ValueError(
                "rank must lie in 0 .. world_size - 1, and world_size divide num_anchors, so that all processes have "
                f"as many anchors: got rank {rank}, world_size {world_size} and num_anchors {num_anchors}."
            )
        self._relation = relation.to("cpu")
        self.anchors: Integers = self._relation.with_positives().numpy()
        if not len(self.anchors):
            raise ValueError(
                f"an item needs a positive to be drawn with: none of the {len(relation)} items of this "
                f"{type(relation).__name__} has one; loosen its rule, or add items that belong together."
            )
        self._num_anchors, self._samples = num_anchors, samples_per_anchor
        self._rank, self._world_size = rank, world_size
        self._planned: tuple[int, Integers] | None = None

    @property
    def batch_size(self) -> int:
        """The most items of a batch, over all processes."""
        return self._num_anchors * self._samples

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""
        return -(-len(self.anchors) // self._num_anchors)

    def batch(self, epoch: int, step: int) -> Integers:
        """Positions `(B,)` int64 of the items of a batch: an anchor, its positives, the next anchor.

        Args:
            epoch: from 0.
            step: in the epoch, from 0 to `steps_per_epoch` - 1.
        """
        return np.concatenate(self.groups(epoch, step))

    def local_batch(self, epoch: int, step: int) -> Integers:
        """The items of the groups of this process."""
        groups = self.groups(epoch, step)
        ends = [len(groups) * number // self._world_size for number in (self._rank, self._rank + 1)]
        return np.concatenate(groups[slice(*ends)])

    def coverage(self, epoch: int) -> Coverage:
        """The share of items that have a positive: each is in every epoch."""
        return Coverage(len(self.anchors) / len(self._relation), None)

    def groups(self, epoch: int, step: int) -> list[Integers]:
        """Positions of the anchors of a batch, each with its positives after it."""
        check_step(epoch, step, self.steps_per_epoch)
        if self._planned is None or self._planned[0] != epoch:
            order = np.random.default_rng(np.random.SeedSequence((self._seed, epoch))).permutation(self.anchors)
            self._planned = (epoch, order)
        # The anchors of this step, then those that fill it up where positives lack.
        order = np.roll(self._planned[1], -step * self._num_anchors)
        generator = np.random.default_rng(np.random.SeedSequence((self._seed, epoch, step + 1)))
        among = torch.from_numpy(generator.permutation(len(self._relation)))
        free = np.ones(len(self._relation), bool)
        free[order[: self._num_anchors]] = False
        groups: list[Integers] = []
        left = self.batch_size
        enough = SPARE * (self._samples - 1)
        start, stop = 0, self._num_anchors
        while start < len(order) and left > 1:
            anchors = order[start:stop]
            for anchor, positives in zip(anchors.tolist(), self._positives(anchors, among, enough), strict=True):
                if start and (left < 2 or not free[anchor]):
                    continue
                free[anchor] = False
                count = min(self._samples, left) - 1
                drawable = positives[free[positives]]
                if len(drawable) < count and len(positives) >= enough:  # most of those found are in the batch
                    (positives,) = self._positives(np.array([anchor]), among, len(among))
                    drawable = positives[free[positives]]
                drawn = generator.choice(drawable, min(count, len(drawable)), replace=False)
                free[drawn] = False
                groups.append(np.concatenate([[anchor], drawn]))
                left -= len(groups[-1])
            start, stop = stop, stop + left
        return groups

    def _positives(self, anchors: Integers, among: Tensor, count: int) -> list[Integers]:
        rows = torch.from_numpy(anchors)
        return [positives.numpy() for positives in self._relation.find_positives(rows, among, count)]
