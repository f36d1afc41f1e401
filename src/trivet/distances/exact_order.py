"""Exact choices in the rows of a large matrix of distances, in a few passes and without sorting.

A row is cut into chunks. One pass gives a number for each chunk, its smallest entry or its count, and only one chunk
of each row is looked at more closely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from trivet.distances.threads import single_thread
from trivet.runtime.lazy import lazy

CHUNK = 64
AT_ONCE = 2**17  # numbers that are worked on in one operation, rather than one slot after the other
FEW = 8 * CHUNK  # columns of a row that is looked at as a whole


@dataclass(frozen=True)
class RoundedDistances:
    """A matrix of distances that rounding may have changed, and what they are exactly.

    Matrix products say where to look: entries that rounding may have brought to either side of a limit, or before each
    other, are computed again one by one, and decide.

    Attributes:
        exact: gives the exact ones of rows and columns `(K,)`; None where the values are exact.
    """

    values: Tensor  # (B, M); infinite for what is never chosen
    exact: Callable[[Tensor, Tensor], Tensor] | None
    reach: Tensor  # (B, 1), at least half of any of them that is finite
    share: float  # times `reach` is more than any of them is off, and 0 where none is

    def settle(self, limits: Tensor) -> None:
        """Write the exact values over those that may lie on the wrong side of one of the limits `(B, S)` of the row."""
        slots, size = limits.shape[1], self.values.shape[1]
        if self.exact is None or slots == 0 or size == 0:
            return
        if slots * self.values.numel() <= AT_ONCE:
            limits = torch.minimum(limits, 4 * self.reach)  # large ones would round more than the values
            gaps = (self.values[:, None] - limits[:, :, None]).abs_()
            gaps = gaps[:, 0] if slots == 1 else gaps.amin(dim=1)
            self._settle(slice(None), gaps)
            return
        limits = limits.clamp(-4 * self.reach, 4 * self.reach)
        # Passes over part of the rows at once, which stays in the cache; one or two of them do not pay for it.
        rows = len(limits) if slots <= 2 else max(1, 4 * AT_ONCE // size)
        with single_thread(AT_ONCE):
            for first in range(0, len(limits), rows):
                some = slice(first, first + rows)
                gaps = self._gaps(some, limits[some, :2])
                for slot in range(2, slots, 2):
                    torch.minimum(gaps, self._gaps(some, limits[some, slot : slot + 2]), out=gaps)
                self._settle(some, gaps)

    def settle_between(self, low: Tensor, high: Tensor) -> None:
        """Write the exact values over those that may lie between `low` and `high (B, 1)`, or on either end."""
        if self.exact is None:
            return
        low, high = (end.clamp(-4 * self.reach, 4 * self.reach) / 2 for end in (low, high))
        self._settle(slice(None), (self.values - (low + high)).abs_().sub_(high - low))

    def _settle(self, some: slice, gaps: Tensor) -> None:
        """Write the exact values over those of some rows whose `gaps` to a limit are within the error."""
        row, column = _below(gaps, self.reach[some] * self.share)
        if len(row):
            self._rewrite(row + some.start if some.start else row, column)

    def _rewrite(self, row: Tensor, column: Tensor) -> None:
        assert self.exact is not None
        self.values.index_put_((row, column), self.exact(row, column).to(self.values.dtype))

    @lazy
    def _slack(self) -> Tensor:
        """Return how far above the smallest value of a row `(B, 1)` the one may stand that is exactly the smallest."""
        return self.reach * (2 * self.share)

    def _gaps(self, some: slice, limits: Tensor) -> Tensor:
        """Return how far the values of some rows are from the nearer of one or two limits `(B, S)`."""
        if limits.shape[1] == 1:
            return (self.values[some] - limits).abs_()
        low, high = limits[:, :1] / 2, limits[:, 1:] / 2
        return (self.values[some] - (low + high)).abs_().sub_((high - low).abs_()).abs_()

    def settle_smallest(self, penalty: Tensor | None) -> None:
        """Write the exact values over those that may be the smallest of their row once the penalty is added."""
        if self.exact is not None:
            self._rewrite(*_near_smallest(self.values if penalty is None else self.values + penalty, self._slack))

    def nearest(self, number: int, *, farthest: bool = False) -> Tensor:
        """As `nearest_few` of the exact values; with `farthest` from the far end, as infinite entries are none."""
        values = self.values.neg() if farthest else self.values
        if farthest:  # nearest first in -D; what is none, at -inf, must come last instead
            values = torch.threshold_(values, torch.finfo(values.dtype).min, torch.inf)
        elif number > 1 and self.exact is not None:
            values = values.clone()
        return self._nearest(values, number, -1 if farthest else 1)

    def nearest_of(self, values: Tensor, number: int) -> Tensor:
        """Columns of the nearest finite entries of `values (B, M)`, which has the matrix's order and is overwritten."""
        return self._nearest(values, number, 1, shifted=True)

    def _nearest(self, values: Tensor, number: int, sign: int, *, shifted: bool = False) -> Tensor:
        if self.exact is None:
            return nearest_few(values, number)
        columns: list[Tensor] = []
        for rank in range(number):
            if rank:
                values.scatter_(1, columns[-1], torch.inf)
            columns.append(self._first(values, sign, shifted))
        return columns[0] if number == 1 else torch.cat(columns, dim=1)

    def _first(self, values: Tensor, sign: int, shifted: bool) -> Tensor:
        assert self.exact is not None
        row, column = _near_smallest(values, self._slack)
        if len(row) == len(values) and torch.equal(row, torch.arange(len(row), device=row.device)):
            return column[:, None]
        if len(row) > 4 * len(values):  # where rounding cannot matter nothing is computed: all rows may be equal
            rounded = self.reach[row, 0] > 0
            exact = values.new_zeros(len(row))
            exact[rounded] = self.exact(row[rounded], column[rounded])
        else:
            exact = self.exact(row, column)
        exact = exact if sign == 1 else -exact
        if values.shape[1] < FEW:
            if shifted:
                values = torch.full_like(values, torch.inf)  # otherwise what is not near the smallest stays above
            return values.index_put_((row, column), exact.to(values.dtype)).argmin(dim=1, keepdim=True)
        least = exact.new_full((len(values),), torch.inf).scatter_reduce_(0, row, exact, "amin")
        candidates = column.where(exact == least[row], values.shape[1])
        index = torch.zeros(len(values), dtype=torch.int64, device=row.device)
        return index.scatter_reduce_(0, row, candidates, "amin", include_self=False)[:, None]


def _below(values: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns `(K,)` of the entries of `values (B, M)` below the limits `(B, 1)` of their rows, in order."""
    if values.shape[1] < FEW:
        row, column = (values < limits).nonzero(as_tuple=True)
        return row, column
    chunks = _chunks(values, torch.inf)
    row, chunk = (chunks.amin(dim=2) < limits).nonzero(as_tuple=True)
    hit, lane = (chunks[row, chunk] < limits[row]).nonzero(as_tuple=True)
    return row[hit], chunk[hit] * CHUNK + lane


def _near_smallest(values: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns `(K,)`, in order, of finite entries at most `slack (B, 1)` above the smallest of their row."""
    most = torch.finfo(values.dtype).max
    if values.shape[1] < FEW:
        limits = (values.amin(dim=1, keepdim=True) + slack).clamp_max_(most)
        row, column = (values <= limits).nonzero(as_tuple=True)
        return row, column
    chunks = _chunks(values, torch.inf)
    least = chunks.amin(dim=2)  # (B, C)
    limits = (least.amin(dim=1, keepdim=True) + slack).clamp_max_(most)
    row, chunk = (least <= limits).nonzero(as_tuple=True)
    hit, lane = (chunks[row, chunk] <= limits[row]).nonzero(as_tuple=True)
    return row[hit], chunk[hit] * CHUNK + lane


def nearest(values: Tensor) -> Tensor:
    """The column `(B, 1)` of the smallest of `values (B, M)`, M >= 1; the lowest of tied ones."""
    if values.shape[1] < FEW:
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


def ranges(values: Tensor, low: Tensor | None, high: Tensor) -> Ranges | FewRanges:
    """Find, for each row of `values (B, M)` and each slot, the columns in an open interval; see `Ranges`."""
    few = high.shape[1] * values.numel() <= AT_ONCE
    return FewRanges(values, low, high) if few else Ranges(values, low, high)


class FewRanges:
    """As `Ranges`, all slots and columns at once."""

    def __init__(self, values: Tensor, low: Tensor | None, high: Tensor) -> None:
        inside = values[:, None] < high[:, :, None]  # (B, S, M)
        if low is not None:
            inside &= values[:, None] > low[:, :, None]
        self._until = inside.cumsum(dim=2)

    @property
    def count(self) -> Tensor:
        """Return how many columns there are for each slot, `(B, S)`."""
        return self._until[:, :, -1]

    def column(self, rank: Tensor) -> Tensor:
        """The column of this rank, from the left, for each slot `(B, S)`; where there is none it means nothing."""
        return (self._until <= rank[:, :, None]).sum(dim=2).clamp_max(self._until.shape[2] - 1)


class Ranges:
    """Columns whose value lies in an open interval, for each row of `values (B, M)` and each slot.

    Args:
        low: `(B, S)` exclusive lower ends, or None for none.
        high: `(B, S)` exclusive upper ends; not above low means an empty interval.
    """

    def __init__(self, values: Tensor, low: Tensor | None, high: Tensor) -> None:
        self._chunked = _chunks(values, torch.inf)  # (B, C, 64)
        self._low, self._high, self._size = low, high, values.shape[1]
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
        """Return how many columns there are for each slot, `(B, S)`."""
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
        return (chunk[:, :, 0] * CHUNK + passed.sum(dim=2)).clamp_max(self._size - 1)


def band_counts(values: Tensor, low: Tensor | None, high: Tensor) -> tuple[Tensor, Tensor]:
    """Number of `values (B, M)` in the open interval of each slot, `(B, S)`, and of intervals around each, `(B, M)`.

    As floats; `low` and `high (B, S)` are the ends, without `low` there is no lower one.
    """
    slots, (size, columns) = high.shape[1], values.shape
    if slots * values.numel() <= AT_ONCE:
        inside = values[:, None] < high[:, :, None]  # (B, S, M)
        if low is not None:
            inside &= values[:, None] > low[:, :, None]
        return inside.sum(dim=2, dtype=values.dtype), inside.sum(dim=1, dtype=values.dtype)
    counts, holders = torch.empty_like(high), torch.empty_like(values)
    rows = max(1, AT_ONCE // columns)
    above, below = (torch.empty_like(values[:rows]) for _ in range(2))
    with single_thread(AT_ONCE):
        for first in range(0, size, rows):
            some = slice(first, first + rows)
            block, number = values[some], holders[some].zero_()
            inside = below[: len(block)]
            for slot in range(slots):
                torch.lt(block, high[some, slot : slot + 1], out=inside)
                if low is not None:
                    inside *= torch.gt(block, low[some, slot : slot + 1], out=above[: len(block)])
                torch.sum(inside, dim=1, out=counts[some, slot])
                number += inside
    return counts, holders


def weighted(weights: Tensor, uniform: Tensor) -> Tensor:
    """Columns `(B, S)` drawn with probability proportional to `weights (B, M)`, one for each of `uniform (B, S)`.

    M >= 1. Means nothing for a row without a positive weight.
    """
    if weights.shape[1] < FEW:
        until = weights.cumsum(dim=1, dtype=torch.float64)  # (B, M)
        column = torch.searchsorted(until, uniform.clamp_max(1 - 2**-40) * until[:, -1:], right=True)
        return column.clamp_max(weights.shape[1] - 1)
    chunks = _chunks(weights, 0)
    until = chunks.sum(dim=2).double().cumsum(dim=1)  # (B, C)
    target = uniform.clamp_max(1 - 2**-40) * until[:, -1:]
    chunk = torch.searchsorted(until, target, right=True).clamp_max(until.shape[1] - 1)  # (B, S)
    start = torch.where(chunk > 0, until.gather(1, (chunk - 1).clamp_min(0)), 0)
    share = ((target - start) / (until.gather(1, chunk) - start)).clamp(0, 1 - 2**-40)  # of the way through the chunk
    inside = _take(chunks, chunk).double().cumsum(dim=2)  # (B, S, 64)
    column = chunk * CHUNK + (inside <= share[:, :, None] * inside[:, :, -1:]).sum(dim=2).clamp_max(CHUNK - 1)
    return column.clamp_max(weights.shape[1] - 1)


def _chunks(values: Tensor, fill: float) -> Tensor:
    """`(B, C, 64)`, the last chunk filled up."""
    missing = -values.shape[1] % CHUNK
    full: Tensor = pad(values, (0, missing), value=fill) if missing else values
    return full.view(len(values), full.shape[1] // CHUNK, CHUNK)


def _take(chunks: Tensor, chunk: Tensor) -> Tensor:
    """The chunks `(B, S, 64)` with the numbers `chunk (B, S)`."""
    return chunks.gather(1, chunk[:, :, None].expand(-1, -1, CHUNK))
