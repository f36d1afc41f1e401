"""Batches of P classes with K items each that cover the whole training set in every epoch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from trivet.runtime.arguments import explain_arguments
from trivet.runtime.arrays import Integers
from trivet.samplers.epochs import Coverage, EpochBatches, check_step


class _Quotas(NamedTuple):
    """The number of classes of each group, of the finest level of groups, that a step takes."""

    groups: npt.NDArray[np.int64]  # (C,) the group of each class, 0 .. G - 1
    per_step: npt.NDArray[np.int64]  # (steps, G)


class _ClassGroup:
    """A group of classes, and those inside it, from which each step takes some classes.

    Args:
        chunks: `(C,)` of each of its classes.
    """

    def __init__(self, chunks: npt.NDArray[np.int64]) -> None:
        self.children: list[_ClassGroup] = []
        self.taken = 0  # classes in this step
        self._before = 0  # classes in all earlier steps
        self._classes = len(chunks)
        self._need = np.cumsum(np.sort(chunks)[::-1])
        self._room = np.zeros(len(chunks), np.int64)  # what the k classes of most chunks can get so far

    @property
    def lacking(self) -> bool:
        """True if the steps so far cannot have taken all chunks."""
        return bool((self._room < self._need).any())

    def take(self, count: int) -> None:
        """Take so many classes, in even shares of the groups inside; what is over goes to the next ones in turn."""
        self.taken = count
        if self.children:
            sizes = np.array([child._classes for child in self.children])
            shares = np.zeros(len(sizes), np.int64)
            while left := count - int(shares.sum()):
                unfilled = np.flatnonzero(shares < sizes)
                each = left // len(unfilled)
                if each:
                    shares[unfilled] = np.minimum(shares[unfilled] + each, sizes[unfilled])
                else:
                    shares[np.roll(unfilled, -self._before)[:left]] += 1
            for child, share in zip(self.children, shares.tolist(), strict=True):
                child.take(share)
        else:
            self._room += np.minimum(count, np.arange(1, self._classes + 1))
        self._before += count


class PKBatches(EpochBatches):
    """Batches of `num_classes` different classes with `samples_per_class` items each.

    In an epoch the items of each class are shuffled and cut into chunks of `samples_per_class`; the last chunk is
    filled up with other items of the class, and a class with fewer items gives all of them. Each step takes chunks of
    different classes, at random in proportion to the chunks a class has left, and at once where a class could not be
    finished otherwise. Classes that are finished early give further chunks where too few others are left. So every
    item is seen in every epoch, and no item twice in a batch. A batch is a pure function of seed, epoch and step.

    As `batch_sampler` of a `torch.utils.data.DataLoader` it gives the batches of one epoch after the other; an epoch
    that was left early begins again. `set_epoch`, `state_dict` and `load_state_dict` move it to another place.

    Args:
        labels: `(N,)` integer class of each item: an array, a list or a tensor.
        num_classes: P, at least 2 and at most the number of classes.
        samples_per_class: K, at least 1. With one there is no positive: for losses that compare no two items.
        seed: not negative.
        groups: `(N,)` integer group of each item, such as a coarser class: each class lies in one. The P classes of a
            batch are then divided among the groups as evenly as these have classes, whatever their sizes; groups take
            turns for what is over. Those with more items are not drawn more often, so an epoch is longer. Or `(N, L)`,
            several levels from coarse to fine: the share of a group is divided among the groups inside it in turn.
        positives: whether each item of a batch needs another of its class, unless K = 1.
        rank, world_size: this process and the number of those that share each batch: iteration then gives
            P / `world_size` whole classes of it. The parts of all processes are the batch of one; a loss with
            `gather=True` has its value. Leave them out where the batches are dealt out later, as accelerate and the
            Trainer of transformers do.

    Attributes:
        batch_size: P x K, over all processes; a batch with a class of fewer than K items is smaller.
        drop_last: False; part of what is expected of a batch sampler.

    Raises:
        ValueError: if there are fewer than P classes, a class has a single item and needs a positive, a class lies in
            two groups, or `world_size` does not divide P.

    Example:
        >>> PKBatches(np.array([0, 0, 0, 1, 1]), num_classes=2, samples_per_class=2, seed=0).steps_per_epoch
        2
        >>> import torch
        >>> labels = torch.arange(12) % 3
        >>> batches = PKBatches(labels, num_classes=2, samples_per_class=2, seed=0)
        >>> loader = torch.utils.data.DataLoader(torch.randn(12, 8), batch_sampler=batches)
        >>> [batch.shape for batch in loader][:2], batches.state_dict()
        ([torch.Size([4, 8]), torch.Size([4, 8])], {'seed': 0, 'epoch': 1, 'step': 0})
    """

    @explain_arguments
    def __init__(
        self,
        labels: npt.ArrayLike | Tensor,
        *,
        num_classes: int,
        samples_per_class: int,
        seed: int,
        groups: npt.ArrayLike | Tensor | None = None,
        positives: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        labels = _array(labels)
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
        if not 0 <= rank < world_size or num_classes % world_size:
            raise ValueError(
                "rank must lie in 0 .. world_size - 1, and world_size divide num_classes, so that all processes have "
                f"as many classes: got rank {rank}, world_size {world_size} and num_classes {num_classes}."
            )
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
        super().__init__(seed)
        self._rank, self._world_size = rank, world_size
        self._class_of = inverse
        self._quotas = None if groups is None else self._group_quotas(_array(groups), labels)
        if self._quotas is None:
            self._steps = int(max(-(-self._chunks.sum() // num_classes), self._chunks.max()))
        else:
            self._steps = len(self._quotas.per_step)
        self._planned: tuple[int, list[np.ndarray]] | None = None

    @property
    def batch_size(self) -> int:
        """The number of items of a batch over all processes, if no class has fewer than K."""
        return self._num_classes * self._samples_per_class

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
        check_step(epoch, step, self._steps)
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self._plan(epoch))
        return self._planned[1][step]

    def coverage(self, epoch: int) -> Coverage:
        """The shares of items and classes that the batches of an epoch hold, counted from the batches themselves."""
        covered = np.zeros(sum(len(items) for items in self._items), bool)
        for step in range(self._steps):
            covered[self.batch(epoch, step)] = True
        return Coverage(float(covered.mean()), float(np.mean([covered[items].any() for items in self._items])))

    def local_batch(self, epoch: int, step: int) -> Integers:
        """The items of the classes of this process; a batch lies class by class."""
        batch = self.batch(epoch, step)
        if self._world_size == 1:
            return batch
        starts = np.flatnonzero(np.diff(self._class_of[batch])) + 1
        each = self._num_classes // self._world_size
        return np.concatenate(np.split(batch, starts)[self._rank * each : (self._rank + 1) * each])

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

    def _group_quotas(self, groups: npt.NDArray[np.integer], labels: npt.NDArray[np.integer]) -> _Quotas:
        """The quotas of as many steps as it takes until every chunk of every class can have been taken."""
        if groups.shape[:1] != labels.shape or groups.ndim > 2 or groups.size < len(labels):
            raise ValueError(
                f"groups must have the shape of labels, {labels.shape}, or a column for each level: got "
                f"{groups.shape}; give one each."
            )
        if not np.issubdtype(groups.dtype, np.integer):
            raise ValueError(f"groups must be integers: got {groups.dtype}; number the groups.")
        tree = _ClassGroup(self._chunks)
        leaves = [tree]
        of = np.zeros(len(self._items), np.int64)
        for column in groups.reshape(len(labels), -1).T:
            first = column[[items[0] for items in self._items]]
            if (first[self._class_of] != column).any():
                item = int(np.flatnonzero(first[self._class_of] != column)[0])
                raise ValueError(
                    f"each class must lie in one group: class {labels[item]} lies in two; mend the groups."
                )
            inside, of = np.unique(
                np.stack([of, np.unique(first, return_inverse=True)[1]]), axis=1, return_inverse=True
            )
            of = of.reshape(-1)
            parents, leaves = leaves, [_ClassGroup(self._chunks[of == leaf]) for leaf in range(inside.shape[1])]
            for parent, leaf in zip(inside[0].tolist(), leaves, strict=True):
                parents[parent].children.append(leaf)
        steps: list[npt.NDArray[np.int64]] = []
        while not steps or any(leaf.lacking for leaf in leaves):
            tree.take(self._num_classes)
            steps.append(np.array([leaf.taken for leaf in leaves]))
        return _Quotas(of, np.array(steps))

    def _plan_shared(self, quotas: _Quotas, generator: np.random.Generator) -> list[np.ndarray]:
        """Take of each group the classes with most chunks left, equal ones at random: so no chunk is left over."""
        shuffled = [generator.permutation(items) for items in self._items]
        left = self._chunks.copy()
        batches = []
        for quota in quotas.per_step:
            order = np.lexsort((generator.random(len(left)), -left))
            chosen = np.concatenate([order[quotas.groups[order] == group][:count] for group, count in enumerate(quota)])
            chunks = []
            for c in chosen.tolist():
                if left[c] > 0:
                    chunks.append(self._chunk(shuffled[c], self._chunks[c] - left[c], generator))
                    left[c] -= 1
                else:
                    chunks.append(generator.permutation(self._items[c])[: self._samples_per_class])
            batches.append(np.concatenate(chunks))
        assert not left.any()
        return batches


def _array(values: npt.ArrayLike | Tensor) -> npt.NDArray[Any]:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
