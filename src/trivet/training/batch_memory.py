"""Shared memory in which a worker's batches come to the process that trains, used again for later ones.

Fresh pages for each batch, as torch's own queue takes them, are a fifth of a worker's time with small images.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Rebuild = tuple[Callable[..., tuple[Tensor, ...]], tuple[object, ...]]


class Parcel:
    """A batch on its way: sent to another process, it arrives there as a tuple of tensors.

    Attributes:
        memory: `(n,)` uint8, shared; the inputs as bytes, and last 1 until the receiver has let go of them.
        inputs: a view of it.
        labels: `(N,)` each; small, so they are sent as they are.
    """

    def __init__(self, memory: Tensor, inputs: Tensor, labels: tuple[Tensor, ...]) -> None:
        self.memory, self.inputs, self.labels = memory, inputs, labels

    def __reduce__(self) -> Rebuild:
        labels = tuple(one.numpy() for one in self.labels)
        return _arrive, (self.memory, self.inputs.dtype, self.inputs.size(), self.inputs.stride(), labels)


def _arrive(
    memory: Tensor, dtype: torch.dtype, size: torch.Size, stride: tuple[int, ...], labels: tuple[np.ndarray, ...]
) -> tuple[Tensor, ...]:
    whole = memory.numpy()
    count = math.prod(size) * dtype.itemsize
    held = whole[:count]
    # The storage of the inputs holds this array, so the memory is free when the last tensor or view of them is gone.
    weakref.finalize(held, whole.__setitem__, -1, 0).atexit = False
    inputs = torch.from_numpy(held).view(dtype).as_strided(size, stride)
    return inputs, *map(torch.from_numpy, labels)


class BatchMemory:
    """Memory for the batches of one worker: as much as the receiver holds at once, and what is under way."""

    def __init__(self) -> None:
        self._shared: list[Tensor] = []

    def parcel(self, inputs: Tensor, labels: tuple[Tensor, ...]) -> Parcel:
        """A copy of a batch, of the same strides where the inputs are dense, in memory that nobody reads any more."""
        count = inputs.numel() * inputs.itemsize
        memory = self._free(count)
        strides = torch.empty_like(inputs, device="meta").stride()
        copied = memory[:count].view(inputs.dtype).as_strided(inputs.size(), strides)
        copied.copy_(inputs)
        memory[-1] = 1
        return Parcel(memory, copied, labels)

    def _free(self, count: int) -> Tensor:
        """Memory for `count` bytes and one more; what is free but too small is given up."""
        for memory in self._shared:
            if memory[-1] == 0 and len(memory) > count:
                return memory
        self._shared = [memory for memory in self._shared if memory[-1] != 0]
        fresh: Tensor = torch.zeros(count + 1, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]  # torch has no type for it
        self._shared.append(fresh)
        return fresh
