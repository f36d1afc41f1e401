"""Equal labels as lists of positions, without an N x N comparison."""

from __future__ import annotations

import torch
from torch import Tensor


class Groups:
    """The positions of each value of `values (M,)`, in order.

    Attributes:
        largest: how often the most frequent value occurs; 0 without values.
    """

    def __init__(self, values: Tensor) -> None:
        self._total = len(values)
        self._values, inverse, self._counts = torch.unique(values, return_inverse=True, return_counts=True)
        self._order = inverse.argsort(stable=True)
        self._starts = self._counts.cumsum(0) - self._counts
        self.largest = int(self._counts.max()) if len(values) else 0

    def positions(self, keys: Tensor) -> Tensor:
        """Positions `(B, largest)` of each of `keys (B,)`, ascending, filled up with M."""
        if self.largest == 0:
            return torch.zeros((len(keys), 0), dtype=torch.int64, device=keys.device)
        group = torch.searchsorted(self._values, keys).clamp_max(len(self._values) - 1)
        count = self._counts[group].where(self._values[group] == keys, 0)[:, None]
        slot = torch.arange(self.largest, device=keys.device)
        filled = slot < count
        found: Tensor = self._order[(self._starts[group][:, None] + slot).where(filled, 0)].where(filled, self._total)
        return found
