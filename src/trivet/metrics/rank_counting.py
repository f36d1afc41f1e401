"""Keys that order as distances do: how many of each row are below a bound, and which are in doubt."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.metrics.points import spans
from trivet.runtime.arrays import Booleans, Integers

ROWS = 64  # compared by one thread at once: 1 MiB of a tile
RARE = 128  # pairs rarer than 1 in 128 are taken one by one
COMPARED = 2  # positives with more pairs within reach that all keys are compared with: for a third, sorting is faster


class SortedCodes:
    """Keys `(B, n)` as integers that order as they do, rounded, with their columns in the last bits; rows sorted.

    To sort these is several times faster than to sort numbers of places, and tells which columns are where as well.

    Args:
        keys: float32, all between `least` and `largest`.
        out: int32, the memory for the codes.
    """

    def __init__(self, keys: Tensor, out: Tensor, least: float, largest: float) -> None:
        self.bits = max(12, (keys.shape[1] - 1).bit_length())
        self.most = 2 ** (31 - self.bits) - 1
        self.scale = float(np.float32((self.most - 1) / ((largest - least) / 2)))
        self.middle = round((largest + least) / 2 * self.scale)
        self.sorted = out
        columns = torch.arange(keys.shape[1], dtype=torch.int32)
        for start, stop in spans(len(keys), ROWS):
            block = self._of(keys[start:stop], columns, self.sorted[start:stop])
            block.numpy().sort(axis=1)

    def _of(self, keys: Tensor, columns: Tensor, out: Tensor) -> Tensor:
        """The codes of keys in these columns, both of the shape of `out` or broadcast to it."""
        rounded = torch.mul(keys, self.scale, out=out.view(torch.float32))
        # In floats of this size the last bits count ones; the bits before them are shifted out.
        rounded.add_(1.5 * 2**23 - self.middle)
        return out.bitwise_left_shift_(self.bits).add_(columns)

    def of_pairs(self, keys: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """The codes `(P,)` of some keys."""
        return self._of(keys[rows, columns], columns.int(), torch.empty(len(rows), dtype=torch.int32))

    def of_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Codes `(B, R)` below which keys are surely below `low`, and above which they are surely above `high`.

        A rounded key is off by at most 1/2 and, of the product with the scale, another 1/16.
        """
        lows = (low.double() * self.scale - self.middle).floor().clamp(-self.most - 1, self.most)
        highs = (high.double() * self.scale - self.middle).ceil().clamp(-self.most - 1, self.most)
        step = 1 << self.bits
        return (lows.long() * step).int(), (highs.long() * step + step - 1).int()

    def columns(self, codes: Tensor) -> Tensor:
        """The columns `(P,)` of some codes."""
        return (codes & (1 << self.bits) - 1).long()


def sorted_counts(keys: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Count the keys of each row `(B, n)` below `low (B, R)`, and those at most `high (B, R)`, both rising in a row."""
    rows = torch.from_numpy(np.sort(keys.numpy(), axis=1))  # several times faster than torch
    below = torch.searchsorted(rows, low)
    # Few rows have a key between the two: where the next one is above both, both counts are the same.
    following = rows.gather(1, below.clamp_max(rows.shape[1] - 1))
    some = ((following <= high) & (following >= low)).any(dim=1).nonzero()[:, 0]
    reached = below.clone()
    reached[some] = torch.searchsorted(rows[some], high[some], right=True)
    return below, reached


def many_within_reach(keys: npt.NDArray[np.float32], high: npt.NDArray[np.float32]) -> bool:
    """Return whether too many keys, by a sixteenth of the rows, are within reach of more than a few of the
    positives."""
    if high.shape[1] <= COMPARED:
        return False
    reach = keys[::16] <= high[::16, -1 - COMPARED, None]
    return int(np.count_nonzero(reach)) * RARE > reach.size


Doubtful = tuple[
    Integers, Integers, int, int
]  # rows and columns of pairs, in doubt for some of the positives from .. to


def count_rows(
    keys: npt.NDArray[np.float32], low: npt.NDArray[np.float32], high: npt.NDArray[np.float32], first: int
) -> tuple[Integers, list[Doubtful]]:
    """Keys of each row `(n, T)` surely below each of R positives, and the pairs in doubt; `first` numbers the rows.

    From the farthest positive on, until so few keys are within reach that they are taken one by one. In numpy, on rows
    that stay in a cache: torch takes three times as long to compare.
    """
    counts = np.zeros(low.shape, dtype=np.int64)
    reach, sure = (np.empty(keys.shape, dtype=np.bool_) for _ in range(2))
    doubt = np.zeros(keys.shape, dtype=np.bool_)
    doubtful: list[Doubtful] = []
    left = low.shape[1]  # positives still to be counted
    while left:
        np.less_equal(keys, high[:, left - 1, None], out=reach)
        if np.count_nonzero(reach) * RARE <= keys.size:
            break
        np.less(keys, low[:, left - 1, None], out=sure)
        counts[:, left - 1] = _count(sure)
        np.bitwise_xor(reach, sure, out=sure)
        doubt |= sure
        left -= 1
    if left < low.shape[1]:
        row, column = np.divmod(np.flatnonzero(doubt), keys.shape[1])  # in one dimension numpy skips what is false
        doubtful.append((row + first, column, left, low.shape[1]))
    if left:
        row, column = np.divmod(np.flatnonzero(reach), keys.shape[1])
        key = keys[row, column, None]
        nearer = key < low[row, :left]
        for number in range(left):
            counts[:, number] = np.bincount(row[nearer[:, number]], minlength=len(keys))
        some = (nearer != (key <= high[row, :left])).any(axis=1)
        doubtful.append((row[some] + first, column[some], 0, left))
    return counts, doubtful


def _count(mask: Booleans) -> Integers:
    """True entries of each row: eight at once, as the bytes of one number, which hold 255."""
    rows, columns = mask.shape
    if columns % 8:
        return np.asarray(np.count_nonzero(mask, axis=1), dtype=np.int64)
    eights = mask.view(np.int64)
    counts = np.zeros(rows, dtype=np.int64)
    for start, stop in spans(eights.shape[1], 255):
        counts += (
            np.add.reduce(eights[:, start:stop], axis=1).view(np.uint8).reshape(rows, 8).sum(axis=1, dtype=np.int64)
        )
    return counts
