"""Equal labels as lists of positions, without an N x N comparison."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.mining.lazy import lazy


class Groups:
    """The positions of each value of `values (M,)`, in order; nothing is computed before it is read.

    Under `torch.compile`, where no size may depend on the values, every list has room for all M positions.
    """

    def __init__(self, values: Tensor) -> None:
        self._given = values

    @lazy
    def largest(self) -> int:
        """How often the most frequent value occurs; 0 without values."""
        if torch.compiler.is_compiling() or len(self._given) == 0:
            return len(self._given)
        return int(self._sorted[2].max())

    @lazy
    def _sorted(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The different values, the positions ordered by value, how many each value has and where they start."""
        order = self._given.argsort(stable=True)
        values, counts = torch.unique_consecutive(self._given[order], return_counts=True)
        return values, order, counts, counts.cumsum(0) - counts

    def positions(self, keys: Tensor) -> Tensor:
        """Positions `(B, largest)` of each of `keys (B,)`, ascending, filled up with M."""
        if self.largest == 0:
            return torch.zeros((len(keys), 0), dtype=torch.int64, device=keys.device)
        if torch.compiler.is_compiling():
            here = torch.arange(len(self._given), device=keys.device)
            return here.where(self._given == keys[:, None], len(self._given)).sort(dim=1).values
        values, order, counts, starts = self._sorted
        group = torch.searchsorted(values, keys).clamp_max(len(values) - 1)
        count = counts[group].where(values[group] == keys, 0)[:, None]
        slot = torch.arange(self.largest, device=keys.device)
        filled = slot < count
        return order[(starts[group][:, None] + slot).where(filled, 0)].where(filled, len(self._given))
