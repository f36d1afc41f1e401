"""Equal labels as lists of positions, without an N x N comparison."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import device
from trivet.runtime.lazy import lazy

Numbers = Tensor | npt.NDArray[np.int64]  # on a CPU numpy does all this, in half the time


class LabelGroups:
    """The positions of each value of `values (M,)`, in order; nothing is computed before it is read.

    Under `torch.compile`, where no size may depend on the values, every list has room for all M positions.
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values.contiguous()

    @lazy
    def largest(self) -> int:
        """Return how often the most frequent value occurs; 0 without values."""
        if torch.compiler.is_compiling() or self._values.shape[0] == 0:
            return self._values.shape[0]
        return int(device.read_extremes(self.ranges(self._values)[1])[1])

    @lazy
    def _sorted(self) -> tuple[Numbers, Numbers]:
        """The values in order, and their positions."""
        if device.read_freely(self._values):
            values = self._values.numpy()
            entries = values.argsort(kind="stable")
            return values[entries], entries
        ordered, positions = self._values.sort(stable=True)
        return ordered, positions

    def ranges(self, keys: Tensor) -> tuple[Numbers, Numbers]:
        """Return where the positions of each of `keys (B,)` start, and how many there are, `(B,)` each; for
        `positions`.

        Under `torch.compile` the keys themselves.
        """
        if torch.compiler.is_compiling() or self._values.shape[0] == 0:
            return keys, keys
        ordered = self._sorted[0]
        if isinstance(ordered, np.ndarray):
            wanted = keys.numpy()
            first = ordered.searchsorted(wanted)
            return first, ordered.searchsorted(wanted, side="right") - first
        keys = keys.contiguous()
        starts = torch.searchsorted(ordered, keys)
        return starts, torch.searchsorted(ordered, keys, right=True) - starts

    def positions(self, starts: Numbers, counts: Numbers, number: int, *, even: bool = False) -> Tensor:
        """Positions `(B, number)` of the keys with these `ranges`, ascending, filled up with M.

        None has more than `number`, and none has less if they are `even`.
        """
        values, size = self._values, self._values.shape[0]
        if number == 0:
            return values.new_zeros((starts.shape[0], 0))
        if isinstance(starts, np.ndarray):
            order, slots = np.asarray(self._sorted[1]), np.arange(number)
            ranks = starts[:, None] + slots
            if not even:
                order = np.append(order, size)
                ranks[slots >= counts[:, None]] = size
            return torch.from_numpy(order[ranks])
        if torch.compiler.is_compiling():
            here = torch.arange(size, device=values.device)
            return here.where(values == starts[:, None], size).sort(dim=1).values
        return _positions_on_device(
            torch.as_tensor(self._sorted[1]), starts, torch.as_tensor(counts), number, even=even
        )


def _positions_on_device(order: Tensor, starts: Tensor, counts: Tensor, number: int, *, even: bool) -> Tensor:
    """`LabelGroups.positions` on any device."""
    slots = torch.arange(number, device=starts.device)
    ranks = starts[:, None] + slots
    if even:
        return order[ranks]
    size = order.shape[0]
    order = torch.nn.functional.pad(order, (0, 1), value=size)
    return order[ranks.masked_fill_(slots >= counts[:, None], size)]


def without(columns: Tensor, excluded: Tensor) -> Tensor:
    """The ascending `columns (B, L)` without the one of each row that is its `place (B,)`, `(B, L - 1)`."""
    if device.read_freely(columns):
        rows = columns.numpy()
        return torch.from_numpy(np.where(rows[:, :-1] < excluded.numpy()[:, None], rows[:, :-1], rows[:, 1:]))
    ahead = columns[:, :-1]  # up to the slot of the place
    return ahead.where(ahead < excluded[:, None], columns[:, 1:])
