"""Selection of the terms that survive trimming: the smallest of all, found without storing them all.

The terms of a batch may be as many as its pairs, so they are produced block by block, again for each pass. A pass
counts how often each digit of 16 bits occurs among the values that agree with the digits known so far (a radix
selection); two passes find the exact cut of float32 values, four that of float64 values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from trivet.distances import device

DIGITS = 2**16
MAX_STORED = 2**22  # values around a cut, of however many there are
MAX_SORTED = 2**15  # values that a CPU sorts in less time than it counts digits


@dataclass
class Cut:
    """All values below `value` are kept, and the first `ties` of those equal to it."""

    value: Tensor  # scalar, the largest kept value
    ties: Tensor  # scalar int64, how many values equal to it are still to be kept; counted down by `retained`
    all_ties: bool = False  # whether these are all there are, so that nothing need be counted

    def retained(self, values: Tensor, candidates: Tensor) -> Tensor:
        """Return which of the `candidates (B, T)` are kept; blocks must come in order."""
        if self.all_ties:
            return (values <= self.value) & candidates
        tied = (values == self.value) & candidates
        number = tied.flatten().cumsum(0).reshape(tied.shape)
        mask = ((values < self.value) & candidates) | (tied & (number <= self.ties))
        self.ties = (self.ties - tied.sum()).clamp_min(0)
        return mask


def smallest(
    passes: Callable[[], Iterable[Tensor]],
    share: float,
    like: Tensor,
    add_up: Callable[[Tensor], Tensor] = lambda counts: counts,
    add_before: Callable[[Tensor], Tensor] = torch.zeros_like,
) -> Cut:
    """The cut that keeps max(1, ceil(share T)) of the T values, the smallest; of equal values the first.

    Args:
        passes: gives the values, each time it is called, as a sequence of tensors of any shape; NaN is not a value.
        share: of the values, in (0, 1].
        like: a tensor of the dtype and device of the values.
        add_up: sums counts over the processes that share the batch.
        add_before: sums a count over the processes that come before this one.
    """
    shifts = (48, 32, 16, 0) if like.dtype == torch.float64 else (16, 0)
    last = int(_keys(torch.tensor(torch.inf, dtype=like.dtype)) >> shifts[0]) + DIGITS // 2  # what is beyond is NaN
    prefix = torch.zeros((), dtype=torch.int64, device=like.device)
    rank = local = prefix  # rank of the wanted value among those with this prefix; how many equal ones are here
    for shift in shifts:
        counts = torch.zeros(DIGITS, dtype=torch.int64, device=like.device)
        for values in passes():
            keys = _keys(values.flatten())
            if shift != shifts[0]:
                keys = keys[(keys >> (shift + 16)) == prefix]
                digits = (keys >> shift) & (DIGITS - 1)
            else:
                digits = (keys >> shift) + DIGITS // 2
            counts += torch.bincount(digits, minlength=DIGITS)
        if shift == shifts[0]:
            counts[last + 1 :] = 0
        until = add_up(counts).cumsum(0)
        if shift == shifts[0]:
            total = int(until[-1])
            rank = prefix + min(total, max(1, math.ceil(round(share * total, 9))))
        digit = torch.searchsorted(until, rank)
        digit = digit.clamp_max(DIGITS - 1)
        rank = rank - torch.where(digit > 0, until[(digit - 1).clamp_min(0)], 0)
        local = counts[digit]
        prefix = digit - DIGITS // 2 if shift == shifts[0] else (prefix << 16) | digit
    ties = (rank - add_before(local)).clamp_min(0)
    return Cut(_values(prefix, like), ties, all_ties=bool(ties >= local))


def window(
    passes: Callable[[], Iterable[Tensor]], share: float, like: Tensor
) -> tuple[int, Tensor, Tensor] | Cut | None:
    """About where the cut lies: how many values come after it, and two ends `()` above 0 with the cut between them.

    The values are at least 0, and those above it are a little off. The ends are about a hundredth apart; where more
    than `MAX_STORED` values lie between them, another pass brings them nearer. The cut itself if it is 0; None where so
    many lie between the nearer ones, too. Arguments as of `smallest`, on a CPU.
    """
    shift, finer = (48, 34) if like.dtype == torch.float64 else (16, 10)
    last = int(_keys(torch.tensor(torch.inf, dtype=like.dtype)) >> shift)
    counts, zeros = torch.zeros(DIGITS // 2, dtype=torch.int64), 0
    for values in passes():
        zeros += values.numel() - int(torch.count_nonzero(values))
        counts += torch.bincount((_keys(values.flatten()) >> shift).clamp_min_(0), minlength=DIGITS // 2)
    until = counts[: last + 1].cumsum(0)
    total = int(until[-1])
    rank = min(total, max(1, math.ceil(round(share * total, 9))))
    if rank <= zeros:
        return Cut(torch.zeros_like(like[:0].sum()), torch.tensor(rank), all_ties=rank == zeros)
    digit = int(torch.searchsorted(until, rank))
    first, end = max(0, digit - 1), min(last, digit + 1) + 1  # a neighbour on either side
    keys = first << shift, end << shift
    if int(counts[first:end].sum()) - (zeros if first == 0 else 0) > MAX_STORED:
        nearer = _nearer(passes, rank - (int(until[first - 1]) if first else 0), keys, finer)
        if nearer is None:
            return None
        keys = nearer
    keys = max(1, keys[0]), min(keys[1] - 1, last << shift)  # at most infinity
    low, high = (torch.tensor(key, dtype=torch.int64) for key in keys)
    return total - rank, _values(low, like), _values(high, like)


def _nearer(
    passes: Callable[[], Iterable[Tensor]], rank: int, keys: tuple[int, int], shift: int
) -> tuple[int, int] | None:
    """Nearer ends around the value of a rank among those with a key from the first to before the second.

    None where more than `MAX_STORED` values lie between these, too.
    """
    first_key, end_key = keys
    counts = torch.zeros((end_key - first_key) >> shift, dtype=torch.int64)
    for values in passes():
        all_keys = _keys(values.flatten())
        all_keys = all_keys[(all_keys >= first_key) & (all_keys < end_key)]
        counts += torch.bincount((all_keys - first_key) >> shift, minlength=len(counts))
    digit = int(torch.searchsorted(counts.cumsum(0), rank))
    first, end = max(0, digit - 1), min(len(counts), digit + 2)
    if int(counts[first:end].sum()) > MAX_STORED:
        return None
    return first_key + (first << shift), first_key + (end << shift)


def smallest_within(passes: Iterable[Tensor], after: int, low: Tensor, high: Tensor) -> Cut | None:
    """The cut that so many values come `after`, if it lies between the ends `()`; None if it does not.

    Only values between them need be exact, and others on the right side of them. NaN is none.
    """
    stored, beyond = [], 0
    for values in passes:
        above = values >= low
        within = above & (values <= high)
        stored.append(values[within])
        beyond += int(torch.count_nonzero(above)) - len(stored[-1])
    near = torch.cat(stored).sort().values
    rank = len(near) + beyond - after
    if not 0 < rank <= len(near):
        return None
    value = near[rank - 1]
    ties = rank - (near < value).sum()
    return Cut(value, ties, all_ties=bool(ties >= (near == value).sum()))


def smallest_of(values: Tensor, share: float) -> Cut:
    """As `smallest` of values that are all held, by sorting them; on another device than a CPU nothing is read back."""
    total = values.numel() - values.isnan().sum()
    if device.read_freely(values):
        rank = torch.full_like(total, max(1, math.ceil(round(share * int(total), 9))))
    else:
        rank = (total * share).double().round(decimals=9).ceil().long().clamp_min(1)
    if values.numel() == 0:
        return Cut(values.new_zeros(()), torch.zeros_like(rank), all_ties=True)
    ordered = values.flatten().sort().values  # NaN last
    value = ordered.index_select(0, rank[None] - 1)[0]
    ties = rank - (values < value).sum()
    all_ties = device.read_freely(values) and bool(ties >= (values == value).sum())
    return Cut(value, ties, all_ties=all_ties)


def _keys(values: Tensor) -> Tensor:
    """Whole numbers in the order of the values."""
    kind = torch.int64 if values.dtype == torch.float64 else torch.int32
    bits = (values + 0.0).view(kind)  # no negative zero
    return bits ^ ((bits >> (torch.iinfo(kind).bits - 1)) & torch.iinfo(kind).max)


def _values(keys: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_keys`."""
    if like.dtype == torch.float64:
        return (keys ^ ((keys >> 63) & torch.iinfo(torch.int64).max)).view(torch.float64)
    return (keys ^ ((keys >> 63) & torch.iinfo(torch.int32).max)).to(torch.int32).view(torch.float32)
