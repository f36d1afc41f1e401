"""Distances between all items: diameter, mean and median over all pairs, and root mean square, which needs no pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.geometry import Array, as_rows
from trivet.progress import report

HELD = 1024  # rows up to which all distances are held at once
WHOLE = 20_000  # rows up to which all arithmetic is float64
BLOCK = (256, 1024)  # rows and columns compared at once: 1 MiB in float32, which stays in a cache
SAMPLE = 2**20  # pairs that tell where the median may lie
WIDTH = 6.0  # standard deviations of its rank in the sample, on either side
LIMITS = 8  # distances up to which pairs are counted in one pass over them
TOLERANCE = 1e-4  # of the median: how far apart two limits around it may be
RESOLUTION = 1e-7  # of the root mean square distance, likewise, for a median near 0
FLOOR = 0.05  # of the root mean square distance: a smaller median has lost digits to float32


@dataclass(frozen=True)
class Extent:
    """Of the distances of all pairs of different items, in the unit of the embeddings, >= 0."""

    diameter: float
    mean: float
    median: float  # the mean of the middle two where their number is even, to 1e-4 of itself
    root_mean_square: float


def root_mean_square_distance(embeddings: Array) -> float:
    """Root of the mean squared distance of all pairs of different rows, in O(N d).

    sum over pairs of |x - y|^2 = N sum |x - m|^2, with m the mean row.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.

    Raises:
        ValueError: if a row is not finite or N < 2.

    Example:
        >>> root_mean_square_distance(np.array([[0.0, 0.0], [3.0, 4.0]]))
        5.0
    """
    points = _centred(embeddings)
    return math.sqrt(2 * float(points.square().sum()) / (len(points) - 1))


def extent(embeddings: Array) -> Extent:
    """Diameter, mean, median and root mean square of the distances of all pairs.

    All N (N - 1) / 2 pairs count: nothing is sampled but where the median is looked for first. Up to 20,000 rows the
    arithmetic is float64, beyond float32, with an error of 1e-4 of a distance at most. Time O(N^2 d), memory O(N d).

    Args:
        embeddings: `(N, d)` floating point, N >= 2.

    Raises:
        ValueError: if a row is not finite or N < 2.

    Source:
        Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation Theorem", ICLR 2024,
        section 5 (diameter); the decision on the mean is ours, as one outlier sets the diameter.

    Example:
        >>> result = extent(np.array([[0.0], [1.0], [3.0]]))
        >>> f"{result.diameter:.3f} {result.mean:.3f} {result.median:.3f} {result.root_mean_square:.3f}"
        '3.000 2.000 2.000 2.160'
    """
    points = _centred(embeddings)
    typical = root_mean_square_distance(points)
    if not typical:
        return Extent(diameter=0.0, mean=0.0, median=0.0, root_mean_square=0.0)
    scaled = points / typical
    if len(points) <= HELD:
        ordered = torch.pdist(scaled).sort().values
        middle = ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]].mean()
        lengths = float(ordered[-1]), float(ordered.mean()), float(middle)
    else:
        lengths = _pairs(scaled if len(points) <= WHOLE else scaled.float())
        if len(points) > WHOLE and lengths[2] < FLOOR:
            lengths = _pairs(scaled)
    diameter, mean, median = (value * typical for value in lengths)
    return Extent(diameter=diameter, mean=mean, median=median, root_mean_square=typical)


def _centred(embeddings: Array) -> Tensor:
    points = as_rows(embeddings).cpu()
    if len(points) < 2:
        raise ValueError(f"distances need at least two items: got {len(points)}.")
    points = points - points[0]  # by a row and not the mean: equal rows become exactly 0
    return points - points.mean(dim=0)


def _pairs(points: Tensor) -> tuple[float, float, float]:
    """Diameter, mean and median."""
    count = len(points) * (len(points) - 1) // 2
    limits = _guess(points)
    first = _Pass(points, limits)
    known = [(-RESOLUTION / 2, 0), *zip(limits, first.counts, strict=True), (first.largest, count)]
    middle = []
    for rank in ((count - 1) // 2, count // 2):
        while True:
            known.sort()
            after = next(place for place, (_, below) in enumerate(known) if below > rank)
            (low, under), (high, upto) = known[after - 1], known[after]
            if high - low <= max(TOLERANCE * high, RESOLUTION):
                break
            limits = np.linspace(max(low, 0.0), high, LIMITS + 2)[1:-1].tolist()
            known += zip(limits, _Pass(points, limits).counts, strict=True)
        middle.append(low + (rank + 0.5 - under) / (upto - under) * (high - low))
    return first.largest, first.total / count, max(0.0, sum(middle) / 2)


class _Pass:
    """Over all pairs: the largest distance, their sum, and how many are at most each of some limits."""

    def __init__(self, points: Tensor, limits: Sequence[float]) -> None:
        self.largest, self.total, self.counts = 0.0, 0.0, [0] * len(limits)
        held = torch.empty(0, dtype=points.dtype)
        for distances in _upper_triangle(points):
            self.largest = max(self.largest, float(distances.amax()))
            self.total += float(distances.sum(dim=-1).sum(dtype=torch.float64))
            if held.shape != distances.shape:
                held = torch.empty_like(distances)
            for place, limit in enumerate(limits):
                # Written as 0 and 1 in the kind of the distances: many times faster to add up than bool.
                self.counts[place] += int(torch.le(distances, limit, out=held).sum())


def _guess(points: Tensor) -> list[float]:
    """Rising distances between the first and last of which the median lies, almost surely; the same for the same."""
    generator = np.random.default_rng(0)
    left = torch.from_numpy(generator.integers(len(points), size=SAMPLE))
    right = torch.from_numpy((left.numpy() + generator.integers(1, len(points), size=SAMPLE)) % len(points))
    distances = torch.empty(SAMPLE, dtype=points.dtype)
    step = max(1, 2**20 // points.shape[1])
    for start in range(0, SAMPLE, step):
        pairs = slice(start, start + step)
        apart = points.index_select(0, left[pairs]) - points.index_select(0, right[pairs])
        torch.linalg.vector_norm(apart, dim=1, out=distances[pairs])
    margin = int(WIDTH * 0.5 * math.sqrt(SAMPLE)) + 1
    places = torch.linspace(SAMPLE // 2 - margin, SAMPLE // 2 + margin, LIMITS).round().long()
    return sorted({float(value) for value in distances.sort().values[places]})


def _upper_triangle(points: Tensor) -> Iterator[Tensor]:
    """The distances of all pairs of different rows, block by block: `(B, M)`, or flat."""
    squares = points.square().sum(dim=1, keepdim=True)
    ones = torch.ones_like(squares)
    # One product gives the squared distance: (-2x, |x|^2, 1) . (y, 1, |y|^2).
    left, right = torch.cat([-2 * points, squares, ones], dim=1), torch.cat([points, ones, squares], dim=1).T
    held, count = points.new_empty(BLOCK), len(points)
    report("distances of pairs", 0, count * (count - 1) // 2)
    for start in range(0, len(points) - 1, BLOCK[0]):  # a last row has no row after it
        rows = left[start : start + BLOCK[0]]
        for first in range(start, len(points), BLOCK[1]):
            columns = right[:, first : first + BLOCK[1]]
            whole = len(rows) == BLOCK[0] and columns.shape[1] == BLOCK[1]
            squared = torch.mm(rows, columns, out=held) if whole else rows @ columns
            distances = squared.clamp_min_(0).sqrt_()
            if first == start:
                yield distances[torch.ones(distances.shape, dtype=torch.bool).triu_(1)]
            else:
                yield distances
        after = max(0, count - start - BLOCK[0])  # rows whose pairs are still to come
        report("distances of pairs", (count * (count - 1) - after * (after - 1)) // 2, count * (count - 1) // 2)
