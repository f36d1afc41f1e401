"""Exact choices in the rows of a large matrix of distances, in a few passes and without sorting.

A row is cut into chunks. One pass gives a number for each chunk, its smallest entry or its count, and only one chunk
of each row is looked at more closely.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 64


def nearest(values: Tensor) -> Tensor:
    """The column `(B, 1)` of the smallest of `values (B, M)`, M >= 1; the lowest of tied ones."""
    if values.shape[1] < 2 * CHUNK:
        return values.argmin(dim=1, keepdim=True)
    chunks = _chunks(values, torch.inf)
    chunk = chunks.amin(dim=2).argmin(dim=1, keepdim=True)  # (B, 1)
    return chunk * CHUNK + _take(chunks, chunk).argmin(dim=2)


def nearest_few(values: Tensor, number: int) -> Tensor:
    """The columns `(B, number)` of the smallest of `values (B, M)`, nearest first; the lowest of tied ones first."""
    if number == 1:
        return nearest(values)
    left, smallest = values.clone(), []
    for _ in range(number):
        smallest.append(nearest(left))
        left.scatter_(1, smallest[-1], torch.inf)
    return torch.cat(smallest, dim=1)


def below(values: Tensor, limits: Tensor) -> Tensor:
    """1 where `values (B, M)` are below the limits `(B, 1)` of their rows, else 0, as floats."""
    # Written at once as numbers: a bool matrix and its conversion take several times as long on a CPU.
    return torch.lt(values, limits, out=torch.empty_like(values))


def relative_powers(exponents: Tensor, largest: Tensor) -> Tensor:
    """exp(x - largest) of `exponents (B, M)`, at most 1, written over them; `largest (B, 1)` is finite.

    What is less than 2e-35, about e^-80, becomes 0: exp takes 100 times as long where it underflows.
    """
    return torch.threshold_(exponents.sub_(largest).clamp_min_(-80).exp_(), 2e-35, 0)


class Ranges:
    """For each row of `values (B, M)` and each slot, the columns whose value lies in an open interval.

    Args:
        low: `(B, S)` exclusive lower ends, or None for none.
        high: `(B, S)` exclusive upper ends; not above low means an empty interval.
    """

    def __init__(self, values: Tensor, low: Tensor | None, high: Tensor) -> None:
        self._chunked = _chunks(values, torch.inf)  # (B, C, 64)
        self._low, self._high = low, high
        counts, inside = [], torch.empty_like(self._chunked)
        for slot in range(high.shape[1]):
            count = torch.lt(self._chunked, high[:, slot, None, None], out=inside).sum(dim=2)
            if low is not None:
                reached = torch.le(self._chunked, low[:, slot, None, None], out=inside).sum(dim=2)
                count = (count - reached).clamp_min_(0)
            counts.append(count)
        self._until = torch.stack(counts, dim=1).cumsum(dim=2)  # (B, S, C): in this chunk and those before it

    @property
    def count(self) -> Tensor:
        """How many columns there are for each slot, `(B, S)`."""
        return self._until[:, :, -1]

    def column(self, rank: Tensor) -> Tensor:
        """The column of this rank, from the left, for each slot `(B, S)`; where there is none it means nothing."""
        chunk = torch.searchsorted(self._until, rank[:, :, None].to(self._until.dtype), right=True)
        chunk = chunk.clamp_max(self._until.shape[2] - 1)  # (B, S, 1)
        before = torch.where(chunk > 0, self._until.gather(2, (chunk - 1).clamp_min(0)), 0)
        near = _take(self._chunked, chunk[:, :, 0])  # (B, S, 64)
        inside = near < self._high[:, :, None]
        if self._low is not None:
            inside &= near > self._low[:, :, None]
        passed = inside.to(before.dtype).cumsum(dim=2) <= rank[:, :, None] - before
        return chunk[:, :, 0] * CHUNK + passed.sum(dim=2).clamp_max(CHUNK - 1)


def weighted(weights: Tensor, uniform: Tensor) -> Tensor:
    """Columns `(B, S)` drawn with probability proportional to `weights (B, M)`, one for each of `uniform (B, S)`.

    M >= 1. Means nothing for a row without a positive weight.
    """
    chunks = _chunks(weights, 0)
    until = chunks.sum(dim=2).double().cumsum(dim=1)  # (B, C)
    target = uniform.clamp_max(1 - 2**-40) * until[:, -1:]
    chunk = torch.searchsorted(until, target, right=True).clamp_max(until.shape[1] - 1)  # (B, S)
    start = torch.where(chunk > 0, until.gather(1, (chunk - 1).clamp_min(0)), 0)
    share = ((target - start) / (until.gather(1, chunk) - start)).clamp(0, 1 - 2**-40)  # of the way through the chunk
    inside = _take(chunks, chunk).double().cumsum(dim=2)  # (B, S, 64)
    return chunk * CHUNK + (inside <= share[:, :, None] * inside[:, :, -1:]).sum(dim=2).clamp_max(CHUNK - 1)


def _chunks(values: Tensor, fill: float) -> Tensor:
    """`(B, C, 64)`, the last chunk filled up."""
    missing = -values.shape[1] % CHUNK
    full: Tensor = pad(values, (0, missing), value=fill) if missing else values
    return full.view(len(values), full.shape[1] // CHUNK, CHUNK)


def _take(chunks: Tensor, chunk: Tensor) -> Tensor:
    """The chunks `(B, S, 64)` with the numbers `chunk (B, S)`."""
    return chunks.gather(1, chunk[:, :, None].expand(-1, -1, CHUNK))
