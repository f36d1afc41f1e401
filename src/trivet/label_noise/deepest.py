"""Share of the surest items that disagree, which overlap explains least of, and its interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trivet.runtime.arrays import Booleans, Floats

DEEP = (0.2, 0.3, 0.45, 0.6, 0.8, 1.0)  # shares of the items that may be looked at, the deepest
DOUBLE = 2.0  # how many times overlap may explain more than the fitted probabilities say
QUANTILE = 1.96  # standard deviations of a 95 % interval


def deepest_share(disagrees: Booleans) -> tuple[float, int]:
    """The share that disagrees of the deepest items, given deepest first `(N,)`, and how many items it is read from."""
    if not len(disagrees):
        return 0.0, 1
    tried: list[tuple[float, int]] = []
    for share in DEEP:
        items = max(1, round(share * len(disagrees)))
        rate = float(disagrees[:items].mean())
        for less, fewer in tried:
            # The deviation of the difference, the fewer items being among these; 0 is taken for one wrong in two more.
            sure = (less * fewer + 1) / (fewer + 2)
            if rate - less > math.sqrt(max(0.0, sure * (1 - sure) * (1 / fewer - 1 / items))):
                return tried[-1]
        tried.append((rate, items))
    return tried[-1]


def wilson(share: Any, count: Any, quantile: float = QUANTILE) -> tuple[Floats, Floats]:
    """The interval of Wilson, "Probable Inference", JASA 1927; of 95 % if no other is asked for."""
    share, count = np.asarray(share, np.float64), np.asarray(count, np.float64)
    spread = quantile**2 / count
    centre = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
