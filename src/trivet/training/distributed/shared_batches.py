"""Shared memory in which a worker's batches come to the process that trains, used again for later ones.

Fresh pages for each batch, as torch's own queue takes them, are a fifth of a worker's time with small images.
"""

from __future__ import annotations

import math
import uuid
import weakref
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Rebuild = tuple[Callable[..., tuple[Tensor, ...]], tuple[object, ...]]


class SharedBuffers(dict[tuple[str, int], Tensor]):
    """Memory of workers that has come to this process once, by sender and number: it is not sent again.

    Attributes:
        name: by which parcels find it in this process, as long as something holds it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        _arrivals[self.name] = self


_arrivals: weakref.WeakValueDictionary[str, SharedBuffers] = weakref.WeakValueDictionary()


class SharedBatch:
    """A batch on its way: sent to another process, it arrives there as a tuple of tensors.

    Attributes:
        memory: `(n,)` uint8, shared; the inputs as bytes, and last 1 until the receiver has let go of them.
        inputs: a view of it.
        labels: `(N,)` each; small, so they are sent as they are.
        arrivals: the name of where it arrives.
        slot: the sender, and which of its memory this is.
        known: whether the receiver has the memory: to send it takes longer than all the rest.
    """

    def __init__(
        self,
        memory: Tensor,
        inputs: Tensor,
        labels: tuple[Tensor, ...],
        *,
        arrivals: str,
        slot: tuple[str, int],
        known: bool,
    ) -> None:
        self.memory, self.inputs, self.labels = memory, inputs, labels
        self.arrivals, self.slot, self.known = arrivals, slot, known

    def __reduce__(self) -> Rebuild:
        labels = tuple(column.numpy() for column in self.labels)
        sent = None if self.known else self.memory
        inputs = self.inputs
        return _arrive, (self.arrivals, self.slot, sent, inputs.dtype, inputs.size(), inputs.stride(), labels)


def _arrive(
    arrivals: str,
    slot: tuple[str, int],
    sent: Tensor | None,
    dtype: torch.dtype,
    size: torch.Size,
    stride: tuple[int, ...],
    labels: tuple[np.ndarray, ...],
) -> tuple[Tensor, ...]:
    if sent is not None:
        _arrivals[arrivals][slot] = sent
    buffer = _arrivals[arrivals][slot].numpy()
    count = math.prod(size) * dtype.itemsize
    content = buffer[:count]
    # The storage of the inputs holds this array, so the memory is free when the last tensor or view of them is gone.
    weakref.finalize(content, buffer.__setitem__, -1, 0).atexit = False
    inputs = torch.from_numpy(content).view(dtype).as_strided(size, stride)
    return inputs, *map(torch.from_numpy, labels)


class BatchMemory:
    """Memory for the batches of one worker: as much as the receiver holds at once, and what is under way.

    Args:
        arrivals: the name of where they arrive.
    """

    def __init__(self, arrivals: str) -> None:
        self.arrivals, self.sender = arrivals, uuid.uuid4().hex
        self._shared: list[Tensor] = []

    def pack(self, inputs: Tensor, labels: tuple[Tensor, ...]) -> SharedBatch:
        """A copy of a batch, of the same strides where the inputs are dense, in memory that nobody reads any more."""
        count = inputs.numel() * inputs.itemsize
        slot, known = self._free(count)
        memory = self._shared[slot]
        strides = torch.empty_like(inputs, device="meta").stride()
        copied = memory[:count].view(inputs.dtype).as_strided(inputs.size(), strides)
        copied.copy_(inputs)
        memory[-1] = 1
        return SharedBatch(memory, copied, labels, arrivals=self.arrivals, slot=(self.sender, slot), known=known)

    def _free(self, count: int) -> tuple[int, bool]:
        """The place of memory for `count` bytes and one more, and whether it was there; a free one may be replaced."""
        free = [slot for slot, memory in enumerate(self._shared) if memory[-1] == 0]
        for slot in free:
            if len(self._shared[slot]) > count:
                return slot, True
        fresh: Tensor = torch.zeros(count + 1, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]  # torch has no type for it
        if not free:
            self._shared.append(fresh)
            return len(self._shared) - 1, False
        self._shared[free[0]] = fresh
        return free[0], False
