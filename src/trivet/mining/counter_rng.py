"""Random numbers that depend on nothing but a key and the place where they are used."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import device

# Constants of splitmix64 (Steele, Lea, Flood 2014; finalizer "mix13" of Stafford), as signed 64-bit numbers.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64

Words = TypeVar("Words", Tensor, npt.NDArray[np.int64])


class CounterRng:
    """Uniform numbers in [0, 1) for each (stream, anchor, slot).

    They are computed from their place, not drawn in order: the same key gives an anchor the same numbers whatever the
    blocks and however many processes share the batch, and nothing but the key is state. Each source has a stream of
    its own, so that the choice of a positive tells nothing of the choice of a negative.

    Args:
        key: `(2,)` int64, a seed and the number of the step.
    """

    def __init__(self, key: Tensor) -> None:
        # On a CPU numpy does this arithmetic: a call of it takes a fifth of the time.
        self._key = _of_step(key.numpy()) if device.read_freely(key) else _of_step(key)

    def uniform(self, anchors: Tensor, slots: int, *, stream: int) -> Tensor:
        """The numbers `(B, slots)` float64 of the anchors `(B,)`, given by their place in the whole batch."""
        if isinstance(self._key, Tensor):
            numbers = torch.arange(1, slots + 1, device=anchors.device)
            return torch.mul(_bits(self._key, anchors, numbers, stream).double(), 2.0**-53)
        return torch.from_numpy(_bits(self._key, anchors.numpy(), np.arange(1, slots + 1), stream) * 2.0**-53)


def new_key(generator: torch.Generator | None) -> Tensor:
    """A key `(2,)` whose seed is drawn from `generator`, or from torch's own; ValueError of anything else."""
    if not isinstance(generator, torch.Generator | None):
        raise ValueError(
            f"generator must be a torch.Generator: got {type(generator).__name__}; pass one, or leave it out."
        )
    return torch.stack([torch.randint(2**62, (), generator=generator), torch.zeros((), dtype=torch.int64)])


def _of_step(key: Words) -> Words:
    """`(1,)`, of the seed and the step."""
    return _mix(_mix(key[:1] + _STEP) + (key[1:] + 1) * _STEP)


def _bits(key: Words, anchors: Words, slots: Words, stream: int) -> Words:
    """53 bits for each of the anchors `(B,)` and slots `(S,)`, what a float64 holds."""
    # Without `nothing`, torch.compile takes the products for index arithmetic, which does not overflow as it must.
    nothing = key & 0
    rows = _mix(_mix(key + stream) + ((anchors + 1) ^ nothing) * _STEP)
    return _shift_right(_mix(rows[:, None] + (slots ^ nothing) * _STEP), 11)


def _mix(x: Words) -> Words:
    x = (x ^ _shift_right(x, 30)) * _FIRST
    x = (x ^ _shift_right(x, 27)) * _SECOND
    x ^= _shift_right(x, 31)
    return x


def _shift_right(x: Words, bits: int) -> Words:
    x = x >> bits
    x &= 2 ** (64 - bits) - 1  # >> alone repeats the sign
    return x
