"""Equal labels as lists of positions, without an N x N comparison."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trivet.geometry import device
from trivet.lazy import lazy


class Groups:
    """The positions of each value of `values (M,)`, in order; nothing is computed before it is read.

    Under `torch.compile`, where no size may depend on the values, every list has room for all M positions.
    """

    def __init__(self, values: Tensor) -> None:
        self._given = values.contiguous()

    @lazy
    def largest(self) -> int:
        """How often the most frequent value occurs; 0 without values."""
        if torch.compiler.is_compiling() or len(self._given) == 0:
            return len(self._given)
        return int(device.read_extremes(self.ranges(self._given)[1])[1])

    @lazy
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The values in order, and their positions."""
        if device.read_freely(self._given):  # numpy does this in half the time
            values = self._given.numpy()
            places = values.argsort(kind="stable")
            return torch.from_numpy(values[places]), torch.from_numpy(places)
        ordered, order = self._given.sort(stable=True)
        return ordered, order

    def ranges(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Where the positions of each of `keys (B,)` start, and how many there are, `(B,)` each; for `positions`.

        Under `torch.compile` the keys themselves.
        """
        if torch.compiler.is_compiling() or self._given.shape[0] == 0:
            return keys, keys
        ordered, keys = self._sorted[0], keys.contiguous()
        if device.read_freely(keys):
            values, wanted = ordered.numpy(), keys.numpy()
            first = values.searchsorted(wanted)
            return torch.from_numpy(first), torch.from_numpy(values.searchsorted(wanted, side="right") - first)
        starts = torch.searchsorted(ordered, keys)
        return starts, torch.searchsorted(ordered, keys, right=True) - starts

    def positions(self, starts: Tensor, counts: Tensor, number: int, *, even: bool = False) -> Tensor:
        """Positions `(B, number)` of the keys with these `ranges`, ascending, filled up with M.

        None has more than `number`, and none has less if they are `even`.
        """
        if number == 0:
            return torch.zeros((starts.shape[0], 0), dtype=torch.int64, device=starts.device)
        if torch.compiler.is_compiling():
            here = torch.arange(len(self._given), device=starts.device)
            return here.where(self._given == starts[:, None], len(self._given)).sort(dim=1).values
        if even and device.read_freely(starts):
            return torch.from_numpy(self._sorted[1].numpy()[starts.numpy()[:, None] + np.arange(number)])
        slots = torch.arange(number, device=starts.device)
        place = starts[:, None] + slots
        if even:
            return self._sorted[1][place]
        order = torch.nn.functional.pad(self._sorted[1], (0, 1), value=len(self._given))
        return order[place.masked_fill_(slots >= counts[:, None], len(self._given))]
