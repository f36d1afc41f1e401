"""Equal labels as lists of positions, without an N x N comparison."""

from __future__ import annotations

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
        starts, ends = self.ranges(self._given)
        return int(device.read((ends - starts).max()[None])[0])

    @lazy
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The values in order, and their positions."""
        ordered, order = self._given.sort(stable=True)
        return ordered, order

    def ranges(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Where the positions of each of `keys (B,)` start, and where they end, `(B,)` each; for `positions`."""
        if torch.compiler.is_compiling() or len(self._given) == 0:
            return keys, keys
        ordered, keys = self._sorted[0], keys.contiguous()
        return torch.searchsorted(ordered, keys), torch.searchsorted(ordered, keys, right=True)

    def positions(self, starts: Tensor, ends: Tensor, number: int, *, even: bool = False) -> Tensor:
        """Positions `(B, number)` of the keys with these `ranges`, ascending, filled up with M.

        None has more than `number`, and none has less if they are `even`.
        """
        if number == 0:
            return torch.zeros((len(starts), 0), dtype=torch.int64, device=starts.device)
        if torch.compiler.is_compiling():
            here = torch.arange(len(self._given), device=starts.device)
            return here.where(self._given == starts[:, None], len(self._given)).sort(dim=1).values
        place = starts[:, None] + torch.arange(number, device=starts.device)
        if even:
            return self._sorted[1][place]
        order = torch.nn.functional.pad(self._sorted[1], (0, 1), value=len(self._given))
        return order[place.masked_fill_(place >= ends[:, None], len(self._given))]
