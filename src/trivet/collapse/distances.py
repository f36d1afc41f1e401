"""Distances between all items: diameter, mean and median over all pairs, and root mean square, which needs no pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.distances import Array, as_rows
from trivet.distances.threads import share
from trivet.metrics.points import distances_of_pairs
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import report

STORED = 5000  # rows up to which all distances are held at once: 100 MB
LOST = 1e-6  # squared distance over the squared lengths, below which a product has lost too many digits
FEW = 16  # where more than 1/16 of the pairs are so near, all are found by differences
DOUBLE_PRECISION = 20_000  # rows up to which all arithmetic is float64
BLOCK = (256, 1024)  # rows and columns compared at once: 1 MiB in float32, which stays in a cache
SAMPLE = 2**20  # pairs that tell where the median may lie
PAIRED = 4096  # rows all pairs of which tell how many places are occupied
SPOT, WIDE_SPOT = 0.02, 0.1  # of the mean distance: two items nearer than this are on one spot
WIDTH = 6.0  # standard deviations of its rank in the sample, on either side
BINS = 1024  # that one pass counts the pairs in
SPARSE = 16  # where fewer than 1/16 of the pairs are in them, these are taken out first
TOLERANCE = 1e-4  # of the median: how wide the bin that it is in may be
RESOLUTION = 1e-7  # of the root mean square distance, likewise, for a median near 0
FLOOR = 0.05  # of the root mean square distance: a smaller median has lost digits to float32


@dataclass(frozen=True)
class Extent:
    """Summary of the distances of all pairs of different items, in the unit of the embeddings, >= 0."""

    diameter: float
    mean: float
    median: float  # the mean of the middle two where their number is even, to 1e-4 of itself
    root_mean_square: float


def root_mean_square_distance(embeddings: Array) -> float:
    """Root of the mean squared distance of all pairs of different rows, in O(N d).

    sum over pairs of |x - y|^2 = N sum |x - m|^2, with m the mean row.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.

    Example:
        >>> root_mean_square_distance(np.array([[0.0, 0.0], [3.0, 4.0]]))
        5.0
    """
    points = _checked(embeddings)
    return math.sqrt(2 * float(points.square().sum()) / (len(points) - 1))


def extent(embeddings: Array) -> Extent:
    """Diameter, mean, median and root mean square of the distances of all pairs.

    All N (N - 1) / 2 pairs count: nothing is sampled but where the median is looked for first. Up to 20,000 rows the
    arithmetic is float64, beyond float32, with an error of 1e-4 of a distance at most. Time O(N^2 d), memory O(N d).

    Args:
        embeddings: `(N, d)` floating point, N >= 2.

    Source:
        Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation Theorem", ICLR 2024,
        section 5 (diameter); the decision on the mean is ours, as one outlier sets the diameter.

    Example:
        >>> result = extent(np.array([[0.0], [1.0], [3.0]]))
        >>> f"{result.diameter:.3f} {result.mean:.3f} {result.median:.3f} {result.root_mean_square:.3f}"
        '3.000 2.000 2.000 2.160'
    """
    points = _checked(embeddings)
    typical = root_mean_square_distance(points)
    if not typical:
        return Extent(diameter=0.0, mean=0.0, median=0.0, root_mean_square=0.0)
    scaled = points / typical
    if len(points) <= STORED:
        lengths_of = pair_distances(scaled).numpy()
        lengths = float(lengths_of.max()), float(lengths_of.mean()), float(np.median(lengths_of))
    else:
        lengths = _pairs(scaled if len(points) <= DOUBLE_PRECISION else scaled.float())
        if len(points) > DOUBLE_PRECISION and lengths[2] < FLOOR:
            lengths = _pairs(scaled)
    diameter, mean, median = (value * typical for value in lengths)
    return Extent(diameter=diameter, mean=mean, median=median, root_mean_square=typical)


def centred(points: Tensor) -> Tensor:
    """The rows less their mean, by a row first: equal rows become exactly 0, and those of a collapse keep digits."""
    points = points - points[0]
    return points - points.mean(dim=0)


def about_sides(points: Tensor, sides: Sequence[Integers]) -> Tensor:
    """The rows, where there are two sides less the mean of their side: these may lie apart, which is no shape.

    Args:
        points: `(N, d)`.
        sides: the rows of each side, or all.
    """
    if len(sides) < 2:
        return points
    about = torch.empty_like(points)
    for rows in sides:
        about[rows] = centred(points[rows])
    return about


def relative_spread(points: Tensor, shape: Tensor) -> float:
    """Relative spread of rows `(N, d)`, in [0, 1]: the deviation from their mean over the norm; 0 if all are 0.

    Args:
        shape: the rows, or these about their sides.
    """
    largest = float(points.abs().max()) or 1.0  # beside which squares are numbers
    squares = float((points / largest).square().sum())
    return math.sqrt(min(1.0, float(centred(shape / largest).square().sum()) / squares)) if squares else 0.0


def pair_distances(embeddings: Array) -> Tensor:
    """Distances `(N (N - 1) / 2,)` float64 of all pairs, those of the first row first; equal rows are at exactly 0.

    By products, many times as fast as the differences of `torch.pdist`, to 1e-9 of a distance; pairs that are too near
    to each other for that, by differences.

    Args:
        embeddings: `(N, d)` floating point.
    """
    points = as_rows(embeddings).cpu()
    count = len(points) * (len(points) - 1) // 2
    if not count:
        return torch.empty(0, dtype=torch.float64)
    points = centred(points)
    squares = points.square().sum(dim=1)
    distances, filled = torch.empty(count, dtype=torch.float64), 0
    entries = distances.numpy()  # the same memory: rows are copied sooner
    near: list[Tensor] = []  # of each block, positions, rows and columns of the pairs that are found by differences
    for start in range(0, len(points) - 1, BLOCK[0]):
        rows = slice(start, start + BLOCK[0])
        lengths = squares[rows, None] + squares[start:]
        squared = torch.addmm(lengths, points[rows], points[start:].T, alpha=-2)
        row, column = (squared <= LOST * lengths).triu(1).nonzero().T
        before = row * squared.shape[1] - row * (row + 1) // 2  # entries of the rows above
        near.append(torch.stack([filled + before + column - row - 1, start + row, start + column]))
        if sum(pairs.shape[1] for pairs in near) * FEW > count:
            return torch.pdist(points)
        for number, values in enumerate(squared.numpy(), 1):
            end = filled + len(values) - number
            entries[filled:end], filled = values[number:], end
    distances.clamp_min_(0).sqrt_()
    positions, left, right = torch.cat(near, dim=1)
    distances[positions] = distances_of_pairs(points, left, points, right)
    return distances


def _checked(embeddings: Array) -> Tensor:
    points = as_rows(embeddings).cpu()
    if len(points) < 2:
        raise ValueError(f"distances need at least two items: got {len(points)}.")
    return centred(points)


def _pairs(points: Tensor) -> tuple[float, float, float]:
    """Diameter, mean and median."""
    count = len(points) * (len(points) - 1) // 2
    first = _Pass(points, *_guess(points))
    middle = []
    for rank in ((count - 1) // 2, count // 2):
        histogram = first
        while True:
            low, high, under, upto = histogram.at_rank(rank)
            if high - low <= max(TOLERANCE * high, RESOLUTION):
                break
            histogram = _Pass(points, max(2 * low - high, -RESOLUTION / 2), 2 * high - low)  # bins have rounded ends
        middle.append(low + (rank + 0.5 - under) / (upto - under) * (high - low))
    return first.largest, first.total / count, max(0.0, sum(middle) / 2)


class _Pass:
    """Over all pairs: the largest distance, their sum, and how many are in each of some bins between two limits.

    Args:
        points: `(N, d)`.
        low, high: the limits, low < high.
    """

    def __init__(self, points: Tensor, low: float, high: float) -> None:
        self.low, self.high = torch.tensor([low, high], dtype=points.dtype).tolist()
        self.count = len(points) * (len(points) - 1) // 2
        self.largest, self.total, self.below = 0.0, 0.0, 0
        # A pair between limits so close is known well enough.
        narrow = self.high - self.low <= max(TOLERANCE * self.high, RESOLUTION)
        self.bins = torch.zeros(1 if narrow else BINS, dtype=torch.int64)
        squares = points.square().sum(dim=1, keepdim=True)
        unit = torch.ones_like(squares)
        # One product gives the squared distance: (-2x, |x|^2, 1) . (y, 1, |y|^2).
        self._left = torch.cat([-2 * points, squares, unit], dim=1)
        self._right = torch.cat([points, unit, squares], dim=1).T
        report("distances of pairs", 0, self.count)
        share(range(0, len(points) - 1, BLOCK[0]), self._row, self._take)  # a last row has no row after it

    def at_rank(self, rank: int) -> tuple[float, float, int, int]:
        """Two distances between which that of this rank lies, and how many pairs are below each of them."""
        reached = self.below + int(self.bins.sum())
        if rank < self.below:
            return -RESOLUTION / 2, self.low, 0, self.below
        if rank >= reached:
            return self.high, max(self.high, self.largest), reached, self.count
        upto = self.below + self.bins.cumsum(0)
        number = int(torch.searchsorted(upto, rank, right=True))
        under, width = int(upto[number] - self.bins[number]), (self.high - self.low) / len(self.bins)
        return self.low + number * width, self.low + (number + 1) * width, under, int(upto[number])

    def _take(self, start: int, row: tuple[float, float, int, Tensor]) -> None:
        largest, total, below, bins = row
        self.largest = max(self.largest, largest)
        self.total += total
        self.below += below
        self.bins += bins
        after = max(0, len(self._left) - start - BLOCK[0])  # rows whose pairs are still to come
        report("distances of pairs", self.count - after * (after - 1) // 2, self.count)

    def _row(self, start: int) -> tuple[float, float, int, Tensor]:
        """Largest distance, sum and histogram of the pairs of a block of rows with all later rows."""
        largest, total, below, bins = 0.0, 0.0, 0, torch.zeros_like(self.bins)
        rows = self._left[start : start + BLOCK[0]]
        buffer = rows.new_empty(len(rows) * BLOCK[1])
        for first in range(start, len(self._left), BLOCK[1]):
            columns = self._right[:, first : first + BLOCK[1]]
            squared = torch.mm(rows, columns, out=buffer[: len(rows) * columns.shape[1]].view(len(rows), -1))
            distances = squared.clamp_min_(0).sqrt_()
            if first == start:
                distances = distances[torch.ones(distances.shape, dtype=torch.bool).triu_(1)]
            largest = max(largest, float(distances.amax()))
            total += float(distances.sum(dim=-1).sum(dtype=torch.float64))
            lengths = distances.numpy().ravel()
            above = lengths > self.low
            below += len(lengths) - int(np.count_nonzero(above))
            above &= lengths <= self.high
            between = int(np.count_nonzero(above))
            if len(bins) == 1:
                bins += between
                continue
            some = distances  # bins leave out what is outside them
            if between * SPARSE < len(lengths):
                some = torch.from_numpy(lengths[np.flatnonzero(above)])
            bins += torch.histc(some, BINS, self.low, self.high).long()
        return largest, total, below, bins


def _guess(points: Tensor) -> tuple[float, float]:
    """Two distances between which the median lies, almost surely; the same for the same points."""
    generator = np.random.default_rng(0)
    left = torch.from_numpy(generator.integers(len(points), size=SAMPLE))
    right = torch.from_numpy((left.numpy() + generator.integers(1, len(points), size=SAMPLE)) % len(points))
    distances = torch.empty(SAMPLE, dtype=points.dtype)
    step = max(1, 2**20 // points.shape[1])
    for start in range(0, SAMPLE, step):
        pairs = slice(start, start + step)
        differences = points.index_select(0, left[pairs]) - points.index_select(0, right[pairs])
        torch.linalg.vector_norm(differences, dim=1, out=distances[pairs])
    margin = int(WIDTH * 0.5 * math.sqrt(SAMPLE)) + 1
    ordered = distances.sort().values
    low, high = (float(ordered[SAMPLE // 2 + sign * margin]) for sign in (-1, 1))
    # Equal distances by products differ a little.
    return low * (1 - TOLERANCE / 4) - RESOLUTION / 2, high * (1 + TOLERANCE / 4)


def occupied_spots(embeddings: Array, *, within: float = SPOT, seed: int = 0) -> float:
    """1 over the chance that two items lie nearer to each other than a share of the mean distance, in [1, N].

    For m equally full spots it is about m, for m classes that are points each, of any sizes, what `effective_classes`
    is; for a spread-out set N. Over the pairs of 4,096 random rows where there are more.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        within: the share, 2 % by default.
        seed: of the rows that are drawn.
    """
    return occupied_within(as_rows(embeddings).cpu(), (within,), seed)[0]


def occupied_within(points: Tensor, widths: Sequence[float], seed: int) -> list[float]:
    """`occupied_spots` for several shares of the mean distance."""
    count = len(points)
    if count > PAIRED:
        points = points[torch.from_numpy(np.random.default_rng(seed).permutation(count)[:PAIRED])]
    distances = pair_distances(points)
    mean = distances.mean()
    shares = [float((distances <= width * mean).double().mean()) for width in widths]
    return [min(float(count), 1 / near) if near else float(count) for near in shares]
