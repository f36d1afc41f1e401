"""Batches of P classes with K items each that cover the whole training set in every epoch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor


class Coverage(NamedTuple):
    """What share of the items and of the classes an epoch shows at least once."""

    items: float
    classes: float


class _Quotas(NamedTuple):
    """How many classes of each group a step takes."""

    groups: npt.NDArray[np.int64]  # (C,) the group of each class, 0 .. G - 1
    per_step: npt.NDArray[np.int64]  # (steps, G)


def check_place(epoch: int, step: int, steps: int) -> None:
    """Raise ValueError unless there is such an epoch, and such a step among the `steps` of each."""
    if epoch < 0 or not 0 <= step < steps:
        raise ValueError(f"epoch must be 0 or more and step 0 to {steps - 1}: got epoch {epoch}, step {step}.")


class PKBatches:
    """Batches of `num_classes` different classes with `samples_per_class` items each.

    In an epoch the items of each class are shuffled and cut into chunks of `samples_per_class`; the last chunk is
    filled up with other items of the class, and a class with fewer items gives all of them. Each step takes chunks of
    different classes, at random in proportion to the chunks a class has left, and at once where a class could not be
    finished otherwise. Classes that are finished early give further chunks where too few others are left. So every
    item is seen in every epoch, and no item twice in a batch. A batch is a pure function of seed, epoch and step.

    Args:
        labels: `(N,)` integer class of each item: an array, a list or a tensor.
        num_classes: P, at least 2 and at most the number of classes.
        samples_per_class: K, at least 1. With one there is no positive: for losses that compare no two items.
        seed: not negative.
        groups: `(N,)` integer group of each item, such as a coarser class: each class lies in one. The P classes of a
            batch are then divided among the groups as evenly as these have classes, whatever their sizes; groups take
            turns for what is over. Those with more items are not drawn more often, so an epoch is longer.
        positives: whether each item of a batch needs another of its class, unless K = 1.

    Raises:
        ValueError: if there are fewer than P classes, a class has a single item and needs a positive, or a class lies
            in two groups.

    Example:
        >>> PKBatches(np.array([0, 0, 0, 1, 1]), num_classes=2, samples_per_class=2, seed=0).steps_per_epoch
        2
    """

    def __init__(
        self,
        labels: npt.ArrayLike | Tensor,
        *,
        num_classes: int,
        samples_per_class: int,
        seed: int,
        groups: npt.NDArray[np.integer] | None = None,
        positives: bool = True,
    ) -> None:
        labels = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                f"labels must be integers of shape (N,): got {labels.dtype} of shape {labels.shape}; "
                "number the classes, one for each item."
            )
        if num_classes < 2 or samples_per_class < 1:
            raise ValueError(
                "a batch needs at least two classes (or there is no negative) and a sample of each: got num_classes = "
                f"{num_classes} and samples_per_class = {samples_per_class}."
            )
        if seed < 0:
            raise ValueError(f"seed must not be negative: got {seed}.")
        classes, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if len(classes) < num_classes:
            raise ValueError(
                f"a batch of num_classes = {num_classes} needs as many training classes: got {len(classes)}; "
                f"set num_classes to {len(classes)} or less and samples_per_class higher."
                if len(classes) >= 2
                else f"batches need at least two training classes: got {len(classes)}; add a class."
            )
        if positives and samples_per_class > 1 and (counts == 1).any():
            single = classes[counts == 1]
            raise ValueError(
                f"a class needs at least two items, so that it has a positive: class {single[0]} has one "
                f"({len(single)} of {len(classes)} classes); add items, or remove the class."
            )
        order = np.argsort(inverse, kind="stable")
        self._items = np.split(order, np.cumsum(counts)[:-1])  # positions of the items of each class
        self._chunks = -(-counts // samples_per_class)  # (C,)
        self._num_classes = num_classes
        self._samples_per_class = samples_per_class
        self._seed = seed
        self._quotas = None if groups is None else self._shared(np.asarray(groups), labels, inverse)
        if self._quotas is None:
            self._steps = int(max(-(-self._chunks.sum() // num_classes), self._chunks.max()))
        else:
            self._steps = len(self._quotas.per_step)
        self._planned: tuple[int, list[np.ndarray]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""
        return self._steps

    def batch(self, epoch: int, step: int) -> np.ndarray:
        """Positions `(B,)` int64 of the items of a batch, class by class; B < P x K if a class has fewer than K items.

        Args:
            epoch: from 0.
            step: in the epoch, from 0 to `steps_per_epoch` - 1.
        """
        check_place(epoch, step, self._steps)
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self._plan(epoch))
        return self._planned[1][step]

    def coverage(self, epoch: int) -> Coverage:
        """The shares of items and classes that the batches of an epoch hold, counted from the batches themselves."""
        seen = np.zeros(sum(len(items) for items in self._items), bool)
        for step in range(self._steps):
            seen[self.batch(epoch, step)] = True
        return Coverage(float(seen.mean()), float(np.mean([seen[items].any() for items in self._items])))

    def _plan(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.default_rng(np.random.SeedSequence((self._seed, epoch)))
        if self._quotas is not None:
            return self._plan_shared(self._quotas, generator)
        shuffled = [generator.permutation(items) for items in self._items]
        left = self._chunks.copy()
        batches = []
        for steps_left in range(self._steps, 0, -1):
            # Keys of a weighted draw without replacement (Efraimidis, Spirakis 2006); forced classes come first, and
            # after the unfinished classes the finished ones, at random.
            keys = generator.standard_exponential(len(left))
            keys = np.where(left > 0, keys / np.maximum(left, 1), np.inf)
            keys[left == steps_left] = -1
            chosen = np.argsort(keys, kind="stable")[: self._num_classes]
            chosen = chosen[left[chosen] > 0]
            groups = [self._chunk(shuffled[c], self._chunks[c] - left[c], generator) for c in chosen.tolist()]
            left[chosen] -= 1
            if len(chosen) < self._num_classes:
                finished = np.setdiff1d(np.arange(len(left)), chosen)
                for c in generator.choice(finished, self._num_classes - len(chosen), replace=False).tolist():
                    groups.append(generator.permutation(self._items[c])[: self._samples_per_class])
            batches.append(np.concatenate(groups))
        assert not left.any()
        return batches

    def _chunk(self, shuffled: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
        """Chunk `number` of a class's shuffled items, filled up from the items before it if it is the last."""
        start = number * self._samples_per_class
        chunk = shuffled[start : start + self._samples_per_class]
        lacking = min(self._samples_per_class - len(chunk), start)
        return np.concatenate((chunk, generator.choice(shuffled[:start], lacking, replace=False)))

    def _shared(
        self, groups: npt.NDArray[np.integer], labels: npt.NDArray[np.integer], inverse: npt.NDArray[np.integer]
    ) -> _Quotas:
        """The quotas of as many steps as it takes until every chunk of every class can have been taken."""
        if groups.shape != labels.shape:
            raise ValueError(
                f"groups must have the shape of labels, {labels.shape}: got {groups.shape}; give one each."
            )
        first = groups[[items[0] for items in self._items]]
        if (first[inverse] != groups).any():
            item = int(np.flatnonzero(first[inverse] != groups)[0])
            raise ValueError(f"each class must lie in one group: class {labels[item]} lies in two; mend the groups.")
        of = np.unique(first, return_inverse=True)[1]
        sizes = np.bincount(of)
        chunks = [np.sort(self._chunks[of == group])[::-1] for group in range(len(sizes))]
        steps: list[npt.NDArray[np.int64]] = []
        room = [np.zeros(len(one), np.int64) for one in chunks]  # what the k classes of most chunks can get so far
        while not steps or any((have < np.cumsum(need)).any() for have, need in zip(room, chunks, strict=True)):
            quota = self._quota(sizes, turn=len(steps))
            steps.append(quota)
            for group, have in enumerate(room):
                have += np.minimum(quota[group], np.arange(1, len(have) + 1))
        return _Quotas(of, np.array(steps))

    def _quota(self, sizes: npt.NDArray[np.int64], *, turn: int) -> npt.NDArray[np.int64]:
        """Of groups with so many classes each, the even shares of a batch; what is over goes to the next in turn."""
        quota = np.zeros(len(sizes), np.int64)
        while left := self._num_classes - int(quota.sum()):
            open_groups = np.flatnonzero(quota < sizes)
            each = left // len(open_groups)
            if each:
                quota[open_groups] = np.minimum(quota[open_groups] + each, sizes[open_groups])
            else:
                quota[np.roll(open_groups, -turn * self._num_classes)[:left]] += 1
        return quota

    def _plan_shared(self, quotas: _Quotas, generator: np.random.Generator) -> list[np.ndarray]:
        """Of each group the classes that have most chunks left, equal ones at random: so no chunk is left over."""
        shuffled = [generator.permutation(items) for items in self._items]
        left = self._chunks.copy()
        batches = []
        for quota in quotas.per_step:
            order = np.lexsort((generator.random(len(left)), -left))
            chosen = np.concatenate([order[quotas.groups[order] == group][:count] for group, count in enumerate(quota)])
            parts = []
            for c in chosen.tolist():
                if left[c] > 0:
                    parts.append(self._chunk(shuffled[c], self._chunks[c] - left[c], generator))
                    left[c] -= 1
                else:
                    parts.append(generator.permutation(self._items[c])[: self._samples_per_class])
            batches.append(np.concatenate(parts))
        assert not left.any()
        return batches
