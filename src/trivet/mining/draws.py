"""Random numbers that depend on nothing but a key and the place where they are used."""

from __future__ import annotations

import torch
from torch import Tensor

# Constants of splitmix64 (Steele, Lea, Flood 2014; finalizer "mix13" of Stafford), as signed 64-bit numbers.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


class Draws:
    """Uniform numbers in [0, 1) for each (stream, anchor, slot).

    They are computed from their place, not drawn in order: the same key gives an anchor the same numbers whatever the
    blocks and however many processes share the batch, and nothing but the key is state. Each source has a stream of
    its own, so that the choice of a positive tells nothing of the choice of a negative.

    Args:
        key: `(2,)` int64, a seed and the number of the step.
    """

    def __init__(self, key: Tensor) -> None:
        self._key = _mix(_mix(key[0] + _STEP) + (key[1] + 1) * _STEP)

    def uniform(self, anchors: Tensor, slots: int, *, stream: int) -> Tensor:
        """The numbers `(B, slots)` float64 of the anchors `(B,)`, given by their place in the whole batch."""
        # Without `nothing`, torch.compile takes the products for index arithmetic, which does not overflow as it must.
        nothing = self._key & 0
        rows = _mix(_mix(self._key + stream) + ((anchors + 1) ^ nothing) * _STEP)
        columns = (torch.arange(1, slots + 1, device=anchors.device) ^ nothing) * _STEP
        bits = _shift_right(_mix(rows[:, None] + columns), 11)  # 53 of them, what a float64 holds
        return torch.mul(bits.double(), 2.0**-53)


def new_key(generator: torch.Generator | None) -> Tensor:
    """A key `(2,)` whose seed is drawn from `generator`, or from torch's own."""
    return torch.stack([torch.randint(2**62, (), generator=generator), torch.zeros((), dtype=torch.int64)])


def _mix(x: Tensor) -> Tensor:
    x = torch.mul(x ^ _shift_right(x, 30), _FIRST)
    x = torch.mul(x ^ _shift_right(x, 27), _SECOND)
    return torch.bitwise_xor(x, _shift_right(x, 31))


def _shift_right(x: Tensor, bits: int) -> Tensor:
    return torch.bitwise_and(x >> bits, 2 ** (64 - bits) - 1)  # >> alone repeats the sign
