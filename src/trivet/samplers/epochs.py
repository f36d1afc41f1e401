"""Epochs of planned batches, and where in them a training is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trivet.runtime.arrays import Integers


class Coverage(NamedTuple):
    """Shares of the items and of the classes that are in some batch of an epoch; None where there are no classes."""

    items: float
    classes: float | None


def check_step(epoch: int, step: int, steps: int) -> None:
    """Raise ValueError unless there is such an epoch, and such a step among the `steps` of each."""
    if epoch < 0 or not 0 <= step < steps:
        raise ValueError(f"epoch must be 0 or more and step 0 to {steps - 1}: got epoch {epoch}, step {step}.")


class EpochBatches(ABC):
    """Batches that are a pure function of seed, epoch and step.

    As `batch_sampler` of a `torch.utils.data.DataLoader` they are given one epoch after the other; an epoch that was
    left early begins again. `set_epoch`, `state_dict` and `load_state_dict` move to another batch.

    Args:
        seed: not negative.

    Attributes:
        drop_last: False; part of what is expected of a batch sampler.

    Raises:
        ValueError: if the seed is negative.
    """

    drop_last = False

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed must not be negative: got {seed}.")
        self._seed = seed
        self._epoch, self._start = 0, 0  # of the next iteration
        self._next = 0  # the step that comes after those of the current one

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """The number of batches in every epoch."""

    @abstractmethod
    def batch(self, epoch: int, step: int) -> Integers:
        """Positions `(B,)` int64 of the items of a batch.

        Args:
            epoch: from 0.
            step: in the epoch, from 0 to `steps_per_epoch` - 1.
        """

    def local_batch(self, epoch: int, step: int) -> Integers:
        """Positions of the items of a batch that this process makes."""
        return self.batch(epoch, step)

    def __len__(self) -> int:
        """The number of batches in every epoch, also in one that is resumed."""
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the current epoch that this process makes; once all are taken, the next epoch is current."""
        epoch = self._epoch
        self._next = self._start
        for step in range(self._start, len(self)):
            batch = self.local_batch(epoch, step)
            self._next = step + 1
            yield batch.tolist()
        self._epoch, self._start, self._next = epoch + 1, 0, 0

    def set_epoch(self, epoch: int, step: int | None = None) -> None:
        """Let the next iteration begin with a step of an epoch; without a step, the current epoch stays as it is.

        A loop that calls it before each epoch, as with a `DistributedSampler`, thus may resume inside of one.

        Raises:
            ValueError: if there is no such epoch or step.
        """
        check_step(epoch, step or 0, len(self))
        if epoch != self._epoch or step is not None:
            self._epoch, self._start, self._next = epoch, step or 0, step or 0

    def state_dict(self) -> dict[str, int]:
        """The seed, and epoch and step of the batch that is drawn next.

        A DataLoader with workers draws up to `num_workers * prefetch_factor` batches ahead of the training. To resume
        exactly, put the batches trained in this epoch in place of "step".
        """
        if self._next == len(self):
            return {"seed": self._seed, "epoch": self._epoch + 1, "step": 0}
        return {"seed": self._seed, "epoch": self._epoch, "step": self._next}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration begin with the batch that a `state_dict` names, of the same items and options.

        Raises:
            ValueError: if it is of another seed, or there is no such epoch or step.
        """
        if state["seed"] != self._seed:
            raise ValueError(
                f"the state must be of the same seed: got {state['seed']}, and these batches have {self._seed}."
            )
        check_step(state["epoch"], state["step"], len(self))
        self._epoch, self._start, self._next = state["epoch"], state["step"], state["step"]
